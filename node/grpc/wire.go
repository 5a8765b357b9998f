// Package grpc says the little of gRPC that ledge needs, by hand: calls over HTTP/2 without TLS, and messages of a few fields. Linking
// google.golang.org/grpc for it would take megabytes.
package grpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Error is a status of gRPC that is not OK.
type Error struct {
	Code    int
	Message string
}

// The codes that are told apart here.
const (
	InvalidArgument   = 3
	ResourceExhausted = 8
	Unimplemented     = 12
	Internal          = 13
)

// codes names the status codes of gRPC.
var codes = []string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
	"Unavailable", "DataLoss", "Unauthenticated"}

func (e Error) Error() string {
	name := strconv.Itoa(e.Code)
	if e.Code >= 0 && e.Code < len(codes) {
		name = codes[e.Code]
	}
	return fmt.Sprintf("rpc error: code = %s desc = %s", name, e.Message)
}

// Frame puts gRPC's prefix before a message: not compressed, its length.
func Frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// readFrame reads one message; io.EOF: there is none any more. What is claimed to come costs nothing until it comes.
func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("the message ends in its prefix")
		}
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0] != 0:
		return nil, errors.New("the message is compressed, which nobody has asked for")
	case size > int64(most):
		return nil, Error{ResourceExhausted, fmt.Sprintf("a message of %d bytes is more than %d", size, most)}
	}
	b, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(b)) < size {
		err = fmt.Errorf("the message ends after %d of %d bytes", len(b), size)
	}
	return b, err
}

// Field is one field of a message in the wire format of protobuf.
type Field struct {
	Number uint64
	Varint uint64 // of a number
	Data   []byte // of a text or a message; nil: it is a number
}

// ErrMessage says that bytes are no message, or not the one that is meant.
var ErrMessage = errors.New("the message is malformed")

// Fields calls each for every number, text and message in b; fields of fixed size are passed over.
func Fields(b []byte, each func(Field) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 {
			return ErrMessage
		}
		b = b[n:]
		f := Field{Number: key >> 3}
		var skip uint64
		v, n := binary.Uvarint(b)
		switch kind := key & 7; {
		case kind == 1:
			skip = 8
		case kind == 5:
			skip = 4
		case kind != 0 && kind != 2, n <= 0:
			return ErrMessage
		case kind == 0:
			f.Varint, skip = v, uint64(n)
		case v > uint64(len(b)-n):
			return ErrMessage
		default:
			skip = uint64(n) + v
			f.Data = b[n:skip:skip]
		}
		if skip > uint64(len(b)) {
			return ErrMessage
		}
		if kind := key & 7; kind == 0 || kind == 2 {
			if err := each(f); err != nil {
				return err
			}
		}
		b = b[skip:]
	}
	return nil
}

// AppendBytes adds a field that is a text or a message, also an empty one.
func AppendBytes[T string | []byte](b []byte, number uint64, v T) []byte {
	b = binary.AppendUvarint(b, number<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendVarint adds a field that is a number, unless it is 0.
func AppendVarint(b []byte, number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, number<<3), v)
}
