package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/internal/testrun"
)

// logged is when the brain wrote a line with these words; zero: it has not.
func (b *testBoard) logged(words ...string) (at time.Time) {
	b.t.Helper()
	data, err := os.ReadFile(b.log.Name())
	must(b.t, err)
	for line := range strings.Lines(string(data)) {
		ok := true
		for _, w := range words {
			ok = ok && strings.Contains(line, w)
		}
		if _, rest, found := strings.Cut(line, "time="); ok && found {
			stamp, _, _ := strings.Cut(rest, " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// unhurt wants pods to run as they did.
func (b *testBoard) unhurt(names ...string) {
	b.t.Helper()
	for _, name := range names {
		if p := b.pod(name); p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			b.t.Errorf("an innocent was hurt: %s is %s %s", name, p.Status.Phase, p.Status.Reason)
		}
	}
}

func (b *testBoard) well(kind corev1.NodeConditionType) {
	b.t.Helper()
	b.eventually("the board is well again", func() error {
		if got := b.condition(kind); got != "False" {
			return errors.New(string(kind) + " is " + got)
		}
		return nil
	})
}

// TestFullCard: a pod that fills the disk, or takes every inode, goes; the API answers and takes writes all the while, nothing
// that was acknowledged is lost, and the board is well again by itself.
func TestFullCard(t *testing.T) { // N-6.1, N-6.23, N-6.26
	t.Parallel()
	testrun.OnHost(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBoard(t)
	img, card := filepath.Join(t.TempDir(), "img"), t.TempDir()
	must(t, os.WriteFile(img, nil, 0o600))
	must(t, os.Truncate(img, 300<<20))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-N", "6000", img}, {"mount", "-o", "loop", img, card}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	b.data = filepath.Join(card, "data")
	t.Cleanup(func() {
		b.finish()
		b.over = true
		if err := unix.Unmount(card, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	b.configure("evictionPressureTransitionPeriod: 5s\n")
	b.serve("--eviction-hard", "nodefs.available<20%,imagefs.available<20%,nodefs.inodesFree<20%,imagefs.inodesFree<20%")
	b.importRough()
	b.apply(roughPod("innocent", `"eat", "1"`, ""))
	b.running("innocent")
	wrote := 0
	for _, what := range []string{"bytes", "inodes"} {
		b.apply(roughPod(what, fmt.Sprintf(`"fill", "/tmp", %q`, what), ""))
		var line time.Time
		full := 0
		b.eventually(what+" is evicted", func() error {
			var fs unix.Statfs_t
			must(t, unix.Statfs(b.data, &fs))
			if line.IsZero() && (fs.Bavail < fs.Blocks/5 || fs.Ffree < fs.Files/5) {
				line = time.Now()
			}
			if fs.Bavail*uint64(fs.Bsize) < 1<<20 || fs.Ffree < 16 {
				full++
			}
			b.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {v: %q}\n", wrote, strings.Repeat("x", 5000)))
			wrote++
			if s := b.pod(what).Status; s.Phase != corev1.PodFailed || s.Reason != "Evicted" {
				return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
			}
			return nil
		})
		decided := b.logged("evicting a pod", "default/"+what)
		gone := time.Now()
		if line.IsZero() { // all of it came between two looks of this test
			line = decided
		}
		b.unhurt("innocent")
		b.well(corev1.NodeDiskPressure)
		t.Logf("%s: decided %v after the line was crossed, gone %v after, well again %v after; full at %d looks", what,
			decided.Sub(line).Round(10*time.Millisecond), gone.Sub(line).Round(100*time.Millisecond), time.Since(line).Round(100*time.Millisecond),
			full)
	}
	if err := b.signal(unix.SIGKILL); err == nil {
		t.Error("it was not killed")
	}
	b.serve("--eviction-hard", "nodefs.available<20%,imagefs.available<20%,nodefs.inodesFree<20%,imagefs.inodesFree<20%")
	var list corev1.ConfigMapList
	must(t, json.Unmarshal([]byte(b.must("get", "configmaps", "-o", "json")), &list))
	have := 0
	for _, c := range list.Items {
		if strings.HasPrefix(c.Name, "c") && len(c.Data["v"]) == 5000 {
			have++
		}
	}
	if have != wrote {
		t.Errorf("%d of %d acknowledged objects are there", have, wrote)
	}
	b.unhurt("innocent")
}
