package keeper

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// shellRunner runs containers as plain shell commands, without root, and remembers what it made.
type shellRunner struct {
	mu      sync.Mutex
	pods    map[string]bool // by directory
	cons    map[string]int  // directory -> PID
	execs   map[string]int  // group -> PID
	fail    map[string]error
	cleared bool
}

func newShellRunner() *shellRunner {
	return &shellRunner{pods: map[string]bool{}, cons: map[string]int{}, execs: map[string]int{}, fail: map[string]error{}}
}

func (r *shellRunner) Enter() (runtime.Info, error) {
	return runtime.Info{Name: "shell", Version: "v0", CgroupVersion: 2, CgroupRoot: "/"}, nil
}

// failing has one method fail from now on; mend has none.
func (r *shellRunner) failing(method string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[method] = err
}

func (r *shellRunner) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.fail)
}

// made is what it has made and not unmade.
func (r *shellRunner) made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods) + len(r.cons) + len(r.execs)
}

func (r *shellRunner) MakePod(_ context.Context, dir string, _ runtime.Pod) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail["MakePod"]; err != nil {
		return "", err
	}
	r.pods[dir] = true
	return dir + "/ns/net", nil
}

func (r *shellRunner) UnmakePod(dir string, _ runtime.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail["UnmakePod"]; err != nil {
		return err
	}
	delete(r.pods, dir)
	return nil
}

