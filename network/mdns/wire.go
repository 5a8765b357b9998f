package mdns

import (
	"encoding/binary"
	"strings"
)

// Names stand here as they do in messages, uncompressed and in small letters: "\x06shed-1\x05local\x00". A label of a stranger may hold
// any byte, a dot too, so text would not do (and golang.org/x/net/dns/dnsmessage refuses such names, with all that follows them).

// Types and classes.
const (
	typeA    = 1
	typePTR  = 12
	typeTXT  = 16
	typeAAAA = 28
	typeSRV  = 33
	typeNSEC = 47
	typeANY  = 255

	classIN  = 1
	classANY = 255
	topBit   = 0x8000 // of a class: answer me alone; of a record: forget what you had of it

	isResponse, isTruncated, isAuthoritative, opAndCode = 0x8000, 0x0200, 0x0400, 0x780f
)

const (
	headerSize = 12
	mostName   = 255
)

// nameOf is a name of labels. Those that are longer than a label may be are cut.
func nameOf(labels ...string) string {
	var out strings.Builder
	for _, l := range labels {
		l = l[:min(len(l), 63)]
		out.WriteByte(byte(len(l)))
		for _, c := range []byte(l) { // strings.ToLower may change the length of what is no ASCII
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			out.WriteByte(c)
		}
	}
	out.WriteByte(0)
	return out.String()
}

// labels are those of a name.
func labels(name string) (out []string) {
	for len(name) > 0 && name[0] > 0 && int(name[0]) < len(name) {
		out = append(out, name[1:1+name[0]])
		name = name[1+name[0]:]
	}
	return out
}

// record is one of a message.
type record struct {
	name  string
	kind  uint16
	class uint16
	ttl   uint32
	data  string // without compression
}

// same says whether two tell the same.
func (r record) same(o record) bool { return r.name == o.name && r.kind == o.kind && r.data == o.data }

type question struct {
	name        string
	kind, class uint16
}

// reader reads a message from its beginning to its end.
type reader struct {
	msg    []byte
	at     int
	id     uint16
	flags  uint16
	counts [4]uint16 // questions, answers, authorities, additionals
}

func newReader(msg []byte) (r reader, ok bool) {
	if len(msg) < headerSize || len(msg) > mostMessage {
		return r, false
	}
	r = reader{msg: msg, at: headerSize, id: binary.BigEndian.Uint16(msg), flags: binary.BigEndian.Uint16(msg[2:])}
	for i := range r.counts {
		r.counts[i] = binary.BigEndian.Uint16(msg[4+2*i:])
	}
	return r, r.flags&opAndCode == 0
}

// name reads one; a pointer leads further to the front, always, so that there is an end.
func (r *reader) name() (string, bool) {
	var out [mostName]byte
	n, at, end, lowest := 0, r.at, 0, r.at
	for at < len(r.msg) {
		size := int(r.msg[at])
		switch {
		case size == 0:
			if end == 0 {
				end = at + 1
			}
			r.at = end
			return string(out[:n+1]), true
		case size >= 0xc0:
			if at+1 >= len(r.msg) {
				return "", false
			}
			if end == 0 {
				end = at + 2
			}
			to := int(binary.BigEndian.Uint16(r.msg[at:])) & 0x3fff
			if to >= lowest {
				return "", false
			}
			at, lowest = to, to
		case size > 63 || at+1+size > len(r.msg) || n+1+size >= mostName:
			return "", false
		default:
			out[n] = byte(size)
			for i, c := range r.msg[at+1 : at+1+size] {
				if 'A' <= c && c <= 'Z' {
					c += 'a' - 'A'
				}
				out[n+1+i] = c
			}
			n, at = n+1+size, at+1+size
		}
	}
	return "", false
}

func (r *reader) question() (q question, ok bool) {
	if q.name, ok = r.name(); !ok || r.at+4 > len(r.msg) {
		return q, false
	}
	q.kind, q.class = binary.BigEndian.Uint16(r.msg[r.at:]), binary.BigEndian.Uint16(r.msg[r.at+2:])
	r.at += 4
	return q, true
}

// record reads one. Names in it are read whole where they are compared.
func (r *reader) record() (out record, ok bool) {
	if out.name, ok = r.name(); !ok || r.at+10 > len(r.msg) {
		return out, false
	}
	b := r.msg[r.at:]
	out.kind, out.class, out.ttl = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])
	r.at += 10
	end := r.at + int(binary.BigEndian.Uint16(b[8:]))
	if end > len(r.msg) {
		return out, false
	}
	front := 0
	switch out.kind {
	case typeSRV:
		front = 6
		fallthrough
	case typePTR:
		if r.at+front > end {
			return out, false
		}
		out.data = string(r.msg[r.at : r.at+front])
		r.at += front
		to, ok := r.name()
		if !ok || r.at != end {
			return out, false
		}
		out.data += to
	default:
		out.data = string(r.msg[r.at:end])
	}
	r.at = end
	return out, true
}

// writer writes a message. Names of records are compressed, those in them are not: some who ask do not understand it.
type writer struct {
	msg    []byte
	counts [4]uint16
	names  map[string]int
}

func newWriter(id, flags uint16) *writer {
	w := &writer{msg: make([]byte, headerSize, 512), names: map[string]int{}}
	binary.BigEndian.PutUint16(w.msg, id)
	binary.BigEndian.PutUint16(w.msg[2:], flags)
	return w
}

func (w *writer) name(n string) {
	for n != "\x00" {
		if at, ok := w.names[n]; ok {
			w.msg = binary.BigEndian.AppendUint16(w.msg, 0xc000|uint16(at))
			return
		}
		if len(w.msg) < 0x4000 {
			w.names[n] = len(w.msg)
		}
		size := 1 + int(n[0])
		w.msg = append(w.msg, n[:size]...)
		n = n[size:]
	}
	w.msg = append(w.msg, 0)
}

func (w *writer) question(q question) {
	w.name(q.name)
	w.msg = binary.BigEndian.AppendUint16(w.msg, q.kind)
	w.msg = binary.BigEndian.AppendUint16(w.msg, q.class)
	w.counts[0]++
}

// Sections of a message.
const (
	answers = iota + 1
	authorities
	additionals
)

func (w *writer) record(section int, r record) {
	w.name(r.name)
	w.msg = binary.BigEndian.AppendUint16(w.msg, r.kind)
	w.msg = binary.BigEndian.AppendUint16(w.msg, r.class)
	w.msg = binary.BigEndian.AppendUint32(w.msg, r.ttl)
	w.msg = binary.BigEndian.AppendUint16(w.msg, uint16(len(r.data)))
	w.msg = append(w.msg, r.data...)
	w.counts[section]++
}

func (w *writer) bytes() []byte {
	for i, n := range w.counts {
		binary.BigEndian.PutUint16(w.msg[4+2*i:], n)
	}
	return w.msg
}
