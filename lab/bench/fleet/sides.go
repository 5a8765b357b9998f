package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/rest"
	"ledge/internal/original"
)

// errNotBuilt: there is no other side to compare with.
var errNotBuilt = errors.New("no control plane of Kubernetes' own is built: run lab/original/build.sh, which takes minutes")

// openLedge starts ledge's control plane, without a node of its own, and its boards.
func (b *bench) openLedge(ctx context.Context, g *errgroup.Group) (*side, func() error, error) {
	dir := filepath.Join(b.dir, "ledge")
	disk, unmount, err := mountDisk(dir)
	if err != nil {
		return nil, unmount, err
	}
	p := newPlane(b.ledge, dir)
	end := func() error { return errors.Join(p.remove(), unmount()) }
	p.nodes, p.flags = 0, []string{"--register-node=false"}
	if err := p.start(ctx); err != nil {
		return nil, end, err
	}
	token, err := p.token(ctx, boardsOfWorkloads)
	if err != nil {
		return nil, end, err
	}
	client, err := rest.FromKubeconfig(filepath.Join(p.run, "admin.kubeconfig"))
	if err != nil {
		return nil, end, err
	}
	s := &side{name: "ledge", client: client, pids: p.own, disk: disk, turns: map[string][]cost{}}
	return s, end, s.join(ctx, g, dir+"-boards", func(int) []string { return []string{"--server", p.url(), "--token", token.String()} })
}

// openOriginal starts Kubernetes' own: etcd, API server, controller manager and scheduler, without the elections of several of them.
func (b *bench) openOriginal(ctx context.Context, g *errgroup.Group) (*side, func() error, error) {
	path, err := exec.CommandContext(ctx, "lab/original/build.sh", "path").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("lab/original/build.sh: %w", err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(path))); err != nil {
		return nil, nil, errNotBuilt
	}
	if err := os.Setenv("LEDGE_ORIGINAL", "1"); err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(b.dir, "original")
	disk, unmount, err := mountDisk(dir)
	if err != nil {
		return nil, unmount, err
	}
	t := &trial{dir: dir, ctx: ctx}
	end := func() error { return errors.Join(t.end(), unmount()) }
	var names []string
	for n := range boardsOfWorkloads {
		names = append(names, boardName(n))
	}
	var p *original.Plane
	var files []string
	err = t.try(func() {
		p = original.StartSyncing(t, names...)
		for _, user := range append([]string{original.Admin}, names...) {
			files = append(files, p.Kubeconfig(t, user))
		}
	})
	if err != nil {
		return nil, end, err
	}
	client, err := rest.FromKubeconfig(files[0])
	if err != nil {
		return nil, end, err
	}
	s := &side{name: "Kubernetes", client: client, pids: p.Pids, disk: disk, turns: map[string][]cost{}}
	return s, end, s.join(ctx, g, dir+"-boards", func(n int) []string { return []string{"--kubeconfig", files[n+1]} })
}

// mountDisk makes a file system of its own at a place, so that what is written there can be counted where it arrives.
func mountDisk(dir string) (device string, unmount func() error, err error) {
	unmount = func() error { return nil }
	image := dir + ".img"
	file, err := os.Create(image)
	if err != nil {
		return "", unmount, err
	}
	if err := errors.Join(file.Truncate(1<<30), file.Close(), os.Mkdir(dir, 0o700)); err != nil {
		return "", unmount, err
	}
	run := func(name string, args ...string) ([]byte, error) {
		out, err := exec.Command(name, args...).CombinedOutput() // also after ctx has ended
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return out, err
	}
	if _, err := run("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", image); err != nil {
		return "", unmount, err
	}
	if _, err := run("mount", "-o", "loop,noatime", image, dir); err != nil {
		return "", unmount, err
	}
	unmount = func() error {
		_, err := run("umount", dir)
		return err
	}
	out, err := run("losetup", "-n", "-O", "NAME", "-j", image)
	return filepath.Base(strings.TrimSpace(string(out))), unmount, err
}

// join has the boards of a side join, and waits until they are ready.
func (s *side) join(ctx context.Context, g *errgroup.Group, dir string, flags func(n int) []string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for n := range boardsOfWorkloads {
		board, err := newBoard(dir, n, flags(n)...)
		if err != nil {
			return err
		}
		g.Go(func() error { return board.Run(ctx) })
	}
	return s.until(ctx, "boards are ready, and pods may be made", func() (bool, error) {
		if _, err := s.client.Get(ctx, api.ServiceAccounts, "default", "default"); err != nil {
			return false, err
		}
		list, err := s.client.List(ctx, api.Nodes, api.ListOptions{})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, o := range list.Items {
			if nodeReady(o) {
				ready++
			}
		}
		return ready == boardsOfWorkloads, fmt.Errorf("%d are ready", ready)
	})
}

// nodeReady says whether a node is.
func nodeReady(o api.Object) bool {
	n, ok := o.(*corev1.Node)
	return ok && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// trial is what starts the original takes for a test.
type trial struct {
	testing.TB
	dir  string
	ctx  context.Context
	ends []func()
	errs []error
}

// failed ends a trial from within.
type failed struct{}

// try runs what may end as a test does. It stays on this thread: with that dies what it starts.
func (t *trial) try(fn func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(failed); !ok {
				panic(r)
			}
			err = errors.Join(t.errs...)
		}
	}()
	fn()
	return nil
}

func (t *trial) end() error {
	for _, f := range slices.Backward(t.ends) {
		f()
	}
	return errors.Join(t.errs...)
}

func (t *trial) Helper()                  {}
func (t *trial) TempDir() string          { return t.dir }
func (t *trial) Context() context.Context { return t.ctx }
func (t *trial) Cleanup(f func())         { t.ends = append(t.ends, f) }

func (t *trial) Errorf(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *trial) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(failed{})
}

func (t *trial) Skip(args ...any) { t.Fatal(args...) }
