package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The redo log holds what was committed since the last snapshots, so that a snapshot and the log make the whole store
// again. It is a row of files, one begun with each snapshot. In a file stand frames, then zeros:
//
//	number of the file | length | CRC-32C over both and what follows | head, then records
//
//	head    0 | tally of the store when the file was begun | name of the store
//	record  1 | tally before | tally after | for each value: 1 put or 2 delete, lengths, bucket, key, value
//
// A record names the state it begins from and the one it leads to: records of one store are a chain, whatever stands
// in which file, and one that is missing shows.

// errFrame is where a file of the log ends: nothing was written there, or not to the end.
var errFrame = errors.New("no frame")

const (
	frameHeader = 16
	tallySize   = 16

	headFrame   = 0
	recordFrame = 1

	opPut    = 1
	opDelete = 2
)

// change is one value as a transaction left it; a nil raw deleted it.
type change struct{ bucket, key, raw []byte }

// record is a transaction.
type record struct {
	before, after tally
	changes       []change
}

// segment is a file of the log as it was read.
type segment struct {
	number  uint64
	store   string
	start   tally
	records []record
	end     int64 // where the next frame goes
	clean   bool  // nothing but zeros follows
	hidden  bool  // whole frames follow, behind a damaged one
}

// frame wraps a payload for its file.
func frame(number uint64, payload []byte) []byte {
	out := make([]byte, frameHeader, frameHeader+len(payload))
	binary.BigEndian.PutUint64(out, number)
	binary.BigEndian.PutUint32(out[8:], uint32(len(payload)))
	out = append(out, payload...)
	binary.BigEndian.PutUint32(out[12:], frameSum(out))
	return out
}

func frameSum(f []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, f[:12]), castagnoli, f[frameHeader:])
}

// unframe takes the first frame off data.
func unframe(number uint64, data []byte) (payload, rest []byte, err error) {
	if len(data) < frameHeader || binary.BigEndian.Uint64(data) != number {
		return nil, nil, errFrame
	}
	n := uint64(binary.BigEndian.Uint32(data[8:]))
	if n == 0 || n > uint64(len(data)-frameHeader) {
		return nil, nil, errFrame
	}
	end := frameHeader + int(n)
	if binary.BigEndian.Uint32(data[12:]) != frameSum(data[:end]) {
		return nil, nil, errFrame
	}
	return data[frameHeader:end], data[end:], nil
}

func encodeHead(store string, start tally) []byte {
	return append(append([]byte{headFrame}, start.encode()...), store...)
}

func encodeRecord(r record) []byte {
	size := 1 + 2*tallySize
	for _, c := range r.changes {
		size += 9 + len(c.bucket) + len(c.key) + len(c.raw)
	}
	out := append(make([]byte, 0, size), recordFrame)
	out = append(append(out, r.before.encode()...), r.after.encode()...)
	for _, c := range r.changes {
		op := byte(opPut)
		if c.raw == nil {
			op = opDelete
		}
		out = append(out, op)
		out = binary.BigEndian.AppendUint16(out, uint16(len(c.bucket))) // bbolt's own limit is 32 KiB
		out = binary.BigEndian.AppendUint16(out, uint16(len(c.key)))
		out = binary.BigEndian.AppendUint32(out, uint32(len(c.raw)))
		out = append(append(append(out, c.bucket...), c.key...), c.raw...)
	}
	return out
}

func decodeTally(data []byte) tally {
	return tally{count: binary.BigEndian.Uint64(data), sum: binary.BigEndian.Uint64(data[8:])}
}

// decodeRecord reads what encodeRecord wrote. The result aliases data.
func decodeRecord(data []byte) (r record, err error) {
	if len(data) < 1+2*tallySize || data[0] != recordFrame {
		return r, fmt.Errorf("%w: not a record of the log", ErrDamaged)
	}
	r.before, r.after = decodeTally(data[1:]), decodeTally(data[1+tallySize:])
	data = data[1+2*tallySize:]
	for len(data) > 0 {
		if len(data) < 9 {
			return r, fmt.Errorf("%w: a record of the log is cut short", ErrDamaged)
		}
		op, nb, nk, nv := data[0], int(binary.BigEndian.Uint16(data[1:])), int(binary.BigEndian.Uint16(data[3:])),
			uint64(binary.BigEndian.Uint32(data[5:]))
		data = data[9:]
		if op != opPut && op != opDelete || op == opDelete && nv != 0 || uint64(nb)+uint64(nk)+nv > uint64(len(data)) {
			return r, fmt.Errorf("%w: a record of the log makes no sense", ErrDamaged)
		}
		c := change{bucket: data[:nb:nb], key: data[nb : nb+nk : nb+nk]}
		if data = data[nb+nk:]; op == opPut {
			c.raw = data[:nv:nv]
		}
		data = data[nv:]
		r.changes = append(r.changes, c)
	}
	return r, nil
}

// decodeSegment reads a file as far as it goes. The error says that it has no head: nothing in it can be used.
func decodeSegment(number uint64, data []byte) (segment, error) {
	s := segment{number: number}
	head, rest, err := unframe(number, data)
	if err != nil || len(head) < 1+tallySize || head[0] != headFrame {
		return s, fmt.Errorf("%w: the file of the log has no head", ErrDamaged)
	}
	s.start, s.store = decodeTally(head[1:]), string(head[1+tallySize:])
	for {
		payload, next, err := unframe(number, rest)
		if err != nil {
			break
		}
		r, err := decodeRecord(payload)
		if err != nil {
			break
		}
		s.records, rest = append(s.records, r), next
	}
	s.end = int64(len(data) - len(rest))
	s.clean = len(bytes.TrimLeft(rest, "\x00")) == 0
	s.hidden = !s.clean && hasFrame(number, rest)
	return s, nil
}

// hasFrame looks for a whole frame anywhere: a frame that was torn when the power went was the last.
func hasFrame(number uint64, data []byte) bool {
	mark := binary.BigEndian.AppendUint64(nil, number)
	for {
		i := bytes.Index(data, mark)
		if i < 0 {
			return false
		}
		if _, _, err := unframe(number, data[i:]); err == nil {
			return true
		}
		data = data[i+1:]
	}
}

// tail finds what the log has beyond a state of the store, up to where a record is missing. whole is false when one is,
// or when no record leads to that state or from it. A state that was left and reached again is the same state: the
// last time counts.
func tail(segments []segment, now tally) (rest []record, whole bool) {
	var all []record
	for _, s := range segments {
		all = append(append(all, record{before: s.start, after: s.start}), s.records...)
	}
	for i := len(all) - 1; i >= 0 && !whole; i-- {
		switch now {
		case all[i].after:
			rest, whole = all[i+1:], true
		case all[i].before:
			rest, whole = all[i:], true
		}
	}
	for i, r := range rest {
		if r.before != now {
			return rest[:i], false
		}
		now = r.after
	}
	return rest, whole && !segments[len(segments)-1].hidden
}
