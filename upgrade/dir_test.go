package upgrade

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// card is a directory on a card whose power may be cut: a file's content is there for certain once it was synced, a name
// once the directory was, and of the rest any part.
type card struct {
	now     map[string]*node // as programs see it
	durable map[string]*node
	since   []func(map[string]*node) // changes of names that may be lost, each by itself

	ops  int
	fail int   // at this operation; 0: never
	err  error // what happens then: nothing more is done if it is errCut
}

type node struct {
	data   []byte
	synced bool
	link   string
}

var errCut = errors.New("the power is cut")

func newCard() *card { return &card{now: map[string]*node{}, durable: map[string]*node{}} }

func (c *card) clone() *card {
	return &card{now: maps.Clone(c.now), durable: maps.Clone(c.durable), since: slices.Clone(c.since)}
}

// op counts an operation. The one that fails has no effect.
func (c *card) op() error {
	c.ops++
	if c.fail != 0 && (c.ops == c.fail || c.ops > c.fail && c.err == errCut) {
		return c.err
	}
	return nil
}

func (c *card) name(change func(map[string]*node)) {
	change(c.now)
	c.since = append(c.since, change)
}

// boot is what is there after a cut.
func (c *card) boot(rnd *rand.Rand) *card {
	after := newCard()
	after.durable = maps.Clone(c.durable)
	for _, change := range c.since {
		if rnd.IntN(2) == 0 {
			change(after.durable)
		}
	}
	for name, n := range after.durable {
		if !n.synced {
			after.durable[name] = &node{data: n.data[:rnd.IntN(len(n.data)+1)], synced: true}
		}
	}
	after.now = maps.Clone(after.durable)
	return after
}

// Read implements files.
func (c *card) Read(name string) ([]byte, error) {
	n, ok := c.now[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return n.data, nil
}

// Write implements files: the name, the data in two pieces, and the sync may each be the last that is done.
func (c *card) Write(name string, from io.Reader) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	n := &node{}
	for _, do := range []func(){
		func() { c.name(func(m map[string]*node) { m[name] = n }) },
		func() { n.data = data[:len(data)/2] },
		func() { n.data = data },
		func() { n.synced = true },
	} {
		if err := c.op(); err != nil {
			return err
		}
		do()
	}
	return nil
}

// Link implements files.
func (c *card) Link(target, name string) error {
	if err := c.op(); err != nil {
		return err
	}
	if c.now[name] != nil {
		return fs.ErrExist
	}
	n := &node{link: target, synced: true}
	c.name(func(m map[string]*node) { m[name] = n })
	return nil
}

