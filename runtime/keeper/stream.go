package keeper

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What a stream has been told.
const (
	follow = iota // read on
	finish        // the container has ended: read what is there, then stop
	leave         // the keeper goes: stop; the next one reads on
)

// stream carries one output of a container to its log. It holds a buffer only while there is something to read, so
// a silent container costs a parked goroutine.
type stream struct {
	f     *os.File // non-blocking
	split splitter
	log   *logFile
	told  atomic.Int32
	done  chan struct{}
	taps  taps // who is attached
}

func newStream(name string, f *os.File, log *logFile) *stream {
	return &stream{f: f, split: splitter{stream: name}, log: log, done: make(chan struct{})}
}

type buffers struct{ in, out []byte }

var bufferPool = sync.Pool{New: func() any {
	return &buffers{in: make([]byte, maxLine), out: make([]byte, 0, 2*maxLine)}
}}

// run reads until the stream ends or it is told to stop.
func (s *stream) run() {
	defer close(s.done)
	if rc, err := s.f.SyscallConn(); err == nil {
		// The callback runs when there may be something; false waits for more. A wait ends with tell's deadline.
		err = rc.Read(func(fd uintptr) bool { return s.drain(int(fd)) || s.told.Load() != follow })
		if err != nil && s.told.Load() == finish {
			_ = rc.Control(func(fd uintptr) { s.drain(int(fd)) })
		}
	}
	now := time.Now()
	s.log.put(s.split.stream, now, s.split.flush(nil, now))
}

// drain reads what there is, and reports whether the stream has ended.
func (s *stream) drain(fd int) bool {
	b := bufferPool.Get().(*buffers)
	defer bufferPool.Put(b)
	for s.told.Load() != leave {
		n, err := unix.Read(fd, b.in)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil || n <= 0:
			return true // all writers are gone (EIO on a terminal)
		default:
			now := time.Now()
			rest := s.log.put(s.split.stream, now, s.split.feed(b.out[:0], now, b.in[:n]))
			s.taps.give(b.in[:n])
			if rest > 0 && s.told.Load() == follow {
				time.Sleep(rest)
			}
		}
	}
	return false
}

// tell stops the stream and waits for that.
func (s *stream) tell(what int32) {
	s.told.CompareAndSwap(follow, what)
	_ = s.f.SetReadDeadline(time.Unix(1, 0))
	<-s.done
}
