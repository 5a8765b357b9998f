// Package websocket is the part of RFC 6455 that streams to and from containers need: binary messages of any length in
// pieces of bounded size, pings answered, an orderly end. There are no extensions and no compression.
package websocket

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// The opcodes of frames.
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10
)

const (
	magic      = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	byeTime    = 5 * time.Second // for the last frame
	maxControl = 125             // bytes of a control frame
	piece      = 32 << 10        // of a message, at most, is handed on at once
	writeTime  = time.Minute     // for one frame; who takes longer is gone
)

// Conn is one end of a connection. One goroutine may read while others write.
type Conn struct {
	// Protocol is the subprotocol that was agreed on, "" for none.
	Protocol string

	conn   net.Conn
	in     *bufio.Reader
	client bool // we mask, they do not

	// Of the message being read.
	left int64 // bytes of the frame not read yet
	mask [4]byte
	pos  int
	fin  bool // the frame is the last of its message
	open bool // a message has begun and not ended
	err  error

	mu     sync.Mutex // of writes
	closed bool
}

// Wanted says whether a request asks for a WebSocket.
func Wanted(r *http.Request) bool {
	return has(r.Header, "Connection", "upgrade") && has(r.Header, "Upgrade", "websocket")
}

// has looks for a word in a header that lists words.
func has(h http.Header, name, word string) bool {
	for _, line := range h.Values(name) {
		for _, w := range strings.Split(line, ",") {
			if strings.EqualFold(strings.TrimSpace(w), word) {
				return true
			}
		}
	}
	return false
}

