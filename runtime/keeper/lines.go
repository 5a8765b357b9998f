package keeper

import (
	"bytes"
	"time"
)

// maxLine is the longest piece of a line in a log; longer lines are cut into parts marked P, the last one F.
const maxLine = 16 << 10

// splitter cuts one stream into log lines: "<time> <stream> <F|P> <text>\n". It keeps the beginning of a line until
// its end comes.
type splitter struct {
	stream string
	tail   []byte
}

// feed appends the log lines that p completes to dst.
func (s *splitter) feed(dst []byte, now time.Time, p []byte) []byte {
	for len(p) > 0 {
		nl := bytes.IndexByte(p, '\n')
		end := nl
		if nl < 0 {
			end = len(p)
		}
		room := maxLine - len(s.tail)
		switch {
		case end > room:
			dst = s.line(dst, now, 'P', p[:room])
			p = p[room:]
		case nl >= 0:
			dst = s.line(dst, now, 'F', p[:nl])
			p = p[nl+1:]
		default:
			s.tail = append(s.tail, p...)
			p = nil
		}
	}
	return dst
}

// flush writes an unfinished line and marks it as a part (P). Either another keeper writes the rest, or the container ended without a last
// newline; then readers must not see a newline that it did not write.
func (s *splitter) flush(dst []byte, now time.Time) []byte {
	if len(s.tail) == 0 {
		return dst
	}
	return s.line(dst, now, 'P', nil)
}

func (s *splitter) line(dst []byte, now time.Time, tag byte, rest []byte) []byte {
	dst = now.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, ' ')
	dst = append(dst, s.stream...)
	dst = append(dst, ' ', tag, ' ')
	dst = append(dst, s.tail...)
	dst = append(dst, rest...)
	s.tail = nil
	return append(dst, '\n')
}
