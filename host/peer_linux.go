package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// TrustPeer says why whoever connected to a unix socket of ours is not to be answered, whatever its uid; nil: it stands
// where this process does. Root in a container is uid 0 as well, and a hostPath or a copied descriptor brings a socket
// anywhere: what tells it from root of the board is its PID and user namespaces and its root directory. They are
// compared with our own, not the machine's: ledge may stand in a container itself.
func TrustPeer(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("it is not at a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var pid int32
	pidfd := -1
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			failed = err
			return
		}
		pid = cred.Pid
		switch got, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); {
		case err == nil:
			pidfd = got
		case !errors.Is(err, unix.ENOPROTOOPT): // that is Linux before 6.5
			failed = err
		}
	})
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("ask the kernel who it is: %w", err) // one that has ended has no pidfd any more
	}
	if pid == 0 {
		return errors.New("it is in a PID namespace that cannot be seen from here")
	}
	if err := standsHere(int(pid)); err != nil {
		return err
	}
	// As long as it lives, what was read under its number was its own.
	if pidfd >= 0 {
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
			return fmt.Errorf("process %d has ended: %w", pid, err)
		}
	}
	return nil
}

// standsHere compares a process with this one. All is read through one open directory of /proc, which is of one process
// and never of a later one of the same number.
func standsHere(pid int) error {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at process %d: %w", pid, err)
	}
	defer unix.Close(dir)
	for _, place := range []struct{ file, what string }{
		{"ns/pid", "PID namespace"}, {"ns/user", "user namespace"}, {"root", "root directory"},
	} {
		var its, ours unix.Stat_t
		if err := unix.Fstatat(dir, place.file, &its, 0); err != nil {
			return fmt.Errorf("look at the %s of process %d: %w", place.what, pid, err)
		}
		if err := unix.Stat("/proc/self/"+place.file, &ours); err != nil {
			return fmt.Errorf("look at our own %s: %w", place.what, err)
		}
		if its.Dev != ours.Dev || its.Ino != ours.Ino {
			return fmt.Errorf("process %d has another %s, as in a container", pid, place.what)
		}
	}
	return nil
}
