package upgrade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// DirName is where versions are, below the data directory.
const DirName = "versions"

// Names in it beside the versions. The state is the truth; the link says the same for people, and for a launcher that finds
// the state damaged.
const (
	stateName   = "state.json"
	currentName = "current"
	stagedName  = "staged.tmp"
	lockName    = "lock"
	holdName    = "upgrading" // locked by who upgrades, for as long as that takes
	tempSuffix  = ".tmp"
)

// files is a directory with what this package does to one. Write makes what is in the file durable, not its name; Sync
// does that for every name.
type files interface {
	Read(name string) ([]byte, error)
	Write(name string, from io.Reader) error
	Link(target, name string) error
	Target(name string) (string, error)
	Rename(old, name string) error
	Remove(name string) error
	List() ([]string, error)
	Sync() error
}

// Dir is the versions of a board.
type Dir struct {
	files files
	lock  func(name string, patience time.Duration) (unlock func(), err error)
	path  string
}

// Open makes nothing.
func Open(dataDir string) *Dir {
	path := filepath.Join(dataDir, DirName)
	return &Dir{files: disk(path), lock: disk(path).lock, path: path}
}

// Program is the file of a version.
func (d *Dir) Program(name string) string { return filepath.Join(d.path, name) }

// Path is the directory.
func (d *Dir) Path() string { return d.path }

// Self is the name of the version that a program is, by where it lies.
func (d *Dir) Self(exe string) string {
	in, err := os.Stat(filepath.Dir(exe))
	if err != nil {
		return Base
	}
	if own, err := os.Stat(d.path); err != nil || !os.SameFile(in, own) {
		return Base
	}
	return filepath.Base(exe)
}

// Load reads the state; a board that was never upgraded has the zero one. A damaged state is as good as the link is.
func (d *Dir) Load() (s State, err error) {
	data, err := d.files.Read(stateName)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read which version to run: %w", err)
	}
	if err := json.Unmarshal(data, &s); err == nil && s.sound() {
		return s, nil
	}
	s = State{}
	if s.Current, err = d.files.Target(currentName); err != nil || !local(s.Current) {
		s.Current = ""
	}
	s.Keeper.Proven = s.Current
	return s, nil
}

func (s State) sound() bool {
	return !slices.ContainsFunc(s.keeps(), func(n string) bool { return !local(n) })
}

func local(name string) bool { return name != "" && name == filepath.Base(name) && name[0] != '.' }

// patience is how long a change waits for others, which take milliseconds.
const patience = 10 * time.Second

// Change makes a change durable, and removes what nothing needs any more. A change that changes nothing writes nothing.
func (d *Dir) Change(change func(State) (State, error)) (State, error) {
	unlock, err := d.lock(lockName, patience)
	if err != nil {
		return State{}, fmt.Errorf("note which version to run: %w", err)
	}
	defer unlock()
	return d.change(change)
}

func (d *Dir) change(change func(State) (State, error)) (State, error) {
	old, err := d.Load()
	if err != nil {
		return old, err
	}
	next, err := change(old)
	if err != nil {
		return old, err
	}
	keep := next.keeps()
	for name := range next.Versions {
		if !slices.Contains(keep, name) {
			next = next.clone()
			delete(next.Versions, name)
		}
	}
	was, err := json.Marshal(old)
	if err != nil {
		return old, err
	}
	is, err := json.Marshal(next)
	if err != nil {
		return old, err
	}
	if bytes.Equal(was, is) {
		return next, nil
	}
	if err := d.replace(stateName, func(tmp string) error { return d.files.Write(tmp, bytes.NewReader(is)) }); err != nil {
		return old, fmt.Errorf("note which version to run: %w", err)
	}
	if err := d.point(next.Running()); err != nil {
		return next, fmt.Errorf("point at the version that runs: %w", err)
	}
	return next, d.sweep(keep)
}

// replace swaps a name for what is made aside: after a cut it is either.
func (d *Dir) replace(name string, do func(tmp string) error) error {
	tmp := name + tempSuffix
	err := d.remove(tmp)
	if err == nil {
		err = do(tmp)
	}
	if err == nil {
		err = d.files.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, d.remove(tmp))
	}
	return d.files.Sync()
}

func (d *Dir) remove(name string) error {
	if err := d.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// point has the link say what runs.
func (d *Dir) point(to string) error {
	was, err := d.files.Target(currentName)
	switch {
	case err == nil && was == to, errors.Is(err, fs.ErrNotExist) && to == Base:
		return nil
	case to == Base:
		return errors.Join(d.remove(currentName), d.files.Sync())
	}
	return d.replace(currentName, func(tmp string) error { return d.files.Link(to, tmp) })
}

// sweep removes versions that are not needed. What does not look like one stays.
func (d *Dir) sweep(keep []string) error {
	names, err := d.files.List()
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasPrefix(n, "ledge-") && !slices.Contains(keep, n) {
			if err := d.remove(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrBusy says that another upgrade goes on.
var ErrBusy = errors.New("another upgrade goes on")

// Hold makes the directory and keeps other upgrades out until release, which also removes what this one left half-done.
func (d *Dir) Hold() (release func() error, err error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, err
	}
	unlock, err := d.lock(holdName, 0)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrBusy
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.remove(stagedName), disk(filepath.Dir(d.path)).Sync()); err != nil {
		unlock()
		return nil, err
	}
	return func() error {
		defer unlock()
		return d.remove(stagedName)
	}, nil
}

// Stage writes a program that is not trusted yet, and says where it is.
func (d *Dir) Stage(from io.Reader) (path string, err error) {
	return d.Program(stagedName), d.files.Write(stagedName, from)
}

// Adopt gives the staged program its name and makes a change that needs it.
func (d *Dir) Adopt(name string, change func(State) (State, error)) (State, error) {
	unlock, err := d.lock(lockName, patience)
	if err != nil {
		return State{}, err
	}
	defer unlock()
	old, err := d.Load()
	if err != nil {
		return old, err
	}
	if _, err := change(old); err != nil { // nothing is kept of what is refused
		return old, err
	}
	if err := errors.Join(d.files.Rename(stagedName, name), d.files.Sync()); err != nil {
		return old, err
	}
	return d.change(change)
}

// disk is a real directory.
type disk string

func (d disk) at(name string) string { return filepath.Join(string(d), name) }

// Read implements files.
func (d disk) Read(name string) ([]byte, error) { return os.ReadFile(d.at(name)) }

// Write implements files.
func (d disk) Write(name string, from io.Reader) error {
	return durable.Write(d.at(name), from, 0o700)
}

// Link implements files.
func (d disk) Link(target, name string) error { return os.Symlink(target, d.at(name)) }

// Target implements files.
func (d disk) Target(name string) (string, error) { return os.Readlink(d.at(name)) }

// Rename implements files.
func (d disk) Rename(old, name string) error { return os.Rename(d.at(old), d.at(name)) }

// Remove implements files.
func (d disk) Remove(name string) error { return os.Remove(d.at(name)) }

// List implements files.
func (d disk) List() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Sync implements files.
func (d disk) Sync() error { return durable.SyncDir(string(d)) }

// lock goes with the process, however it ends.
func (d disk) lock(name string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(d.at(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // nothing was written through it
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || !time.Now().Before(end) {
			_ = f.Close() // likewise
			return nil, fmt.Errorf("lock %s: %w", d.at(name), err)
		}
	}
}
