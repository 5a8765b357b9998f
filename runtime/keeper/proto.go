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

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// The protocol: one connection per call. The client sends one request, the keeper answers with one response, or
// with many for watch and park. A frame is a length (4 bytes, big endian) and JSON; on park a frame can carry one
// file (SCM_RIGHTS). A keeper speaks protoVersion and everything down to oldestProto, because it outlives the
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
	opShutdown  = "shutdown"
	opReset     = "reset"
	opLimit     = "limit"
)

type request struct {
	Proto     int
	Op        string
	ID        string             `json:",omitempty"` // of a container, or the UID of a pod
	Signal    int                `json:",omitempty"`
	Pod       *runtime.Pod       `json:",omitempty"`
	Container *runtime.Container `json:",omitempty"`
	Place     *runtime.Place     `json:",omitempty"`
	Resources *runtime.Resources `json:",omitempty"`
}

type response struct {
	Proto  int
	Error  string             `json:",omitempty"`
	Kind   string             `json:",omitempty"` // of the error
	Info   *runtime.Info      `json:",omitempty"`
	Pod    *runtime.PodStatus `json:",omitempty"`
	Status *runtime.Status    `json:",omitempty"`
	State  *runtime.State     `json:",omitempty"`
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
)

// ErrProtocol says that brain and keeper are too far apart in version to talk.
var ErrProtocol = errors.New("keeper speaks another protocol")

var kinds = map[string]error{
	kindNotFound:    runtime.ErrNotFound,
	kindUnavailable: runtime.ErrUnavailable,
	kindProtocol:    ErrProtocol,
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

// send writes a frame.
func send(c *net.UnixConn, v any) error { return sendFile(c, v, nil) }

// sendFile writes a frame that carries a file.
func sendFile(c *net.UnixConn, v any, f *os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes, the limit is %d", len(body), maxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	if f == nil {
		_, err = c.Write(frame)
		return err
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var werr error
	if err := rc.Control(func(fd uintptr) { n, _, werr = c.WriteMsgUnix(frame, unix.UnixRights(int(fd)), nil) }); err != nil {
		return err
	}
	if werr == nil && n < len(frame) {
		_, werr = c.Write(frame[n:])
	}
	return werr
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
	oob := make([]byte, unix.CmsgSpace(4*4))
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

// receiveFile reads a frame and the file it carries, if any.
func receiveFile(c *net.UnixConn, v any) (*os.File, error) {
	r := &fileReader{c: c}
	err := receive(r, v, false)
	if err == nil && len(r.fds) == 1 {
		return os.NewFile(uintptr(r.fds[0]), "parked"), nil
	}
	for _, fd := range r.fds {
		_ = unix.Close(fd)
	}
	if err == nil && len(r.fds) > 1 {
		err = fmt.Errorf("%d files with one frame", len(r.fds))
	}
	return nil, err
}
