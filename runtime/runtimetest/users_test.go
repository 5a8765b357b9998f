package runtimetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// own gives a root file system to a pod's users.
func own(t *testing.T, dir string, r *runtime.IDRange) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, int(r.Host), int(r.Host))
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUsers (architecture: The keeper): root in the pod is nobody on the board, and may do in the pod what root may.
func TestUsers(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(b)) == "0" {
		t.Skip("this kernel allows no user namespaces")
	}
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.Users = &runtime.IDRange{Host: 655360, Size: 65536}
	p.Hostname = "web-0"
	p.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shmmax": "4096"}
	s.Ensure(t, p)
	c := s.NewContainer(t, p, "facts")
	own(t, c.Rootfs, p.Users)
	c.Capabilities = usualCaps
	out := output(t, s, c)
	has(t, out, "CapEff "+usualCapBits, "Seccomp 2", "pid 1 uid 0 gid 0 host web-0 cwd /", "done")
	long := s.NewContainer(t, p, "ignore")
	own(t, long.Rootfs, p.Users)
	st := s.Start(t, long)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", st.Pid))
	if err != nil || !strings.Contains(string(status), "Uid:\t655360\t655360") || !strings.Contains(string(status), "Gid:\t655360\t655360") {
		t.Errorf("on the board: %s %v", status, err)
	}
}

// TestUsersRefused: a range that is the board's own, or what cannot be shared with who has users of its own.
func TestUsersRefused(t *testing.T) {
	s := inProcess(t)
	for name, change := range map[string]func(*runtime.Pod){
		"the board's root":    func(p *runtime.Pod) { p.Users.Host = 0 },
		"nobody":              func(p *runtime.Pod) { p.Users.Size = 0 },
		"beyond the end":      func(p *runtime.Pod) { p.Users.Host = 1<<31 - 1 },
		"the host's network":  func(p *runtime.Pod) { p.HostNetwork = true },
		"the host's IPC":      func(p *runtime.Pod) { p.HostIPC = true },
		"the host's PIDs":     func(p *runtime.Pod) { p.HostPID = true },
		"the board's sysctls": func(p *runtime.Pod) { p.Sysctls = map[string]string{"user.max_user_namespaces": "1"} },
	} {
		p := runtimetest.NewPod()
		p.Users = &runtime.IDRange{Host: 655360, Size: 65536}
		change(&p)
		if _, err := s.Engine.EnsurePod(t.Context(), p); err == nil {
			t.Errorf("%s: made", name)
			_ = s.Engine.RemovePod(t.Context(), p.UID)
		}
	}
	s.Left(t)
}
