package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
)

func TestVictim(t *testing.T) {
	for record, want := range map[string]Victim{
		"3,1,2,-;Out of memory: Killed process 4711 (eat) total-vm:1kB, anon-rss:2kB, UID:0 pgtables:1kB oom_score_adj:1000\n SUBSYSTEM=x\n": {"eat", 4711},
		"3,1,2,-;Out of memory: Killed process 7 (a) b) total-vm:1kB":                                                                        {"a) b", 7},
		"3,1,2,-;Out of memory: Killed process 7 (old":                                                                                       {"old", 7},
		"3,1,2,-;Memory cgroup out of memory: Killed process 7 (eat) total-vm:1kB":                                                           {},
		"3,1,2,-;Out of memory: Killed process x (eat) total-vm:1kB":                                                                         {},
		"6,1,2,-;usb 1-1: new device":                                                                                                        {},
		"":                                                                                                                                   {},
	} {
		got, ok := victim([]byte(record))
		if ok != (want.PID != 0) || ok && got != want {
			t.Errorf("%q: %+v %v", record, got, ok)
		}
	}
}

// TestWatchLog writes into the kernel's log, and reads it there: the next record, and none from before.
func TestWatchLog(t *testing.T) {
	log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		t.Skipf("needs root and the kernel's log: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
	defer cancel()
	// A record without an end of line may still grow, and is not counted as written until the next one comes.
	say := func(when string) { fmt.Fprintf(log, "ledge test %d %s\n", os.Getpid(), when) }
	say("before")
	found, ended := make(chan string, 100), make(chan error)
	go func() {
		ended <- watchLog(ctx, func(record []byte) {
			if bytes.Contains(record, fmt.Appendf(nil, "ledge test %d ", os.Getpid())) {
				found <- string(record)
			}
		})
	}()
	tick := time.NewTicker(time.Second) // the kernel takes ten in five seconds
	defer tick.Stop()
	for told := false; !told; { // when the watch has begun nobody says
		say("after")
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not told")
		case record := <-found:
			told = true
			if !strings.Contains(record, "after") {
				t.Errorf("%q", record)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
