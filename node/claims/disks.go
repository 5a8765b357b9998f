package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// Disk is one beside the card that may hold claims: a class of the same name has its volumes there. It is known by the label of its file
// system, as its device has another name after each boot.
type Disk struct{ Name, Label string }

func (d Disk) String() string { return fmt.Sprintf("disk %s (label %s)", d.Name, d.Label) }

// Machine is where disks come and go: host.Labelled, or what a test plays.
type Machine interface {
	Find(label string) (device string, err error)
	Refuse(label string, why error) // what Find has found cannot be used: it says so for a while
	Label(device string) (string, error)
	Mount(device, at string) error
	Stands(at string) (mounted, there bool, device string, err error)
	Below(dir string) (mounted []string, err error)
	Unmount(at string) error
}

// Disks are those of this board's configuration:
//
//	RunDir/disks/<name>                                 where one is mounted while it is there
//	RunDir/disks/<name>/ledge-claims.<node>/<volume>    a Shelf; by node, so that a disk may go to another board and come back
type Disks struct {
	machine Machine
	top     string
	mu      sync.Mutex // of what is known of each
	list    []*disk
	come    func() // told that a disk has come
}

type disk struct {
	Disk
	all    *Disks
	place  string
	shelf  *Shelf
	use    sync.RWMutex // held by who works on it, for as long as that takes: it is not unmounted below it
	passes *turn        // of passes
	asks   *turn        // of what people ask
	same   bool         // what is mounted bears the label of the configuration

	here   bool
	was    bool // it has been here
	device string
	why    error     // why it is not here
	since  time.Time // when a pass began what it does there now; zero: it does nothing
}

// NewDisks has nothing mounted yet.
func NewDisks(list []Disk, runDir, node string, machine Machine, sizes Sizes) *Disks {
	if real, err := filepath.EvalSymlinks(runDir); err == nil { // as the kernel names mount points
		runDir = real
	}
	d := &Disks{machine: machine, top: filepath.Join(runDir, "disks")}
	for _, o := range list {
		place := filepath.Join(d.top, o.Name)
		one := &disk{Disk: o, all: d, place: place, shelf: NewShelf(filepath.Join(place, "ledge-claims."+node), sizes),
			why: errUnseen, passes: newTurn(), asks: newTurn()}
		one.shelf.stands, one.shelf.most = one.stands, mostEntries
		d.list = append(d.list, one)
	}
	return d
}

// OnCome has fn called when a disk has come; before the Loop runs.
func (d *Disks) OnCome(fn func()) {
	if d != nil {
		d.come = fn
	}
}

// DiskState is how a disk is.
type DiskState struct {
	Disk
	Device  string // empty: it is not there
	Err     error  // why not
	Unsized error  // why it holds no directory to a size
	Shelf   *Shelf
}

// States are those of all disks, without a look at them.
func (d *Disks) States() (out []DiskState) {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.list {
		s := DiskState{Disk: o.Disk, Device: o.device, Err: o.why, Shelf: o.shelf}
		if o.mute() {
			s.Err = errMute
		}
		out = append(out, s)
	}
	return out
}

// Absent says why what lies at a path of a disk cannot be had; nil: it can, or it is not a disk's.
func (d *Disks) Absent(path string) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.list {
		switch {
		case !strings.HasPrefix(path, o.place+"/"):
		case !o.here:
			return absent(o.Disk, o.why)
		case o.mute():
			return absent(o.Disk, errMute)
		}
	}
	return nil
}

const awaits = "it waits for the "

func absent(d Disk, why error) error { return fmt.Errorf(awaits+"%s: %w", d, why) }

var (
	errUnseen    = errors.New("it was not looked for yet")
	errGone      = errors.New("it was taken away: put it back")
	errUnmounted = errors.New("somebody has unmounted it: it is mounted again within some seconds")
	errMute      = errors.New("it does not answer")
)

// enter keeps a disk where it is until release. The error is why nothing can be done there.
func (o *disk) enter() (release func(), err error) {
	o.use.RLock()
	if err := o.stands(); err != nil {
		o.use.RUnlock()
		return nil, absent(o.Disk, err)
	}
	return o.use.RUnlock, nil
}

// stands says why nothing can be done on a disk now. It asks the kernel's lists, whatever the last look has found: who unmounts a disk
// leaves an empty directory, which looks like a disk without claims.
func (o *disk) stands() error {
	o.all.mu.Lock()
	here, why := o.here, o.why
	o.all.mu.Unlock()
	if !here {
		return why
	}
	mounted, there, _, err := o.all.machine.Stands(o.place)
	switch {
	case err != nil:
		return err
	case !mounted:
		return errUnmounted
	case !there:
		return errGone
	}
	return nil
}

