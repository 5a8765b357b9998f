package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"ledge/lab/bench/measure"
)

func nothing() error { return nil }

// end stops a daemon in order.
func end(cmd *exec.Cmd) error {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // ended by the signal
	return nil
}

// openLedge is a node that does nothing but pull.
func (b *bench) openLedge(ctx context.Context, dir string) (puller, error) {
	name := fmt.Sprintf("lq%d", os.Getpid())
	run := filepath.Join("/run", name)
	config := filepath.Join(b.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(measure.NodeConfig), 0o600); err != nil {
		return puller{}, err
	}
	log, err := os.Create(filepath.Join(b.dir, "ledge.log"))
	if err != nil {
		return puller{}, err
	}
	defer log.Close()
	brain := exec.CommandContext(ctx, b.ledge, "--run-dir", run, "serve", "--data-dir", filepath.Join(dir, "data"), "--config", config,
		"--listen", "", "--bridge", "none", "--cgroup-root", "/"+name)
	brain.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	brain.Stdout, brain.Stderr = log, log
	if err := brain.Start(); err != nil {
		return puller{}, err
	}
	verb := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, b.ledge, append([]string{"--run-dir", run, "images"}, args...)...)
	}
	p := puller{
		pull:   func(ref string) *exec.Cmd { return verb("pull", ref) },
		daemon: brain,
		remove: func(ref string) error { return quiet(verb("rm", ref)) },
		close: func() error {
			err := end(brain)
			reset := exec.Command(b.ledge, "--run-dir", run, "reset", "--data", "--data-dir", filepath.Join(dir, "data"))
			return errors.Join(err, quiet(reset), os.RemoveAll(run))
		},
		note: "brain, keeper and client",
	}
	if err := wait(20*time.Second, func() error { return quiet(verb("ls")) }); err != nil {
		text, _ := os.ReadFile(log.Name())
		return p, errors.Join(fmt.Errorf("%w; its log:\n%s", err, text), p.close())
	}
	return p, nil
}

func (b *bench) openContainerd(ctx context.Context, dir string) (puller, error) {
	socket, config := filepath.Join(dir, "c.sock"), filepath.Join(b.dir, "containerd.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, filepath.Join(dir, "t.sock"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return puller{}, err
	}
	daemon := b.command(ctx, "containerd", "-c", config)
	if err := daemon.Start(); err != nil {
		return puller{}, err
	}
	ctr := func(args ...string) *exec.Cmd {
		return b.command(ctx, "ctr", append([]string{"-a", socket}, args...)...)
	}
	p := puller{
		pull: func(ref string) *exec.Cmd {
			return ctr("images", "pull", "--plain-http", "--snapshotter", "overlayfs", ref)
		},
		daemon: daemon,
		remove: func(ref string) error { return quiet(ctr("images", "rm", "--sync", ref)) },
		close:  func() error { return end(daemon) },
		note:   "daemon and client; files are not synced",
	}
	if err := wait(10*time.Second, func() error { return quiet(ctr("version")) }); err != nil {
		return p, errors.Join(err, p.close())
	}
	return p, nil
}

func (b *bench) openPodman(ctx context.Context, dir string) (puller, error) {
	policy := filepath.Join(b.dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), 0o600); err != nil {
		return puller{}, err
	}
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return puller{}, err
	}
	podman := func(args ...string) *exec.Cmd {
		base := []string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(b.dir, "podman-run"), "--tmpdir",
			filepath.Join(b.dir, "podman-tmp"),
			"--cgroup-manager=cgroupfs", "--events-backend=none", "--storage-driver=overlay", "--runtime", b.command(ctx, "runc").Path,
			"--conmon", b.command(ctx, "conmon").Path}
		cmd := b.command(ctx, "podman", append(base, args...)...)
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp) // where it keeps what it downloads
		return cmd
	}
	return puller{
		pull: func(ref string) *exec.Cmd {
			return podman("pull", "-q", "--tls-verify=false", "--signature-policy", policy, ref)
		},
		remove: func(ref string) error { return quiet(podman("rmi", "-f", ref)) },
		close: func() error {
			_ = syscall.Unmount(filepath.Join(dir, "root/overlay"), syscall.MNT_DETACH) // it mounts its storage over itself
			return nil
		},
		note: "files are not synced",
	}, nil
}

// openSkopeo unpacks as the others do, into the storage that podman and CRI-O have.
func (b *bench) openSkopeo(ctx context.Context, dir string) (puller, error) {
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return puller{}, err
	}
	storage := fmt.Sprintf("containers-storage:[overlay@%s+%s]", filepath.Join(dir, "root"), filepath.Join(b.dir, "skopeo-run"))
	skopeo := func(args ...string) *exec.Cmd {
		cmd := b.command(ctx, "skopeo", append([]string{"--insecure-policy"}, args...)...)
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
		return cmd
	}
	return puller{
		pull: func(ref string) *exec.Cmd {
			return skopeo("copy", "--src-tls-verify=false", "docker://"+ref, storage+ref)
		},
		remove: func(ref string) error { return quiet(skopeo("delete", storage+ref)) },
		close: func() error {
			_ = syscall.Unmount(filepath.Join(dir, "root/overlay"), syscall.MNT_DETACH) // as podman's
			return nil
		},
		note: "into containers-storage; files are not synced",
	}, nil
}

// openDownload does half of the work: what it fetches cannot be run.
func (b *bench) openDownload(ctx context.Context, dir string) (puller, error) {
	out := filepath.Join(dir, "copy")
	return puller{
		pull: func(ref string) *exec.Cmd {
			return b.command(ctx, "skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://"+ref, "dir:"+out)
		},
		remove: func(string) error { return os.RemoveAll(out) },
		close:  nothing,
		note:   "unpacks nothing",
	}, nil
}
