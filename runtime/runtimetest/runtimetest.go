// Package runtimetest is the suite that every runtime.Engine passes: libcontainer in the same process, the keeper's
// client, and the fake, which earns its trust this way.
package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// Program is where the test program is in a root file system of the suite. It understands:
//
//	run [CODE]           runs until SIGTERM, then exits with CODE (0)
//	ignore               runs and ignores SIGTERM
//	exit CODE [AFTER]    exits with CODE after a time like 50ms
//	cat CODE             copies standard input to standard output, says "end" on standard error, exits with CODE
//
// and more that only engines with a kernel under them can be asked; see runtime/runtimetest/testprog.
const Program = "/testprog"

// Setup is one engine under test.
type Setup struct {
	Engine runtime.Engine
	// Rootfs gives a fresh root file system that holds Program.
	Rootfs func(t *testing.T) string
	// Left fails the test if anything of a removed pod or container is left. Nil: nothing to look at.
	Left func(t *testing.T)
}

// within is how long the suite waits for what must come soon. The machines it runs on are busy.
const within = 30 * time.Second

var serial atomic.Int64

// Unique gives a name that no other test of any process uses.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), serial.Add(1))
}

// NewPod is a pod without limits.
func NewPod() runtime.Pod {
	uid := Unique("uid")
	return runtime.Pod{UID: uid, Namespace: "default", Name: "p", Hostname: "p",
		Cgroup: "kubepods/besteffort/pod" + uid, Resources: runtime.Resources{CPUShares: 2}}
}

// NewContainer is a container of a pod that runs Program with args.
func (s Setup) NewContainer(t *testing.T, p runtime.Pod, args ...string) runtime.Container {
	return runtime.Container{ID: Unique("c"), PodUID: p.UID, Name: "main", Rootfs: s.Rootfs(t),
		Args: append([]string{Program}, args...), Env: []string{"PATH=/"}, Cwd: "/",
		Labels: map[string]string{"a": "b"}}
}

// Pod makes a pod that is removed at the end of the test, after which nothing may be left.
func (s Setup) Pod(t *testing.T) runtime.Pod {
	t.Helper()
	return s.Ensure(t, NewPod()).Pod
}

// Ensure is Pod for a pod of the caller's making.
func (s Setup) Ensure(t *testing.T, p runtime.Pod) runtime.PodStatus {
	t.Helper()
	st, err := s.Engine.EnsurePod(t.Context(), p)
	if err != nil {
		t.Fatalf("EnsurePod: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Engine.RemovePod(context.Background(), p.UID); err != nil {
			t.Errorf("RemovePod: %v", err)
		}
		if s.Left != nil {
			s.Left(t)
		}
	})
	return st
}

// Start starts a container or fails the test.
func (s Setup) Start(t *testing.T, c runtime.Container) runtime.Status {
	t.Helper()
	st, err := s.Engine.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("Start %v: %v", c.Args, err)
	}
	return st
}

// Find gives a container's status, and whether the engine holds it.
func (s Setup) Find(t *testing.T, id string) (runtime.Status, bool) {
	t.Helper()
	state, err := s.Engine.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	i := slices.IndexFunc(state.Containers, func(c runtime.Status) bool { return c.ID == id })
	if i < 0 {
		return runtime.Status{}, false
	}
	return state.Containers[i], true
}

// Exit waits for a container's end.
func (s Setup) Exit(t *testing.T, id string) runtime.Exit {
	t.Helper()
	var exit *runtime.Exit
	testrun.Until(t, within, "container "+id+" ends", func() bool {
		st, ok := s.Find(t, id)
		if !ok {
			t.Fatalf("container %s is not listed", id)
		}
		if exit = st.Exit; st.Phase == runtime.Exited && exit == nil {
			t.Fatalf("container %s exited and does not say how", id)
		}
		return st.Phase == runtime.Exited
	})
	return *exit
}

