package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/brain/place"
	"ledge/internal/testrun"
)

// A brain that answers already, and is told to end while the rest of it starts, ends as in order as any other.
func TestEndWhileStarting(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.runDir, "ledge.sock"))
		}}}
	for range 5 {
		b.start()
		testrun.Succeeds(t, time.Minute, "it answers", func() error {
			resp, err := client.Get("http://ledge/api/v1/nodes")
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		})
		if err := b.signal(syscall.SIGTERM); err != nil {
			t.Fatalf("told to end as soon as it answered: %v", err)
		}
	}
	b.serve() // for what tidies up after the test
}

// Of two that start on one run directory at the same moment, with data of their own, one serves and the other leaves nothing.
func TestTwoStartsAtOnce(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	other := *b
	other.data, other.port = b.data+"2", freePort(t)
	for range 4 {
		from, err := b.log.Seek(0, io.SeekEnd)
		must(t, err)
		b.start()
		other.start()
		winner, loser := b, &other
		select {
		case err = <-b.done:
			winner, loser = &other, b
		case err = <-other.done:
		case <-time.After(testrun.Patience(30 * time.Second)):
			t.Fatal("both started")
		}
		loser.cmd = nil
		b.cmd = winner.cmd // for what tidies up
		b.done = winner.done
		text, rerr := os.ReadFile(b.log.Name())
		must(t, rerr)
		if said := string(text[from:]); err == nil || strings.Count(said, "ledge: ") != 1 || !strings.Contains(said, "another ledge runs there") {
			t.Fatalf("%v %s", err, said)
		}
		if _, err := os.Stat(loser.data); !errors.Is(err, os.ErrNotExist) {
			t.Error("the loser left its data:", err)
		}
		b.eventually("the winner is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
		if was, err := place.ReadInfo(b.runDir); err != nil || was.DataDir != winner.data {
			t.Errorf("%+v %v", was, err)
		}
		must(t, b.signal(syscall.SIGTERM))
		b.resetsAll()
	}
}

// TestFullDiskAtFirstStart: a first start on a full disk leaves what it found, wherever it meets the end of the disk; with room the next is
// the first.
func TestFullDiskAtFirstStart(t *testing.T) {
	onHost(t)
	for _, size := range []string{"16k", "64k"} { // the store, the keys
		t.Run(size, func(t *testing.T) {
			b := newBoard(t)
			disk := t.TempDir()
			must(t, syscall.Mount("none", disk, "tmpfs", 0, "size="+size))
			t.Cleanup(func() { must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
			own, other := filepath.Join(disk, "data"), filepath.Join(disk, "data", "mine")
			must(t, os.MkdirAll(filepath.Dir(other), 0o700))
			must(t, os.WriteFile(other, nil, 0o600))
			for _, data := range []string{own, filepath.Join(disk, "new", "data")} {
				text, err := b.refusesToStart("--data-dir", data)
				if err == nil || !strings.Contains(text, "no space left") {
					t.Fatalf("%v\n%s", err, text)
				}
			}
			var left []string
			must(t, filepath.WalkDir(disk, func(path string, _ os.DirEntry, err error) error {
				left = append(left, strings.TrimPrefix(path, disk))
				return err
			}))
			if got := strings.Join(left, " "); got != " /data /data/mine" {
				t.Errorf("it left %s", got)
			}
			if _, err := os.Lstat(b.runDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it left %s", b.runDir)
			}
		})
	}
}

// TestFirstStartWithoutRoomForItsImage: the built-in image can wait (architecture: Promises, 3). The node says so, and makes it when there
// is room.
func TestFirstStartWithoutRoomForItsImage(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	disk := t.TempDir()
	must(t, syscall.Mount("none", disk, "tmpfs", 0, "size=2m"))
	b.data = filepath.Join(disk, "data")
	t.Cleanup(func() { must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	b.start()
	b.eventually("the node says that its start is not finished", func() error {
		return contains(b.ledge("get", "node", b.name, "-o", "yaml"), "StartUnfinished")
	})
	must(t, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=400m"))
	b.eventually("the image is there", func() error { return contains(b.ledge("images", "ls"), "ledge.local/self") })
}

// TestKeeperOfAService: where another service runs the keeper and that does not run, the Node and the log say which has to be started, and
// the board is ready once it was.
func TestKeeperOfAService(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.start("--start-keeper=false")
	const remedy = "the service that runs `ledge keeper` has to be started"
	b.eventually("the Node says what it lacks", func() error {
		out := b.ledge("get", "node", b.name, "-o", "json")
		return errors.Join(contains(out, `"status": "False"`), contains(out, remedy))
	})
	log, err := os.ReadFile(b.log.Name())
	must(t, err)
	must(t, contains(string(log), remedy))
	keeper := b.command(t.Context(), "--run-dir", b.runDir, "keeper", "--cgroup-root", "/"+b.name)
	must(t, keeper.Start())
	t.Cleanup(func() { _ = keeper.Wait() }) // the context of the test has ended it
	b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
}
