package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
)

// output is what a program writes, and may be looked at meanwhile.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// program is a kubectl that a test talks to while it runs.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  output // both outputs, as a person sees them
	done chan error
	tty  *os.File // the far end of its terminal
}

// begin starts a kubectl.
func (k *client) begin(stdin io.Reader, args ...string) *program {
	k.t.Helper()
	p := k.program(args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, &p.out, &p.out
	must(k.t, p.cmd.Start())
	go func() { p.done <- p.cmd.Wait() }()
	return p
}

func (k *client) program(args ...string) *program {
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(90*time.Second))
	k.t.Cleanup(cancel)
	fmt.Fprintf(k.ran, " kubectl %s \n", strings.Join(args, " "))
	p := &program{t: k.t, cmd: exec.CommandContext(ctx, filepath.Join(k.home, "kubectl"), args...), done: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Env, p.cmd.WaitDelay = k.home, k.env, 5*time.Second
	return p
}

// beginOnTTY starts a kubectl on a terminal of its own.
func (k *client) beginOnTTY(width, height uint16, args ...string) *program {
	t := k.t
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer slave.Close()
	p := k.program(args...)
	p.tty = master
	p.resize(width, height)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	must(t, p.cmd.Start())
	go func() {
		_, _ = io.Copy(&p.out, master) // until the last who has the terminal closes it
		p.done <- p.cmd.Wait()
	}()
	return p
}

func (p *program) resize(width, height uint16) {
	p.t.Helper()
	must(p.t, unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

// says waits for a text in its output.
func (p *program) says(text string) {
	p.t.Helper()
	testrun.Succeeds(p.t, 90*time.Second, fmt.Sprintf("%v says something", p.cmd.Args), func() error { return contains(p.out.String(), text) })
}

// ends waits for its end and gives its exit code.
func (p *program) ends() int {
	p.t.Helper()
	err := <-p.done
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Errorf("%v: %v\n%s", p.cmd.Args, err, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// attaching: kubectl attach and kubectl run, with the rough image on the board.
func (k *client) attaching() {
	t := k.t
	t.Helper()
	// An input that stays open: who has typed leaves, the container and its other attacher stay.
	k.write("open.yaml", roughPod("open", `"cat", "3"`, "    stdin: true\n"))
	k.steps("", []step{{"kubectl apply -f open.yaml && kubectl wait --for=condition=Ready pod/open --timeout=60s", "condition met", ""}})
	watcher := k.begin(nil, "attach", "open")
	for end := time.Now().Add(testrun.Patience(90 * time.Second)); !strings.Contains(watcher.out.String(), "typed\n"); {
		if typist := k.begin(strings.NewReader("typed\n"), "attach", "-i", "open"); typist.ends() != 0 || time.Now().After(end) {
			t.Fatalf("attach -i: %s\nand who is attached beside it: %s", typist.out.String(), watcher.out.String())
		}
	}
	k.steps("", []step{{"kubectl delete pod open --now", "deleted", ""}})
	if code := watcher.ends(); code != 0 {
		t.Errorf("attached to a pod that was deleted: %d\n%s", code, watcher.out.String())
	}
	// An input that ends with its first attacher, and the exit code of the container.
	text := strings.Repeat("all work and no play\n", 10_000)
	once := k.begin(strings.NewReader(text), "run", "piped", "--rm", "-i", "--quiet", "--restart=Never", "--image="+roughImage, "--", "cat",
		"3")
	code := once.ends()
	before, after, said := strings.Cut(once.out.String(), "end\n") // of standard error: it may come in between
	if out := before + after; code != 3 || !said || !strings.Contains(out, text) {
		t.Errorf("run --rm -i: %d, %d bytes: %s", code, len(out), tail(out, 200))
	}
	rounds := 2
	if os.Getenv("LEDGE_LONG") != "" {
		rounds = 40
	}
	k.quick(rounds, 5)
	// A terminal.
	tty := k.beginOnTTY(100, 30, "run", "shell", "--rm", "-it", "--restart=Never", "--image="+roughImage, "--", "size")
	tty.says("size 100 30 true")
	tty.resize(90, 20)
	tty.says("size 90 20 true")
	_, err := io.WriteString(tty.tty, "\x03") // for the container, not for kubectl
	must(t, err)
	if code := tty.ends(); code != 2 {
		t.Errorf("run --rm -it after Ctrl-C: %d\n%s", code, tty.out.String())
	}
	k.steps("", []step{{"kubectl get pod piped shell", `!"piped" not found|"shell" not found`, ""}})
}

// quick: a program that has spoken and ended before kubectl attaches is heard all the same, each of rounds times that many at once.
func (k *client) quick(rounds, atOnce int) {
	k.t.Helper()
	for round := range rounds {
		var runs []*program
		for i := range atOnce {
			runs = append(runs, k.begin(nil, "run", fmt.Sprintf("hi-%d-%d", round, i), "--rm", "-i", "--restart=Never", "--image="+roughImage, "--",
				"lines", "1"))
		}
		for _, p := range runs {
			if code := p.ends(); code != 0 || !strings.Contains(p.out.String(), "line 0\n") {
				k.t.Errorf("%v: %d, %s", p.cmd.Args, code, p.out.String())
			}
		}
	}
}