// Run runs the suite. factory is called once per test.
func Run(t *testing.T, factory func(t *testing.T) Setup) {
	tests := []struct {
		name string
		run  func(t *testing.T, s Setup)
	}{
		{"Info", testInfo},
		{"EnsurePodTwice", testEnsurePodTwice},
		{"StartTwice", testStartTwice},
		{"StartAfterExit", testStartAfterExit},
		{"StartTogether", testStartTogether},
		{"StartWithoutPod", testStartWithoutPod},
		{"FailedStart", testFailedStart},
		{"ExitCodes", testExitCodes},
		{"SIGTERM", testSigterm},
		{"SIGKILL", testSigkill},
		{"SignalExited", testSignalExited},
		{"UnknownIDs", testUnknown},
		{"BadIDs", testBadIDs},
		{"Remove", testRemove},
		{"RemoveRunning", testRemoveRunning},
		{"RemovePod", testRemovePod},
		{"List", testList},
		{"Watch", testWatch},
		{"WatchEnds", testWatchEnds},
		{"StatusIsACopy", testStatusIsACopy},
		{"Limit", testLimit},
		{"LimitUnknown", testLimitUnknown},
		{"ProcessesOf", testProcessesOf},
		{"Exec", testExec},
		{"ExecStreams", testExecStreams},
		{"ExecWhere", testExecWhere},
		{"ExecCancelled", testExecCancelled},
		{"ExecEndsWithContainer", testExecEndsWithContainer},
		{"AttachOnce", testAttachOnce},
		{"AttachFirst", testAttachFirst},
		{"AttachOnceLeaves", testAttachOnceLeaves},
		{"AttachAgain", testAttachAgain},
		{"AttachWhere", testAttachWhere},
		{"AttachBadWriter", testAttachBadWriter},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, factory(t)) })
	}
}

func testInfo(t *testing.T, s Setup) {
	info, err := s.Engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Name == "" || info.Version == "" || info.CgroupVersion < 1 || info.CgroupVersion > 2 || info.CgroupRoot == "" {
		t.Errorf("incomplete: %+v", info)
	}
}

func testEnsurePodTwice(t *testing.T, s Setup) {
	p := NewPod()
	first := s.Ensure(t, p)
	if first.Pod.UID != p.UID || first.CreatedAt.IsZero() || first.NetNS == "" {
		t.Errorf("incomplete: %+v", first)
	}
	again, err := s.Engine.EnsurePod(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if again.NetNS != first.NetNS || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("made again: %+v, was %+v", again, first)
	}
	host := NewPod()
	host.HostNetwork = true
	if st := s.Ensure(t, host); st.NetNS != "" {
		t.Errorf("a pod on the host's network has a network namespace: %q", st.NetNS)
	}
}

func testStartTwice(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "run")
	c.Attempt = 3
	first := s.Start(t, c)
	if first.ID != c.ID || first.PodUID != c.PodUID || first.Name != c.Name || first.Attempt != 3 || first.Labels["a"] != "b" ||
		first.Phase != runtime.Running || first.Pid == 0 || first.StartedAt.IsZero() || first.Exit != nil {
		t.Errorf("incomplete: %+v", first)
	}
	again := s.Start(t, c)
	if again.Pid != first.Pid || !again.StartedAt.Equal(first.StartedAt) {
		t.Errorf("started again: %+v, was %+v", again, first)
	}
}

func testStartAfterExit(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "exit", "4")
	s.Start(t, c)
	s.Exit(t, c.ID)
	st := s.Start(t, c)
	if st.Phase != runtime.Exited || st.Exit == nil || st.Exit.Code != 4 {
		t.Errorf("an ended container was not left alone: %+v", st)
	}
}

func testStartTogether(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "run")
	pids := make([]int, 4)
	var wg sync.WaitGroup
	for i := range pids {
		wg.Go(func() {
			st, err := s.Engine.Start(t.Context(), c)
			if err != nil {
				t.Errorf("Start: %v", err)
			}
			pids[i] = st.Pid
		})
	}
	wg.Wait()
	if pids = slices.Compact(pids); len(pids) != 1 {
		t.Errorf("one container, several processes: %v", pids)
	}
}

func testStartWithoutPod(t *testing.T, s Setup) {
	c := s.NewContainer(t, NewPod(), "run")
	if _, err := s.Engine.Start(t.Context(), c); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("Start in an unknown pod: %v", err)
	}
}

