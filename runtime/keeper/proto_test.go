package keeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ledge/runtime"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	x, y, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	conn := func(f *os.File) *net.UnixConn {
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(x), conn(y)
}

// TestFilesTravel: a frame brings its own file, whatever comes before and after it.
func TestFilesTravel(t *testing.T) {
	a, b := pair(t)
	const n = 50
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			for i := range n {
				f, err := os.CreateTemp(t.TempDir(), "")
				if err != nil {
					return err
				}
				_, _ = fmt.Fprint(f, i)
				if i%3 == 0 {
					err = send(a, parkFrame{Drop: fmt.Sprint(i)})
				} else {
					err = send(a, parkFrame{Hold: fmt.Sprint(i)}, f)
				}
				_ = f.Close()
				if err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	for i := range n {
		var fr parkFrame
		f, err := receiveFile(b, &fr)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if f != nil || fr.Drop != fmt.Sprint(i) {
				t.Fatalf("frame %d: %+v with %v", i, fr, f)
			}
			continue
		}
		if f == nil || fr.Hold != fmt.Sprint(i) {
			t.Fatalf("frame %d: %+v with %v", i, fr, f)
		}
		got := make([]byte, 10)
		k, _ := f.ReadAt(got, 0)
		_ = f.Close()
		if string(got[:k]) != fmt.Sprint(i) {
			t.Fatalf("frame %d brought the file of frame %s", i, got[:k])
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// TestErrorsTravel: what errors.Is finds in the keeper it finds in the brain.
func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{runtime.ErrNotFound, runtime.ErrUnavailable, ErrProtocol} {
		err := failure(fmt.Errorf("start container x: %w", want)).err()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "start container x") {
			t.Errorf("%v arrives as %v", want, err)
		}
	}
	if err := failure(errors.New("plain")).err(); err.Error() != "plain" || errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("arrives as %v", err)
	}
	if err := (response{}).err(); err != nil {
		t.Errorf("no error arrives as %v", err)
	}
}

// FuzzReceive: whatever comes over the socket, reading it neither panics nor takes memory beyond the limit.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"Proto":1,"Op":"start","Container":{"ID":"x"}}`), uint32(47))
	f.Add([]byte(`{`), uint32(1<<31))
	f.Add([]byte(nil), uint32(0))
	f.Fuzz(func(t *testing.T, body []byte, size uint32) {
		frame := append(binary.BigEndian.AppendUint32(nil, size), body...)
		var q request
		if err := receive(bytes.NewReader(frame), &q, true); err == nil && size > maxFrame {
			t.Errorf("a frame of %d bytes was read", size)
		}
	})
}

// TestParkWaits: a brain that is there before the containers have been adopted is not heard before that.
func TestParkWaits(t *testing.T) {
	e, err := NewEngine(Config{RunDir: t.TempDir(), Runner: newShellRunner(), BootID: "boot", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	brain, keeper := pair(t)
	s := &server{e: e, log: e.log}
	running.Go(func() { s.park(ctx, keeper) })
	if err := send(brain, parkFrame{Synced: true}); err != nil {
		t.Fatal(err)
	}
	var fr parkFrame
	_ = brain.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := receiveFile(brain, &fr); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("before it is ready: %+v %v", fr, err)
	}
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	_ = brain.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := receiveFile(brain, &fr); err != nil || !fr.Synced {
		t.Errorf("%+v %v", fr, err)
	}
}
