package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"ledge/internal/durable"
	"ledge/network/plan"
)

// records are what a restarted process needs to know: one small file per pod, and one of what pods share. They are
// written whole and renamed, not synced: they need not outlive the boot, and a record of another boot is void.
type records struct{ dir, boot, bridge string }

type podRecord struct {
	Boot  string
	Entry plan.Entry
}

type sharedRecord struct {
	Boot       string
	CIDR       netip.Prefix
	CIDR6      netip.Prefix
	Forwarding []string       // interfaces that forward only because of us
	Forward6   bool           // IPv6 is forwarded only because of us
	Uplinks6   []string       // by these interfaces
	Routes     []netip.Prefix `json:",omitempty"` // to other boards' pods
}

func (r records) shared() string { return filepath.Join(r.dir, "shared.json") }
func (r records) pod(uid string) string {
	return filepath.Join(r.dir, "pod-"+linkName(r.bridge, uid)+".json")
}

func (r records) readShared() (out sharedRecord, found bool) {
	if err := readJSON(r.shared(), &out); err != nil || out.Boot != r.boot {
		return sharedRecord{}, false
	}
	return out, true
}

func (r records) writeShared(s sharedRecord) error {
	s.Boot = r.boot
	return r.write(r.shared(), s)
}

// readPods gives the pods of this boot. A damaged record is as none: the kernel knows the address, Attach the rest.
func (r records) readPods() ([]plan.Entry, error) {
	names, err := filepath.Glob(filepath.Join(r.dir, "pod-*.json"))
	if err != nil {
		return nil, fmt.Errorf("list records of pods: %w", err)
	}
	var out []plan.Entry
	for _, name := range names {
		var p podRecord
		if err := readJSON(name, &p); err == nil && p.Boot == r.boot && p.Entry.Addr.IsValid() {
			out = append(out, p.Entry)
		}
	}
	return out, nil
}

func (r records) writePod(e plan.Entry) error {
	return r.write(r.pod(e.Pod.UID), podRecord{Boot: r.boot, Entry: e})
}

func (r records) removePod(uid string) error {
	if err := os.Remove(r.pod(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record of pod: %w", err)
	}
	return nil
}

// remove deletes all records, and the directory if nothing else is in it.
func (r records) remove() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove records of pods: %w", err)
	}
	others := false
	for _, e := range entries {
		if e.Name() != "shared.json" && !strings.HasPrefix(e.Name(), "pod-") {
			others = true
			continue
		}
		if err := os.Remove(filepath.Join(r.dir, e.Name())); err != nil {
			return fmt.Errorf("remove records of pods: %w", err)
		}
	}
	if others {
		return nil
	}
	if err := os.Remove(r.dir); err != nil {
		return fmt.Errorf("remove records of pods: %w", err)
	}
	return nil
}

func (r records) write(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("make directory for records of pods: %w", err)
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := durable.Volatile.Replace(path, data, 0o600); err != nil {
		return fmt.Errorf("record pods: %w", err)
	}
	return nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
