package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
	"ledge/internal/grumble"
)

// Machine is where devices come and go.
type Machine interface {
	// Look lists the character devices below /dev that wants says yes to, by their path or by that of a link.
	Look(wants func(path string) bool) ([]Found, error)
	// Wait returns when something was plugged or unplugged, after most, or when ctx ends.
	Wait(ctx context.Context, most time.Duration)
	// Drain forgets what was told until now: a look follows.
	Drain()
}

// Config is what a Board needs.
type Config struct {
	Machine Machine
	Classes []Class // With
	File    string  // what pods were given, for the next boot
}

// Board is the devices of this board: what is plugged in, and who has it. A nil one has none.
type Board struct {
	cfg Config

	began   time.Time
	changed func() // told when a device has come or gone
	lives   func(pod string) bool

	looking sync.Mutex // one look at a time; taken first

	mu      sync.Mutex
	book    Book
	unsaved bool // the book as it is does not outlive a power cut yet
	untold  bool // something has come or gone that only Give knows of
	learned bool // what containers that run have is in the book
	grumble grumble.Once
}

// How often the board is looked at: soon after a change, once more when udev has made its links, and now and then, for what nobody tells.
const (
	settle   = 250 * time.Millisecond
	udevDone = 2 * time.Second
	slowly   = 30 * time.Second
)

// New looks for the first time.
func New(cfg Config) *Board {
	b := &Board{cfg: cfg, began: time.Now(), changed: func() {}, lives: func(string) bool { return true }}
	data, err := os.ReadFile(cfg.File)
	if err == nil {
		err = json.Unmarshal(data, &b.book.Gifts)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.book.Gifts = nil
		b.grumble.About("what devices pods had cannot be read; they get any that is free", err, "file", cfg.File)
	}
	cfg.Machine.Drain() // what is plugged in after it is told
	b.look()
	return b
}

// Serve joins the board with who gives its devices: changed is told when one has come or gone, lives says which pods are there. Before Run.
func (b *Board) Serve(changed func(), lives func(pod string) bool) {
	if b != nil {
		b.changed, b.lives = changed, lives
	}
}

// Run keeps up with what is plugged in until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	most := slowly
	for ctx.Err() == nil {
		began := time.Now()
		b.cfg.Machine.Wait(ctx, most)
		switch {
		case time.Since(began) >= most:
			most = slowly
		default:
			most = udevDone
			select { // one stick is many events
			case <-ctx.Done():
			case <-time.After(settle):
			}
			b.cfg.Machine.Drain()
		}
		if ctx.Err() == nil && b.look() {
			b.changed()
		}
	}
	return nil
}

// look says whether something has come or gone since it said so last.
func (b *Board) look() bool {
	changed := b.lookUp()
	b.mu.Lock()
	defer b.mu.Unlock()
	changed, b.untold = changed || b.untold, false
	return changed
}

func (b *Board) lookUp() bool {
	b.looking.Lock()
	defer b.looking.Unlock()
	seen, err := b.cfg.Machine.Look(Wants(b.cfg.Classes))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grumble.About("cannot look for devices", err)
	if err != nil {
		return false
	}
	list := Sort(seen, b.cfg.Classes)
	same := slices.EqualFunc(list, b.book.Devices, func(x, y Device) bool {
		return x.ID == y.ID && x.Port == y.Port && x.Class.Name == y.Class.Name && reflect.DeepEqual(x.Nodes, y.Nodes)
	})
	b.book.Devices = list
	if b.unsaved {
		b.save()
	}
	return !same
}

// found is how long a board that was switched on may take to find what is plugged in.
const found = time.Minute

// Young says whether more devices may be found that were there before.
func (b *Board) Young() bool { return b != nil && time.Since(b.began) < found }

// Counts are what the Node says; nil: nothing.
func (b *Board) Counts() map[string]Count {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Prune(b.lives).Counts(b.cfg.Classes)
}

// Given is a device that a container gets.
type Given struct {
	Gift
	Nodes    []Node
	At       string // where its one node is to be; empty: at its own path
	ReadOnly bool
}

// Want is what a container asks for: how many of which classes, and devices by their path.
type Want struct {
	Ask
	Count  map[string]int // by class
	Paths  []Path
	Labels []string // of all containers that run
}

// Path is one device that a volume names.
type Path struct {
	Major, Minor uint32
	At           string
	ReadOnly     bool
}

