package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
	Mount(device, at string) error
	Stands(at string) (mounted, there bool, device string, err error)
	Unmount(at string) error
}

// Disks are those of this board's configuration:
//
//	RunDir/disks/<name>                                 where one is mounted while it is there
//	RunDir/disks/<name>/ledge-claims.<node>/<volume>    a Shelf; by node, so that a disk may go to another board and come back
type Disks struct {
	machine Machine
	use     sync.RWMutex // held by who works on disks, for as long as that takes: none is unmounted below it
	mu      sync.Mutex   // of what is known of each
	list    []*disk
	come    func() // told that a disk has come
}

type disk struct {
	Disk
	place  string
	shelf  *Shelf
	here   bool
	was    bool // it has been here
	device string
	why    error // why it is not here
}

// NewDisks has nothing mounted yet.
func NewDisks(list []Disk, runDir, node string, machine Machine, sizes Sizes) *Disks {
	d := &Disks{machine: machine}
	if real, err := filepath.EvalSymlinks(runDir); err == nil { // as the kernel names mount points
		runDir = real
	}
	for _, o := range list {
		place := filepath.Join(runDir, "disks", o.Name)
		d.list = append(d.list, &disk{Disk: o, place: place, shelf: NewShelf(filepath.Join(place, "ledge-claims."+node), sizes),
			why: errors.New("it was not looked for yet")})
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
	Device string // empty: it is not there
	Err    error  // why not
	Shelf  *Shelf
}

// States are those of all disks.
func (d *Disks) States() (out []DiskState) {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.list {
		out = append(out, DiskState{o.Disk, o.device, o.why, o.shelf})
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
		if strings.HasPrefix(path, o.place+"/") && !o.here {
			return absent(o.Disk, o.why)
		}
	}
	return nil
}

const awaits = "it waits for the "

func absent(d Disk, why error) error { return fmt.Errorf(awaits+"%s: %w", d, why) }

// hold keeps disks where they are until release.
func (d *Disks) hold() (release func()) {
	if d == nil {
		return func() {}
	}
	d.use.RLock()
	return d.use.RUnlock
}

// diskEvery is how soon it is seen that a disk has come or gone.
const diskEvery = 5 * time.Second

// look mounts what has come and lets go of what was taken away. It returns what has changed.
func (d *Disks) look() (changed []*disk) {
	for _, o := range d.list {
		device, err := d.settle(o)
		d.mu.Lock()
		if here := err == nil; here != o.here || here && !o.was {
			changed = append(changed, o)
		}
		o.here, o.why, o.device = err == nil, err, device
		d.mu.Unlock()
	}
	return changed
}

// settle says on which device a disk is here. The error is why it is not.
func (d *Disks) settle(o *disk) (device string, err error) {
	mounted, there, device, err := d.machine.Stands(o.place)
	switch {
	case err != nil:
		return "", err
	case mounted && there:
		return device, o.plain()
	case mounted && !d.use.TryLock():
		return "", errGone // somebody works on it yet, and will hear of it
	case mounted:
		err := d.machine.Unmount(o.place)
		d.use.Unlock()
		return "", errors.Join(errGone, err)
	}
	if device, err = d.machine.Find(o.Label); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(o.place), 0o700); err != nil {
		return "", err
	}
	if err := d.machine.Mount(device, o.place); err != nil {
		return "", err
	}
	if err := o.plain(); err != nil {
		return "", errors.Join(err, d.machine.Unmount(o.place))
	}
	return device, nil
}

var errGone = errors.New("it was taken away: put it back")

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

// watchDisks looks at the disks until ctx ends.
func (l *Loop) watchDisks(ctx context.Context) error {
	if l.cfg.Disks == nil {
		return nil
	}
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		for _, o := range l.cfg.Disks.look() {
			l.tellDisk(o)
			poke(l.swept)
			poke(l.wake)
			if o.here && l.cfg.Disks.come != nil {
				l.cfg.Disks.come()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tellDisk tells of a disk that has come or gone.
func (l *Loop) tellDisk(o *disk) {
	node := corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: l.cfg.Node, UID: types.UID(l.cfg.Node)}
	if !o.here {
		slog.Warn("a disk for claims is gone", "disk", o.Name, "label", o.Label, "err", o.why)
		l.cfg.Events.EventOn(node, corev1.EventTypeWarning, "DiskGone", fmt.Sprintf("the %s is gone, with the claims on it: %v", o.Disk, o.why))
		return
	}
	o.was = true
	if err := o.shelf.Sweep(newPrefix); err != nil {
		slog.Warn("what a power cut left of claims stays for now", "disk", o.Name, "err", err)
	}
	l.cfg.Events.EventOn(node, corev1.EventTypeNormal, "DiskHere", fmt.Sprintf("the %s is %s", o.Disk, o.device))
}
