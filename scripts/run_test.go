package scripts_test

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// TestRun is what a newcomer does: `make run`, the lines that it prints, pasted, and Ctrl-C. The script itself looks for what
// is left behind, and fails when there is something.
func TestRun(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("containers need root")
	}
	// What is started with the signal ignored could not be told by it, and shells begin their background so.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT)
	defer signal.Stop(ignored)

	kubectl, err := exec.Command("../lab/kubectl/build.sh").Output()
	if err != nil {
		t.Fatalf("build kubectl: %v", err)
	}
	tools := t.TempDir()
	if err := os.Symlink(strings.TrimSpace(string(kubectl)), filepath.Join(tools, "kubectl")); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("./run.sh") // make ends by the signal, whatever its script says
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	interrupt := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // as a terminal does
	late := time.AfterFunc(testrun.Patience(2*time.Minute), interrupt)
	defer late.Stop()

	var said strings.Builder
	var lines []string
	paste := regexp.MustCompile(`^  (\S*ledge --run-dir .*|kubectl .*)`)
	for in := bufio.NewScanner(out); in.Scan(); {
		said.WriteString(in.Text() + "\n")
		if m := paste.FindStringSubmatch(in.Text()); m != nil {
			lines = append(lines, m[1])
		}
		if !strings.HasPrefix(in.Text(), "Ctrl-C stops") {
			continue
		}
		for _, line := range lines {
			shell := exec.Command("sh", "-c", line)
			shell.Dir, shell.Env = tools, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "HOME="+tools)
			got, err := shell.CombinedOutput()
			if err != nil || len(got) == 0 || strings.Contains(line, "get pods") && !strings.Contains(string(got), "Running") {
				t.Errorf("%s: %v\n%s", line, err, got)
			}
		}
		interrupt()
	}
	err = cmd.Wait()
	if err != nil || len(lines) != 3 || !strings.HasSuffix(said.String(), "run: nothing is left behind\n") {
		t.Errorf("%v, %d lines to paste:\n%s", err, len(lines), said.String())
	}
}