// diskEvery is how soon it is seen that a disk has come or gone.
const diskEvery = 5 * time.Second

// look mounts a disk that has come, and lets go of one that was taken away. It says whether it is another one than before, or is there
// again.
func (o *disk) look() (changed bool) {
	device, anew, err := o.settle()
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	changed = (err == nil) != o.here || err == nil && (anew || !o.was)
	o.here, o.why, o.device = err == nil, err, device
	return changed
}

// settle says on which device a disk is here, and whether it was mounted now. The error is why it is not here.
func (o *disk) settle() (device string, anew bool, err error) {
	m := o.all.machine
	mounted, there, device, err := m.Stands(o.place)
	if err != nil {
		return "", false, err
	}
	if mounted && there && !o.same { // by a brain before this one, which may have had another configuration
		label, err := m.Label(device)
		if err != nil {
			return "", false, err
		}
		if o.same = label == o.Label; !o.same {
			if err := o.leave(); err != nil {
				return "", false, err
			}
			mounted = false
		}
	}
	switch {
	case mounted && there && o.was:
		return device, false, o.plain()
	case mounted && there:
		return o.prepare(device)
	case mounted:
		return "", false, errors.Join(errGone, o.leave())
	}
	o.same = false
	if device, err = m.Find(o.Label); err != nil {
		return "", false, err
	}
	if err := os.MkdirAll(o.all.top, 0o700); err != nil {
		return "", false, err
	}
	if err := m.Mount(device, o.place); err != nil {
		m.Refuse(o.Label, err)
		return "", false, err
	}
	o.same = true
	return o.prepare(device)
}

// leave unmounts what is mounted at a disk's place, unless somebody works on it yet, who will hear of it.
func (o *disk) leave() error {
	if !o.use.TryLock() {
		return errors.New("it is in use yet")
	}
	defer o.use.Unlock()
	return o.all.machine.Unmount(o.place)
}

// prepare makes a disk that was mounted ready for claims, or unmounts it. What a power cut left half-made is put aside here, before
// anybody makes something new beside it.
func (o *disk) prepare(device string) (_ string, anew bool, err error) {
	if err = o.plain(); err == nil {
		err = o.shelf.dropHalves()
	}
	if err != nil {
		o.all.machine.Refuse(o.Label, err)
		return "", false, errors.Join(err, o.leave())
	}
	return device, true, nil
}

// plain says whether the directory of the claims is one, if it is there: a disk that somebody brings may have a link in its place.
func (o *disk) plain() error {
	var st unix.Stat_t
	err := unix.Lstat(o.shelf.dir, &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", o.shelf.dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%s is no directory: move it away", o.shelf.dir)
	}
	return nil
}

// clear unmounts what an earlier configuration had mounted.
func (d *Disks) clear() error {
	mounted, err := d.machine.Below(d.top)
	if err != nil {
		return err
	}
	var errs []error
	for _, at := range mounted {
		if filepath.Dir(at) == d.top && !slices.ContainsFunc(d.list, func(o *disk) bool { return o.place == at }) {
			errs = append(errs, d.machine.Unmount(at))
		}
	}
	return errors.Join(errs...)
}

// watchDisks looks at the disks until ctx ends, at each by itself: one that does not answer holds up no other.
func (l *Loop) watchDisks(ctx context.Context) error {
	d := l.cfg.Disks
	if d == nil {
		return nil
	}
	if err := d.clear(); err != nil {
		slog.Warn("a disk that is not in the configuration stays mounted", "err", err)
	}
	var g sync.WaitGroup
	for _, o := range d.list {
		g.Go(func() { leaveStuck(ctx, func() { l.watchDisk(ctx, o) }) })
	}
	g.Wait()
	return nil
}

func (l *Loop) watchDisk(ctx context.Context, o *disk) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		changed := o.look()
		if first {
			poke(l.wake) // no pass has done anything about it yet
		}
		if changed {
			l.tellDisk(o)
			poke(l.swept[o.Name])
			poke(l.wake)
			if o.here && l.cfg.Disks.come != nil {
				l.cfg.Disks.come()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tellDisk tells of a disk that has come or gone.
func (l *Loop) tellDisk(o *disk) {
	node := corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: l.cfg.Node, UID: types.UID(l.cfg.Node)}
	if !o.here {
		o.was = false
		slog.Warn("a disk for claims is gone", "disk", o.Name, "label", o.Label, "err", o.why)
		l.cfg.Events.EventOn(node, corev1.EventTypeWarning, "DiskGone", fmt.Sprintf("the %s is gone, with the claims on it: %v", o.Disk, o.why))
		return
	}
	o.was = true
	l.cfg.Events.EventOn(node, corev1.EventTypeNormal, "DiskHere", fmt.Sprintf("the %s is %s", o.Disk, o.device))
}
