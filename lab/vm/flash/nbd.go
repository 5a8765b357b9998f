package flash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The words of the NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md) that QEMU uses with such a server: the
// fixed newstyle handshake and simple replies.
const (
	magicHello   = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption  = 0x49484156454f5054 // "IHAVEOPT"
	magicReply   = 0x3e889045565a9
	magicRequest = 0x25609513
	magicSimple  = 0x67446698

	optExportName, optAbort, optInfo, optGo = 1, 2, 6, 7

	repAck, repInfo = 1, 3
	repUnsupported  = 1<<31 + 1

	hasFlags, sendFlush, sendFUA = 1, 4, 8

	cmdRead, cmdWrite, cmdDisconnect, cmdFlush = 0, 1, 2, 3

	cmdFUA = 1

	errInvalid, errIO = 22, 5

	longest = 32 << 20 // of a request
)

// Serve answers on l, one connection after the other, until l is closed.
func (d *Disk) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		err = d.serve(conn)
		conn.Close()
		d.at("without a guest")
		// QEMU that is killed leaves in the middle of anything.
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*net.OpError)) {
			return err
		}
	}
}

func (d *Disk) serve(conn net.Conn) error {
	if on, err := d.greet(conn); err != nil || !on {
		return err
	}
	var head [28]byte
	for {
		d.at("waiting for a request")
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(head[:]) != magicRequest {
			return fmt.Errorf("nbd: no request begins with %x", head[:4])
		}
		flags, verb := binary.BigEndian.Uint16(head[4:]), binary.BigEndian.Uint16(head[6:])
		at, n := int64(binary.BigEndian.Uint64(head[16:])), int64(binary.BigEndian.Uint32(head[24:]))
		if n > longest {
			return fmt.Errorf("nbd: a request of %d bytes", n)
		}
		d.at("in request %d of %d bytes at %d", verb, n, at)
		var in, out []byte
		if verb == cmdWrite {
			in = make([]byte, n)
			if _, err := io.ReadFull(conn, in); err != nil {
				return err
			}
		}
		if verb == cmdDisconnect {
			return nil
		}
		code := uint32(errInvalid)
		if at >= 0 && at%sector == 0 && n%sector == 0 && at+n <= d.size {
			out, code = d.do(verb, in, at, n, flags&cmdFUA != 0)
		}
		if d.dead() {
			// The power is gone: whoever waits for the answer waits until somebody kills it, and no error tells it more
			// than a cut would.
			d.at("off")
			_, err := io.Copy(io.Discard, conn)
			return err
		}
		d.at("answering request %d of %d bytes at %d", verb, n, at)
		reply := binary.BigEndian.AppendUint32(nil, magicSimple)
		reply = binary.BigEndian.AppendUint32(reply, code)
		if _, err := conn.Write(append(append(reply, head[8:16]...), out...)); err != nil {
			return err
		}
	}
}

func (d *Disk) do(verb uint16, in []byte, at, n int64, fua bool) (out []byte, code uint32) {
	var err error
	switch verb {
	case cmdRead:
		out = make([]byte, n)
		err = d.read(out, at)
	case cmdWrite:
		err = d.write(in, at, fua)
	case cmdFlush:
		err = d.flush()
	default:
		return nil, errInvalid
	}
	if err != nil {
		return nil, errIO
	}
	return out, 0
}

// greet does the handshake; on means that requests follow.
func (d *Disk) greet(conn net.Conn) (on bool, err error) {
	hello := binary.BigEndian.AppendUint64(nil, magicHello)
	hello = binary.BigEndian.AppendUint64(hello, magicOption)
	if _, err := conn.Write(append(hello, 0, 3)); err != nil { // fixed newstyle, no padding
		return false, err
	}
	var flags [4]byte
	if _, err := io.ReadFull(conn, flags[:]); err != nil {
		return false, err
	}
	export := binary.BigEndian.AppendUint64(nil, uint64(d.size))
	export = binary.BigEndian.AppendUint16(export, hasFlags|sendFlush|sendFUA)
	for {
		var head [16]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return false, err
		}
		option, n := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
		if binary.BigEndian.Uint64(head[:]) != magicOption || n > 1<<16 {
			return false, fmt.Errorf("nbd: no option begins with %x", head[:8])
		}
		if _, err := io.CopyN(io.Discard, conn, int64(n)); err != nil { // there is but one export, whatever it is called
			return false, err
		}
		answer := func(kind uint32, data []byte) {
			out := binary.BigEndian.AppendUint64(nil, magicReply)
			for _, v := range []uint32{option, kind, uint32(len(data))} {
				out = binary.BigEndian.AppendUint32(out, v)
			}
			if err == nil {
				_, err = conn.Write(append(out, data...))
			}
		}
		switch option {
		case optExportName:
			_, err = conn.Write(export)
			return true, err
		case optGo, optInfo:
			answer(repInfo, append([]byte{0, 0}, export...))
			answer(repAck, nil)
			on = option == optGo
		case optAbort:
			answer(repAck, nil)
			return false, err
		default:
			answer(repUnsupported, nil)
		}
		if on || err != nil {
			return on, err
		}
	}
}
