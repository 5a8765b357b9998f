package images_test

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ledge/images"
	it "ledge/images/imagestest"
)

const syscallsEnv = "LEDGE_IMAGES_SYSCALLS"

// TestSystemCalls records what a pull asks the kernel for. It has to be what TestPullOrder hears from the store itself, in
// the same order: nothing less, and no sync that is not needed.
func TestSystemCalls(t *testing.T) {
	needRoot(t)
	if dir := os.Getenv(syscallsEnv); dir != "" {
		pullOnce(t, dir)
		return
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace: scripts/setup.sh images")
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "-y", "-s", "1000", "-o", log,
		"-e", "trace=fsync,fdatasync,syncfs,sync,rename,renameat,renameat2", os.Args[0], "-test.run=^TestSystemCalls$")
	cmd.Env = append(os.Environ(), syscallsEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	checkSteps(t, callSteps(t, dir, string(text)))
}

// pullOnce is the process that is looked at. Two renames say where the pull begins and ends.
func pullOnce(t *testing.T, dir string) {
	b := newBoard(t)
	b.root, b.run = filepath.Join(dir, "images"), filepath.Join(dir, "run")
	b.index = dirIndex{filepath.Join(dir, "index")}
	r := &it.Registry{}
	r.Push(it.Sample("app"))
	b.setup = func(c *images.StoreConfig) { c.Registry = r }
	if err := os.MkdirAll(filepath.Join(dir, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.restart()
	mark := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mark"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mark("mark", "begin")
	if _, err := b.pull("app"); err != nil {
		t.Fatal(err)
	}
	mark("begin", "end")
}

var (
	callLine = regexp.MustCompile(`^(\d+) +(?:(\w+)\((.*)|<\.\.\. .*resumed>.*)$`)
	fdPath   = regexp.MustCompile(`^\d+<([^>]*)>`)
	quoted   = regexp.MustCompile(`"([^"]*)"`)
)

// callSteps are the calls between the marks, in the words of TestPullOrder. Those that failed are none.
func callSteps(t *testing.T, dir, log string) (steps []string) {
	root, index := filepath.Join(dir, "images"), filepath.Join(dir, "index")
	var open bool
	last := map[string]int{} // by thread: its last step
	for line := range strings.Lines(log) {
		m := callLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue // a signal, or a thread that ended
		}
		thread, call, rest := m[1], m[2], m[3]
		if call == "" { // the result of a call that other threads interrupted
			if i, ok := last[thread]; ok && strings.Contains(line, "= -1 ") {
				steps[i] = ""
			}
			continue
		}
		delete(last, thread)
		if strings.Contains(rest, "= -1 ") {
			continue
		}
		var path string
		if strings.HasPrefix(call, "rename") {
			names := quoted.FindAllStringSubmatch(rest, -1)
			call, path = "rename", names[1][1]
		} else if f := fdPath.FindStringSubmatch(rest); f != nil {
			path = f[1]
		} else {
			t.Fatalf("what is this: %s", line)
		}
		switch base := filepath.Base(path); {
		case path == index || filepath.Dir(path) == index && call != "rename":
			continue // of a row's three steps the rename stands for it
		case filepath.Dir(path) == index:
			key, err := hex.DecodeString(base)
			if err != nil {
				t.Fatal(err)
			}
			call, path = "row", strings.Split(string(key), "/")[0]
		case filepath.Dir(path) == dir:
			open = base == "begin"
			continue
		}
		if !open {
			continue
		}
		steps = append(steps, call+" "+stepPath(root, path))
		last[thread] = len(steps) - 1
	}
	return slices.DeleteFunc(steps, func(s string) bool { return s == "" })
}
