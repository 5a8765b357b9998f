package storage

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Health is what an operator should know of the store.
type Health struct {
	Made        bool      // by this opening; there was none before
	Unclean     bool      // the store before this opening was not closed
	Restored    string    // the snapshot that replaced a damaged file
	LogMissing  bool      // there is no log where there was one: the newest writes may be missing
	Replayed    int       // transactions that were put back from the log
	Complete    bool      // after Restored: nothing that was acknowledged is lost
	Damaged     string    // where the damaged file was kept
	Repaired    []string  // values that were damaged and were put back, exactly, from a snapshot
	Quarantined []string  // values whose checksum did not hold
	LastError   error     // of the last commit, nil when it succeeded
	Broken      error     // why no more writes are taken, until ledge is started again
	Snapshot    time.Time // of the newest verified snapshot
	Commits     int       // since it was opened: each costs the card 16-25 KB
}

// condition is how a store is, and whether it may write.
type condition struct {
	mu          sync.Mutex
	health      Health // an opening writes it freely: nobody else has the store yet
	quarantined map[string]bool
	broken      error
	failed      chan struct{} // closed when broken is set
}

func newCondition() *condition {
	return &condition{quarantined: map[string]bool{}, failed: make(chan struct{})}
}

func (c *condition) report() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.health
	h.Broken = c.broken
	h.Repaired = slices.Clone(h.Repaired)
	for slot := range c.quarantined {
		h.Quarantined = append(h.Quarantined, spoken(slot))
	}
	slices.Sort(h.Quarantined)
	return h
}

func spoken(slot string) string { return strings.ReplaceAll(slot, "\x00", " ") }

func (c *condition) quarantine(slot string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.quarantined[slot] {
		c.quarantined[slot] = true
		slog.Error("a stored value is damaged and left out", "value", spoken(slot))
	}
}

// heard takes keys that were written anew out of quarantine.
func (c *condition) heard(tx *Tx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot := range tx.staged {
		delete(c.quarantined, slot)
	}
}

// note keeps the outcome of a commit for Health.
func (c *condition) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health.LastError = err
	if err == nil {
		c.health.Commits++
	}
}

// copied notes that there is a verified snapshot of now.
func (c *condition) copied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health.Snapshot = time.Now()
}

// fail stops all writing. After a failed fsync the kernel takes the pages for clean, so another try proves nothing
// (reliability A2); only a new process, which reads and checks the file again, can say what is true.
func (c *condition) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken, c.health.LastError = err, err
		close(c.failed)
	}
}

// failure is why the store is broken, nil while it is not.
func (c *condition) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// writable says whether a write may begin.
func (c *condition) writable() error {
	if err := c.failure(); err != nil {
		return fmt.Errorf("%w: %w; restart ledge so that the file is read and checked again", ErrBroken, err)
	}
	return nil
}

// guard turns what bbolt does about a page that went bad under it, a panic or a fault, into an error.
func (c *condition) guard(err *error) func() {
	was := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(was)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %v", ErrDamaged, p)
			c.fail(*err)
		}
	}
}
