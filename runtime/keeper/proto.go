package keeper

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// The protocol: one connection per call. The client sends one request, the keeper answers with one response, or
// with many for watch and park. A frame is a length (4 bytes, big endian) and JSON; on park a frame can carry one
// file (SCM_RIGHTS), on lend and lent three. A keeper speaks protoVersion and everything down to oldestProto, because it outlives the
// brain's upgrades and may meet an older or a newer one. It refuses fields it does not know: a newer brain must
// learn that, not have them ignored.
const (
	protoVersion = 1
	oldestProto  = 1
	maxFrame     = 4 << 20
)

// The operations.
const (
	opInfo      = "info"
	opEnsurePod = "ensure-pod"
	opRemovePod = "remove-pod"
	opStart     = "start"
	opSignal    = "signal"
	opRemove    = "remove"
	opList      = "list"
	opWatch     = "watch"
	opPark      = "park"
	opExec      = "exec"
	opAttach    = "attach"
	opShutdown  = "shutdown"
	opReset     = "reset"
	opLimit     = "limit"
	opLend      = "lend"
	opLent      = "lent"
)

type request struct {
	Proto     int
	Op        string
	ID        string             `json:",omitempty"` // of a container, or the UID of a pod, or the name of what is lent
	Signal    int                `json:",omitempty"`
	Pod       *runtime.Pod       `json:",omitempty"`
	Container *runtime.Container `json:",omitempty"`
	Place     *runtime.Place     `json:",omitempty"`
	Resources *runtime.Resources `json:",omitempty"`
	Exec      *execSpec          `json:",omitempty"`
	Attach    *attachSpec        `json:",omitempty"`
}

type response struct {
	Proto  int
	Error  string             `json:",omitempty"`
	Kind   string             `json:",omitempty"` // of the error
	Info   *runtime.Info      `json:",omitempty"`
	Pod    *runtime.PodStatus `json:",omitempty"`
	Status *runtime.Status    `json:",omitempty"`
	State  *runtime.State     `json:",omitempty"`
	Exit   *runtime.Exit      `json:",omitempty"`
	TTY    bool               `json:",omitempty"` // what was attached to is a terminal
}

// parkFrame goes both ways on a park connection: first the brain gives back what it holds, ending with Synced,
// then the keeper has it hold and drop files, saying Synced when the brain knows them all.
type parkFrame struct {
	Hold   string `json:",omitempty"` // with a file
	Drop   string `json:",omitempty"`
	Synced bool   `json:",omitempty"`
}

// The error kinds that survive the socket.
const (
	kindNotFound    = "not-found"
	kindUnavailable = "unavailable"
	kindProtocol    = "protocol"
	kindNotRunning  = "not-running"
	kindNoStdin     = "no-stdin"
	kindTooSlow     = "too-slow"
)

// ErrProtocol says that brain and keeper are too far apart in version to talk.
var ErrProtocol = errors.New("keeper speaks another protocol")

var kinds = map[string]error{
	kindNotFound:    runtime.ErrNotFound,
	kindUnavailable: runtime.ErrUnavailable,
	kindProtocol:    ErrProtocol,
	kindNotRunning:  runtime.ErrNotRunning,
	kindNoStdin:     runtime.ErrNoStdin,
	kindTooSlow:     runtime.ErrTooSlow,
}

func failure(err error) response {
	r := response{Proto: protoVersion, Error: err.Error()}
	for kind, target := range kinds {
		if errors.Is(err, target) {
			r.Kind = kind
		}
	}
	return r
}

// remoteError is an error of the keeper in the brain: the keeper's words, and what errors.Is looks for.
type remoteError struct {
	msg  string
	kind error
}

func (e *remoteError) Error() string { return e.msg }
func (e *remoteError) Unwrap() error { return e.kind }

func (r response) err() error {
	if r.Error == "" {
		return nil
	}
	return &remoteError{msg: r.Error, kind: kinds[r.Kind]}
}

// send writes a frame, with the files it is to carry; nil ones are left out.
func send(c *net.UnixConn, v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes, the limit is %d", len(body), maxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	files = slices.DeleteFunc(slices.Clone(files), func(f *os.File) bool { return f == nil })
	if len(files) == 0 {
		_, err = c.Write(frame)
		return err
	}
	var fds []int
	return withFiles(files, &fds, func() error {
		n, _, err := c.WriteMsgUnix(frame, unix.UnixRights(fds...), nil)
		if err == nil && n < len(frame) {
			_, err = c.Write(frame[n:])
		}
		return err
	})
}

// withFiles calls fn while the descriptors of all files are held open.
func withFiles(files []*os.File, fds *[]int, fn func() error) error {
	if len(files) == 0 {
		return fn()
	}
	rc, err := files[0].SyscallConn() // not Fd(), which would make the file blocking
	if err != nil {
		return err
	}
	var ferr error
	err = rc.Control(func(fd uintptr) {
		*fds = append(*fds, int(fd))
		ferr = withFiles(files[1:], fds, fn)
	})
	return errors.Join(err, ferr)
}

// receive reads a frame; strict refuses unknown fields.
func receive(r io.Reader, v any, strict bool) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("frame of %d bytes, the limit is %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	return d.Decode(v)
}

// fileReader reads from a connection and collects the files that come along.
type fileReader struct {
	c   *net.UnixConn
	fds []int
}

func (r *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, _, _, err := r.c.ReadMsgUnix(p, oob)
	if oobn > 0 {
		fds, perr := rights(oob[:oobn])
		r.fds = append(r.fds, fds...)
		err = errors.Join(err, perr)
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// maxFiles is the most one frame carries: standard input, output and error.
const maxFiles = 3

// receiveFiles reads a frame and the files it carries.
func receiveFiles(c *net.UnixConn, v any, strict bool) ([]*os.File, error) {
	r := &fileReader{c: c}
	err := receive(r, v, strict)
	if err == nil && len(r.fds) > maxFiles {
		err = fmt.Errorf("%d files with one frame", len(r.fds))
	}
	var files []*os.File
	for _, fd := range r.fds {
		if err != nil {
			_ = unix.Close(fd)
		} else {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, err
}

// receiveFile reads a frame that carries one file at the most.
func receiveFile(c *net.UnixConn, v any) (*os.File, error) {
	files, err := receiveFiles(c, v, false)
	if err == nil && len(files) > 1 {
		err = fmt.Errorf("%d files with one frame", len(files))
	}
	if err != nil || len(files) == 0 {
		closeFiles(files)
		return nil, err
	}
	return files[0], nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