// Learn takes in what containers have that were running when this process began: for once, before anything is given.
func (b *Board) Learn(labels func() []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.learned {
		return
	}
	b.learned = true
	book := b.book
	book.Gifts = slices.Clone(book.Gifts)
	for _, text := range labels() {
		for _, h := range parse(text) {
			if !slices.Contains(book.Gifts, h.Gift) {
				book.Gifts = append(book.Gifts, h.Gift)
			}
		}
	}
	b.keep(book)
}

// Give gives a container what it asks for, or nothing. Unclassed are the volumes' paths that are of no class.
func (b *Board) Give(w Want) (given []Given, unclassed []Path, err error) {
	for _, class := range slices.Sorted(maps.Keys(w.Count)) {
		if !slices.ContainsFunc(b.cfg.Classes, func(c Class) bool { return c.Name == class }) {
			return nil, nil, fmt.Errorf("%s%s: this board has no class %s: name it in the key devices of the board's configuration", Domain, class, class)
		}
	}
	given, unclassed, err = b.give(w)
	if err == nil && len(unclassed) > 0 { // it may have been plugged in since the last look
		changed := b.lookUp()
		b.mu.Lock()
		b.untold = b.untold || changed // Run tells it: the kernel has
		b.mu.Unlock()
		return b.give(w)
	}
	return given, unclassed, err
}

func (b *Board) give(w Want) (given []Given, unclassed []Path, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := b.book.Devices
	book := b.book.Prune(b.lives)
	var running []held
	for _, label := range w.Labels {
		running = append(running, parse(label)...)
	}
	book.Devices = slices.DeleteFunc(slices.Clone(there), func(d Device) bool { return openByOthers(d, running) })
	left := maps.Clone(w.Count)
	if left == nil {
		left = map[string]int{}
	}
	add := func(g Gift, p Path) {
		d, _ := book.Of(g)
		nodes := d.Nodes
		if p.At != "" { // of a sound card the one that was named
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Major != p.Major || n.Minor != p.Minor })
		}
		given = append(given, Given{g, nodes, p.At, p.ReadOnly})
		if !slices.Contains(book.Gifts, g) {
			book.Gifts = append(book.Gifts, g)
		}
	}
	for _, p := range w.Paths {
		if i := slices.IndexFunc(there, func(d Device) bool { return d.has(p.Major, p.Minor) }); i >= 0 && openByOthers(there[i], running) {
			return nil, nil, fmt.Errorf("device %s: a container that is about to end may still open it", there[i].Nodes[0].Path)
		}
		g, ok, err := book.Named(w.Ask, p.Major, p.Minor)
		switch {
		case err != nil:
			return nil, nil, err
		case !ok:
			unclassed = append(unclassed, p)
			continue
		case left[g.Class] > 0: // who names it besides asks for no other
			g.Beside = false
			left[g.Class]--
		}
		add(g, p)
	}
	for _, c := range b.cfg.Classes {
		list, err := book.Give(w.Ask, c, w.Count[c.Name]) // those by path are among them
		if err != nil {
			return nil, nil, err
		}
		for _, g := range list {
			if !slices.ContainsFunc(given, func(o Given) bool { return o.Gift == g }) {
				add(g, Path{})
			}
		}
	}
	book.Devices = there
	b.keep(book)
	return given, unclassed, nil
}

// openByOthers says whether a container that runs may open a device that has taken the place of the one that it was given: its rule in the
// cgroup and its node are numbers. It is ended for that (Lost); until then nobody else gets the device.
func openByOthers(d Device, running []held) bool {
	return slices.ContainsFunc(running, func(h held) bool { return slices.ContainsFunc(d.Nodes, h.replaced) })
}

// keep has the book outlive a power cut. A card that takes no file is no reason to start nothing: a running container's label tells too.
func (b *Board) keep(book Book) {
	same := slices.Equal(book.Gifts, b.book.Gifts)
	if b.book = book; !same || b.unsaved {
		b.save()
	}
}

func (b *Board) save() {
	data, err := json.Marshal(b.book.Gifts)
	if err == nil {
		err = durable.Replace(b.cfg.File, data, 0o600)
	}
	b.unsaved = err != nil
	b.grumble.About("what devices pods have cannot be kept for the next boot", err, "file", b.cfg.File)
}

