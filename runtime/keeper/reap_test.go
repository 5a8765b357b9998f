package keeper

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child starts a process that Go does not wait for.
func child(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release()
	return pid
}

func isChild(pid int) bool {
	var info unix.Siginfo
	return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

func ended(t *testing.T, pid int) {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if got := siginfoPid(&info); got != pid {
		t.Fatalf("siginfo says %d, it was %d", got, pid)
	}
}

// TestReaper: what has no owner is reaped, what has one is left to it, and while something starts nothing is at once.
func TestReaper(t *testing.T) {
	r := newReaper()
	stray := child(t, "/bin/true")
	ended(t, stray)
	r.begin()
	r.pass(time.Now())
	if !isChild(stray) {
		t.Fatal("reaped while a container starts: it might have been the library's")
	}
	r.end(0)
	r.pass(time.Now())
	if isChild(stray) {
		t.Fatal("a child without an owner is not reaped")
	}

	r.begin()
	mine := child(t, "/bin/sh", "-c", "exit 7")
	ended(t, mine)
	r.end(mine)
	r.pass(time.Now())
	if !isChild(mine) {
		t.Fatal("the reaper took a child that has an owner")
	}
	p, err := openProcess(mine, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.fd.Close()
	x, err := p.wait()
	if err != nil || x.Code != 7 || x.Unknown {
		t.Errorf("exit %+v %v", x, err)
	}
	r.gone(mine)
	if len(r.owned) != 0 {
		t.Errorf("still owned: %v", r.owned)
	}
}

// TestReaperBesideAStart: a start that never ends does not keep a child that nobody has waited for from being reaped; one with an owner
// is left to it, and so is one that has just ended.
func TestReaperBesideAStart(t *testing.T) {
	r := newReaper()
	r.begin() // and does not end
	now := time.Now()
	r.begin()
	mine := child(t, "/bin/true")
	ended(t, mine)
	r.end(mine)
	stray := child(t, "/bin/true")
	ended(t, stray)
	if !r.pass(now) {
		t.Error("nothing to look at again")
	}
	if now = now.Add(leftFor - lookAgain); !r.pass(now) || !isChild(stray) {
		t.Error("reaped at once: it might have been the library's")
	}
	fresh := child(t, "/bin/true")
	ended(t, fresh)
	if now = now.Add(lookAgain); !r.pass(now) || isChild(stray) {
		t.Error("what nobody waits for is not reaped")
	}
	if !isChild(mine) || !isChild(fresh) {
		t.Error("reaped what has an owner, or has just ended")
	}
	_, _ = unix.Wait4(mine, nil, 0, nil)
	r.gone(mine)
	now = now.Add(leftFor)
	if r.pass(now); isChild(fresh) {
		t.Error("what nobody waits for is not reaped")
	}
	if r.pass(now) || len(r.left) != 0 || len(r.owned) != 0 {
		t.Errorf("left: %v, owned: %v", r.left, r.owned)
	}
}

func TestProcess(t *testing.T) {
	for script, want := range map[string]struct{ code, signal int }{
		"exit 0": {0, 0}, "exit 255": {255, 0}, "kill -9 $$": {137, 9}, "kill -TERM $$": {143, 15}, "kill -SEGV $$": {139, 11},
	} {
		p, err := openProcess(child(t, "/bin/sh", "-c", "sleep 0.05; "+script), 0)
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.wait()
		if err != nil || x.Code != want.code || x.Signal != want.signal || x.Unknown {
			t.Errorf("%s: %+v %v", script, x, err)
		}
		if err := p.signal(unix.SIGTERM); err != nil {
			t.Errorf("signal to a process that is gone: %v", err)
		}
		_ = p.fd.Close()
	}
}

// TestExitNotRemembered: on a kernel without PIDFD_GET_INFO, or when it does not know, an exit code is not invented.
func TestExitNotRemembered(t *testing.T) {
	old, err := os.Open(os.DevNull) // answers the call as an old kernel's pidfd does: with ENOTTY
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for what, p := range map[string]*process{"old kernel": {pid: 1, fd: old}, "closed": {pid: 1, fd: closed}} {
		if x := p.remembered(); !x.Unknown || x.Code != 137 || x.FinishedAt.IsZero() {
			t.Errorf("%s: %+v", what, x)
		}
	}
}

func TestWaitStops(t *testing.T) {
	pid := child(t, "/bin/sleep", "100")
	p, err := openProcess(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.fd.Close()
	time.AfterFunc(20*time.Millisecond, p.stop)
	if _, err := p.wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	_, _ = unix.Wait4(pid, nil, 0, nil)
}

// TestSameNumberOtherProcess: a PID alone names nobody.
func TestSameNumberOtherProcess(t *testing.T) {
	pid := child(t, "/bin/sleep", "100")
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}()
	start, err := startTime(pid)
	if err != nil || start == 0 {
		t.Fatal(start, err)
	}
	p, err := openProcess(pid, start)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.fd.Close()
	if _, err := openProcess(pid, start+1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("another process was taken for ours: %v", err)
	}
}
