// Package ntp asks time servers what time it is and keeps the machine's clock by that: a client of SNTP (RFC 4330), for
// boards whose process 1 is ledge. Elsewhere the operating system has a client of its own.
package ntp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	packetSize = 48
	// epoch is 1900, from where servers count, as Unix time.
	epoch = -2208988800
	// patience is how long an answer may take. The time in it is wrong by half of that at most.
	patience = 3 * time.Second
)

// Answer is what a server has said.
type Answer struct {
	Offset time.Duration // to be added to this machine's clock
	Delay  time.Duration // of the way there and back: the offset is wrong by half of it at most
}

// ErrRefused is a server that does not want to be asked (again).
var ErrRefused = errors.New("the server refuses to answer")

// errStray is what anybody may have sent: the server's answer can still come.
var errStray = errors.New("the answer is not to this question")

// question is what was sent: when, and a number that nobody on the way can guess. Servers give it back; it stands where
// the sender's time would, which is nobody's business.
type question struct {
	number uint64
	sent   time.Time
}

func (q question) packet() []byte {
	p := make([]byte, packetSize)
	p[0] = 4<<3 | 3 // version 4, a client
	binary.BigEndian.PutUint64(p[40:], q.number)
	return p
}

// read takes an answer that came at a moment. Times before floor cannot be: somebody has known it to have passed. That also
// says which of the 136 years since 1900 is meant, of which the seconds begin anew in 2036.
func (q question) read(p []byte, came, floor time.Time) (Answer, error) {
	if len(p) < packetSize {
		return Answer{}, fmt.Errorf("%w: it has %d bytes, not %d", errStray, len(p), packetSize)
	}
	leap, mode, stratum := p[0]>>6, p[0]&7, p[1]
	switch {
	case binary.BigEndian.Uint64(p[24:]) != q.number:
		return Answer{}, errStray
	case mode != 4:
		return Answer{}, fmt.Errorf("the answer is not a server's (mode %d)", mode)
	case stratum == 0:
		return Answer{}, fmt.Errorf("%w (%q)", ErrRefused, p[12:16])
	case leap == 3 || stratum > 15:
		return Answer{}, errors.New("the server does not know the time itself")
	}
	received, err := moment(p[32:], floor)
	if err != nil {
		return Answer{}, err
	}
	answered, err := moment(p[40:], floor)
	if err != nil {
		return Answer{}, err
	}
	thought := answered.Sub(received)
	delay := came.Sub(q.sent) - thought // by the monotonic clock
	if thought < 0 || delay < 0 {
		return Answer{}, errors.New("the server's times contradict each other")
	}
	return Answer{Offset: answered.Add(delay / 2).Sub(came.Round(0)), Delay: delay}, nil
}

// moment is a timestamp of a packet: seconds since 1900 and their fractions. The clock that floor was taken from may have been
// a little ahead.
func moment(p []byte, floor time.Time) (time.Time, error) {
	seconds, fraction := binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])
	if seconds == 0 && fraction == 0 {
		return time.Time{}, errors.New("the answer has no time in it")
	}
	from := floor.Add(-24 * time.Hour).Unix()
	after := int32(seconds - uint32(from-epoch))
	if after < 0 {
		return time.Time{}, fmt.Errorf("the server's time is before %s, which has passed", floor.UTC().Format(time.DateOnly))
	}
	return time.Unix(from+int64(after), int64(uint64(fraction)*uint64(time.Second)>>32)), nil
}

// Ask asks the server at an address, HOST:PORT with a numeric host, once.
func Ask(ctx context.Context, address string, floor time.Time) (Answer, error) {
	a, err := ask(ctx, address, floor)
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s for the time: %w", address, err)
	}
	return a, nil
}

func ask(ctx context.Context, address string, floor time.Time) (Answer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	var number [8]byte
	_, _ = rand.Read(number[:]) // never fails
	q := question{number: binary.BigEndian.Uint64(number[:]), sent: time.Now()}
	if err := conn.SetDeadline(q.sent.Add(patience)); err != nil {
		return Answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(q.packet()); err != nil {
		return Answer{}, err
	}
	buf := make([]byte, 512)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return Answer{}, err
		}
		if a, err := q.read(buf[:n], time.Now(), floor); !errors.Is(err, errStray) {
			return a, err
		}
	}
}
