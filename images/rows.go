package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// rowVersion is the format of the rows. A store of a newer one is refused, not guessed at.
const rowVersion = 1

const (
	imageKey = "image/" // + ID
	layerKey = "layer/" // + chain ID
)

// imageRow says that an image is READY: it is written last, when all of the image is safely on disk.
type imageRow struct {
	V int `json:"v"`
	// Seq grows with every change of names: of two rows that claim one name the higher has it. A clock would
	// not do; boards without one start in 1970.
	Seq       uint64     `json:"seq"`
	ID        string     `json:"id"`
	Names     []string   `json:"names,omitempty"`
	Digests   []string   `json:"digests,omitempty"`
	Layers    []layerRef `json:"layers"`
	Documents []string   `json:"documents"` // blobs: config, manifest
	Size      int64      `json:"size"`
	Pinned    bool       `json:"pinned,omitempty"`
	Source    *source    `json:"source,omitempty"` // of a built-in image
	CreatedAt time.Time  `json:"createdAt"`
	Config    Config     `json:"config"`
}

// layerRef is a layer as an image uses it.
type layerRef struct {
	Chain  string `json:"chain"` // names the layer: this one over those below it
	DiffID string `json:"diffID"`
	Blob   string `json:"blob,omitempty"` // what it can be unpacked from again, if that was kept
	From   string `json:"from,omitempty"` // the blob it was unpacked from, kept or not
}

// layerRow says that a layer is READY. The same bytes lie beside the layer's tree, for the day the row is lost.
type layerRow struct {
	V        int    `json:"v"`
	Chain    string `json:"chain"`
	DiffID   string `json:"diffID"`
	Manifest string `json:"manifest"` // digest of the layer's manifest
	Bytes    int64  `json:"bytes"`
	Entries  int    `json:"entries"`
}

// source tells a binary from another without reading it.
type source struct {
	Dev, Ino uint64
	Size     int64
	MTime    int64 // ns
}

func (r *imageRow) image() Image {
	img := Image{ID: r.ID, Names: slices.Clone(r.Names), Digests: slices.Clone(r.Digests), Size: r.Size,
		Pinned: r.Pinned, CreatedAt: r.CreatedAt, Config: r.Config.clone()}
	img.Layers = r.chains()
	return img
}

// chains are the layers of an image, lowest first.
func (r *imageRow) chains() (out []string) {
	for _, l := range r.Layers {
		out = append(out, l.Chain)
	}
	return out
}

// clone is a copy that shares nothing that can be written to.
func (r *imageRow) clone() *imageRow {
	c := *r
	c.Names, c.Digests, c.Documents = slices.Clone(r.Names), slices.Clone(r.Digests), slices.Clone(r.Documents)
	c.Layers = slices.Clone(r.Layers)
	return &c
}

func (c Config) clone() Config {
	c.Entrypoint, c.Cmd, c.Env = slices.Clone(c.Entrypoint), slices.Clone(c.Cmd), slices.Clone(c.Env)
	c.Volumes = slices.Clone(c.Volumes)
	c.Labels = maps.Clone(c.Labels)
	return c
}

// blobs are all blobs an image needs.
func (r *imageRow) blobs() []string {
	list := slices.Clone(r.Documents)
	for _, l := range r.Layers {
		if l.Blob != "" {
			list = append(list, l.Blob)
		}
	}
	return list
}

// check refuses a row whose strings could not have been written here: they become file names.
func (r *imageRow) check(key string) error {
	if err := checkVersion(r.V); err != nil {
		return err
	}
	ok := imageKey+r.ID == key && ValidDigest(r.ID)
	for _, b := range r.blobs() {
		ok = ok && ValidDigest(b)
	}
	for _, l := range r.Layers {
		ok = ok && ValidDigest(l.Chain) && ValidDigest(l.DiffID) && (l.From == "" || ValidDigest(l.From))
	}
	if !ok {
		return fmt.Errorf("image row %s is not sound", key)
	}
	return nil
}

func (r *layerRow) check(key string) error {
	if err := checkVersion(r.V); err != nil {
		return err
	}
	if layerKey+r.Chain != key || !ValidDigest(r.Chain) {
		return fmt.Errorf("layer row %s is not sound", key)
	}
	return nil
}

// newerError is about the store as a whole, unlike a damaged row.
type newerError int

func (e newerError) Error() string {
	return fmt.Sprintf("image store has rows of format %d; this ledge knows only %d", int(e), rowVersion)
}

func checkVersion(v int) error {
	if v > rowVersion {
		return newerError(v)
	}
	if v < 1 {
		return errors.New("row has no format")
	}
	return nil
}

// decode reads a row of either kind.
func decode(key string, value []byte, into interface{ check(string) error }) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("row %s: %w", key, err)
	}
	return into.check(key)
}

// chains names each layer by what it stands on, as the OCI text has it.
func chains(diffIDs []string) []string {
	var out []string
	for i, d := range diffIDs {
		if i > 0 {
			h := sha256.Sum256([]byte(out[i-1] + " " + d))
			d = "sha256:" + hex.EncodeToString(h[:])
		}
		out = append(out, d)
	}
	return out
}

// hexOf is a digest as a file name. Only digests that went through ValidDigest come here.
func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }
