// Package nspawn boots small machines under a real systemd, for tests of what units do.
package nspawn

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// Machine is a small one under a real systemd: /usr is this machine's, /out is shared with the test.
type Machine struct {
	Name     string
	Files    map[string]string // of its root
	Out      map[string]string // of /out, to be executed
	Programs map[string]string // of /out: copies of these files
	Target   string            // what is started
	Args     []string          // more of nspawn's

	// Whole is a machine for packages that are installed and containers that run: a /usr of its own that begins as this
	// machine's, all capabilities, and all controllers that there are.
	Whole bool
	Limit time.Duration // 0: a minute
}

// Boot runs it until it has powered itself off, once more if it reboots, and gives /out.
func (m Machine) Boot(t *testing.T) (out string, console []byte) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	nspawn, err := exec.LookPath("systemd-nspawn")
	if err != nil {
		t.Skip("needs systemd-nspawn (Debian package systemd-container)")
	}
	if _, err := os.Lstat("/run/systemd/system"); err == nil {
		t.Skip("this machine has a systemd of its own, which nspawn would have to ask for a cgroup")
	}
	root, out := m.lay(t)
	name := m.Name + "-" + testrun.Mark()
	args := []string{"-c", `for p; do case $p in --) shift; break;; esac; echo $$ > $p || exit 1; shift; done; exec "$@"`, "sh"}
	hierarchies, unified, usr := []string{"unified", "systemd"}, "yes", []string{"--bind-ro=/usr"}
	if m.Whole {
		hierarchies, unified, usr = allHierarchies(t), "no", []string{"--overlay=/usr::/usr", "--capability=all", "--system-call-filter=@keyring"}
	}
	args = append(args, ownCgroups(t, name, hierarchies)...)
	args = append(args, "--", nspawn, "-D", root, "--bind="+out+":/out", "--boot", "--register=no", "--keep-unit",
		"--private-network", "--machine="+name, "--console=read-only")
	args = append(append(append(args, usr...), m.Args...), "systemd.unit="+m.Target)
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(m.Limit, time.Minute))
	defer cancel()
	console, err = spawn(ctx, unified, args)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == wantsReboot {
		var more []byte
		more, err = spawn(ctx, unified, args)
		console = append(console, more...)
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(out, "log"))
		t.Fatalf("%v\n%s\nconsole:\n%s", err, log, console)
	}
	return out, console
}

// lay makes a root with nothing in it but systemd, the bus and what the test wants.
func (m Machine) lay(t *testing.T) (root, out string) {
	t.Helper()
	root, out = t.TempDir(), t.TempDir()
	for _, dir := range []string{"usr", "etc/systemd/system", "var", "run", "tmp", "proc", "sys", "dev", "root", "out"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		if to, err := os.Readlink("/" + link); err == nil {
			if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(path, text string, perm fs.FileMode) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), perm)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"etc/passwd":     "root:x:0:0::/root:/bin/sh\nmessagebus:x:100:100::/nonexistent:/usr/sbin/nologin\n",
		"etc/group":      "root:x:0:\nmessagebus:x:100:\n",
		"etc/machine-id": "",
		"etc/os-release": "ID=debian\nNAME=test\n",
	} {
		write(filepath.Join(root, name), text, 0o644)
	}
	for name, text := range m.Files {
		write(filepath.Join(root, name), text, 0o644)
	}
	for name, text := range m.Out {
		write(filepath.Join(out, name), text, 0o755)
	}
	for name, from := range m.Programs {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(out, name), string(text), 0o755)
	}
	return root, out
}

// ownCgroups makes a cgroup for the container in each hierarchy that nspawn writes to: otherwise it leaves its own behind
// in the root ones.
func ownCgroups(t *testing.T, name string, hierarchies []string) (procs []string) {
	t.Helper()
	for _, h := range hierarchies {
		parent := filepath.Join("/sys/fs/cgroup", h)
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{"cpuset.cpus", "cpuset.mems"} { // which are empty in a new one, and take nobody in
			if above, err := os.ReadFile(filepath.Join(parent, own)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, own), above, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
		t.Cleanup(func() {
			var dirs []string
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			slices.Reverse(dirs)
			for _, d := range dirs {
				if err := os.Remove(d); err != nil {
					t.Errorf("left behind: %v", err)
				}
			}
		})
	}
	return procs
}

// allHierarchies are those of a machine that has cgroup v1. nspawn hands the controllers of v2 to nobody who is not systemd's.
func allHierarchies(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if !slices.Contains(names, "memory") {
		t.Skip("this machine's controllers are those of cgroup v2, and nspawn would have to ask a systemd for them")
	}
	return names
}

// wantsReboot is the exit code by which nspawn asks its unit to start the machine again.
const wantsReboot = 133

func spawn(ctx context.Context, unified string, args []string) (console []byte, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="+unified, "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// SIGTERM asks nspawn to power the container off; killing it outright would leave mounts behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
