package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
)

// debian is a tree of unpacked packages: nothing is installed, no service starts.
type debian struct{ dir string }

// The runtimes, and the libraries of theirs that a small Debian lacks.
var debianPackages = []string{"runc", "crun", "containerd", "podman", "conmon", "libyajl2", "libgpgme11", "libassuan0", "libsubid4",
	"libdevmapper1.02.1", "libglib2.0-0"}

func (d debian) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := filepath.Join(d.dir, "usr/bin", name)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(d.dir, "usr/sbin", name)
	}
	cmd := command(ctx, path, args...)
	triple := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "arm": "arm-linux-gnueabihf"}[runtime.GOARCH]
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(d.dir, "usr/bin")+":"+filepath.Join(d.dir, "usr/sbin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(d.dir, "usr/lib", triple)+":"+filepath.Join(d.dir, "lib", triple))
	return cmd
}

// others measures what Debian has. Each is skipped on its own.
func (b *bench) others(ctx context.Context) {
	d := debian{filepath.Join(b.dir, "debian")}
	arch := map[string]string{"amd64": "amd64", "arm64": "arm64", "arm": "armhf"}[runtime.GOARCH]
	if err := quiet(command(ctx, "packaging/debs.sh", append([]string{arch, d.dir}, debianPackages...)...)); err != nil {
		b.skip("everything of Debian's", err)
		return
	}
	for _, s := range []struct {
		what string
		f    func(context.Context, debian) error
	}{
		{"runc", b.runc}, {"crun", b.crun}, {"containerd", b.containerd}, {"podman", b.podman},
	} {
		if err := s.f(ctx, d); err != nil {
			b.skip(s.what, err)
		}
	}
	b.removeCgroups()
	b.sizes("runc", d, "runc")
	b.sizes("crun", d, "crun")
	b.sizes("containerd with shim, ctr, runc", d, "containerd", "containerd-shim-runc-v2", "ctr", "runc")
	b.sizes("podman with conmon, runc", d, "podman", "conmon", "runc")
}

func (b *bench) sizes(what string, d debian, names ...string) {
	sum := int64(0)
	for _, name := range names {
		info, err := os.Stat(d.command(context.Background(), name).Path)
		if err != nil {
			b.skip("size of "+what, err)
			return
		}
		sum += info.Size()
	}
	b.add("binary size", what, float64(sum)/1e6, "MB", "")
}

func (b *bench) runc(ctx context.Context, d debian) error {
	spec := d.command(ctx, "runc", "spec")
	spec.Dir = b.bundle()
	if err := quiet(spec); err != nil {
		return err
	}
	file := filepath.Join(b.bundle(), "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = []byte(strings.NewReplacer(`"terminal": true`, `"terminal": false`, `"sh"`, `"/pause"`).Replace(string(text)))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	return b.oci(ctx, d, "runc")
}

func (b *bench) crun(ctx context.Context, d debian) error {
	if _, err := os.Stat(filepath.Join(b.bundle(), "config.json")); err != nil {
		return errors.New("needs the bundle that runc made")
	}
	return b.oci(ctx, d, "crun")
}

// oci times the start of containers from the bundle with a program of runc's command line: one, and ten at once.
func (b *bench) oci(ctx context.Context, d debian, program string) error {
	flags := []string{"--root", filepath.Join(b.dir, program)}
	id := func(i int) string { return fmt.Sprintf("ledgebench%d-%d", os.Getpid(), i) }
	run := func(from, to int) (took time.Duration, err error) {
		var wait []func() error
		start := time.Now()
		for i := from; i < to; i++ {
			// The container inherits the output: a pipe would be held open by it.
			out, err := os.CreateTemp(b.dir, program)
			if err != nil {
				return 0, err
			}
			defer out.Close()
			cmd := d.command(ctx, program, append(flags, "run", "-d", "--bundle", b.bundle(), id(i))...)
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			wait = append(wait, func() error {
				err := cmd.Wait()
				if err != nil {
					text, readErr := os.ReadFile(out.Name())
					err = errors.Join(fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text))), readErr)
				}
				return err
			})
		}
		for _, w := range wait {
			err = errors.Join(err, w())
		}
		took = time.Since(start)
		for i := from; i < to; i++ {
			err = errors.Join(err, quiet(d.command(ctx, program, append(flags, "delete", "-f", id(i))...)))
		}
		return took, err
	}
	ms, err := median(b.runs, func(i int) (time.Duration, error) { return run(i, i+1) })
	if err != nil {
		return err
	}
	b.add(startEngine, program+" run -d", ms, "ms", "no network")
	if ms, err = median(rounds(b.runs), func(i int) (time.Duration, error) { return run(tenAtOnce*i, tenAtOnce*(i+1)) }); err == nil {
		b.add(startTen, program+" run -d", ms, "ms", "no network; until the last has ended")
	}
	return err
}

func (b *bench) containerd(ctx context.Context, d debian) error {
	home := filepath.Join(b.dir, "containerd")
	socket := filepath.Join(home, "c.sock")
	config := filepath.Join(b.dir, "containerd.toml")
	text := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = %q
[ttrpc]
address = %q
`, home+"/root", home+"/state", socket, home+"/t.sock")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	daemon := d.command(ctx, "containerd", "-c", config)
	if err := daemon.Start(); err != nil {
		return err
	}
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait() // ended by the signal
	}()
	ctr := func(args ...string) *exec.Cmd {
		return d.command(ctx, "ctr", append([]string{"-a", socket, "-n", b.cgroup()}, args...)...)
	}
	if err := wait(ctx, 10*time.Second, func() error { return quiet(ctr("version")) }); err != nil {
		return err
	}
	if err := quiet(ctr("images", "import", b.archive())); err != nil {
		return err
	}
	remove := func(id string) error {
		return errors.Join(quiet(ctr("task", "rm", "-f", id)), quiet(ctr("container", "rm", id)))
	}
	ms, err := median(b.runs, func(i int) (time.Duration, error) {
		id := fmt.Sprintf("bench%d", i)
		start := time.Now()
		if err := quiet(ctr("run", "-d", imageName, id)); err != nil {
			return 0, err
		}
		took := time.Since(start)
		// ctr answers for a killed task with its exit code: no failure of the removal.
		_ = remove(id)
		return took, nil
	})
	if err != nil {
		return err
	}
	b.add(startAll, "ctr run -d (containerd)", ms, "ms", "no network")
	empty, _, err := measure.PSS(daemon.Process.Pid)
	if err != nil {
		return err
	}
	b.add("memory with 0 pods (PSS)", "containerd", empty, "MiB", "without its CRI plugin")
	for i := range b.pods {
		id := fmt.Sprintf("many%d", i)
		if err := quiet(ctr("run", "-d", imageName, id)); err != nil {
			return err
		}
		defer func() { _ = remove(id) }()
	}
	pids := append(processes(home, "containerd-shim-runc-v2"), daemon.Process.Pid)
	all, _, err := measure.PSS(pids...)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("memory with %d pods (PSS)", b.pods), fmt.Sprintf("containerd + %d shims", len(pids)-1), all, "MiB",
		"without the containers' own processes")
	b.add("memory for each pod (PSS)", "containerd", (all-empty)/float64(b.pods), "MiB", "")
	return nil
}

// cgroup is where the containers of containerd and podman go: containerd names it after its namespace.
func (b *bench) cgroup() string { return fmt.Sprintf("ledgebench%d", os.Getpid()) }

// removeCgroups takes away what they leave behind; a cgroup that is not empty stays.
func (b *bench) removeCgroups() {
	for _, name := range []string{b.cgroup(), "libpod_parent"} {
		for _, pattern := range []string{"/sys/fs/cgroup/%s", "/sys/fs/cgroup/*/%s"} {
			tops, err := filepath.Glob(fmt.Sprintf(pattern, name))
			if err != nil {
				continue
			}
			for _, top := range tops {
				var dirs []string
				_ = filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
					if err == nil && e.IsDir() {
						dirs = append(dirs, path)
					}
					return nil
				})
				for _, dir := range slices.Backward(dirs) {
					_ = os.Remove(dir)
				}
			}
		}
	}
}

func (b *bench) podman(ctx context.Context, d debian) error {
	home := filepath.Join(b.dir, "podman")
	policy := filepath.Join(b.dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), 0o644); err != nil {
		return err
	}
	base := []string{"--root", home + "/root", "--runroot", home + "/run", "--tmpdir", home + "/tmp", "--cgroup-manager=cgroupfs",
		"--events-backend=none", "--storage-driver=overlay", "--runtime", d.command(ctx, "runc").Path, "--conmon", d.command(ctx, "conmon").Path}
	podman := func(args ...string) *exec.Cmd { return d.command(ctx, "podman", append(base, args...)...) }
	if err := quiet(podman("load", "--signature-policy", policy, "-i", b.archive())); err != nil {
		return err
	}
	ms, err := median(b.runs, func(i int) (time.Duration, error) {
		id := fmt.Sprintf("bench%d", i)
		start := time.Now()
		if err := quiet(podman("run", "-d", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
			"--cgroup-parent=/"+b.cgroup(), "--name", id, imageName)); err != nil {
			return 0, err
		}
		return time.Since(start), quiet(podman("rm", "-f", "-t", "0", id))
	})
	if err == nil {
		b.add(startAll, "podman run -d", ms, "ms", "--network=none, with runc")
	}
	// Its storage mounts itself over itself.
	_ = syscall.Unmount(home+"/root/overlay", syscall.MNT_DETACH)
	return err
}

// wait calls f until it succeeds.
func wait(ctx context.Context, limit time.Duration, f func() error) error {
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("not within %s: %w", limit, errors.Join(err, ctx.Err()))
}
