package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// options are bbolt's, as reliability asks for them: each commit is synced, and the file has a greatest size. No list of free pages is on
// disk, which saves a page for each commit. bbolt then makes it by a walk over all pages; that is safe, since the file is checked before
// it is opened.
func (c Config) options() *bolt.Options {
	// A mapping that never has to move never waits for readers. The 32-bit boards have no space to spare for that.
	initial := c.MaxSize
	if strconv.IntSize == 32 {
		initial = min(initial, 16<<20)
	}
	return &bolt.Options{Timeout: 5 * time.Second, NoSync: c.NoSync, NoGrowSync: false, NoFreelistSync: true,
		FreelistType: bolt.FreelistArrayType, MaxSize: c.MaxSize, InitialMmapSize: initial, Mlock: false}
}

// openFile also hands out the descriptor, which bbolt keeps to itself.
func (c Config) openFile(path string) (db *bolt.DB, file *os.File, err error) {
	opts := c.options()
	opts.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		file = f
		return f, err
	}
	db, err = bolt.Open(path, 0o600, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, openError(err))
	}
	db.AllocSize = 1 << 20 // bbolt keeps this much of MaxSize unused
	return db, file, nil
}

// Open opens the store of a directory, making it at the very first time and repairing it where it can.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	before, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if _, err := cfg.setAside(lockName); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	lock, err := lockDir(cfg.Dir, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := newStore(cfg, lock)
	o := &opener{Store: s}
	if err := o.run(ctx); err != nil {
		if s.db != nil {
			err = errors.Join(err, s.closeFile(), s.log.close())
		}
		if s.condition.health.Made {
			err = errors.Join(err, cfg.unmake(before))
		}
		return nil, errors.Join(fmt.Errorf("open store %s: %w", cfg.Dir, err), lock.Close())
	}
	return s, nil
}

// unmake removes what an opening has made that could not make a store: the next one is as good as the first. It has the lock.
func (c Config) unmake(before []os.DirEntry) error {
	now, err := os.ReadDir(c.Dir)
	for _, e := range now {
		if !slices.ContainsFunc(before, func(b os.DirEntry) bool { return b.Name() == e.Name() }) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(c.Dir, e.Name())))
		}
	}
	if len(before) == 0 && err == nil {
		err = os.Remove(c.Dir)
	}
	return err
}

// opener is the one-time work of opening.
type opener struct {
	*Store
	sick     bool      // single values of the file are damaged
	segments []segment // of the log, as found
	stale    bool      // no snapshot leads to where the log begins
	odd      bool      // something here was no file: there was a store
}

func (o *opener) run(ctx context.Context) error {
	if err := o.sort(); err != nil {
		return err
	}
	if err := o.sweepTemp(); err != nil {
		return err
	}
	if err := o.provide(ctx); err != nil {
		return err
	}
	if err := o.takeCleanMark(); err != nil {
		return err
	}
	if err := o.open(); err != nil {
		return err
	}
	if err := o.mark(); err != nil {
		return err
	}
	if err := o.resume(); err != nil {
		return err
	}
	err := o.openLog()
	if errors.Is(err, errForgot) {
		err = o.replace(ctx, err)
	}
	if err == nil {
		err = o.compare(ctx)
	}
	if err != nil {
		return err
	}
	if o.sick {
		if err := o.heal(ctx); err != nil {
			return err
		}
	}
	if err := o.takeLineage(); err != nil {
		return err
	}
	if err := o.noteSnapshots(ctx); err != nil {
		return err
	}
	if err := o.weigh(); err != nil {
		return err
	}
	o.tryTakeIn("")
	return nil
}

// sweepTemp removes what an interrupted write left.
func (o *opener) sweepTemp() error {
	for _, dir := range []string{o.cfg.path(), o.cfg.path(snapshotDir), o.cfg.path(damagedDir), o.cfg.path(redoDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), tempSuffix) {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeCleanMark reads and removes the mark of a clean shutdown, durably: it must not come back after a power cut.
func (o *opener) takeCleanMark() error {
	err := os.Remove(o.cfg.path(cleanName))
	if errors.Is(err, os.ErrNotExist) {
		o.condition.health.Unclean = true
		return nil
	}
	if err != nil {
		return err
	}
	return o.cfg.disk().SyncDir(o.cfg.Dir)
}

// provide makes sure that there is a sound file: the existing one, a snapshot, or on a new board an empty one.
func (o *opener) provide(ctx context.Context) error {
	marked, err := exists(o.cfg.path(provisionedName))
	if err != nil {
		return err
	}
	snaps, err := o.copies.list()
	if err != nil {
		return err
	}
	st, err := os.Stat(o.cfg.path(dbName))
	switch {
	case errors.Is(err, os.ErrNotExist) && !marked && !o.odd && len(snaps) == 0:
		o.condition.health.Made = true
		return o.create()
	case errors.Is(err, os.ErrNotExist):
		return o.restore(ctx, errors.New("state.db is missing although this board had one"))
	case err != nil:
		return err
	case st.Size() == 0: // bbolt would take it for a new store
		return o.restore(ctx, errors.New("state.db is empty"))
	}
	err = o.cfg.Check(ctx, o.cfg.path(dbName))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrSchema):
		return fmt.Errorf("%w: run the newer version, or restore an older backup", err)
	case errors.Is(err, ErrValues):
		o.sick = true
	case errors.Is(err, ErrDamaged):
		return o.restore(ctx, err)
	default: // says nothing about the file: leave it alone
		return err
	}
	return nil
}

