package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MountFor implements images.UserLayers: it is Mount for a user namespace whose users from 0 are the board's from host. Layers are shared
// with other containers and keep their owners; an id-mapped mount shows each with other owners (the kernel can do that for layers of an
// overlay since 5.19). The writable layer is the container's alone. It belongs to the mapped users itself, because overlayfs makes its
// work files as the board's root, and the map does not have him.
//
// While that is under way a tmpfs lies at target with the mapped layers below it, so that whoever clears up after a power
// cut of the brain finds everything where it looks.
func (o *Overlay) MountFor(target, dir string, lower []string, host, size uint32) (err error) {
	fail := func(err error) error {
		return fmt.Errorf("mount root file system for users %d and on at %s: %w", host, target, err)
	}
	m, err := prepare(target, dir, lower)
	if err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(m.upper, &st); err != nil {
		return fail(err)
	}
	if err := os.Chown(m.upper, int(st.Uid+host), int(st.Gid+host)); err != nil {
		return fail(err)
	}
	users, err := userNamespace(host, size)
	if err != nil {
		return fail(err)
	}
	defer users.Close()
	if err := unix.Mount("layers", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=700"); err != nil {
		return fail(err)
	}
	root, err := o.mountMapped(&m, target, users)
	err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	if root < 0 {
		return fail(err)
	}
	defer unix.Close(root)
	if err == nil {
		err = unix.MoveMount(root, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// mountMapped mounts the overlay over mapped layers inside the scratch directory and takes hold of it; -1 is no hold.
func (o *Overlay) mountMapped(m *mounting, scratch string, users *os.File) (root int, err error) {
	for i, l := range m.lower {
		at := filepath.Join(scratch, strconv.Itoa(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			return -1, err
		}
		if err := showAs(l, at, users); err != nil {
			return -1, fmt.Errorf("show layer %s with other users: %w", l, err)
		}
		m.lower[i] = at
	}
	m.target = filepath.Join(scratch, "root")
	if err := os.Mkdir(m.target, 0o700); err != nil {
		return -1, err
	}
	for _, f := range flavours {
		if err = m.mount(f); err == nil || !unknownToKernel(err) {
			break
		}
	}
	if err != nil {
		return -1, err
	}
	return unix.OpenTree(unix.AT_FDCWD, m.target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// showAs shows a directory at another place, read-only, with its users moved to those of a user namespace.
func showAs(from, at string, users *os.File) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("id-mapped mounts are not for this file system, or this kernel: %w", err)
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// userNamespace makes one with a map. A process is needed for it, which stops before it runs anything and is ended.
func userNamespace(host, size uint32) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(host), Size: int(size)}}
	p, err := os.StartProcess("/proc/self/exe", []string{"users"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: syscall.SIGKILL}})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace (the kernel may not allow any, or no more): %w", err)
	}
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}
