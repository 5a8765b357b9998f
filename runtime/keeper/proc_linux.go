package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// process is the first process of a container, held by a pidfd so that its number cannot be given to another one.
type process struct {
	pid int
	fd  *os.File
}

// openProcess takes hold of a process. With start != 0 it must be the one that started then.
func openProcess(pid int, start uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	// The number may have passed on before the descriptor was ours; now it cannot.
	if start != 0 {
		if have, err := startTime(pid); err != nil || have != start {
			unix.Close(fd)
			return nil, fmt.Errorf("process %d is another one now: %w", pid, os.ErrProcessDone)
		}
	}
	f, err := pollable(fd, "pidfd") // so that Go's poller waits for it and no thread does
	if err != nil {
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	return &process{pid: pid, fd: f}, nil
}

func (p *process) signal(sig unix.Signal) error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return nil // closed: the process has been reaped
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return nil
	}
	if errors.Is(serr, unix.ESRCH) {
		return nil
	}
	return serr
}

// wait blocks until the process has ended and tells how. stop, called from elsewhere, makes it return
// os.ErrDeadlineExceeded.
func (p *process) wait() (runtime.Exit, error) {
	if err := p.ended(); err != nil {
		return runtime.Exit{}, err
	}
	return p.exit(), nil
}

// ended blocks until the process has ended.
func (p *process) ended() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool {
		pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(pfd, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// stop makes wait return.
func (p *process) stop() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) }

// exit reaps the ended process if it is our child, and else asks the kernel what it remembers.
func (p *process) exit() runtime.Exit {
	var ws unix.WaitStatus
	for {
		pid, err := unix.Wait4(p.pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err == nil && pid == p.pid {
			return exitOf(ws)
		}
		return p.remembered()
	}
}

// remembered asks the pidfd for the exit status of a process that somebody else reaps (PIDFD_GET_INFO, kernel 6.15).
// It is there from the moment of the reaping on, so a slow reaper is waited for a little.
func (p *process) remembered() runtime.Exit {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return unknownExit()
	}
	for range 500 {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		var ierr error
		if err := rc.Control(func(fd uintptr) { ierr = unix.IoctlPidfdInfo(int(fd), &info) }); err != nil {
			return unknownExit()
		}
		switch {
		case ierr == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0:
			return exitOf(unix.WaitStatus(info.Exit_code))
		case ierr != nil:
			return unknownExit() // the kernel does not have the call, or does not remember
		}
		time.Sleep(10 * time.Millisecond)
	}
	return unknownExit()
}

// exitOf translates a wait status.
func exitOf(ws unix.WaitStatus) runtime.Exit {
	e := runtime.Exit{FinishedAt: time.Now()}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
		e.Code = 128 + e.Signal
	} else {
		e.Code = ws.ExitStatus()
	}
	return e
}

// unknownExit is the honest answer when nobody saw the end.
func unknownExit() runtime.Exit {
	return runtime.Exit{Code: 137, Unknown: true, FinishedAt: time.Now()}
}

// startTime is field 22 of /proc/PID/stat. With the PID it names a process within one boot.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := statFields(b)
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// statFields are those of /proc/PID/stat from the third on: state, parent and so forth.
func statFields(stat []byte) []string {
	// The second field is the program's name, which may hold anything, also a parenthesis.
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// dupFile copies a parked file for Go's poller. The original is the caller's to close.
func dupFile(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup, derr := -1, error(nil)
	// Not f.Fd(), which would make the file, shared with whoever parked it, blocking.
	if err := rc.Control(func(fd uintptr) { dup, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, derr
	}
	return pollable(dup, f.Name())
}