func testFailedStart(t *testing.T, s Setup) {
	p := s.Pod(t)
	c := s.NewContainer(t, p, "run")
	c.Args = []string{"/no/such/program"}
	if _, err := s.Engine.Start(t.Context(), c); err == nil || errors.Is(err, runtime.ErrUnavailable) {
		t.Fatalf("Start of a program that is not there: %v", err)
	}
	if st, ok := s.Find(t, c.ID); ok {
		t.Errorf("a failed start left %+v", st)
	}
	// The ID is free: nothing of it is left behind.
	c.Args = []string{Program, "exit", "0"}
	s.Start(t, c)
	if x := s.Exit(t, c.ID); x.Code != 0 {
		t.Errorf("exit %+v", x)
	}
}

func testExitCodes(t *testing.T, s Setup) {
	p := s.Pod(t)
	before := time.Now()
	for _, code := range []int{0, 42, 255} {
		for _, after := range []string{"0s", "30ms"} { // at once: the end may come before Start returns
			c := s.NewContainer(t, p, "exit", strconv.Itoa(code), after)
			s.Start(t, c)
			x := s.Exit(t, c.ID)
			if x.Code != code || x.Signal != 0 || x.OOMKilled || x.Unknown || x.FinishedAt.Before(before) {
				t.Errorf("exit %d after %s: %+v", code, after, x)
			}
		}
	}
}

// Until it listens, the program dies of SIGTERM as any Go program does that is PID 1: with 2. Before that, while Go
// itself starts, the kernel drops the signal.
const early = 2

func testSigterm(t *testing.T, s Setup) {
	p := s.Pod(t)
	x := untilListening(t, func(wait time.Duration) (runtime.Exit, bool) {
		c := s.NewContainer(t, p, "run", "7")
		s.Start(t, c)
		for {
			s.signalAfter(t, c.ID, wait)
			time.Sleep(100 * time.Millisecond)
			if st, _ := s.Find(t, c.ID); st.Phase == runtime.Exited {
				return *st.Exit, st.Exit.Code != early
			}
		}
	})
	if x.Code != 7 || x.Signal != 0 {
		t.Errorf("after SIGTERM: %+v", x)
	}
	untilListening(t, func(wait time.Duration) (runtime.Exit, bool) {
		c := s.NewContainer(t, p, "ignore")
		s.Start(t, c)
		s.signalAfter(t, c.ID, wait)
		time.Sleep(50 * time.Millisecond)
		st, _ := s.Find(t, c.ID)
		if st.Phase == runtime.Exited && st.Exit.Code != early {
			t.Errorf("a container that ignores SIGTERM: %+v", st.Exit)
		}
		return runtime.Exit{}, st.Phase == runtime.Running
	})
}

func (s Setup) signalAfter(t *testing.T, id string, wait time.Duration) {
	t.Helper()
	time.Sleep(wait)
	if err := s.Engine.Signal(t.Context(), id, syscall.SIGTERM); err != nil {
		t.Fatalf("Signal: %v", err)
	}
}

// untilListening tries with ever longer waits: an engine cannot say when a program has got to its signals.
func untilListening(t *testing.T, try func(wait time.Duration) (runtime.Exit, bool)) runtime.Exit {
	t.Helper()
	for wait := 50 * time.Millisecond; wait < testrun.Patience(within); wait *= 2 {
		if x, ok := try(wait); ok {
			return x
		}
	}
	t.Fatal("the program never listens")
	return runtime.Exit{}
}

func testSigkill(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	if x := s.Exit(t, c.ID); x.Code != 137 || x.Signal != 9 || x.OOMKilled || x.Unknown {
		t.Errorf("after SIGKILL: %+v", x)
	}
}

func testSignalExited(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "exit", "0")
	s.Start(t, c)
	s.Exit(t, c.ID)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := s.Engine.Signal(t.Context(), c.ID, sig); err != nil {
			t.Errorf("Signal %v to an ended container: %v", sig, err)
		}
	}
}

func testUnknown(t *testing.T, s Setup) {
	id := Unique("unknown")
	if err := s.Engine.Signal(t.Context(), id, syscall.SIGTERM); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("Signal: %v", err)
	}
	if err := s.Engine.Remove(t.Context(), id); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if err := s.Engine.RemovePod(t.Context(), id); err != nil {
		t.Errorf("RemovePod: %v", err)
	}
}

