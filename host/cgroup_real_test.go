package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// realCgroup is a cgroup of the kernel's own with a shell in it that does script after it was let go.
func realCgroup(t *testing.T, script string) (name string, figure func(string) int64, letGo func(), out io.Reader) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("needs cgroup v2")
	}
	_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0) // as systemd has it
	name = "/" + testrun.Mark() + "host"
	dir := "/sys/fs/cgroup" + name
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testrun.Succeeds(t, 10*time.Second, "the cgroup goes", func() error { return os.Remove(dir) })
	})
	if _, err := os.Stat(filepath.Join(dir, "memory.reclaim")); errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs cgroup v2 with the memory controller, Linux 5.19")
	}
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	figure = func(file string) int64 {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	letGo = func() {
		t.Helper()
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
	}
	return name, figure, letGo, out
}

// TestReclaimForReal: a kernel that is asked gives page cache back, and says so; one that has nothing left to give is no error.
func TestReclaimForReal(t *testing.T) {
	name, figure, letGo, out := realCgroup(t, "head -c 40000000 /dev/zero >f; sync f; echo done; read end")
	letGo()
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	before := figure("memory.current")
	h := New(Config{})
	freed, err := h.Reclaim(t.Context(), name, 20<<20)
	if after := figure("memory.current"); err != nil || freed < 10<<20 || before-after < freed/2 {
		t.Errorf("%d freed, %d before and %d after, %v", freed, before, after, err)
	}
	if freed, err := h.Reclaim(t.Context(), name, 1<<40); err != nil || freed > 60<<20 {
		t.Errorf("%d freed of what is not there, %v", freed, err)
	}
}
