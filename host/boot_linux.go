package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What the first process of a machine does before any other program can run.

// IsInit says whether this process is the first one of a machine, and not of a container. /proc is mounted to find out.
func IsInit() bool {
	if os.Getpid() != 1 {
		return false
	}
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO of the kernel
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		_ = mountIfNone(systemMounts[0]) // a container always has it
		ns, err = os.Readlink("/proc/self/ns/pid")
	}
	return err == nil && ns == first
}

type systemMount struct {
	kind, at, options string
	flags             uintptr
}

var systemMounts = []systemMount{
	{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"devtmpfs", "/dev", "mode=0755", unix.MS_NOSUID},
	{"devpts", "/dev/pts", "mode=0620,gid=5,ptmxmode=0666", unix.MS_NOSUID | unix.MS_NOEXEC},
	{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/run", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	// favordynmods (Linux 6.0): a container's start does not wait some 10 ms for a lock of the kernel (runtime/libct: swift).
	{"cgroup2", "/sys/fs/cgroup", "nsdelegate,favordynmods", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
}

// MountSystem mounts what every program expects and the kernel does not mount by itself; what is there already stays.
func MountSystem() error {
	errs := []error{leaveRootfs()}
	for _, m := range systemMounts {
		errs = append(errs, mountIfNone(m))
	}
	// As systemd has it: volumes with mountPropagation: Bidirectional need a root that is shared.
	errs = append(errs, unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
	return errors.Join(errs...)
}

// leaveRootfs puts a bind mount of the initramfs in its place. No container can pivot away from the kernel's own first
// mount, which has no parent.
func leaveRootfs() error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		return fmt.Errorf("look at /: %w", err)
	}
	if kind := int64(fs.Type); kind != unix.RAMFS_MAGIC && kind != unix.TMPFS_MAGIC {
		return nil
	}
	const at = "/.root"
	err := os.MkdirAll(at, 0o755)
	if err == nil {
		err = unix.Mount("/", at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil {
		err = unix.Chdir(at)
	}
	if err == nil {
		err = unix.Mount(".", "/", "", unix.MS_MOVE, "")
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	if err == nil {
		err = unix.Chdir("/")
	}
	if err != nil {
		return fmt.Errorf("put a mount in the place of the initramfs: %w", err)
	}
	return nil
}

func mountIfNone(m systemMount) error {
	if there, err := isMountPoint(m.at); err == nil && there {
		return nil
	}
	if err := os.MkdirAll(m.at, 0o755); err != nil {
		return err
	}
	err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.options)
	for options := m.options; errors.Is(err, unix.EINVAL) && options != ""; { // one that the kernel does not know: the newest stand last
		options = options[:max(0, strings.LastIndexByte(options, ','))]
		err = unix.Mount(m.kind, m.at, m.kind, m.flags, options)
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.at, err)
	}
	return nil
}

// Mounted says whether a file system is mounted at dir.
func Mounted(dir string) (bool, error) { return isMountPoint(dir) }

func isMountPoint(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &here), unix.Stat(filepath.Dir(dir), &above)); err != nil {
		return false, err
	}
	return here.Dev != above.Dev, nil
}

// SetUpMachine gives a machine without an init system a name, a loopback interface, and Ctrl-Alt-Del as a signal
// instead of a reset.
func SetUpMachine(name string) error {
	errs := []error{loopbackUp()}
	if have, err := os.Hostname(); err != nil || have == "" || have == "(none)" {
		if err := unix.Sethostname([]byte(name)); err != nil {
			errs = append(errs, fmt.Errorf("name the machine %s: %w", name, err))
		}
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		errs = append(errs, fmt.Errorf("take Ctrl-Alt-Del: %w", err))
	}
	return errors.Join(errs...)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	return nil
}

