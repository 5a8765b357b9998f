package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Claims of the card's own class, which come and go while the power does. Each has a pod, a row that was flushed, and a file that fills it
// to the brim. The row is a thing of its own for the host: what was flushed into a claim is there as long as the claim is.

const (
	shelf      = "/var/lib/ledge/claims"
	row, brim  = "row", "brim"
	smallClaim = 4 << 20
	largeClaim = 12 << 20
	claims     = "persistentvolumeclaims"
)

// lasting is the guest as it works on claims.
type lasting struct{ *guest }

// volume has the fields that this program reads of claims and their volumes.
type volume struct {
	Metadata struct{ Name, UID, DeletionTimestamp string }
	Spec     struct {
		VolumeName string
		ClaimRef   struct{ Name, UID string }
		Capacity   struct{ Storage string }
		Resources  struct{ Requests struct{ Storage string } }
	}
	Status struct {
		Phase    string
		Capacity struct{ Storage string }
	}
}

func (g lasting) volumes(path string) ([]volume, error) {
	data, err := g.ask("GET", path, nil)
	var l struct{ Items []volume }
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l.Items, err
}

func (g lasting) allVolumes() (ofClaims, ofNode []volume, err error) {
	ofClaims, err = g.volumes(objects + claims)
	if err == nil {
		ofNode, err = g.volumes("/api/v1/persistentvolumes")
	}
	return ofClaims, ofNode, err
}

// claimsSettled returns nil when each claim has its volume, of the size that it asked for, and there is none beside those.
func (g lasting) claimsSettled() error {
	ofClaims, ofNode, err := g.allVolumes()
	if err != nil {
		return err
	}
	for _, c := range ofClaims {
		if c.Metadata.DeletionTimestamp != "" || c.Status.Phase != "Bound" || c.Status.Capacity.Storage != c.Spec.Resources.Requests.Storage {
			return fmt.Errorf("claim %+v", c)
		}
	}
	if len(ofNode) != len(ofClaims) {
		return fmt.Errorf("%d claims and %d volumes", len(ofClaims), len(ofNode))
	}
	dirs, err := os.ReadDir(shelf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range dirs {
		if strings.HasPrefix(d.Name(), ".") {
			return fmt.Errorf("%s is there still", d.Name())
		}
	}
	return nil
}

// tellClaims prints the claims, what is in them, and whatever is wrong with them on the card.
func (g lasting) tellClaims() error {
	ofClaims, ofNode, err := g.allVolumes()
	if err != nil {
		return err
	}
	of := map[string]string{}
	for _, v := range ofNode {
		of[v.Metadata.Name] = v.Spec.ClaimRef.UID
	}
	here := map[string]bool{}
	for _, c := range ofClaims {
		dir := c.Spec.VolumeName
		if of[dir] != c.Metadata.UID || here[dir] {
			g.host.say("fault", "claim", c.Metadata.Name, "has the volume", dir, "which is", of[dir], "or has it twice")
		}
		here[dir] = true
		g.host.say("have", claims, c.Metadata.Name, c.Spec.Resources.Requests.Storage)
		text, err := os.ReadFile(filepath.Join(shelf, dir, row))
		switch {
		case err == nil:
			g.host.say("have", "rows", c.Metadata.Name, string(text))
		case !errors.Is(err, fs.ErrNotExist):
			g.host.say("fault", err)
		}
		if err := sized(filepath.Join(shelf, dir), bytesOf(c.Status.Capacity.Storage)); err != nil {
			g.host.say("fault", err)
		}
	}
	dirs, err := os.ReadDir(shelf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range dirs {
		if !here[d.Name()] {
			g.host.say("fault", "the directory", d.Name(), "is nobody's")
		}
	}
	g.host.say("claims", len(ofClaims))
	return nil
}

func bytesOf(quantity string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(quantity, "Mi"), 10, 64)
	if err != nil {
		return -1
	}
	return n << 20
}

// sized says whether a directory is held to so many bytes, and whether the kernel counts what lies there.
func sized(dir string, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if size := int64(st.Blocks) * st.Bsize; size != bytes {
		return fmt.Errorf("%s is held to %d bytes, %d are right", dir, size, bytes)
	}
	lie := int64(0)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		lie += st.Blocks * 512
		return err
	})
	if counted := min(int64(st.Blocks-st.Bfree)*st.Bsize, bytes); err == nil && counted != min(lie, bytes) {
		err = fmt.Errorf("in %s lie %d bytes, and the kernel counts %d", dir, lie, counted)
	}
	return err
}

