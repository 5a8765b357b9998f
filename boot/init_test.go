package boot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ledge/boot/ending"
	"ledge/config"
	"ledge/internal/testrun"
)

func TestBootWords(t *testing.T) {
	for line, want := range map[string]bootWords{
		"":                                 {},
		"quiet root=/dev/sda1 ledge.datax": {},
		"console=ttyS0 ledge.data=/dev/mmcblk0p3 ledge.name=shed panic=5 -- serve\n": {data: "/dev/mmcblk0p3", name: "shed"},
	} {
		if got := readBootWords(line); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}

func TestDataDirOf(t *testing.T) {
	for args, want := range map[string]string{
		"serve":                                  config.DefaultDataDir,
		"serve --data-dir":                       config.DefaultDataDir,
		"serve --data-dir /data/ --listen :6443": "/data",
		"--run-dir /r serve -data-dir=/d":        "/d",
		"serve --name data-dir":                  config.DefaultDataDir,
	} {
		if got := dataDirOf(strings.Fields(args)); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

// TestBrainsEnd: what a brain's end is to process 1. A signal of somebody's beats every other reason.
func TestBrainsEnd(t *testing.T) {
	exit := func(code int) unix.WaitStatus { return unix.WaitStatus(code << 8) }
	for _, c := range []struct {
		status unix.WaitStatus
		asked  ending.Why
		want   ending.Why
	}{
		{exit(0), 0, 0}, {exit(1), 0, 0}, {exit(2), 0, 0}, {unix.WaitStatus(unix.SIGKILL), 0, 0},
		{exit(int(ending.PowerOff.Code())), 0, ending.PowerOff}, {exit(int(ending.Reboot.Code())), 0, ending.Reboot},
		{exit(0), ending.PowerOff, ending.PowerOff}, {exit(1), ending.Reboot, ending.Reboot},
		{unix.WaitStatus(unix.SIGSEGV), ending.PowerOff, ending.PowerOff},
		{exit(int(ending.PowerOff.Code())), ending.Reboot, ending.Reboot},
	} {
		if got := verdict(c.status, c.asked); got != c.want {
			t.Errorf("status %#x, asked %d: %d, want %d", c.status, c.asked, got, c.want)
		}
	}
}

func TestRestarts(t *testing.T) {
	wait := time.Duration(0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if wait = nextWait(wait, time.Second); wait != want*time.Second {
			t.Errorf("start %d: %s", i, wait)
		}
	}
	if wait = nextWait(wait, steady); wait != firstRestart {
		t.Errorf("after a long run: %s", wait)
	}
}

// TestSupervisor: process 1 starts a brain again that ends by itself, takes it along when told to end, and leaves no
// other process unreaped. It waits for all children of this test's process, so it is a process of its own.
func TestSupervisor(t *testing.T) {
	if !ofItsOwn(t) {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // orphans come here, as they do to process 1
		t.Fatal(err)
	}
	orphan := filepath.Join(t.TempDir(), "orphan")
	starts := 0
	s := &supervisor{wait: time.Millisecond / 2, start: func() (int, error) {
		if starts++; starts == 3 {
			go func() {
				awaitReaped(t, orphan)
				_ = syscall.Kill(os.Getpid(), syscall.SIGPWR)
			}()
		}
		script := []string{"exit 1", "sh -c 'exit 3' & echo $! >" + orphan + "; kill -9 $$",
			"trap 'exit 0' PWR; while :; do sleep 0.01; done"}[starts-1]
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	}}
	if why := s.run(); why != ending.PowerOff || starts != 3 {
		t.Errorf("%d after %d starts", why, starts)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("left unreaped, or running: process %d, %v", pid, err)
	}
}

// awaitReaped waits until the process whose number is in a file is not even a zombie any more.
func awaitReaped(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		t.Errorf("%q, %v", text, err)
		return
	}
	testrun.Until(t, 20*time.Second, fmt.Sprintf("the orphan %d is reaped", pid),
		func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}

// ofItsOwn runs the test in a process of its own, and is true in that.
func ofItsOwn(t *testing.T) bool {
	t.Helper()
	const word = "LEDGE_SUPERVISED"
	if os.Getenv(word) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), word+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestPressBetweenBrains: the power key, and a signal that asks for the same, count while there is no brain. The next one
// is started at once, hears of it, and is the last, however it ends.
func TestPressBetweenBrains(t *testing.T) {
	if !ofItsOwn(t) {
		return
	}
	const read = "test $(dd bs=1 count=1 <&3 2>/dev/null) = p || exit 9;"
	for name, c := range map[string]struct {
		ask    func(*presses)
		second string
		want   ending.Why
	}{
		"the key":           {(*presses).press, read + "exit 120", ending.PowerOff},
		"the key, twice":    {func(p *presses) { p.press(); p.press() }, read + read + "exit 120", ending.PowerOff},
		"a brain that dies": {(*presses).press, "kill -9 $$", ending.PowerOff},
		"a signal":          {func(*presses) { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }, read + "exit 120", ending.Reboot},
		"no brain at all":   {(*presses).press, "", ending.PowerOff},
	} {
		for _, when := range []string{"before its end", "after it"} { // or thereabouts: each order must do
			if name == "a signal" && when == "before its end" {
				continue // that brain is told itself
			}
			keys, err := newPresses()
			if err != nil {
				t.Fatal(err)
			}
			starts := 0
			s := &supervisor{presses: keys, wait: lastRestart}
			s.start = func() (int, error) {
				starts++
				script := "exit 1"
				switch {
				case starts == 1 && when == "after it":
					go func() { // its end is followed by a minute without one
						time.Sleep(100 * time.Millisecond)
						c.ask(keys)
					}()
				case starts == 1:
					c.ask(keys)
				default:
					script = c.second
				}
				if script == "" {
					return 0, os.ErrNotExist
				}
				return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script},
					&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, keys.fd}})
			}
			began := time.Now()
			why := s.run()
			if why != c.want || time.Since(began) > lastRestart/2 {
				t.Errorf("%s, %s: %d after %d starts, %s", name, when, why, starts, time.Since(began))
			}
		}
	}
}

// TestSettleDisks: the end of the machine makes the data partition read-only, then what is mounted where disks for claims are. One that
// does not answer is not waited for.
func TestSettleDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, begun := make(chan struct{}), time.Now()
		var mu sync.Mutex
		var got []string
		settleDisks("/data", "/", func(at string) error { // below / is what this machine has mounted
			mu.Lock()
			got = append(got, at)
			n := len(got)
			mu.Unlock()
			if n > 2 {
				<-stuck
			}
			return nil
		})
		mu.Lock()
		if len(got) != 3 || got[0] != "/data" || slices.Contains(got, "/") || time.Since(begun) != diskTime {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		mu.Unlock()
		close(stuck)
		synctest.Wait()
		if !slices.Contains(got, "/proc") {
			t.Errorf("%v", got)
		}
	})
	for want, args := range map[string][]string{"/run/ledge/disks": {"serve"}, "/x/disks": {"serve", "--run-dir=/x"}} {
		if got := disksDirOf(args); got != want {
			t.Errorf("%v: %s", args, got)
		}
	}
}