// dataOptions spare the card. What nobody has asked to be on disk (fsync) may be a minute late there; the store and the images
// ask. prjquota holds claims to their sizes; a file system without quotas refuses the word, and is mounted without it.
var dataOptions = map[string][]string{"ext4": {"commit=60,prjquota", "commit=60"}, "xfs": {"prjquota", ""}}

// MountFirmware mounts the partition that the machine's firmware reads, read-only. Only root may look: what people write
// there has tokens and passwords in it.
func MountFirmware(device, at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("mount the firmware's partition: %w", err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
	if err := unix.Mount(device, at, "vfat", flags, "umask=0077"); err != nil {
		return fmt.Errorf("mount the firmware's partition, %s: %w", device, err)
	}
	return nil
}

// MountData mounts the device of the data partition. The kinds of file system that the kernel knows are tried in turn.
func MountData(device, at string) error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	if _, err := os.Stat(device); err != nil {
		return fmt.Errorf("mount the data partition: %w", err)
	}
	err = errors.New("the kernel knows no file system for it")
	for _, kind := range diskFileSystems(string(known)) {
		options := dataOptions[kind]
		if options == nil {
			options = []string{""}
		}
		for _, words := range options {
			if err = unix.Mount(device, at, kind, unix.MS_NOATIME, words); err == nil {
				return nil
			}
		}
		if !errors.Is(err, unix.EINVAL) { // another kind of file system
			break
		}
	}
	return fmt.Errorf("mount %s at %s: %w", device, at, err)
}

// diskFileSystems are those of /proc/filesystems that lie on a disk; ext4 comes before its elders, which the kernel has
// for older disks and which complain of it.
func diskFileSystems(known string) (kinds []string) {
	for line := range strings.Lines(known) {
		if kind, virtual := strings.TrimSpace(line), strings.HasPrefix(line, "nodev"); kind != "" && !virtual {
			kinds = append(kinds, kind)
		}
	}
	elder := func(kind string) int {
		if kind == "ext3" || kind == "ext2" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return elder(a) - elder(b) })
	return kinds
}

// SetClock sets the clock of the machine forward to a moment known to have passed.
func SetClock(floor time.Time) error {
	if !time.Now().Before(floor) {
		return nil
	}
	tv := unix.NsecToTimeval(floor.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set the clock to %s: %w", floor.UTC().Format(time.RFC3339), err)
	}
	return nil
}

// stepFrom is how far a clock is off that is set, not slewed: half a second takes a quarter of an hour.
const stepFrom = 500 * time.Millisecond

// AdjustClock corrects the machine's clock by what a server said, and tells the kernel that somebody who knows the time, give or
// take an error, keeps it: ClockSynced says so then, and the kernel sets a battery-backed clock by it.
func AdjustClock(offset, within time.Duration) (stepped bool, err error) {
	if stepped = offset.Abs() >= stepFrom; stepped {
		ts := unix.NsecToTimespec(time.Now().Add(offset).UnixNano())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	} else {
		const singleShot = 0x8001 // ADJ_OFFSET_SINGLESHOT: adjtime(3)
		tx := unix.Timex{Modes: singleShot}
		setLong(&tx.Offset, offset.Microseconds())
		_, err = unix.Adjtimex(&tx)
	}
	if err != nil {
		return false, fmt.Errorf("correct the clock by %v: %w", offset, err)
	}
	tx := unix.Timex{Modes: unix.ADJ_STATUS | unix.ADJ_MAXERROR | unix.ADJ_ESTERROR} // no status bit: neither unsynchronized nor a discipline
	setLong(&tx.Maxerror, within.Microseconds())
	setLong(&tx.Esterror, within.Microseconds())
	if _, err := unix.Adjtimex(&tx); err != nil {
		return stepped, fmt.Errorf("tell the kernel that the clock is right: %w", err)
	}
	return stepped, nil
}

// setLong sets a C long, which has 32 bits on some boards.
func setLong[T int32 | int64](to *T, value int64) { *to = T(value) }
