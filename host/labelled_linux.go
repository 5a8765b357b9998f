package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Labelled finds disks by the labels of their file systems, mounts them, and says when they were taken away. The zero value is this
// machine's.
type Labelled struct {
	mu   sync.Mutex
	last map[string]search
}

// search is how the last one for a label ended.
type search struct {
	names string // of all disks, and their sizes
	at    time.Time
	err   error // why there is nothing to use; nil: there is
}

// lookAgain is when all disks are read again although none has come or gone: somebody may have made a file system. More often would keep
// disks awake that sleep.
const lookAgain = time.Minute

// Find is the device with the one file system that has a label.
func (l *Labelled) Find(label string) (device string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, err := os.ReadDir("/sys/class/block")
	if err != nil {
		return "", fmt.Errorf("look for disks: %w", err)
	}
	var b strings.Builder
	for _, e := range list {
		size, _ := os.ReadFile("/sys/class/block/" + e.Name() + "/size") // a drive without a card has 0
		fmt.Fprintf(&b, "%s %s", e.Name(), size)
	}
	if s := l.last[label]; s.err != nil && s.names == b.String() && time.Since(s.at) < lookAgain {
		return "", s.err
	}
	disks, err := findDisks("/sys", "/dev")
	if err == nil {
		device, err = chooseLabelled(label, disks)
	}
	if l.last == nil {
		l.last = map[string]search{}
	}
	l.last[label] = search{b.String(), time.Now(), err}
	return device, err
}

// Refuse says that what Find has found cannot be used: Find says why as if it had found nothing, until a disk comes or goes, or a minute
// is over.
func (l *Labelled) Refuse(label string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.last[label]; ok {
		l.last[label] = search{s.names, time.Now(), why}
	}
}

// Label is that of the file system on a device.
func (*Labelled) Label(device string) (string, error) {
	label, _, err := readLabel(device)
	if err != nil {
		return "", fmt.Errorf("read the label of %s: %w", device, err)
	}
	return label, nil
}

// chooseLabelled is the disk that can hold claims: a FAT knows no owners of files.
func chooseLabelled(label string, disks []disk) (string, error) {
	device, _, err := chooseDisks("LABEL="+label, disks)
	if err != nil {
		return "", err
	}
	for _, d := range disks {
		if d.device == device && d.fat {
			return "", fmt.Errorf("%s, labelled %s, has a FAT file system, which knows no owners of files: make an ext4 or XFS on it", device, label)
		}
	}
	return device, nil
}

// claimOptions are tried in turn. A broken ext4 is not written any more, whatever it says itself (it may say that the machine is to panic).
var claimOptions = map[string][]string{"ext4": {"errors=remount-ro,prjquota", "errors=remount-ro"}, "xfs": {"prjquota", ""}}

// Mount mounts a device at a directory that it makes. Somebody brings such a disk: devices in it are none, and its programs run with the
// rights of who starts them.
func (*Labelled) Mount(device, at string) error {
	head, err := readHead(device)
	if err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	kind := claimKind(head)
	err = errors.New("it has neither an ext4 nor an XFS")
	for _, words := range claimOptions[kind] {
		if err = unix.Mount(device, at, kind, unix.MS_NOATIME|unix.MS_NODEV|unix.MS_NOSUID, words); err == nil {
			return nil
		}
	}
	return fmt.Errorf("mount %s at %s: %w", device, at, err)
}

// claimKind is the kind of file system that a disk has, if it is one that holds claims.
func claimKind(head []byte) string {
	switch {
	case head[0x438] == 0x53 && head[0x439] == 0xef:
		return "ext4"
	case bytes.HasPrefix(head, []byte("XFSB")):
		return "xfs"
	}
	return ""
}

// Below are the places below a directory where something is mounted.
func (*Labelled) Below(dir string) (mounted []string, err error) {
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	for _, m := range list {
		if m.Mountpoint != dir {
			mounted = append(mounted, m.Mountpoint)
		}
	}
	return mounted, err
}

// Stands says whether something is mounted at a place, and whether the disk below it is still there. Only the kernel's lists are asked:
// they answer whatever the disk does.
func (*Labelled) Stands(at string) (mounted, there bool, device string, err error) {
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(at))
	if err != nil || len(found) == 0 {
		return false, false, "", err
	}
	m := found[len(found)-1]
	gone, err := BlockGone(m.Major, m.Minor)
	return true, err == nil && !gone, m.Source, err
}

// BlockGone says whether a file system's disk was taken away. One without a disk of its own (major number 0) never is.
func BlockGone(major, minor int) (bool, error) {
	if major == 0 {
		return false, nil
	}
	_, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Unmount takes a file system out of the way, whoever is in it still.
func (*Labelled) Unmount(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}