func testBadIDs(t *testing.T, s Setup) {
	p := s.Pod(t)
	for _, id := range []string{"", ".", "..", "a/b", "../x", "a b", "a:b", "a\x00b", strings.Repeat("x", 300)} {
		c := s.NewContainer(t, p, "run")
		c.ID = id
		if _, err := s.Engine.Start(t.Context(), c); err == nil {
			t.Errorf("container %q was started", id)
		}
		bad := NewPod()
		bad.UID = id
		if _, err := s.Engine.EnsurePod(t.Context(), bad); err == nil {
			t.Errorf("pod %q was made", id)
		}
	}
}

func testRemove(t *testing.T, s Setup) {
	p := s.Pod(t)
	c := s.NewContainer(t, p, "exit", "0")
	s.Start(t, c)
	s.Exit(t, c.ID)
	for range 2 {
		if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
			t.Fatalf("Remove: %v", err)
		}
	}
	if _, ok := s.Find(t, c.ID); ok {
		t.Error("a removed container is listed")
	}
	if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGTERM); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("Signal to a removed container: %v", err)
	}
}

func testRemoveRunning(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if _, ok := s.Find(t, c.ID); ok {
		t.Error("a removed container is listed")
	}
}

func testRemovePod(t *testing.T, s Setup) {
	p, other := s.Pod(t), s.Pod(t)
	running, ended := s.NewContainer(t, p, "ignore"), s.NewContainer(t, p, "exit", "0")
	stays := s.NewContainer(t, other, "run")
	for _, c := range []runtime.Container{running, ended, stays} {
		s.Start(t, c)
	}
	s.Exit(t, ended.ID)
	for range 2 {
		if err := s.Engine.RemovePod(t.Context(), p.UID); err != nil {
			t.Fatalf("RemovePod: %v", err)
		}
	}
	state, err := s.Engine.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range state.Containers {
		if c.PodUID == p.UID {
			t.Errorf("a container of a removed pod is listed: %+v", c)
		}
	}
	for _, st := range state.Pods {
		if st.Pod.UID == p.UID {
			t.Errorf("a removed pod is listed: %+v", st)
		}
	}
	if st, ok := s.Find(t, stays.ID); !ok || st.Phase != runtime.Running {
		t.Errorf("a container of another pod: %+v", st)
	}
	// The UID can be used again.
	if _, err := s.Engine.EnsurePod(t.Context(), p); err != nil {
		t.Errorf("EnsurePod after RemovePod: %v", err)
	}
}

func testList(t *testing.T, s Setup) {
	p := s.Ensure(t, NewPod())
	a, b := s.NewContainer(t, p.Pod, "run"), s.NewContainer(t, p.Pod, "exit", "3")
	s.Start(t, a)
	s.Start(t, b)
	s.Exit(t, b.ID)
	state, err := s.Engine.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(state.Pods, func(st runtime.PodStatus) bool { return st.Pod.UID == p.Pod.UID })
	if i < 0 || state.Pods[i].NetNS != p.NetNS || state.Pods[i].Pod.Cgroup != p.Pod.Cgroup {
		t.Errorf("the pod: %+v", state.Pods)
	}
	if st, ok := s.Find(t, a.ID); !ok || st.Phase != runtime.Running || st.Pid == 0 {
		t.Errorf("a running container: %+v", st)
	}
	if st, ok := s.Find(t, b.ID); !ok || st.Phase != runtime.Exited || st.Exit.Code != 3 || st.Labels["a"] != "b" {
		t.Errorf("an ended container: %+v", st)
	}
}

// recorder collects what Watch tells.
type recorder struct {
	mu   sync.Mutex
	last map[string]runtime.Status
}

func (r *recorder) see(st runtime.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]runtime.Status{}
	}
	r.last[st.ID] = st
}

func (r *recorder) await(t *testing.T, id string, ok func(runtime.Status) bool) {
	t.Helper()
	testrun.Succeeds(t, within, "Watch tells of "+id, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if st, seen := r.last[id]; !seen || !ok(st) {
			return fmt.Errorf("it told of %+v last", r.last)
		}
		return nil
	})
}

