package cli

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/durable"
	"ledge/internal/testrun"
	"ledge/storage"
)

// fillBoard makes a data directory whose store and claims say when they are of.
func fillBoard(t *testing.T, dir, when string, names ...string) {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Config{Dir: storeOf(dir)})
	must(t, err)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: when}}
	must(t, s.Update(func(tx *storage.Tx) error { return tx.Put(api.ConfigMaps, o) }))
	s.Close()
	for _, name := range names {
		at := shelfOf(dir).Path(name)
		must(t, errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, "row"), []byte(when), 0o600)))
	}
}

// isOf says when store and claims are of: "now now now", say.
func isOf(t *testing.T, dir string, names ...string) string {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Config{Dir: storeOf(dir)})
	must(t, err)
	defer s.Close()
	var out []string
	must(t, s.View(func(tx *storage.Tx) error {
		for _, when := range []string{"then", "now"} {
			if o, err := tx.Get(api.ConfigMaps, "a", when); err == nil && o != nil {
				out = append(out, when)
			}
		}
		return nil
	}))
	for _, name := range names {
		row, err := os.ReadFile(filepath.Join(shelfOf(dir).Path(name), "row"))
		if err != nil {
			row = []byte("-")
		}
		out = append(out, string(row))
	}
	return strings.Join(out, " ")
}

// restoreCut restores in this process, which dies before a step.
func restoreCut(t *testing.T, dir, file string, step int) error {
	n := 0
	disk := durable.Disk{Before: func(string, string) error {
		if n++; n > step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	}}
	shelf := shelfOf(dir)
	shelf.Disk = disk
	c := &Command{out: io.Discard, Err: io.Discard, RunDir: filepath.Join(dir, "none")}
	return c.restoreWithClaims(t.Context(), storage.Restore{Dir: storeOf(dir), Backup: file, Disk: disk}, shelf)
}

// TestCutsOfRestore: wherever a restore is killed, all is as it was, or no board starts and the next restore, which may be killed too,
// makes all as in the backup. What was there is aside once.
func TestCutsOfRestore(t *testing.T) { // N-13.15
	testrun.OnHost(t)
	if dir := os.Getenv("LEDGE_TEST_RESTORE"); dir != "" {
		step, err := strconv.Atoi(os.Getenv("LEDGE_TEST_STEP"))
		must(t, err)
		must(t, restoreCut(t, dir, os.Getenv("LEDGE_TEST_BACKUP"), step))
		return
	}
	names := []string{"pvc-a", "pvc-b"}
	then := t.TempDir()
	fillBoard(t, then, "then", names...)
	file := filepath.Join(t.TempDir(), "backup")
	must(t, saveWhole(file, func(f *os.File) error { return storage.BackupDir(storeOf(then), f) }, func(string) error { return nil }))
	testrun.Succeeds(t, time.Minute, "claims are saved", func() error {
		return saveWhole(file+claimsSuffix, func(f *os.File) error {
			_, err := shelfOf(then).Pack(f)
			return err
		}, verifyClaims)
	})
	killed := func(dir string, step int) bool {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCutsOfRestore$")
		cmd.Env = append(os.Environ(), "LEDGE_TEST_RESTORE="+dir, "LEDGE_TEST_BACKUP="+file, "LEDGE_TEST_STEP="+strconv.Itoa(step))
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("step %d: %v: %s", step, err, out)
		}
		return err != nil
	}
	held := 0
	for step := 0; ; step++ {
		dir := t.TempDir()
		fillBoard(t, dir, "now", "pvc-a") // pvc-b is new
		again := killed(dir, step)
		if shelfOf(dir).Restoring() != nil {
			held++
			killed(dir, step/2)
			killed(dir, step)
		} else if got := isOf(t, dir, names...); again && got != "now now -" && got != "then then then" {
			t.Errorf("step %d: a board starts that is of %s", step, got)
		}
		must(t, restoreCut(t, dir, file, 1<<30))
		if got := isOf(t, dir, names...); got != "then then then" || shelfOf(dir).Restoring() != nil {
			t.Errorf("step %d: restored again it is of %s", step, got)
		}
		aside, err := filepath.Glob(shelfOf(dir).Path(".old-*/row"))
		must(t, err)
		var was []string
		for _, path := range aside {
			row, err := os.ReadFile(path)
			must(t, err)
			was = append(was, string(row))
		}
		if got := strings.Count(strings.Join(was, " "), "now"); got != 1 {
			t.Errorf("step %d: aside there is %q", step, was)
		}
		if half, _ := filepath.Glob(shelfOf(dir).Path(".new-*")); len(half) > 0 {
			t.Errorf("step %d: left %v", step, half)
		}
		if !again {
			break
		}
	}
	if held < 5 {
		t.Errorf("no board started after %d cuts", held)
	}
}
