package systemd_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// joinAndLeave has the unit's board join a control plane by its configuration, and become one of its own again: the same unit, no
// token left, and its pod comes back.
func (m machine) joinAndLeave() {
	t := m.t
	t.Helper()
	dir := t.TempDir()
	const runDir, at, token = "/run/plane", "127.0.0.1:7443", "/etc/ledge/token"
	plane := func(args ...string) []string { return append([]string{"--run-dir", runDir}, args...) }
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("ledge", plane("serve", "--data-dir", filepath.Join(dir, "data"), "--listen", at, "--bridge", "none",
		"--cgroup-root", "/plane", "--hostname-override", "plane", "--power-backend=none", "--on-term=drain", "--start-keeper=true")...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET=")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the other control plane: %s", text)
		}
	}()
	eventually(t, "another control plane is up", func() error { return contains(output("ledge", plane("get", "nodes")...), " Ready ") })
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const conf = "/etc/ledge/config.d/server.conf"
	write(conf, "server: https://"+at+"\n")
	write(token, run(t, "ledge", plane("token", "create")...))
	run(t, "systemctl", "restart", "ledge.service")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	joined := func() error {
		for line := range strings.Lines(output("ledge", plane("get", "nodes")...)) {
			if strings.HasPrefix(line, strings.ToLower(name)+" ") && strings.Contains(line, " Ready ") {
				return nil
			}
		}
		return errors.New(output("ledge", plane("get", "nodes")...))
	}
	eventually(t, "the unit's board has joined", joined)
	if _, err := os.Stat(token); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token is left: %v", err)
	}
	run(t, "systemctl", "restart", "ledge.service")
	if err := m.active("ledge.service"); err != nil {
		t.Errorf("without a token: %v", err)
	}
	eventually(t, "it is there after a restart", joined)
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	run(t, "systemctl", "restart", "ledge.service")
	eventually(t, "it is one of its own again", running)
}