// Protocols are the subprotocols that a request offers, most wanted first.
func Protocols(r *http.Request) []string {
	var out []string
	for _, line := range r.Header.Values("Sec-Websocket-Protocol") {
		for _, p := range strings.Split(line, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// Check says what is wrong with a request for a WebSocket, before anything is begun. A page of another origin in a
// browser could otherwise use the identity of the browser's user.
func Check(r *http.Request) error {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key"))
	switch {
	case r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1:
		return errors.New("a WebSocket begins with a GET of HTTP/1.1")
	case r.Header.Get("Sec-Websocket-Version") != "13":
		return errors.New("the Sec-WebSocket-Version is not 13")
	case err != nil || len(key) != 16:
		return errors.New("the Sec-WebSocket-Key is not 16 bytes in base64")
	}
	if origin := r.Header.Get("Origin"); origin != "" && !trusted(origin, r.Host) {
		return fmt.Errorf("the Origin %q is neither this server nor this machine", origin)
	}
	return nil
}

// trusted: pages of this server itself, and of programs on the client's own machine.
func trusted(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return strings.EqualFold(u.Host, host) || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Accept makes a WebSocket of a request that Check found right. protocol is what to speak, "" for none.
func Accept(w http.ResponseWriter, r *http.Request, protocol string) (*Conn, error) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		accept(r.Header.Get("Sec-Websocket-Key")) + "\r\n"
	if protocol != "" {
		head += "Sec-WebSocket-Protocol: " + protocol + "\r\n"
	}
	if err := errors.Join(conn.SetDeadline(time.Time{}), writeAll(conn, []byte(head+"\r\n"))); err != nil {
		conn.Close()
		return nil, fmt.Errorf("answer the upgrade: %w", err)
	}
	return &Conn{Protocol: protocol, conn: conn, in: buf.Reader}, nil
}

func accept(key string) string {
	sum := sha1.Sum([]byte(key + magic))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Client is the other end, over a connection whose upgrade has been answered.
func Client(conn net.Conn, in *bufio.Reader, answer *http.Response, key string, offered []string) (*Conn, error) {
	protocol := answer.Header.Get("Sec-Websocket-Protocol")
	switch {
	case answer.StatusCode != http.StatusSwitchingProtocols || !has(answer.Header, "Upgrade", "websocket"):
		return nil, fmt.Errorf("the server did not switch to WebSocket: %s", answer.Status)
	case answer.Header.Get("Sec-Websocket-Accept") != accept(key):
		return nil, errors.New("the server answered another key")
	case protocol != "" && !slices.Contains(offered, protocol):
		return nil, fmt.Errorf("the server speaks %q, which was not offered", protocol)
	}
	return &Conn{Protocol: protocol, conn: conn, in: in, client: true}, nil
}

// Next reads the next piece of a message into p, which should have room for some KiB. first and last say whether it is
// the beginning and the end of its message. The error is io.EOF when the other side has ended in order.
func (c *Conn) Next(p []byte) (n int, first, last bool, err error) {
	if c.err != nil {
		return 0, false, false, c.err
	}
	first = !c.open
	for c.left == 0 {
		if err := c.frame(); err != nil {
			c.err = err
			return 0, false, false, err
		}
		if c.left == 0 && c.fin {
			c.open = false
			return 0, first, true, nil
		}
	}
	n, err = c.in.Read(p[:min(int64(len(p)), c.left, piece)])
	c.unmask(p[:n])
	c.left -= int64(n)
	if err != nil {
		c.err = unexpected(err)
		return n, first, false, c.err
	}
	last = c.left == 0 && c.fin
	c.open = !last
	return n, first, last, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) unmask(p []byte) {
	if c.client {
		return
	}
	for i := range p {
		p[i] ^= c.mask[c.pos&3]
		c.pos++
	}
}

// frame reads frame heads, and answers control frames, until one with data has come.
func (c *Conn) frame() error {
	for {
		var head [2]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return unexpected(err)
		}
		op, fin, masked := head[0]&15, head[0]&0x80 != 0, head[1]&0x80 != 0
		switch {
		case head[0]&0x70 != 0:
			return c.protocolError("reserved bits are set")
		case masked == c.client:
			return c.protocolError("the mask is not as it must be")
		}
		length, err := c.length(head[1] & 0x7f)
		switch {
		case err != nil:
			return err
		case op >= opClose && (!fin || length > maxControl):
			return c.protocolError("a control frame is too long or in parts")
		}
		if masked {
			if _, err := io.ReadFull(c.in, c.mask[:]); err != nil {
				return unexpected(err)
			}
			c.pos = 0
		}
		switch op {
		case opText, opBinary:
			if c.open {
				return c.protocolError("a message begins inside another")
			}
		case opContinue:
			if !c.open {
				return c.protocolError("a continuation of nothing")
			}
		case opClose, opPing, opPong:
			if err := c.control(op, int(length)); err != nil {
				return err
			}
			continue
		default:
			return c.protocolError("an unknown opcode")
		}
		c.left, c.fin, c.open = length, fin, true
		return nil
	}
}

func (c *Conn) length(short byte) (int64, error) {
	var b [8]byte
	switch short {
	case 126:
		if _, err := io.ReadFull(c.in, b[:2]); err != nil {
			return 0, unexpected(err)
		}
		return int64(binary.BigEndian.Uint16(b[:])), nil
	case 127:
		if _, err := io.ReadFull(c.in, b[:]); err != nil {
			return 0, unexpected(err)
		}
		n := binary.BigEndian.Uint64(b[:])
		if n > 1<<62 {
			return 0, c.protocolError("a frame is too long")
		}
		return int64(n), nil
	}
	return int64(short), nil
}

func (c *Conn) control(op byte, length int) error {
	data := make([]byte, length)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return unexpected(err)
	}
	c.unmask(data)
	switch op {
	case opPing:
		return c.write(opPong, data)
	case opClose:
		c.end(1000)
		return io.EOF
	}
	return nil
}

func (c *Conn) protocolError(what string) error {
	c.end(1002)
	return fmt.Errorf("websocket: %s", what)
}

// WriteMessage sends one binary message made of parts.
func (c *Conn) WriteMessage(parts ...[]byte) error { return c.write(opBinary, parts...) }

func (c *Conn) write(op byte, parts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	buf := make([]byte, 0, length+14)
	buf = append(buf, 0x80|op)
	flag := byte(0)
	if c.client {
		flag = 0x80
	}
	switch {
	case length < 126:
		buf = append(buf, flag|byte(length))
	case length < 1<<16:
		buf = binary.BigEndian.AppendUint16(append(buf, flag|126), uint16(length))
	default:
		buf = binary.BigEndian.AppendUint64(append(buf, flag|127), uint64(length))
	}
	if c.client {
		var mask [4]byte
		rand.Read(mask[:]) // never fails
		buf = append(buf, mask[:]...)
		start := len(buf)
		for _, p := range parts {
			buf = append(buf, p...)
		}
		for i := range buf[start:] {
			buf[start+i] ^= mask[i&3]
		}
	} else {
		for _, p := range parts {
			buf = append(buf, p...)
		}
	}
	limit := writeTime
	if op == opClose {
		limit = byeTime
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return writeAll(c.conn, buf)
}

func writeAll(w io.Writer, p []byte) error {
	_, err := w.Write(p)
	return err
}

// end says goodbye once.
func (c *Conn) end(code uint16) {
	c.write(opClose, binary.BigEndian.AppendUint16(nil, code))
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// Close ends the connection in order.
func (c *Conn) Close() error {
	c.end(1000)
	return c.conn.Close()
}

// NetConn is the connection underneath.
func (c *Conn) NetConn() net.Conn { return c.conn }

// Stream is the connection as a stream of bytes, where messages have no meaning: what is tunnelled is one.
func (c *Conn) Stream() net.Conn { return &stream{Conn: c.conn, ws: c} }

type stream struct {
	net.Conn
	ws *Conn
}

// NetConn is the connection underneath.
func (s *stream) NetConn() net.Conn { return s.Conn }

func (s *stream) Read(p []byte) (int, error) {
	for len(p) > 0 {
		n, _, _, err := s.ws.Next(p)
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

func (s *stream) Write(p []byte) (int, error) {
	if err := s.ws.WriteMessage(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *stream) Close() error { return s.ws.Close() }
