package shutdown

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// PowerKey listens to the power key itself, for boards where no logind does.
type PowerKey struct {
	Dir string // of the event devices; empty is /dev/input
	Off func() // called once the pods have stopped
	// From brings the presses, a byte each, where another process holds the devices: process 1, which hears the key while
	// there is no brain. Its reader ends at a deadline.
	From *os.File
	// Elsewhere tells whether another program, such as logind, handles the key; nil: none does.
	Elsewhere func() bool

	listening atomic.Int32 // to so many devices
}

// Live implements Liver.
func (k *PowerKey) Live() string {
	if k.elsewhere() || k.listening.Load() == 0 && (k.From == nil || !k.there()) {
		return ""
	}
	return "power key"
}

func (k *PowerKey) elsewhere() bool { return k.Elsewhere != nil && k.Elsewhere() }

// there looks whether the machine has such a key.
func (k *PowerKey) there() bool {
	paths, _ := k.devices() // no pattern is bad here
	for _, path := range paths {
		if f, err := openPowerKey(path); err == nil {
			f.Close()
			return true
		}
	}
	return false
}

func (k *PowerKey) devices() ([]string, error) {
	dir := k.Dir
	if dir == "" {
		dir = "/dev/input"
	}
	return filepath.Glob(filepath.Join(dir, "event*"))
}

// Of linux/input-event-codes.h.
const (
	evKey    = 0x01
	keyPower = 116
	keyMax   = 0x2ff
)

// keyRescan is how often new devices are looked for: a module may come after ledge.
const keyRescan = 10 * time.Second

// impatient is who presses again within this time.
const impatient = 10 * time.Second

// Run listens to every device that has a power key, until ctx ends.
func (k *PowerKey) Run(ctx context.Context, tell func(Event)) error {
	var listeners sync.WaitGroup
	defer listeners.Wait()
	var mu sync.Mutex
	var last time.Time
	press := func() {
		if k.elsewhere() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		e := Event{Kind: Down, Source: "power key", After: ThenOff, Done: k.Off}
		if !last.IsZero() && time.Since(last) < impatient {
			e.Budget, e.Done = hurry, nil
		}
		last = time.Now()
		tell(e)
	}
	if k.From != nil {
		return k.relayed(ctx, press)
	}
	open := map[string]bool{}
	for {
		paths, err := k.devices()
		if err != nil {
			return fmt.Errorf("look for a power key: %w", err)
		}
		for _, path := range paths {
			mu.Lock()
			seen := open[path]
			open[path] = true
			mu.Unlock()
			if seen {
				continue
			}
			f, err := openPowerKey(path)
			if err != nil {
				slog.Debug("no power key", "device", path, "err", err)
				continue
			}
			if !k.elsewhere() {
				slog.Info("listening to the power key", "device", path)
			}
			k.listening.Add(1)
			listeners.Go(func() {
				defer k.listening.Add(-1)
				defer f.Close()
				stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })
				defer stop()
				if err := readPresses(f, press); ctx.Err() == nil {
					slog.Warn("the power key is gone", "device", path, "err", err)
					mu.Lock()
					delete(open, path) // it may come back under the same name
					mu.Unlock()
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(keyRescan):
		}
	}
}

// relayed calls press for every byte of From until ctx ends.
func (k *PowerKey) relayed(ctx context.Context, press func()) error {
	stop := context.AfterFunc(ctx, func() { _ = k.From.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		_, err := k.From.Read(make([]byte, 1))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("hear of the power key: %w", err)
		}
		press()
	}
}

var errNoPowerKey = errors.New("the device has no power key")

// openPowerKey opens an input device if it has that key.
func openPowerKey(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var keys [keyMax/8 + 1]byte
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		// EVIOCGBIT(EV_KEY, len): _IOC(_IOC_READ, 'E', 0x20+ev, len)
		request := uintptr(uint32(2)<<30 | uint32(len(keys))<<16 | 'E'<<8 | 0x20 + evKey)
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&keys[0])))
	})
	switch {
	case err != nil:
	case errno != 0:
		err = errno
	case keys[keyPower/8]&(1<<(keyPower%8)) == 0:
		err = errNoPowerKey
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readPresses calls press for every time the key goes down, until the stream ends or breaks, and says how. An event is a time of two words
// of the machine, then type, code and value.
func readPresses(in io.Reader, press func()) error {
	const stamp = 2 * strconv.IntSize / 8
	event := make([]byte, stamp+8)
	for {
		if _, err := io.ReadFull(in, event); err != nil {
			return err
		}
		e := event[stamp:]
		kind, code := binary.NativeEndian.Uint16(e), binary.NativeEndian.Uint16(e[2:])
		if value := binary.NativeEndian.Uint32(e[4:]); kind == evKey && code == keyPower && value == 1 {
			press()
		}
	}
}
