package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ledge/api"
	"ledge/api/kinds"
)

// The errors callers test for. CheckChild carries their words from one process to another.
var (
	ErrNotFound = errors.New("not found")
	ErrDamaged  = errors.New("the stored data is damaged")
	// ErrValues is damage to single values in a file that is otherwise sound.
	ErrValues = fmt.Errorf("%w in single values", ErrDamaged)
	ErrGone   = errors.New("the revision is no longer held")
	ErrInUse  = errors.New("another ledge holds this data directory")
	ErrSchema = errors.New("the store was written by a newer ledge")
	ErrBroken = errors.New("the store stopped after a disk error")
	ErrFull   = errors.New("the store has reached its size limit")

	errClosed = errors.New("the store is closed")
)

// Config says where a store is and how it behaves. The zero value of everything but Dir is right for a board.
type Config struct {
	Dir              string
	Kinds            *api.Kinds    // nil: those of a board
	NoSync           bool          // simulation only: a power cut then loses everything
	MaxSize          int           // bytes the file may grow to; 0: 64 MiB
	RingSize         int           // changes kept for watchers; 0: 4096
	RingBytes        int           // and what they may weigh as JSON; 0: 4 MiB
	LazyInterval     time.Duration // lazy writes reach the disk at least this often; 0: 6 h (and events of a busy moment soon after it)
	SnapshotInterval time.Duration // 0: 6 h
	// Rehearse is for tests: every function of an Update is run once for nothing before it counts, which must not show.
	Rehearse bool
	// Check verifies a file before it is opened. It should do so in another process (CheckChild); nil checks in
	// this one.
	Check func(ctx context.Context, path string) error
}

func (c Config) path(name ...string) string {
	return filepath.Join(append([]string{c.Dir}, name...)...)
}

func (c *Config) setDefaults() error {
	if c.Kinds == nil {
		c.Kinds = kinds.All
	}
	if c.Dir == "" {
		return errors.New("open store: no directory given")
	}
	for p, def := range map[*int]int{&c.MaxSize: 64 << 20, &c.RingSize: 4096, &c.RingBytes: 4 << 20} {
		if *p == 0 {
			*p = def
		}
	}
	for p, def := range map[*time.Duration]time.Duration{&c.LazyInterval: 6 * time.Hour, &c.SnapshotInterval: 6 * time.Hour} {
		if *p == 0 {
			*p = def
		}
	}
	if c.Check == nil {
		c.Check = func(_ context.Context, path string) error { return Check(path) }
	}
	return nil
}

// Store is an open store.
//
// Locks: writing orders writers, who take it by queue or lockAlone (group.go), and is held over the disk writes. mu guards what a
// transaction begins from, and is never held over a disk write or a wait, so that readers do not wait for the
// disk. The parts have their own. Order: writing, mu, those of parts.
type Store struct {
	cfg     Config
	lock    *os.File
	ring    *ring
	db      *bolt.DB
	file    *os.File // that db works on
	buckets *buckets // of db
	id      string
	lineage string
	rev     atomic.Uint64 // last handed out and published

	condition *condition
	ballast   *ballast
	copies    *copies
	held      weights // of the values in the file, by namespace

	deleted map[string]bool // of objects, by bucket and key, where the log of a broken lineage says so

	waiting atomic.Int32 // for writing
	writing sync.Mutex
	open    *group // in which the next writer joins; nil: it begins one
	ceiling *ceiling
	log     *redoLog
	pieces  freePieces
	wedged  bool // bbolt panicked in a write and still holds its locks

	mu     sync.Mutex
	ended  sync.Cond            // on mu: a commit has ended
	txid   int                  // of the bbolt transaction that rev and lazy belong to
	lazy   map[string]lazyWrite // replaced, never changed
	left   chan struct{}        // capacity 1: a commit left events behind
	closed bool
}

func newStore(cfg Config, lock *os.File) *Store {
	s := &Store{cfg: cfg, lock: lock, buckets: &buckets{}, condition: newCondition()}
	s.lazy, s.left = map[string]lazyWrite{}, make(chan struct{}, 1)
	s.ended.L = &s.mu
	s.ballast = &ballast{dir: cfg.path(ballastDir), broken: func() bool { return s.condition.failure() != nil }}
	s.ballast.light.Store(true)
	s.ceiling = &ceiling{path: cfg.path(ceilingName), disk: cfg.disk(), noSync: cfg.NoSync, ballast: s.ballast}
	s.copies = &copies{cfg: cfg}
	return s
}

// lazyWrite is a value that is true in memory and not yet on disk.
type lazyWrite struct {
	kind  *api.Kind
	obj   api.Object
	raw   []byte
	since time.Time // when the file became older than memory
}