// State is a device and who has it.
type State struct {
	Class, ID, Path string
	Share           int
	Pods            []string
}

// States are all devices that are plugged in.
func (b *Board) States() (out []State) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	book := b.book.Prune(b.lives)
	for _, d := range book.Devices {
		out = append(out, State{d.Class.Name, d.ID, d.Nodes[0].Path, d.Class.Share, book.Holders(d)})
	}
	return out
}

// Label is the label of a container that says what it was given. It travels with the container, so that a brain that has just begun
// knows.
const Label = "ledge.devices"

type held struct {
	Gift
	Born    []uint64    `json:"born"`
	Numbers [][2]uint32 `json:"numbers,omitempty"` // of the same nodes
}

// replaced says whether a node has the numbers of one that was given, and is another.
func (h held) replaced(n Node) bool {
	return slices.Contains(h.Numbers, [2]uint32{n.Major, n.Minor}) && !slices.Contains(h.Born, n.Born)
}

// LabelOf is what Label holds; empty: nothing was given.
func LabelOf(list []Given) string {
	if len(list) == 0 {
		return ""
	}
	var out []held
	for _, g := range list {
		h := held{Gift: g.Gift}
		for _, n := range g.Nodes {
			h.Born, h.Numbers = append(h.Born, n.Born), append(h.Numbers, [2]uint32{n.Major, n.Minor})
		}
		out = append(out, h)
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic("ledge bug: " + err.Error()) // texts and numbers
	}
	return string(text)
}

func parse(label string) (out []held) {
	if label == "" || json.Unmarshal([]byte(label), &out) != nil {
		return nil
	}
	return out
}

// Lost is a device that was taken away from a container that runs.
type Lost struct {
	Gift
	Gone Pulled
}

// Lost are the devices of a container, by its label, that are gone, or were gone for a moment: what the container has open is dead then.
func (b *Board) Lost(label string) (out []Lost) {
	if b == nil || label == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range parse(label) {
		d, ok := b.book.Of(h.Gift)
		gone := func(born uint64) bool {
			return !slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.Born == born })
		}
		if ok && !slices.ContainsFunc(h.Born, gone) {
			continue
		}
		then := Restart
		for _, c := range b.cfg.Classes {
			if c.Name == h.Class {
				then = c.Gone
			}
		}
		if slices.ContainsFunc(b.book.Devices, func(d Device) bool { return slices.ContainsFunc(d.Nodes, h.replaced) }) {
			then = Restart // it could open what is somebody else's
		}
		out = append(out, Lost{h.Gift, then})
	}
	return out
}

// Has says whether a resource is one that this board counts itself.
func (b *Board) Has(resource string) (Count, bool) {
	c, ok := b.Counts()[resource]
	return c, ok
}

// Judge says why a device plugin may not hand out a device of these numbers: it is one that no class gives, or one that the board lives by
// and that no class of the configuration names. What every container has is given to all.
func (b *Board) Judge(major, minor uint32) error {
	if major == majorMemory && slices.Contains(harmless, minor) {
		return nil
	}
	alike := Found{Major: major, Minor: minor}
	list := []Found{alike}
	if b != nil {
		b.looking.Lock()
		seen, err := b.cfg.Machine.Look(func(at string) bool {
			var st unix.Stat_t
			return unix.Lstat(at, &st) == nil && unix.Major(uint64(st.Rdev)) == major && unix.Minor(uint64(st.Rdev)) == minor
		})
		b.looking.Unlock()
		if err != nil {
			return fmt.Errorf("look which device %d:%d is: %w", major, minor, err)
		}
		list = append(list, seen...)
	}
	named := func(f Found) bool {
		return b != nil && slices.ContainsFunc(b.cfg.Classes, func(c Class) bool { return c.takes(f) && c.named(f) })
	}
	allowed := slices.ContainsFunc(list, named)
	for _, f := range list {
		switch {
		case Forbidden(f):
			return fmt.Errorf("device %d:%d is given to nobody: who has it has the board, and needs a privileged pod for it", major, minor)
		case Guarded(f) && !allowed:
			return fmt.Errorf("device %d:%d is one that the board lives by: a device plugin may hand it out if a class of the key devices "+
				"names it, without a pattern", major, minor)
		}
	}
	return nil
}

// harmless are null, zero, full, random and urandom.
var harmless = []uint32{3, 5, 7, 8, 9}