func (r *shellRunner) Start(_ context.Context, _, dir string, _ runtime.Pod, c runtime.Container, stdio [3]*os.File, _ *os.File) (int,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail["Start"]; err != nil {
		return 0, err
	}
	cmd := exec.Command("/bin/sh", "-c", c.Args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	r.cons[dir] = cmd.Process.Pid
	_ = cmd.Process.Release()
	return r.cons[dir], nil
}

func (r *shellRunner) Kill(_ runtime.Pod, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for dir, pid := range r.cons {
		if filepath.Base(dir) == id {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
	return r.fail["Kill"]
}

func (r *shellRunner) Unmake(dir string, p runtime.Pod, id string) error {
	_ = r.Kill(p, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail["Unmake"]; err != nil {
		return err
	}
	delete(r.cons, dir)
	return nil
}

func (r *shellRunner) Limit(runtime.Pod, string, runtime.Resources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fail["Limit"]
}

func (r *shellRunner) LimitGroup(string, runtime.Resources) error { return nil }

func (r *shellRunner) Exec(_ context.Context, _ string, _ runtime.Pod, c runtime.Container, _ runtime.Size, stdio [3]*os.File, _ *os.File,
	group string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail["Exec"]; err != nil {
		return 0, err
	}
	cmd := exec.Command("/bin/sh", "-c", c.Args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	r.execs[group] = cmd.Process.Pid
	_ = cmd.Process.Release()
	return r.execs[group], nil
}

func (r *shellRunner) EndExec(_ runtime.Pod, _, group string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pid := r.execs[group]; pid != 0 {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	delete(r.execs, group)
	return nil
}

func (r *shellRunner) LeaveExec(_ runtime.Pod, _, group string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.execs, group)
	return nil
}

func (r *shellRunner) EndExecs(runtime.Pod, string) error { return nil }

func (r *shellRunner) OOM(runtime.Pod, string) (runtime.OOM, error) { return runtime.OOM{}, nil }

func (r *shellRunner) Clear() error {
	r.cleared = true
	return nil
}

// rig is an engine that runs until the end of the test or until stop.
type rig struct {
	*Engine
	r    *shellRunner
	stop func()
}

func newRig(t *testing.T, dir string, r *shellRunner, change func(*Config)) *rig {
	t.Helper()
	cfg := Config{RunDir: dir, Runner: r, BootID: "boot", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	e, err := NewEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	testrun.Succeeds(t, 10*time.Second, "the keeper is ready", func() error {
		_, err := e.Info(t.Context())
		return err
	})
	return &rig{e, r, stop}
}

func (g *rig) parked() []string {
	g.lot.mu.Lock()
	defer g.lot.mu.Unlock()
	return slices.Sorted(maps.Keys(g.lot.files))
}

func (g *rig) pod(t *testing.T, uid string) {
	t.Helper()
	if _, err := g.EnsurePod(t.Context(), runtime.Pod{UID: uid, Cgroup: "x"}); err != nil {
		t.Fatal(err)
	}
}

func (g *rig) exit(t *testing.T, id string) runtime.Exit {
	t.Helper()
	var exit *runtime.Exit
	testrun.Until(t, 10*time.Second, "container "+id+" ends", func() bool {
		s, err := g.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Containers {
			if c.ID == id {
				exit = c.Exit
			}
		}
		return exit != nil
	})
	return *exit
}

func inDir(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFailuresLeaveNothing: whatever fails on the way, nothing half-made is left and the next try works.
func TestFailuresLeaveNothing(t *testing.T) {
	dir, r := t.TempDir(), newShellRunner()
	g := newRig(t, dir, r, nil)
	broken := errors.New("broken")
	r.failing("MakePod", broken)
	if _, err := g.EnsurePod(t.Context(), runtime.Pod{UID: "u", Cgroup: "x"}); !errors.Is(err, broken) {
		t.Errorf("EnsurePod: %v", err)
	}
	if got := inDir(t, podsDir(dir)); got != nil || r.made() > 0 {
		t.Errorf("left behind: %v %v", got, r.pods)
	}
	r.mend()
	g.pod(t, "u")

	r.failing("Start", broken)
	c := runtime.Container{ID: "c", PodUID: "u", Args: []string{"exit 3"}, Stdin: true}
	if _, err := g.Start(t.Context(), c); !errors.Is(err, broken) {
		t.Errorf("Start: %v", err)
	}
	if got := inDir(t, containersDir(dir)); got != nil {
		t.Errorf("left behind: %v", got)
	}
	if got := g.parked(); got != nil {
		t.Errorf("still parked: %v", got)
	}
	r.mend()
	if _, err := g.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if x := g.exit(t, "c"); x.Code != 3 {
		t.Errorf("exit %+v", x)
	}
	if got := g.parked(); got != nil {
		t.Errorf("parked for an ended container: %v", got)
	}

	// A removal that cannot be finished says so, and can be asked for again.
	r.failing("UnmakePod", broken)
	if err := g.RemovePod(t.Context(), "u"); !errors.Is(err, broken) {
		t.Errorf("RemovePod: %v", err)
	}
	if s, _ := g.List(t.Context()); len(s.Pods) != 1 {
		t.Errorf("a pod that could not be removed is forgotten: %+v", s)
	}
	r.mend()
	if err := g.RemovePod(t.Context(), "u"); err != nil {
		t.Errorf("RemovePod again: %v", err)
	}
	if r.made() > 0 || inDir(t, podsDir(dir)) != nil || inDir(t, containersDir(dir)) != nil {
		t.Errorf("left behind: %v %v", r.pods, r.cons)
	}
}

// TestExitIsRecordedFirst: whoever hears of an exit can find it on disk.
func TestExitIsRecordedFirst(t *testing.T) {
	dir := t.TempDir()
	g := newRig(t, dir, newShellRunner(), nil)
	g.pod(t, "u")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan error, 1)
	go func() {
		_ = g.Watch(ctx, func(st runtime.Status) {
			if st.Phase == runtime.Exited {
				var x runtime.Exit
				seen <- readJSON(filepath.Join(dir, "containers", st.ID, "exit.json"), &x)
			}
		})
	}()
	log := filepath.Join(t.TempDir(), "log")
	if _, err := g.Start(t.Context(), runtime.Container{ID: "c", PodUID: "u", Args: []string{"seq 20000; exit 1"}, LogPath: log}); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Errorf("told before it was recorded: %v", err)
	}
	b, err := os.ReadFile(log)
	if n := strings.Count(string(b), "\n"); err != nil || n != 20000 {
		t.Errorf("the log of an ended container has %d lines, want 20000; %v", n, err)
	}
}

// TestHalfMade: what a keeper was making when it died is unmade by the next, and nobody is told of it.
func TestHalfMade(t *testing.T) {
	dir, r := t.TempDir(), newShellRunner()
	if err := renew(dir, "boot"); err != nil {
		t.Fatal(err)
	}
	podDir, conDir := filepath.Join(podsDir(dir), "u"), filepath.Join(containersDir(dir), "c")
	for _, d := range []string{podDir, conDir, filepath.Join(podsDir(dir), "empty"), filepath.Join(containersDir(dir), "empty")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeJSON(filepath.Join(podDir, "pod.json"), podRecord{Status: runtime.PodStatus{Pod: runtime.Pod{UID: "u"}}}); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(conDir, "container.json"),
		containerRecord{Container: runtime.Container{ID: "c", PodUID: "u"}}); err != nil {
		t.Fatal(err)
	}
	r.pods[podDir], r.cons[conDir] = true, child(t, "/bin/true")
	g := newRig(t, dir, r, nil)
	if s, err := g.List(t.Context()); err != nil || len(s.Pods)+len(s.Containers) > 0 {
		t.Errorf("half-made and told: %+v %v", s, err)
	}
	if r.made() > 0 || inDir(t, podsDir(dir)) != nil || inDir(t, containersDir(dir)) != nil {
		t.Errorf("left behind: %v %v %v %v", r.pods, r.cons, inDir(t, podsDir(dir)), inDir(t, containersDir(dir)))
	}
}

// TestDamagedRecord: one record that cannot be read keeps nobody from the others.
func TestDamagedRecord(t *testing.T) {
	dir, r := t.TempDir(), newShellRunner()
	g := newRig(t, dir, r, nil)
	g.pod(t, "u")
	for _, id := range []string{"good", "bad"} {
		if _, err := g.Start(t.Context(), runtime.Container{ID: id, PodUID: "u", Args: []string{"exit 5"}}); err != nil {
			t.Fatal(err)
		}
		g.exit(t, id)
	}
	g.stop()
	if err := os.WriteFile(filepath.Join(containersDir(dir), "bad", "container.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	g = newRig(t, dir, r, nil)
	if x := g.exit(t, "good"); x.Code != 5 {
		t.Errorf("exit %+v", x)
	}
	// The agent will ask for a container it does not find.
	if _, err := g.Start(t.Context(), runtime.Container{ID: "bad", PodUID: "u", Args: []string{"exit 6"}}); err == nil {
		if x := g.exit(t, "bad"); x.Code != 6 {
			t.Errorf("exit %+v", x)
		}
	}
}

// TestStopWhileBusy: an engine that ends finishes what it began and leaves no goroutine waiting.
func TestStopWhileBusy(t *testing.T) {
	dir, r := t.TempDir(), newShellRunner()
	g := newRig(t, dir, r, nil)
	g.pod(t, "u")
	watch := make(chan error, 1)
	go func() { watch <- g.Watch(context.Background(), func(runtime.Status) {}) }()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := g.Start(context.Background(), runtime.Container{ID: string(rune('a' + i)), PodUID: "u", Args: []string{"sleep 100"}})
			if err != nil && !errors.Is(err, runtime.ErrUnavailable) {
				t.Errorf("Start: %v", err)
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	g.stop()
	wg.Wait()
	if err := <-watch; !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := g.List(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("List after the end: %v", err)
	}
	// What runs is what is recorded, and the next engine finds it so.
	g = newRig(t, dir, r, nil)
	s, err := g.List(t.Context())
	if err != nil || len(s.Containers) != r.made()-1 {
		t.Errorf("%d containers run, %d are known; %v", r.made()-1, len(s.Containers), err)
	}
	if err := g.reset(t.Context()); err != nil || !r.cleared || r.made() > 0 {
		t.Errorf("reset: %v, left %v %v", err, r.pods, r.cons)
	}
}

// TestParking: every file of a living container is parked with the FD store, and none of an ended one.
func TestParking(t *testing.T) {
	dir, r := t.TempDir(), newShellRunner()
	var mu sync.Mutex
	store := map[string]*os.File{}
	withStore := func(cfg *Config) {
		cfg.Park = func(name string, f *os.File) error {
			dup, err := dupFile(f)
			mu.Lock()
			defer mu.Unlock()
			store[name] = dup
			return err
		}
		cfg.Unpark = func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			delete(store, name)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for name, f := range store {
			dup, err := dupFile(f)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Parked = append(cfg.Parked, named(dup, name))
		}
	}
	names := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(slices.Sorted(maps.Keys(store)), " ")
	}
	g := newRig(t, dir, r, withStore)
	g.pod(t, "u")
	log := filepath.Join(t.TempDir(), "log")
	// It ends, with an exit code and with its last words in the pipe, while there is no keeper.
	c := runtime.Container{ID: "c", PodUID: "u", Stdin: true, LogPath: log,
		Args: []string{"echo first; while [ ! -e " + dir + "/go ]; do sleep 0.01; done; echo last; exit 9"}}
	st, err := g.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(); got != "c/pid c/stderr c/stdin c/stdout" {
		t.Errorf("parked: %s", got)
	}
	g.stop()
	if got := names(); got != "c/pid c/stderr c/stdin c/stdout" {
		t.Errorf("parked without a keeper: %s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended(t, st.Pid)
	g = newRig(t, dir, r, withStore)
	if x := g.exit(t, "c"); x.Code != 9 || x.Unknown {
		t.Errorf("exit %+v", x)
	}
	b, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(b), " stdout F first\n") || !strings.HasSuffix(string(b), " stdout F last\n") {
		t.Errorf("the log: %q %v", b, err)
	}
	if got := names(); got != "" {
		t.Errorf("parked for an ended container: %s", got)
	}
}

// named gives a file another name, as go-systemd's activation does.
func named(f *os.File, name string) *os.File {
	rc, _ := f.SyscallConn()
	var out *os.File
	_ = rc.Control(func(fd uintptr) {
		dup, _ := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		out = os.NewFile(uintptr(dup), name)
	})
	_ = f.Close()
	return out
}

func TestKeyed(t *testing.T) {
	var k keyed
	unlock, err := k.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := k.lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a taken key: %v", err)
	}
	unlock()
	if again, err := k.lock(t.Context(), "a"); err != nil {
		t.Error(err)
	} else {
		again()
	}
	if len(k.locks) != 0 {
		t.Errorf("left: %v", k.locks)
	}
}
