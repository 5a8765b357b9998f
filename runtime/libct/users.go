package libct

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// A pod with users of its own has a user namespace, made before its other namespaces so that they belong to it: root in
// the pod may then change the pod's network, and on the board is nobody.

func idMappings(p runtime.Pod) []configs.IDMap {
	if p.Users == nil {
		return nil
	}
	return []configs.IDMap{{ContainerID: 0, HostID: int64(p.Users.Host), Size: int64(p.Users.Size)}}
}

func checkUsers(p runtime.Pod) error {
	switch {
	case p.Users == nil:
		return nil
	case p.HostNetwork || p.HostIPC || p.HostPID:
		return errors.New("a pod with users of its own cannot share the host's network, IPC or processes")
	case p.Users.Host == 0 || p.Users.Size == 0 || uint64(p.Users.Host)+uint64(p.Users.Size) > 1<<31:
		return fmt.Errorf("users %d and on, %d of them: not a range beside the board's own", p.Users.Host, p.Users.Size)
	}
	return nil
}

// makeUserNamespaces has a process made with all the namespaces at once, in which case the kernel makes that of the users
// first and has the others belong to it. The process stops before it runs anything; it is ended as soon as they are
// pinned.
func makeUserNamespaces(dir string, kinds []nsKind, p runtime.Pod) error {
	flags := uintptr(unix.CLONE_NEWUSER)
	for _, k := range kinds {
		flags |= uintptr(k.flag)
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(p.Users.Host), Size: int(p.Users.Size)}}
	proc, err := os.StartProcess("/proc/self/exe", []string{"namespaces"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: flags, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true, Ptrace: true, Pdeathsig: syscall.SIGKILL}})
	if err != nil {
		return fmt.Errorf("make a user namespace (the kernel may not allow any, or no more): %w", err)
	}
	defer func() {
		_ = proc.Kill()
		_, _ = proc.Wait()
	}()
	for _, k := range append([]nsKind{{name: "user"}}, kinds...) {
		if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", proc.Pid, k.name), filepath.Join(dir, k.name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin %s: %w", k.name, err)
		}
	}
	return inside(func() error {
		for _, k := range kinds {
			fd, err := unix.Open(filepath.Join(dir, k.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.Setns(fd, k.flag)
			_ = unix.Close(fd)
			if err != nil {
				return fmt.Errorf("enter %s: %w", k.name, err)
			}
		}
		return setUp(p)
	})
}

// inside runs a function on a thread that may enter namespaces: it dies with its goroutine.
func inside(fn func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		done <- func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("ledge bug: the main thread must not enter other namespaces")
			}
			return fn()
		}()
	}()
	return <-done
}

// rootsDir is where the root file systems of such pods are shown while they start: root in the pod, who is nobody here,
// has to walk there, and the directories of images and of the keeper are closed.
const rootsDir = "/run/ledge-roots"

// showRoot shows a root file system at a place that everybody can walk to, until hide is called.
func (r *Runner) showRoot(p runtime.Pod, c runtime.Container) (path string, hide func(), err error) {
	path = filepath.Join(rootsDir, p.UID+"."+c.ID)
	if err := os.MkdirAll(path, 0o711); err != nil {
		return "", nil, fmt.Errorf("show the root file system: %w", err)
	}
	hide = func() {
		if err := errors.Join(unmountAll(path), os.Remove(path)); err != nil {
			r.warn("a root file system is still shown: " + err.Error())
		}
		_ = os.Remove(rootsDir) // unless another start needs it
	}
	if err := unix.Mount(c.Rootfs, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		hide()
		return "", nil, fmt.Errorf("show the root file system: %w", err)
	}
	return path, hide, nil
}

// as does something as another user, on a thread that is locked: settings of an IPC namespace are its root's to change,
// and the board's root is not asked for capabilities there.
func as(uid uint32, do func() error) error {
	call := uintptr(unix.SYS_SETRESUID)
	if goruntime.GOARCH == "arm" {
		call = 208 // setresuid32; the old one takes 16 bits
	}
	become := func(euid uint32) error { // this thread alone, where the library would change them all
		if _, _, e := unix.RawSyscall(call, ^uintptr(0), uintptr(euid), ^uintptr(0)); e != 0 {
			return fmt.Errorf("become user %d: %w", euid, e)
		}
		return nil
	}
	if err := become(uid); err != nil {
		return err
	}
	return errors.Join(do(), become(0))
}
