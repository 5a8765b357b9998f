package storage

import (
	"crypto/rand"
	"errors"
	"os"

	"ledge/api"
)

// lineageName is the file that names the lineage of a store.
const lineageName = "line"

// Lineage names the unbroken run of writes that the store goes on with. Another name means that writes may be missing which
// had been acknowledged: what somebody remembers under the old name, and the store does not know, was lost or deleted.
func (s *Store) Lineage() string { return s.lineage }

// LogDeleted says whether the log, of a store whose lineage was broken at this opening, has the deletion of an object.
func (s *Store) LogDeleted(kind *api.Kind, namespace, name string) bool {
	return s.deleted[string(bucketName(kind))+"\x00"+string(keyOf(namespace, name))]
}

// takeLineage reads the name of the lineage, and gives a new one where it was broken.
func (o *opener) takeLineage() error {
	c := o.condition
	broken := c.health.Restored != "" && !c.health.Complete || c.health.LogMissing || len(c.quarantined) > 0
	data, err := os.ReadFile(o.cfg.path(lineageName))
	if err == nil && len(data) > 0 && !broken {
		o.lineage = string(data)
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if broken {
		o.readDeletions()
	}
	o.lineage = rand.Text()
	return o.ballast.with(func() error { return o.cfg.disk().Replace(o.cfg.path(lineageName), []byte(o.lineage), 0o600) })
}

// breakLine has the next opening begin another.
func (o *opener) breakLine() error {
	if err := removeIfThere(o.cfg.path(lineageName)); err != nil {
		return err
	}
	return o.cfg.disk().SyncDir(o.cfg.Dir)
}

// readDeletions notes what the log says last of each object.
func (o *opener) readDeletions() {
	o.deleted = map[string]bool{}
	for _, s := range o.segments {
		for _, r := range s.records {
			for _, c := range r.changes {
				o.deleted[string(c.bucket)+"\x00"+string(c.key)] = c.raw == nil
			}
		}
	}
}
