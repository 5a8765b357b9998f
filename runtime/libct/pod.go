package libct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

const nsfsMagic = 0x6e736673

// nsKind is a namespace that the containers of a pod share.
type nsKind struct {
	name  string // under /proc/PID/ns
	flag  int
	libct configs.NamespaceType
}

// pinned lists the namespaces a pod has of its own. The host's network comes with the host's name.
func pinned(p runtime.Pod) []nsKind {
	var kinds []nsKind
	if !p.HostNetwork {
		kinds = append(kinds, nsKind{"net", unix.CLONE_NEWNET, configs.NEWNET},
			nsKind{"uts", unix.CLONE_NEWUTS, configs.NEWUTS})
	}
	if !p.HostIPC {
		kinds = append(kinds, nsKind{"ipc", unix.CLONE_NEWIPC, configs.NEWIPC})
	}
	return kinds
}

// MakePod makes what the containers of a pod share and gives the path of its network namespace ("" if it has
// none). What is there already is left alone. After an error nothing is left. When ctx ends first it gives up.
func (r *Runner) MakePod(ctx context.Context, podDir string, p runtime.Pod) (netns string, err error) {
	if err := errors.Join(runtime.CheckID("pod", p.UID), checkCgroup(p.Cgroup), checkSysctls(p), checkSharing(p), checkUsers(p)); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.UnmakePod(podDir, p))
		}
	}()
	if err := r.makePodCgroup(p); err != nil {
		return "", fmt.Errorf("make the pod's cgroup: %w", err)
	}
	r.tree.swift.begin(r.tree.ownProcs) // not before: to make a cgroup waits for whoever waits for that lock
	if err := makeNamespaces(podDir, p); err != nil {
		return "", fmt.Errorf("make the pod's namespaces: %w", err)
	}
	if err := makeShm(podDir, p); err != nil {
		return "", fmt.Errorf("make the pod's shared memory: %w", err)
	}
	if err := r.ensureInit(ctx, podDir, p); err != nil {
		return "", err
	}
	if p.HostNetwork {
		return "", nil
	}
	return filepath.Join(podDir, "ns", "net"), nil
}

// UnmakePod undoes MakePod, also a half-finished one, and fails if anything is left.
func (r *Runner) UnmakePod(podDir string, p runtime.Pod) error {
	var errs []error
	if checkCgroup(p.Cgroup) == nil {
		errs = append(errs, r.dropInit(podDir, p))
	}
	for _, name := range []string{"shm", "ns/net", "ns/uts", "ns/ipc", "ns/user"} {
		if err := unmountAll(filepath.Join(podDir, name)); err != nil {
			errs = append(errs, err)
		}
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(filepath.Join(podDir, "ns")), os.RemoveAll(filepath.Join(podDir, "shm")))
	}
	if checkCgroup(p.Cgroup) == nil {
		errs = append(errs, r.tree.removeCgroup(r.tree.podCgroup(p)))
	}
	return errors.Join(errs...)
}

// makeNamespaces has a thread leave the host's namespaces, set the new ones up and pin them. The thread is not
// given back to Go; it dies with its goroutine.
func makeNamespaces(podDir string, p runtime.Pod) error {
	kinds := pinned(p)
	dir := filepath.Join(podDir, "ns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	flags, have := 0, 0
	for _, k := range kinds {
		flags |= k.flag
	}
	names := kinds
	if p.Users != nil {
		names = append([]nsKind{{name: "user"}}, kinds...)
	}
	for _, k := range names {
		f := filepath.Join(dir, k.name)
		if isNamespace(f) {
			have++
			continue
		}
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			return err
		}
	}
	if have == len(names) {
		return nil
	}
	if have > 0 {
		return fmt.Errorf("%s: %d of %d are there; some were unmounted by somebody else", dir, have, len(names))
	}
	if p.Users != nil {
		return makeUserNamespaces(dir, kinds, p)
	}
	return inside(func() error {
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := setUp(p); err != nil {
			return err
		}
		for _, k := range kinds {
			src := "/proc/thread-self/ns/" + k.name
			if err := unix.Mount(src, filepath.Join(dir, k.name), "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("pin %s: %w", k.name, err)
			}
		}
		return nil
	})
}

// setUp runs on a thread inside the new namespaces.
func setUp(p runtime.Pod) error {
	if !p.HostNetwork {
		if err := unix.Sethostname([]byte(p.Hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", p.Hostname, err)
		}
		if err := unix.Setdomainname([]byte(p.Domainname)); err != nil {
			return fmt.Errorf("set the domain name %q: %w", p.Domainname, err)
		}
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
	}
	return writeSysctls(p.Sysctls, p.Users)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// makeShm gives the pod one /dev/shm: POSIX shared memory belongs with the IPC namespace.
func makeShm(podDir string, p runtime.Pod) error {
	if p.HostIPC {
		return nil
	}
	dir := filepath.Join(podDir, "shm")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if mounted, err := isMountPoint(dir); err != nil || mounted {
		return err
	}
	options := "mode=1777,size=64m"
	if p.Users != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", p.Users.Host, p.Users.Host)
	}
	return unix.Mount("shm", dir, "tmpfs", quiet, options)
}

func isNamespace(file string) bool {
	var st unix.Statfs_t
	return unix.Statfs(file, &st) == nil && st.Type == nsfsMagic
}

// isMountPoint compares mount identities, which also tells a tmpfs on a tmpfs.
func isMountPoint(p string) (bool, error) {
	var own, parent unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &own); err != nil {
		return false, err
	}
	if own.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 { // kernel 5.8
		return own.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	if err := unix.Statx(unix.AT_FDCWD, filepath.Dir(p), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &parent); err != nil {
		return false, err
	}
	return own.Dev_major != parent.Dev_major || own.Dev_minor != parent.Dev_minor, nil
}

// unmountAll takes every mount off p, and checks. What is mounted below goes with it here only: a copy's peers keep theirs.
func unmountAll(p string) error {
	for range 16 {
		mounted, err := isMountPoint(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
		if !mounted {
			return nil
		}
		if err := unix.Mount("", p, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return fmt.Errorf("unmount %s: still mounted", p)
}

func checkSharing(p runtime.Pod) error {
	if p.ShareProcess && p.HostPID {
		return errors.New("a pod with the host's processes cannot share its own")
	}
	return nil
}