func testWatch(t *testing.T, s Setup) {
	p := s.Pod(t)
	before := s.NewContainer(t, p, "run")
	s.Start(t, before)
	ctx, cancel := context.WithCancel(t.Context())
	var r recorder
	done := make(chan error, 1)
	go func() { done <- s.Engine.Watch(ctx, r.see) }()
	isRunning := func(st runtime.Status) bool { return st.Phase == runtime.Running && st.Exit == nil }
	r.await(t, before.ID, isRunning)

	after := s.NewContainer(t, p, "run")
	s.Start(t, after)
	r.await(t, after.ID, isRunning)
	for _, c := range []runtime.Container{before, after} {
		if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.await(t, c.ID, func(st runtime.Status) bool {
			return st.Phase == runtime.Exited && st.Exit != nil && st.Exit.Code == 137
		})
	}
	cancel()
	select {
	case <-done:
	case <-time.After(testrun.Patience(within)):
		t.Error("Watch goes on after its context has ended")
	}
}

func testWatchEnds(t *testing.T, s Setup) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Engine.Watch(ctx, func(runtime.Status) {}); err == nil {
		t.Error("Watch with an ended context gives no error")
	}
}

func testStatusIsACopy(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "exit", "0")
	s.Start(t, c)
	s.Exit(t, c.ID)
	st, _ := s.Find(t, c.ID)
	st.Labels["a"], st.Exit.Code = "changed", 99
	if again, _ := s.Find(t, c.ID); again.Labels["a"] != "b" || again.Exit.Code != 0 {
		t.Errorf("a caller changed the engine's status: %+v", again)
	}
}

func limiter(t *testing.T, s Setup) runtime.Limiter {
	t.Helper()
	l, ok := s.Engine.(runtime.Limiter)
	if !ok {
		t.Fatalf("%T is no Limiter", s.Engine)
	}
	return l
}

// testLimit: what is named changes, the rest stays, and both are told.
func testLimit(t *testing.T, s Setup) {
	p := NewPod()
	p.Resources = runtime.Resources{CPUShares: 100, PidsLimit: 300}
	s.Ensure(t, p)
	c, ended := s.NewContainer(t, p, "run"), s.NewContainer(t, p, "exit", "0")
	c.Resources = runtime.Resources{CPUShares: 50, PidsLimit: 200}
	s.Start(t, c)
	s.Start(t, ended)
	s.Exit(t, ended.ID)
	l := limiter(t, s)
	for at, r := range map[runtime.Place]runtime.Resources{
		{Pod: p.UID}:                   {CPUShares: 400},
		{Container: c.ID}:              {CPUShares: 200, CPUQuotaUS: 50_000, CPUPeriodUS: 100_000},
		{Container: ended.ID}:          {CPUShares: 200},
		{Group: "kubepods"}:            {CPUShares: 1000},
		{Group: "kubepods/besteffort"}: {CPUShares: 2},
	} {
		for range 2 {
			if err := l.Limit(t.Context(), at, r); err != nil {
				t.Errorf("Limit %+v: %v", at, err)
			}
		}
	}
	st, _ := s.Find(t, c.ID)
	if r := st.Resources; r.CPUShares != 200 || r.CPUQuotaUS != 50_000 || r.PidsLimit != 200 {
		t.Errorf("the container: %+v", r)
	}
	state, err := s.Engine.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, have := range state.Pods {
		if r := have.Pod.Resources; have.Pod.UID == p.UID && (r.CPUShares != 400 || r.PidsLimit != 300) {
			t.Errorf("the pod: %+v", r)
		}
	}
}

func testLimitUnknown(t *testing.T, s Setup) {
	l := limiter(t, s)
	for _, at := range []runtime.Place{{Pod: Unique("uid")}, {Container: Unique("c")}} {
		if err := l.Limit(t.Context(), at, runtime.Resources{CPUShares: 2}); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("Limit %+v: %v", at, err)
		}
	}
	for _, at := range []runtime.Place{{}, {Group: "system"}, {Group: "kubepods/../x"}, {Group: "/kubepods"}, {Pod: "a", Container: "b"}} {
		if err := l.Limit(t.Context(), at, runtime.Resources{CPUShares: 2}); err == nil || errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("Limit %+v: %v", at, err)
		}
	}
}