// create makes the first file aside and puts it in place whole: bbolt does not survive a power cut in the middle
// of its own first initialisation.
func (o *opener) create() error {
	tmp := o.cfg.path(dbName + tempSuffix)
	db, _, err := o.cfg.openFile(tmp)
	if err != nil {
		return fmt.Errorf("make %s: %w", dbName, err)
	}
	err = db.Update(o.initialise)
	if err == nil && !o.cfg.NoSync {
		err = db.Sync()
	}
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = o.ceiling.write(0)
	}
	if err == nil {
		err = o.cfg.disk().Move(tmp, o.cfg.path(dbName))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make %s: %w", dbName, err), removeIfThere(tmp))
	}
	return o.cfg.disk().Replace(o.cfg.path(cleanName), nil, 0o600)
}

func (o *opener) initialise(tx *bolt.Tx) error {
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	for key, v := range map[string][]byte{
		string(schemaKey): number(Schema), string(ceilingKey): number(0),
		string(idKey): []byte(rand.Text()), string(tallyKey): (&tally{}).encode(),
	} {
		if err := meta.Put([]byte(key), seal(metaBucket, []byte(key), v)); err != nil {
			return err
		}
	}
	return nil
}

// mark says that this directory has had a store, and which: without a file it is restored then, never made anew.
func (o *opener) mark() error {
	if there, err := exists(o.cfg.path(provisionedName)); err != nil || there {
		return err
	}
	return o.ballast.with(func() error {
		return o.cfg.disk().Replace(o.cfg.path(provisionedName), []byte("store "+o.id+"\n"), 0o600)
	})
}

// open opens the sound file and compacts it if it is mostly air.
func (o *opener) open() error {
	var err error
	if o.db, o.file, err = o.cfg.openFile(o.cfg.path(dbName)); err != nil {
		return err
	}
	if err := o.compact(); err != nil {
		return err
	}
	return o.db.View(func(tx *bolt.Tx) error {
		id, err := metaValue(tx, idKey, -1)
		o.id, o.txid = string(id), tx.ID()
		return err
	})
}

// restore puts the newest sound snapshot in the place of a file that is not.
func (o *opener) restore(ctx context.Context, why error) error {
	snap, err := o.soundSnapshot(ctx)
	if err != nil {
		return err
	}
	if snap == "" { // the file stays: it is the only one
		return fmt.Errorf("%w, and no sound snapshot is left: restore a backup with 'ledge backup restore FILE', "+
			"or begin anew with 'ledge reset --data'", why)
	}
	kept, err := o.keepEvidence()
	if err != nil {
		return err
	}
	err = copyFile(o.cfg.disk(), snap, o.cfg.path(dbName))
	if errors.Is(err, unix.ENOSPC) { // a full disk must not keep a board down
		err = o.cfg.disk().Move(snap, o.cfg.path(dbName))
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", snap, err)
	}
	slog.Error("the store was damaged and replaced by its newest snapshot", "cause", why, "snapshot", snap, "kept", kept)
	o.condition.health.Damaged, o.condition.health.Restored = kept, snap
	return nil
}

// soundSnapshot is the newest snapshot that passes its check, or failing that one with single bad values; "" when
// there is none.
func (o *opener) soundSnapshot(ctx context.Context) (string, error) {
	snaps, err := o.copies.list()
	if err != nil {
		return "", err
	}
	second := ""
	for _, snap := range snaps {
		err := o.cfg.Check(ctx, snap)
		switch {
		case err == nil:
			return snap, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrSchema):
			return "", err
		case errors.Is(err, ErrValues) && second == "":
			second = snap
		}
		slog.Warn("a snapshot is not sound", "snapshot", snap, "err", err)
	}
	o.sick = second != ""
	return second, nil
}

// keepEvidence gives a bad file a second name; the last two are kept. The file keeps its own name until another file
// is renamed over it, so that there is always one.
func (o *opener) keepEvidence() (string, error) {
	there, err := exists(o.cfg.path(dbName))
	if err != nil || !there {
		return "", err
	}
	if err := os.MkdirAll(o.cfg.path(damagedDir), 0o700); err != nil {
		return "", err
	}
	newest, second := o.cfg.path(damagedDir, "newest.db"), o.cfg.path(damagedDir, "second.db")
	if has, err := os.Stat(newest); err == nil {
		if now, err := os.Stat(o.cfg.path(dbName)); err == nil && os.SameFile(has, now) {
			return newest, nil // by one that was cut: a rename of one name of a file to another does nothing
		}
	}
	if err := os.Rename(newest, second); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.Link(o.cfg.path(dbName), newest); err != nil {
		return "", err
	}
	return newest, nil
}