// changeClaim makes a claim that is not there, and fills one, makes it larger or deletes it where it is.
func (g lasting) changeClaim(r *rand.Rand) error {
	name := fmt.Sprintf("v%d", r.IntN(3))
	path := objects + claims + "/" + name
	data, err := g.ask("GET", path, nil)
	if refused(err, http.StatusNotFound) {
		return g.makeClaim(name)
	}
	var c volume
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return err
	}
	dir, size := filepath.Join(shelf, c.Spec.VolumeName), bytesOf(c.Spec.Resources.Requests.Storage)
	switch n := r.IntN(8); {
	case n < 3:
		return g.writeRow(name, dir)
	case n < 5:
		return fill(filepath.Join(dir, brim), size)
	case n < 7 && size < largeClaim:
		return g.growClaim(name, path, size+1<<20)
	}
	return g.deleteClaim(name, path)
}

func (g lasting) makeClaim(name string) error {
	size := fmt.Sprintf("%dMi", smallClaim>>20)
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],`+
		`"resources":{"requests":{"storage":%q}}}}`, name, size)
	if _, err := g.change(claims, name, size, "POST", objects+claims, body); err != nil {
		return err
	}
	if err := g.makeHolder(name); err != nil {
		return err
	}
	return wait(3*time.Minute, g.claimBound(name, size))
}

// makeHolder makes the pod that has a claim, without which nobody says on which board it is to be.
func (g lasting) makeHolder(claim string) error {
	_, err := g.ask("GET", objects+"pods/hold-"+claim, nil)
	if !refused(err, http.StatusNotFound) {
		return err
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"hold-%[1]s"},"spec":{"terminationGracePeriodSeconds":1,`+
		`"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":%[1]q}}],"containers":[{"name":"c","image":"ledge.local/self",`+
		`"command":["/bin/sleep","1h"],"volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`, claim)
	_, err = g.change("pods", "hold-"+claim, "there", "POST", objects+"pods", body)
	return err
}

func (g lasting) claimBound(name, size string) func() error {
	return func() error {
		data, err := g.ask("GET", objects+claims+"/"+name, nil)
		var c volume
		if err == nil {
			err = json.Unmarshal(data, &c)
		}
		if err == nil && (c.Status.Phase != "Bound" || c.Status.Capacity.Storage != size) {
			err = fmt.Errorf("claim %s is to be %s: %+v", name, size, c)
		}
		return err
	}
}

// writeRow writes what has to be there from now on, as a database does: beside the old one, flushed, renamed, flushed.
func (g lasting) writeRow(claim, dir string) error {
	text := strconv.FormatInt(time.Now().UnixMicro(), 10)
	n := g.try("rows", claim, text)
	next := filepath.Join(dir, "next")
	f, err := os.Create(next)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, row)); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	g.host.say("ack", n, 0)
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fill writes until the kernel refuses, as containers are run: without the capability for which it knows no bounds.
func fill(path string, size int64) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- fillHere(path, size)
	}()
	return <-done
}

func fillHere(path string, size int64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	written, block := int64(0), make([]byte, 64<<10)
	for written <= size {
		n, err := f.Write(block)
		if written += int64(n); errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%s took %d bytes, its claim has %d", path, written, size)
}

func (g lasting) growClaim(name, path string, size int64) error {
	text := fmt.Sprintf("%dMi", size>>20)
	body := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, text)
	if _, err := g.change(claims, name, text, "PATCH", path, body); err != nil {
		return err
	}
	return wait(3*time.Minute, g.claimBound(name, text))
}

// deleteClaim deletes a claim with its pod, and waits until it has gone.
func (g lasting) deleteClaim(name, path string) error {
	n := g.try("rows", name, absent)
	if _, err := g.change(claims, name, absent, "DELETE", path, nil); err != nil {
		return err
	}
	g.host.say("ack", n, 0)
	if _, err := g.change("pods", "hold-"+name, absent, "DELETE", objects+"pods/hold-"+name, nil); err != nil && !refused(err, http.StatusNotFound) {
		return err
	}
	return wait(3*time.Minute, func() error {
		_, err := g.ask("GET", path, nil)
		if refused(err, http.StatusNotFound) {
			return nil
		}
		return fmt.Errorf("claim %s does not go: %w", name, err)
	})
}

// mendClaims finishes what the cut left of this worker's: a claim without a pod, which nobody takes to a board, or one whose deletion has
// not come to its pod.
func (g lasting) mendClaims() error {
	ofClaims, err := g.volumes(objects + claims)
	if err != nil {
		return err
	}
	for _, c := range ofClaims {
		name := c.Metadata.Name
		if c.Metadata.DeletionTimestamp == "" {
			if err := g.makeHolder(name); err != nil {
				return err
			}
			continue
		}
		_, err := g.change("pods", "hold-"+name, absent, "DELETE", objects+"pods/hold-"+name, nil)
		if err != nil && !refused(err, http.StatusNotFound) {
			return err
		}
	}
	return nil
}
