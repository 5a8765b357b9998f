package pki

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"
)

// Revocations live as long as the CA that they take something back from, and so beside it: a backup of the store from before a
// board was stolen, once restored, must not let the thief in. The store has them too, so that either may be lost.
const revokedFile = "revoked.json"

// revocation is a key that is worth nothing any more, whatever is signed for it.
type revocation struct {
	Node string    `json:"node"`
	Key  []byte    `json:"key"` // SHA-256 of the public key
	At   time.Time `json:"at"`

	Token string `json:"token,omitempty"` // that the board has joined with, which has ended too
}

// BoardInfo is what is known of a board that has joined.
type BoardInfo struct {
	Name    string    `json:"name"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"` // the end of its certificate
	Revoked time.Time `json:"revoked,omitzero"`
	Token   string    `json:"token,omitempty"` // that it has joined with
}

// loadRevoked joins what the file says with what the store says.
func (j *Joins) loadRevoked() error {
	path := filepath.Join(j.a.dir, revokedFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read which boards are revoked: %w", err)
	}
	missing := false
	if err == nil {
		if err := json.Unmarshal(data, &j.revoked); err != nil {
			slog.Error("the list of revoked boards is damaged: what the store says of them counts alone", "path", path, "err", err)
			j.revoked, missing = nil, true
		}
	}
	for name, row := range j.boards {
		if !row.Revoked.IsZero() && j.revocationOf(row.Key) == nil {
			j.revoked = append(j.revoked, revocation{name, row.Key, row.Revoked, row.Token})
			missing = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.boards)) { // a store from before a key had one name
		if r := j.revocationOf(j.boards[name].Key); r != nil && !j.revokedAs(name, r.Key) {
			j.revoked = append(j.revoked, revocation{name, r.Key, r.At, j.boards[name].Token})
			missing = true
		}
	}
	if missing {
		if err := j.saveRevoked(j.revoked); err != nil {
			slog.Error("the list of revoked boards cannot be kept beside the CA", "err", err) // the store has it
		}
	}
	return j.endTokens()
}

// endTokens ends what an old backup has brought back.
func (j *Joins) endTokens() error {
	if len(j.revoked) == 0 {
		return nil
	}
	rows, err := j.tokenRows()
	for _, r := range j.revoked {
		if _, there := rows[r.Token]; there {
			err = errors.Join(err, j.cfg.Tokens.Delete(r.Token))
		}
	}
	return err
}

func (j *Joins) saveRevoked(list []revocation) error {
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(j.a.dir, revokedFile), data)
}

// revocationOf is that of a key; nil: there is none. The caller holds mu.
func (j *Joins) revocationOf(key []byte) *revocation {
	for i := range j.revoked {
		if bytes.Equal(j.revoked[i].Key, key) {
			return &j.revoked[i]
		}
	}
	return nil
}

// revokedAs says whether a key was revoked under a name. The caller holds mu.
func (j *Joins) revokedAs(name string, key []byte) bool {
	return slices.ContainsFunc(j.revoked, func(r revocation) bool { return r.Node == name && bytes.Equal(r.Key, key) })
}

// Names are all names that the key of a board has joined under, its own too. One key has one name (Sign), but not in a store from
// before that rule.
func (j *Joins) Names(name string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	row, found := j.boards[name]
	if !found {
		return []string{name}
	}
	return j.names(row.Key)
}

// names: the caller holds mu.
func (j *Joins) names(key []byte) (out []string) {
	for name, row := range j.boards {
		if bytes.Equal(row.Key, key) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// spent refuses a key that was revoked. The caller holds mu.
func (j *Joins) spent(publicKey []byte) error {
	sum := sha256.Sum256(publicKey)
	r := j.revocationOf(sum[:])
	if r == nil {
		return nil
	}
	return refuse("the key of this board was revoked on %s: it can join with a new key only (remove the directory board/ below its "+
		"data directory, and give it a new token)", r.At.UTC().Format(time.DateOnly))
}

// Revoke makes the key of a board worth nothing, for good and under every name, and ends the token that it has joined with, which
// may lie on its card. The name may be had by another key, as that of any board (Sign).
func (j *Joins) Revoke(name string) (BoardInfo, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	row, found := j.boards[name]
	switch {
	case name == j.cfg.Own:
		return BoardInfo{}, refuse("%q is the control plane's own board", name)
	case !found:
		return BoardInfo{}, refuse("no board named %q has joined here; 'ledge node ls' names them", name)
	}
	list := slices.Clone(j.revoked)
	at := j.a.Now()
	if r := j.revocationOf(row.Key); r != nil {
		at = r.At
	}
	names := j.names(row.Key)
	for _, n := range names {
		if !j.revokedAs(n, row.Key) {
			list = append(list, revocation{n, row.Key, at, j.boards[n].Token})
		}
	}
	if len(list) > len(j.revoked) {
		if err := j.saveRevoked(list); err != nil {
			return BoardInfo{}, fmt.Errorf("revoke %s: %w", name, err)
		}
		j.revoked = list // from here on it is, whatever fails below
	}
	for _, n := range names {
		row := j.boards[n]
		row.Revoked = at
		j.boards[n] = row
		if err := put(j.cfg.Boards, n, row); err != nil {
			return BoardInfo{}, fmt.Errorf("revoke %s: %w", n, err)
		}
	}
	if err := j.endTokens(); err != nil {
		return BoardInfo{}, fmt.Errorf("end the token of %s: %w", name, err)
	}
	return j.boards[name].info(name), nil
}

// Revoked says whether a board of this name was ever revoked, under this name or another, and whether no other has joined under the
// name since.
func (j *Joins) Revoked(name string) (ever, still bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.ContainsFunc(j.revoked, func(r revocation) bool { return r.Node == name }) {
		return false, false
	}
	row, found := j.boards[name]
	return true, !found || j.revocationOf(row.Key) != nil
}

// Boards is every board that has joined, and every one that was revoked, by name.
func (j *Joins) Boards() []BoardInfo {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []BoardInfo{}
	for name, row := range j.boards {
		if r := j.revocationOf(row.Key); r != nil {
			row.Revoked = r.At
		}
		out = append(out, row.info(name))
	}
	for _, r := range j.revoked {
		if !bytes.Equal(j.boards[r.Node].Key, r.Key) {
			out = append(out, BoardInfo{Name: r.Node, Revoked: r.At})
		}
	}
	sort.Slice(out, func(i, j int) bool { // the generic one is 12 KB for each type
		return cmp.Or(cmp.Compare(out[i].Name, out[j].Name), out[i].Since.Compare(out[j].Since)) < 0
	})
	return out
}

func (r boardRow) info(name string) BoardInfo {
	return BoardInfo{Name: name, Since: r.Since, Until: r.Until, Revoked: r.Revoked, Token: r.Token}
}