// Target implements files.
func (c *card) Target(name string) (string, error) {
	n, ok := c.now[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return n.link, nil
}

// Rename implements files.
func (c *card) Rename(old, name string) error {
	if err := c.op(); err != nil {
		return err
	}
	n, ok := c.now[old]
	if !ok {
		return fs.ErrNotExist
	}
	c.name(func(m map[string]*node) {
		if m[old] == n {
			delete(m, old)
		}
		m[name] = n
	})
	return nil
}

// Remove implements files.
func (c *card) Remove(name string) error {
	if err := c.op(); err != nil {
		return err
	}
	n, ok := c.now[name]
	if !ok {
		return fs.ErrNotExist
	}
	c.name(func(m map[string]*node) {
		if m[name] == n {
			delete(m, name)
		}
	})
	return nil
}

// List implements files.
func (c *card) List() ([]string, error) { return slices.Sorted(maps.Keys(c.now)), nil }

// Sync implements files.
func (c *card) Sync() error {
	if err := c.op(); err != nil {
		return err
	}
	c.durable, c.since = maps.Clone(c.now), nil
	return nil
}

func (c *card) dir() *Dir {
	return &Dir{files: c, lock: func(string, time.Duration) (func(), error) { return func() {}, nil }}
}

// program is what the file of a version has in it.
func program(name string) string { return "program " + name + strings.Repeat(".", 20) }

// step is one thing that happens to a board.
type step struct {
	name string
	do   func(d *Dir) error
}

// happening is what may happen next. base and next are numbers of versions, which it uses up.
func happening(rnd *rand.Rand, base, next *int) step {
	change := func(name string, f func(State) (State, error)) step {
		return step{name, func(d *Dir) error { _, err := d.Change(f); return err }}
	}
	pure := func(name string, f func(State) State) step {
		return change(name, func(s State) (State, error) { return f(s), nil })
	}
	seen := at(*base)
	switch rnd.IntN(9) {
	case 0, 1, 2:
		*next++
		n := *next
		return step{fmt.Sprint("upgrade to ", n), func(d *Dir) error {
			if err := d.remove(stagedName); err != nil {
				return err
			}
			if _, err := d.Stage(strings.NewReader(program(named(n)))); err != nil {
				return errors.Join(err, d.remove(stagedName))
			}
			_, err := d.Adopt(named(n), func(s State) (State, error) {
				s.Base = seen
				return s.Begin(named(n), at(n), DefaultWithin, true)
			})
			return err
		}}
	case 3, 4:
		return pure("well", func(s State) State {
			if s.Pending != nil {
				return s.Commit(s.Pending.Name)
			}
			return s
		})
	case 5:
		return change("rollback", func(s State) (State, error) { return s.Rollback(DefaultWithin) })
	case 6:
		return pure("keeper", func(s State) State { s, _ = s.LaunchKeeper(); return s })
	case 7:
		return pure("keeper well", func(s State) State { return s.KeeperReady(s.Keeper.Name) })
	}
	*next++
	*base = *next
	return pure("another base", func(s State) State { return s })
}

// starts boots a board and says which version it starts. What is started, and what can be gone back to, must be whole.
func starts(t *testing.T, c *card, base int) string {
	t.Helper()
	var run string
	s, err := c.clone().dir().Change(func(s State) (State, error) {
		s, run = s.Launch(at(base))
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := s.keeps()
	if to, err := c.Target(currentName); err == nil {
		names = append(names, to) // stands in for a state that cannot be read
	}
	for _, name := range names {
		if n := c.now[name]; n == nil || string(n.data) != program(name) {
			t.Fatalf("%s is needed and not whole: %+v", name, n)
		}
	}
	return run
}

// TestCuts: whatever happens, and wherever the power is cut or the card fails, the next start is of what would have been
// started before or of what would have been afterwards, and it is whole.
func TestCuts(t *testing.T) {
	cuts, seeds := 0, uint64(6)
	if os.Getenv("LEDGE_LONG") != "" {
		seeds = 200
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 57))
		c, base, next := newCard(), 0, 0
		for range 12 {
			oldBase := base
			st := happening(rnd, &base, &next)
			before := starts(t, c, oldBase)
			if base != oldBase { // the program itself was replaced: no other
				before = starts(t, c, base)
			}
			whole := c.clone()
			refused := st.do(whole.dir())
			after := starts(t, whole, base)
			for at := 1; at <= whole.ops; at++ {
				for _, fault := range []error{errCut, unix.ENOSPC} {
					broken := c.clone()
					broken.fail, broken.err = at, fault
					if err := st.do(broken.dir()); err == nil {
						t.Fatalf("seed %d, %s: a fault at %d is not told", seed, st.name, at)
					}
					then := []*card{broken}
					if fault == errCut {
						then = []*card{broken.boot(rnd), broken.boot(rnd), broken.boot(rnd)}
					}
					for _, b := range then {
						b.fail, cuts = 0, cuts+1
						if got := starts(t, b, base); got != before && got != after {
							t.Fatalf("seed %d, %s, %v at %d: starts %s, neither %s nor %s", seed, st.name, fault, at, got, before, after)
						}
						if refused == nil {
							again(t, b, base)
						}
					}
				}
			}
			c = whole.boot(rnd) // nothing may be lost of what was told to be done
			if got := starts(t, c, base); got != after {
				t.Fatalf("seed %d: after %s and a cut %s starts, not %s", seed, st.name, got, after)
			}
		}
	}
	t.Logf("%d faults", cuts)
}

// again: the next upgrade takes place, and leaves nothing that is not needed.
func again(t *testing.T, c *card, base int) {
	t.Helper()
	d := c.clone()
	if err := errors.Join(d.dir().remove(stagedName)); err != nil {
		t.Fatal(err)
	}
	const n = 1000
	if _, err := d.dir().Stage(strings.NewReader(program(named(n)))); err != nil {
		t.Fatal(err)
	}
	s, err := d.dir().Adopt(named(n), func(s State) (State, error) {
		s.Base = at(base)
		return s.Begin(named(n), at(n), DefaultWithin, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	if run := starts(t, d, base); run != named(n) {
		t.Fatalf("after another upgrade %s starts", run)
	}
	want := append(s.keeps(), stateName)
	if s.Running() != Base {
		want = append(want, currentName)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(d.now)); !reflect.DeepEqual(slices.DeleteFunc(got,
		func(n string) bool { return strings.HasSuffix(n, tempSuffix) }), want) {
		t.Fatalf("there are %q, needed are %q", got, want)
	}
}

// TestDir: the same on a real directory.
func TestDir(t *testing.T) {
	data := t.TempDir()
	d := Open(data)
	if s, err := d.Load(); err != nil || !reflect.DeepEqual(s, State{}) {
		t.Fatalf("a board without upgrades: %+v %v", s, err)
	}
	release, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Hold(); !errors.Is(err, ErrBusy) {
		t.Errorf("two upgrades at a time: %v", err)
	}
	path, err := d.Stage(strings.NewReader("program"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
	begin := func(s State) (State, error) {
		s.Base = at(0)
		return s.Begin(named(1), at(1), DefaultWithin, false)
	}
	if _, err := d.Adopt(named(1), func(s State) (State, error) { return s, ErrOlder }); !errors.Is(err, ErrOlder) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := d.Adopt(named(1), begin); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	commit := func(s State) (State, error) { return s.Commit(named(1)), nil }
	if _, err := d.Change(commit); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(d.Path(), currentName)); err != nil || string(data) != "program" {
		t.Errorf("the link leads to %q, %v", data, err)
	}
	if d.Self(d.Program(named(1))) != named(1) || d.Self("/bin/sh") != Base || d.Self("/none/x") != Base {
		t.Error("a program does not know what it is")
	}
	state := filepath.Join(d.Path(), stateName)
	was, err := os.Stat(state)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Change(commit); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(state); err != nil || !os.SameFile(was, is) {
		t.Error("what changes nothing writes")
	}
	for _, damage := range []string{"", "{", `{"current": "../../sh"}`, `{"current": 3}`, strings.Repeat("\x00", 100)} {
		if err := os.WriteFile(state, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := d.Load()
		if _, run := s.Launch(at(5)); err != nil || run != named(1) {
			t.Errorf("state %q: starts %s, %v", damage, run, err)
		}
	}
}

// TestLock: changes that are made at once are all made.
func TestLock(t *testing.T) {
	data := t.TempDir()
	release, err := Open(data).Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }() // the directory goes anyway
	const n = 20
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := Open(data).Change(func(s State) (State, error) { s.Base.Store++; return s, nil })
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Open(data).Load(); err != nil || s.Base.Store != n {
		t.Errorf("%d changes were made, not %d: %v", s.Base.Store, n, err)
	}
	if names, err := disk(Open(data).Path()).List(); err != nil ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, tempSuffix) }) {
		t.Errorf("left behind: %q %v", names, err)
	}
	if err := disk(data).Write("x", bytes.NewReader(nil)); err != nil {
		t.Error(err)
	}
}
