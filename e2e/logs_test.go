package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// configure adds to the board's configuration before it is served.
func (b *testBoard) configure(text string) {
	b.t.Helper()
	f, err := os.OpenFile(b.config, os.O_WRONLY|os.O_APPEND, 0)
	must(b.t, err)
	_, err = f.WriteString(text)
	must(b.t, errors.Join(err, f.Close()))
}

// following runs "logs -f" until it ends.
func (b *testBoard) following(pod string, args ...string) (out *bytes.Buffer, done chan error) {
	b.t.Helper()
	out, done = &bytes.Buffer{}, make(chan error, 1)
	cmd := exec.CommandContext(b.t.Context(), ledgeBin(b.t), append([]string{"--run-dir", b.runDir, "logs", "-f", pod}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	go func() { done <- cmd.Run() }()
	return out, done
}

func (b *testBoard) ends(what string, done chan error) {
	b.t.Helper()
	select {
	case err := <-done:
		must(b.t, err)
	case <-time.After(testrun.Patience(2 * time.Minute)):
		b.t.Fatalf("%s does not end", what)
	}
}

// none: nothing matches.
func none(pattern string) error {
	left, err := filepath.Glob(pattern)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("there are %v", left)
	}
	return err
}

func numbered(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "line %d\n", i)
	}
	return s.String()
}

// TestLogsAcrossRotationAndRestart: whoever follows a real container reads each of its lines once, over many
// rotations, a kill of the brain's and the container's next instances.
func TestLogsAcrossRotationAndRestart(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.configure("containerLogMaxSize: 64Ki\ncontainerLogMaxFiles: 200\nlogging: {rate: '0', totalSize: '0'}\n")
	b.serve()
	b.importRough()
	const lines = 60000
	want := numbered(lines)
	b.apply(roughPod("many", fmt.Sprintf(`"lines", "%d"`, lines), ""))
	b.eventually("it is there", func() error {
		_, err := b.try("logs", "many", "--limit-bytes", "1")
		return err
	})
	out, done := b.following("many")
	b.ends("the log of a pod that ends", done)
	if out.String() != want {
		t.Errorf("%d bytes followed, %d written", out.Len(), len(want))
	}
	full, err := filepath.Glob(filepath.Join(b.data, "logs", "default_many_*", "main", "0.log.*"))
	must(t, err)
	if len(full) < 20 {
		t.Errorf("only %d rotations", len(full))
	}
	if got := b.must("logs", "many"); got != want {
		t.Errorf("%d bytes afterwards, %d written", len(got), len(want))
	}
	if got := b.must("logs", "many", "--tail", "40000"); got != want[strings.Index(want, "line 20000\n"):] {
		t.Errorf("a tail over several files has %d lines", strings.Count(got, "\n"))
	}
	b.must("delete", "pod", "many")
	b.eventually("the logs of a removed pod are gone", func() error { return none(filepath.Join(b.data, "logs", "*")) })

	const some = 2000
	b.apply(strings.Replace(roughPod("again", fmt.Sprintf(`"lines", "%d", "1ms"`, some), ""), "Never", "Always", 1))
	b.eventually("it is there", func() error {
		_, err := b.try("logs", "again", "--limit-bytes", "1")
		return err
	})
	out, done = b.following("again")
	b.eventually("it has run three times", func() error {
		if n := b.pod("again").Status.ContainerStatuses[0].RestartCount; n < 2 {
			return fmt.Errorf("restarted %d times", n)
		}
		return nil
	})
	if got, want := b.must("logs", "again", "--previous"), numbered(some); got != want {
		t.Errorf("of the instance before: %d bytes, want %d", len(got), len(want))
	}
	b.must("delete", "pod", "again")
	b.ends("the log of a deleted pod", done)
	if all := strings.Repeat(numbered(some), 3); !strings.HasPrefix(all, out.String()) || out.Len() < len(all)*2/3 {
		t.Errorf("followed over restarts: %d bytes, not the first of %d", out.Len(), len(all))
	}
}

// TestLogBounds: floods stay within their rate and all logs within the total, in memory, and cost nobody else a line.
func TestLogBounds(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.configure("logging: {medium: memory, totalSize: 1Mi, rate: 100Ki}\n")
	b.serve()
	b.importRough()
	b.apply(roughPod("quiet", `"lines", "3"`, ""))
	b.eventually("it has spoken", func() error { return contains(b.ledge("get", "pod", "quiet"), "Completed") })
	b.apply(roughPod("flood1", `"flood"`, "") + "\n---\n" + roughPod("flood2", `"flood"`, ""))
	dir := filepath.Join(b.runDir, "logs")
	size := func() (n int64) {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // rotated away meanwhile
			}
			if st, err := d.Info(); err == nil {
				n += st.Size()
			}
			return nil
		})
		return n
	}
	const most = 1<<20 + 64<<10 // what is being written while it is counted
	b.eventually("something has been left out", func() error {
		if n := size(); n > most {
			t.Fatalf("%d bytes of logs", n)
		}
		return errors.Join(contains(b.ledge("logs", "flood1"), "are left out here: the container wrote more than 102400 bytes a second"),
			contains(b.ledge("logs", "flood2"), "are left out here"))
	})
	// The total is the keeper's to keep, brain or not.
	_ = b.signal(syscall.SIGKILL)
	for range 20 {
		time.Sleep(200 * time.Millisecond)
		if n := size(); n > most {
			t.Fatalf("%d bytes of logs without a brain", n)
		}
	}
	b.serve()
	if got := b.must("logs", "quiet"); got != numbered(3) {
		t.Errorf("the quiet one: %q", got)
	}
	must(t, none(filepath.Join(b.data, "logs", "*"))) // on the card
	b.must("delete", "pod", "flood1", "flood2", "quiet")
	b.eventually("the logs of removed pods are gone", func() error { return none(filepath.Join(dir, "*")) })
}
