package runtimetest_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/fake"
	"ledge/runtime/keeper"
	"ledge/runtime/libct"
	"ledge/runtime/runtimetest"
)

// The test binary is also a container's init, a keeper and a brain: what cmd/ledge is outside of tests.
func TestMain(m *testing.M) {
	switch os.Getenv("LEDGE_TEST_ROLE") {
	case "keeper":
		os.Exit(keeperMain())
	case "brain":
		os.Exit(brainMain())
	}
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var testprog string

func testMain(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "ledge-testprog")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	testprog = filepath.Join(dir, "testprog")
	if made := os.Getenv("LEDGE_TESTPROG"); made != "" { // the guest has no Go
		data, err := os.ReadFile(made)
		if err != nil {
			return 1, err
		}
		// A copy, so that root file systems can link to it.
		if err := os.WriteFile(testprog, data, 0o755); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", testprog, "./testprog")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build testprog: %w\n%s", err, out)
	}
	return m.Run(), nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// cgroupRoot is this process's own.
func cgroupRoot() string { return "/ledge-test-" + testrun.Mark() }

// rootfs is a fresh root file system with nothing in it but the test program.
func rootfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	dst := filepath.Join(dir, runtimetest.Program)
	if err := os.Link(testprog, dst); err != nil {
		b, err := os.ReadFile(testprog)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dst, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// left checks that the pods in the kernel are the pods of the engine.
func left(t *testing.T, e runtime.Engine, root, runDir string) {
	t.Helper()
	state, err := e.List(context.Background())
	if err != nil {
		t.Errorf("List: %v", err)
		return
	}
	var pods, containers []string
	for _, p := range state.Pods {
		pods = append(pods, p.Pod.UID)
	}
	for _, c := range state.Containers {
		containers = append(containers, c.ID)
	}
	for _, dir := range podCgroups(t, root) {
		if uid := strings.TrimPrefix(filepath.Base(dir), "pod"); !slices.Contains(pods, uid) {
			t.Errorf("left behind: cgroup %s", dir)
		}
	}
	for dir, known := range map[string][]string{"pods": pods, "containers": containers} {
		entries, err := os.ReadDir(filepath.Join(runDir, dir))
		if err != nil {
			t.Error(err)
		}
		for _, en := range entries {
			if !slices.Contains(known, en.Name()) {
				t.Errorf("left behind: %s of %s", dir, en.Name())
			}
		}
	}
	for _, m := range mountsBelow(t, runDir) {
		rel, _ := filepath.Rel(filepath.Join(runDir, "pods"), m)
		if uid, _, _ := strings.Cut(rel, "/"); !slices.Contains(pods, uid) {
			t.Errorf("left behind: mount %s", m)
		}
	}
}

// cgroupDirs is a cgroup in each hierarchy where it is.
func cgroupDirs(t *testing.T, cg string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + cg) // of version 1
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup" + cg); err == nil {
		dirs = append(dirs, "/sys/fs/cgroup"+cg)
	}
	return dirs
}

func podCgroups(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	for _, top := range cgroupDirs(t, root) {
		_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
				found = append(found, p)
				return fs.SkipDir
			}
			return nil
		})
	}
	return found
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

func newRunner(t *testing.T) *libct.Runner {
	t.Helper()
	r, err := libct.New(libct.Config{CgroupRoot: cgroupRoot(), Warn: func(msg string) { t.Log("warning:", msg) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inProcess is libcontainer in the test's own process.
func inProcess(t *testing.T) runtimetest.Setup {
	s, _ := inProcessDir(t)
	return s
}

func inProcessDir(t *testing.T) (runtimetest.Setup, string) {
	needRoot(t)
	dir := t.TempDir()
	r := newRunner(t)
	e, err := keeper.NewEngine(keeper.Config{RunDir: dir, Runner: r, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := r.Clear(); err != nil {
			t.Errorf("Clear: %v", err)
		}
		if m := mountsBelow(t, dir); len(m) > 0 {
			t.Errorf("left behind: %v", m)
		}
	})
	waitReady(t, e)
	return runtimetest.Setup{Engine: e, Rootfs: rootfs, Left: func(t *testing.T) { left(t, e, cgroupRoot(), dir) }}, dir
}

func waitReady(t *testing.T, e runtime.Engine) runtime.Info {
	t.Helper()
	var info runtime.Info
	testrun.Succeeds(t, 20*time.Second, "the engine is ready", func() error {
		var err error
		info, err = e.Info(context.Background())
		return err
	})
	return info
}

// testLog sends the log to the test's.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{t}, nil))
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestFake(t *testing.T) {
	script := func(c runtime.Container) fake.Behaviour { return script(t, c) }
	runtimetest.Run(t, func(t *testing.T) runtimetest.Setup {
		return runtimetest.Setup{Engine: fake.New(fake.Config{Script: script}),
			Rootfs: func(*testing.T) string { return "/rootfs" }}
	})
}

// script has the fake do what the test program does.
func script(t *testing.T, c runtime.Container) fake.Behaviour {
	if c.Args[0] != runtimetest.Program {
		return fake.Behaviour{StartErr: fs.ErrNotExist}
	}
	does := fake.Behaviour{Exec: command}
	var code int
	switch c.Args[1] {
	case "run":
		if len(c.Args) > 2 {
			_, _ = fmt.Sscan(c.Args[2], &code)
		}
		does.TermCode = code
	case "ignore":
		does.IgnoreTERM = true
	case "exit":
		after := time.Duration(0)
		_, _ = fmt.Sscan(c.Args[2], &code)
		if len(c.Args) > 3 {
			after, _ = time.ParseDuration(c.Args[3])
		}
		does.ExitAfter, does.Exit = &after, runtime.Exit{Code: code}
	case "cat":
		does.Main = func(_ context.Context, stdin io.Reader, stdout, stderr io.Writer) (code int) {
			if len(c.Args) > 3 {
				_, _ = io.WriteString(stdout, c.Args[3]+"\n")
			}
			_, _ = io.Copy(stdout, stdin)
			_, _ = io.WriteString(stderr, "end\n")
			_, _ = fmt.Sscan(c.Args[2], &code)
			return code
		}
	default:
		t.Errorf("the fake does not know %v", c.Args)
	}
	return does
}

// command is the test program as a command.
func command(ctx context.Context, x runtime.Exec) (code int, err error) {
	if x.Args[0] != runtimetest.Program {
		return 0, fs.ErrNotExist
	}
	switch x.Args[1] {
	case "exit":
		_, _ = fmt.Sscan(x.Args[2], &code)
	case "cat":
		if x.Stdin != nil {
			_, err = io.Copy(x.Stdout, x.Stdin)
		}
		if x.Stderr != nil {
			_, _ = io.WriteString(x.Stderr, "end\n")
		}
		_, _ = fmt.Sscan(x.Args[2], &code)
	default:
		<-ctx.Done()
	}
	return code, err
}

func TestLibcontainer(t *testing.T) {
	testrun.OnHost(t) // TestKeeper has all of it, through the keeper
	runtimetest.Run(t, inProcess)
}

// keeperMain is a keeper process.
func keeperMain() int {
	r, err := libct.New(libct.Config{CgroupRoot: os.Getenv("LEDGE_TEST_CGROUP")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := keeper.Config{RunDir: os.Getenv("LEDGE_TEST_RUNDIR"), Runner: r, Parked: parkedFiles()}
	if store := os.Getenv("LEDGE_TEST_FDSTORE"); store != "" {
		if cfg.Park, cfg.Unpark, err = storeClient(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := keeper.Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