// lazyGather is how long lazy writes wait for more of their kind before a commit takes them along: while much happens at once, each commit
// would write the pages of events and counts once more.
const lazyGather = 2 * time.Second

// young says that no lazy write has waited long.
func young(lazy map[string]lazyWrite, now time.Time) bool {
	for _, l := range lazy {
		if now.Sub(l.since) >= lazyGather {
			return false
		}
	}
	return true
}

// told says that something is lazy which was new to those who read it, such as an event: it is not to wait for long.
func told(lazy map[string]lazyWrite) bool {
	for _, l := range lazy {
		if l.kind.Lazy {
			return true
		}
	}
	return false
}

// Health tells the state of the store.
func (s *Store) Health() Health { return s.condition.report() }

// Revision is the newest revision.
func (s *Store) Revision() uint64 { return s.rev.Load() }

// ID is the store's own name, made with it and kept over restore.
func (s *Store) ID() string { return s.id }

// Kinds are those that it keeps.
func (s *Store) Kinds() *api.Kinds { return s.cfg.Kinds }

// View reads. fn sees one moment of the store, with the lazy writes of that moment. fn must not begin another transaction: a commit that
// makes the file larger waits for all that are open, and keeps new ones waiting.
func (s *Store) View(fn func(*Tx) error) error {
	tx, err := s.begin()
	if err != nil {
		return fmt.Errorf("read store: %w", err)
	}
	defer func() { _ = tx.b.Rollback() }() // a read: nothing to lose
	return fn(tx)
}

// begin returns a transaction in which bbolt and memory agree. bbolt shows a commit a moment before the commit has
// ended; a reader who comes in that moment waits, so that nobody sees a write that may still fail.
func (s *Store) begin() (*Tx, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil, errClosed
		}
		b, err := s.db.Begin(false)
		if err != nil {
			return nil, err
		}
		if b.ID() == s.txid || s.condition.failure() != nil {
			rev := s.rev.Load()
			return &Tx{s: s, b: b, buckets: s.buckets, rev: rev, base: rev, lazy: s.lazy}, nil
		}
		if err := b.Rollback(); err != nil {
			return nil, err
		}
		s.ended.Wait()
	}
}

// Run flushes lazy writes, takes snapshots and keeps the ballast until ctx ends. It returns an error when the store is broken: the
// process should end then, and be started again.
func (s *Store) Run(ctx context.Context) error {
	const first = time.Minute // most damage is found at boot: the copy must not wait for hours
	flush, snap := time.NewTicker(s.cfg.LazyInterval), time.NewTimer(min(first, s.cfg.SnapshotInterval))
	ballast, soon := time.NewTicker(ballastEvery), time.NewTimer(lazyGather)
	defer flush.Stop()
	defer soon.Stop()
	defer snap.Stop()
	defer ballast.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.condition.failed:
			return s.condition.writable()
		case <-s.left:
			soon.Reset(lazyGather)
		case <-flush.C:
			if err := s.Flush(); err != nil {
				s.condition.note(err)
			}
		case <-soon.C:
			if err := s.Flush(); err != nil {
				s.condition.note(err)
			}
		case <-ballast.C:
			last = s.tryTakeIn(last)
		case <-s.log.full:
			snap.Reset(0)
		case <-snap.C:
			next := s.cfg.SnapshotInterval
			if err := s.Snapshot(ctx); err != nil && ctx.Err() == nil {
				s.condition.note(err)
				next = min(first, next)
			}
			snap.Reset(next)
		}
	}
}

// Flush commits the lazy writes.
func (s *Store) Flush() error {
	s.lockAlone()
	defer s.writing.Unlock()
	return s.flush()
}

func (s *Store) flush() error {
	if s.isClosed() || len(s.lazyCopy()) == 0 || s.condition.failure() != nil {
		return nil
	}
	return s.commit(&Tx{s: s, rev: s.rev.Load(), durable: true})
}

// Close flushes, closes and marks the shutdown as clean. Watches end.
func (s *Store) Close() error {
	s.lockAlone()
	defer s.writing.Unlock()
	err := s.flush()
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	s.ring.close()
	err = errors.Join(err, s.closeFile(), s.log.close())
	if err == nil && s.condition.failure() == nil {
		err = s.cfg.disk().Replace(s.cfg.path(cleanName), nil, 0o600)
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Store) lazyCopy() map[string]lazyWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.lazy)
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// closeFile closes bbolt, or when that would wait for its own dead transaction for ever, only the file and its lock.
func (s *Store) closeFile() error {
	if s.wedged { // the mapping lives on, and would keep the lock
		return errors.Join(unix.Flock(int(s.file.Fd()), unix.LOCK_UN), s.file.Close())
	}
	return s.db.Close()
}
