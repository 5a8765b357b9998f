package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// The files of a container that must not be closed while it lives, by their names in its directory and, with its
// ID, in the parking lots.
const (
	nameStdin  = "stdin"
	nameStdout = "stdout"
	nameStderr = "stderr"
	nameTTY    = "tty"
	namePid    = "pid"
)

var allNames = []string{nameStdin, nameStdout, nameStderr, nameTTY, namePid}

func parkName(id, name string) string { return id + "/" + name }

// stdio is the keeper's side of a container's standard files.
type stdio struct {
	files   map[string]*os.File // by name; what is parked
	streams []*stream
	log     *logFile
}

// childFiles is the container's side, closed once it has started.
type childFiles struct {
	std     [3]*os.File
	console *os.File // child's end of the socket pair that brings the terminal
	pair    *os.File // our end
}

func (c *childFiles) close() {
	for _, f := range append(c.std[:], c.console, c.pair) {
		if f != nil {
			_ = f.Close()
		}
	}
}

// makeStdio makes the standard files of a container in dir.
//
// Output goes through FIFOs with names. The container gets a write-only descriptor where somebody outlives the
// keeper and keeps a reader (fdStore); elsewhere it gets one open both ways, which makes it its own reader, so that
// the death of keeper and brain together blocks a writer and does not kill it with SIGPIPE.
func makeStdio(dir string, c runtime.Container, log *logFile, fdStore bool) (_ *stdio, _ *childFiles, err error) {
	s, child := &stdio{files: map[string]*os.File{}, log: log}, &childFiles{}
	defer func() {
		if err != nil {
			child.close()
			s.close()
		}
	}()
	if c.TTY {
		child.pair, child.console, err = socketPair()
		return s, child, err
	}
	out := os.O_WRONLY
	if !fdStore {
		out = os.O_RDWR
	}
	for i, name := range []string{nameStdout, nameStderr} {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return nil, nil, fmt.Errorf("mkfifo %s: %w", path, err)
		}
		if s.files[name], err = openFIFO(path, os.O_RDONLY); err != nil {
			return nil, nil, err
		}
		if child.std[i+1], err = openBlocking(path, out); err != nil {
			return nil, nil, err
		}
		s.streams = append(s.streams, newStream(name, s.files[name], log))
	}
	if !c.Stdin {
		child.std[0], err = openBlocking(os.DevNull, os.O_RDONLY)
		return s, child, err
	}
	path := filepath.Join(dir, nameStdin)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, nil, fmt.Errorf("mkfifo %s: %w", path, err)
	}
	// Both ways, or opening would wait for a reader. The container sees the end when every holder has closed it.
	if s.files[nameStdin], err = openFIFO(path, os.O_RDWR); err != nil {
		return nil, nil, err
	}
	child.std[0], err = openBlocking(path, os.O_RDONLY)
	return s, child, err
}

// openFIFO opens without waiting, for Go's poller.
func openFIFO(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|unix.O_NONBLOCK, 0)
}

// openBlocking opens for a container. os.OpenFile would make a FIFO non-blocking, and programs do not expect EAGAIN.
func openBlocking(path string, flag int) (*os.File, error) {
	fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// reopenStdio takes the standard files up again after a restart of the keeper. The FIFOs are opened by name: while
// the container or a parking place holds one end open, it is the same pipe with the same content. A terminal has no
// name; it must have been parked.
func reopenStdio(dir string, c runtime.Container, log *logFile, parked map[string]*os.File) (*stdio, error) {
	s := &stdio{files: map[string]*os.File{}, log: log}
	if c.TTY {
		if f := parked[nameTTY]; f != nil {
			master, err := dupFile(f)
			if err != nil {
				return nil, err
			}
			s.addTTY(master)
		}
		return s, nil
	}
	for _, name := range []string{nameStdout, nameStderr} {
		f, err := openFIFO(filepath.Join(dir, name), os.O_RDONLY)
		if err != nil {
			s.close()
			return nil, err
		}
		s.files[name] = f
		s.streams = append(s.streams, newStream(name, f, log))
	}
	if c.Stdin {
		f, err := openFIFO(filepath.Join(dir, nameStdin), os.O_RDWR)
		if c.StdinOnce && errors.Is(err, fs.ErrNotExist) {
			return s, nil // it has had its one attacher
		}
		if err != nil {
			s.close()
			return nil, err
		}
		s.files[nameStdin] = f
	}
	return s, nil
}

func (s *stdio) addTTY(master *os.File) {
	s.files[nameTTY] = master
	s.streams = append(s.streams, newStream(nameStdout, master, s.log))
}

// expect keeps what the container says first for whoever attaches first.
func (s *stdio) expect(room *earlyRoom) {
	for _, one := range s.streams {
		one.taps.expect(room)
	}
}

func (s *stdio) close() {
	for _, f := range s.files {
		_ = f.Close()
	}
	for _, one := range s.streams { // not at a stream's own end: an attacher may join between that and the container's
		one.taps.forget()
	}
	s.log.close()
}

// receiveTTY takes the terminal's master that the starting container sent.
func (s *stdio) receiveTTY(pair *os.File) error {
	master, err := receiveTerminal(pair)
	if err != nil {
		return err
	}
	s.addTTY(master)
	return nil
}

func receiveTerminal(pair *os.File) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, oobn, _, _, err := unix.Recvmsg(int(pair.Fd()), make([]byte, 4096), oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("receive the terminal: %w", err)
	}
	fds, err := rights(oob[:oobn])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("receive the terminal: %d descriptors: %w", len(fds), err)
	}
	return pollable(fds[0], nameTTY)
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "console"), os.NewFile(uintptr(fds[1]), "console"), nil
}

// pollable wraps a descriptor for Go's poller.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// rights gives the descriptors of a control message.
func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		f, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, f...)
	}
	return fds, nil
}
