package measure

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A shell with a child: both are found, both are counted, and what has ended costs nothing.
func TestFamily(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(line, &child); err != nil {
		t.Fatal(err)
	}
	if got, want := Family(cmd.Process.Pid), []int{cmd.Process.Pid, child}; !slices.Equal(got, want) {
		t.Errorf("family is %v, not %v", got, want)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	alone, _, err := PSS(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	both, err := Peak(ended, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if alone <= 0 || both <= alone {
		t.Errorf("a process has %.2f MiB, with its child %.2f", alone, both)
	}
	kill(t, child)
	kill(t, cmd.Process.Pid)
	_ = cmd.Wait() // killed
	if none, err := Peak(ended, cmd.Process.Pid); none != 0 || err != nil {
		t.Errorf("processes that have ended have %.2f MiB (%v)", none, err)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}
