package applet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	argsEnv   = "LEDGE_TEST_APPLET"
	orphanEnv = "LEDGE_TEST_ORPHANS"
)

// TestMain is also the program that tests start: with argsEnv it is the applet named there.
func TestMain(m *testing.M) {
	args := os.Getenv(argsEnv)
	if args == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(orphanEnv) != "" {
		// Processes whose parent is gone: they become ours if we are process 1.
		if err := exec.Command("/bin/sh", "-c", "for i in 1 2 3; do sleep 0.1 & done").Run(); err != nil {
			panic(err)
		}
	}
	code, ok := Dispatch(strings.Split(args, " "), nil)
	if !ok {
		code = 3
	}
	os.Exit(code)
}

func command(t *testing.T, args string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), argsEnv+"="+args)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func TestDispatch(t *testing.T) {
	for _, c := range []struct {
		args, out string
		code      int
	}{
		{"/ledge applet echo hello world", "hello world\n", 0},
		{"/bin/echo hello", "hello\n", 0},
		{"echo -n x", "x", 0},
		{"echo", "\n", 0},
		{"/ledge applet", "", 2},
		{"/ledge applet nothing", "", 2},
		{"/ledge serve", "", 3},
		{"/ledge", "", 3},
		{"sleep 0.01 0.01s", "", 0},
		{"sleep", "", 1},
		{"sleep -1", "", 1},
		{"sleep NaN", "", 1},
		{"sleep 1x", "", 1},
		{"httpd -p", "", 1},
		{"httpd -p 99999", "", 1},
		{"httpd -x", "", 1},
	} {
		cmd := command(t, c.args)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if code := exitCode(t, cmd); code != c.code || out.String() != c.out {
			t.Errorf("%s: %d, %q", c.args, code, out.String())
		}
	}
}

func TestSleepTime(t *testing.T) {
	for args, want := range map[string]time.Duration{"1": time.Second, "1.5s": 1500 * time.Millisecond, "1m 1": 61 * time.Second,
		"2h": 2 * time.Hour, "1d": 24 * time.Hour, "infinity": 1<<63 - 1, "1e300": 1<<63 - 1} {
		if got, err := sleepTime(strings.Fields(args)); err != nil || got != want {
			t.Errorf("%s: %v, %v", args, got, err)
		}
	}
}

// TestEndsOnSignal: in a PID namespace of their own, as in a container, where nothing ends process 1 by default.
func TestEndsOnSignal(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for args, want := range map[string]int{"pause": 0, "sleep infinity": 143, "httpd -p 0": 0} {
		// Nothing outside shows when the handlers are set; a slow machine gets more time.
		code := -1
		for delay := 100 * time.Millisecond; code != want && delay < 5*time.Second; delay *= 2 {
			cmd := command(t, args)
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(delay)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			code = exitCode(t, cmd)
		}
		if code != want {
			t.Errorf("%s: exit code %d, want %d", args, code, want)
		}
	}
}

func TestPauseReaps(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := command(t, "pause")
	cmd.Env = append(cmd.Env, orphanEnv+"=1")
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid)
	seen := false
	for range 1000 {
		b, err := os.ReadFile(children)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(b))); n >= 3 {
			seen = true
		} else if n == 0 && seen {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("orphans seen: %v, and never all buried", seen)
}

func startServer(t *testing.T) (addr string, stop chan os.Signal, ended chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop, ended = make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- serve(l, stop) }()
	return l.Addr().String(), stop, ended
}

func request(t *testing.T, addr, req string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, req); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestHTTPD(t *testing.T) {
	addr, stop, ended := startServer(t)
	host, _ := os.Hostname()
	want := host + " 127.0.0.1\n"
	got := request(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	head, body, _ := strings.Cut(got, "\r\n\r\n")
	if body != want || !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") ||
		!strings.Contains(head, fmt.Sprintf("Content-Length: %d", len(want))) {
		t.Errorf("got %q", got)
	}
	if got := request(t, addr, "HEAD /x HTTP/1.0\n\n"); !strings.HasSuffix(got, "\r\n\r\n") || !strings.Contains(got, "200 OK") {
		t.Errorf("HEAD: %q", got)
	}
	for _, bad := range []string{"nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 10000) + "\r\n\r\n"} {
		if got := request(t, addr, bad); got != "" && !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%.20q: %q", bad, got)
		}
	}
	// A request under way at SIGTERM is answered; no new one is taken.
	slow, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := io.WriteString(slow, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	request(t, addr, "GET / HTTP/1.1\r\n\r\n") // by now the first is accepted
	stop <- syscall.SIGTERM
	for i := 0; ; i++ {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = c.Close()
		if i > 500 {
			t.Fatal("still listening")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := io.WriteString(slow, "\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(slow).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		t.Errorf("the last request: %q, %v", line, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
