package runtimetest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// armour allows everything but to write below /kept. attach_disconnected: overlays and namespaces have paths that lead nowhere.
const armour = `profile ledge-runtimetest flags=(attach_disconnected,mediate_deleted) {
  network,
  capability,
  file,
  umount,
  mount,
  pivot_root,
  signal,
  unix,
  ptrace,
  deny /kept* wl,
}
`

// TestAppArmor: a container stands under the profile it asks for, what is run in it too, and one that asks for none does not.
func TestAppArmor(t *testing.T) {
	if on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err != nil || on[0] != 'Y' {
		t.Skip("this kernel has no AppArmor")
	}
	load := func(flag string) {
		t.Helper()
		cmd := exec.Command("apparmor_parser", flag, "--skip-cache")
		cmd.Stdin = strings.NewReader(armour)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("apparmor_parser %s: %v: %s", flag, err, out)
		}
	}
	if _, err := exec.LookPath("apparmor_parser"); err != nil {
		t.Skip("no apparmor_parser to load a profile with")
	}
	load("--replace")
	t.Cleanup(func() { load("--remove") })
	s := inProcess(t)
	p := s.Pod(t)
	for _, profile := range []string{"ledge-runtimetest", ""} {
		c := s.NewContainer(t, p, "write", "/kept", "/other")
		c.AppArmor = profile
		out := output(t, s, c)
		if !strings.Contains(out, "/other ok") || strings.Contains(out, "/kept ok") != (profile == "") {
			t.Errorf("profile %q: %s", profile, out)
		}
	}
	c := s.NewContainer(t, p, "ignore")
	c.AppArmor = "ledge-runtimetest"
	s.Start(t, c)
	var out runtimetest.Sink
	x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "write", "/kept"}, Stdout: &out})
	if err != nil || !strings.Contains(out.String(), "/kept") || strings.Contains(out.String(), " ok") {
		t.Errorf("a command in the container writes what its profile forbids: %+v %v %s", x, err, out.String())
	}
	c = s.NewContainer(t, p, "ignore")
	c.AppArmor = "ledge-nobody-has-loaded-it"
	if _, err := s.Engine.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is not loaded") {
		t.Errorf("a profile that is not loaded: %v", err)
	}
}
