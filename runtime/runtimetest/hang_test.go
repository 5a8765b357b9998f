package runtimetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/keeper"
	"ledge/runtime/runtimetest"
)

// oddities are what a container can have in place of a file that somebody opens for it.
var oddities = map[string]func(path string) error{
	"fifo":      func(p string) error { return unix.Mkfifo(p, 0o666) },
	"socket":    socketAt,
	"device":    func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) }, // endless zeros
	"directory": func(p string) error { return os.Mkdir(p, 0o755) },
	"loop":      func(p string) error { return os.Symlink(filepath.Base(p), p) },
	"link": func(p string) error { // to a FIFO, by the container's own root
		if err := unix.Mkfifo(p+".fifo", 0o666); err != nil {
			return err
		}
		return os.Symlink(filepath.Base(p)+".fifo", p)
	},
	"endless": func(p string) error { // as long as a file can be, and a line of it
		f, err := os.Create(p)
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(1<<42), f.Close())
	},
}

// socketAt makes a socket with a path of any length.
func socketAt(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o666, 0) }

// opened are the paths of a container that are looked at by whoever starts it, or runs a command in it.
var opened = []string{"etc", "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "etc/hostname", "dev", "dev/null",
	"dev/zero", "dev/full", "dev/random", "dev/urandom", "dev/tty", "dev/console", "dev/ptmx", "dev/pts", "dev/shm", "dev/mqueue",
	"dev/termination-log", "proc", "sys", "sys/fs/cgroup", "work", "vol", "program"}

// harmless says which of them keep no container from its start, whatever they are: those that need not be there, and those that a
// container's own mounts hide.
func harmless(path string) bool {
	return path == "etc/passwd" || path == "etc/group" || strings.HasPrefix(path, "dev/") || strings.HasPrefix(path, "sys/")
}

// soon is how long a start or a command may take here; one that waits for somebody takes a minute.
var soon = testrun.Patience(20 * time.Second)

// TestNothingWaits: whatever a container has in place of a file that is opened for it, its start, a command in it and its removal
// come to an end at once, one way or the other.
func TestNothingWaits(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	p := s.Pod(t)
	files := t.TempDir()
	mounted := filepath.Join(files, "hosts")
	if err := os.WriteFile(mounted, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	started := map[string]bool{}
	for _, name := range opened {
		for kind, make := range oddities {
			c := s.NewContainer(t, p, "ignore")
			at := filepath.Join(c.Rootfs, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), make(at)); err != nil {
				t.Fatal(err)
			}
			c.Mounts = []runtime.Mount{{Source: mounted, Target: "/etc/hosts"}, {Source: mounted, Target: "/etc/resolv.conf"},
				{Source: mounted, Target: "/etc/hostname"}, {Source: mounted, Target: "/dev/termination-log"},
				{Source: files, Target: "/vol"}}
			switch name {
			case "work":
				c.Cwd = "/work"
			case "program":
				c.Args = []string{"/program"}
			case "dev/console", "dev/ptmx":
				c.TTY = true
			}
			began := time.Now()
			if _, err := s.Engine.Start(t.Context(), c); err != nil {
				if harmless(name) {
					t.Errorf("/%s a %s: %v", name, kind, err)
				}
			} else {
				started[name] = true
				// A command finds the same again, and it may have become so only now.
				x := runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "exit", "0"}, TTY: c.TTY}
				if st, err := s.Engine.Exec(t.Context(), x); harmless(name) && (err != nil || st.Code != 0) {
					t.Errorf("/%s a %s: a command: %+v, %v", name, kind, st, err)
				}
				if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
					t.Errorf("/%s a %s: %v", name, kind, err)
				}
			}
			if took := time.Since(began); took > soon {
				t.Errorf("/%s a %s: %v", name, kind, took)
			}
		}
		if !started[name] && name != "program" { // a directory is no program
			t.Errorf("/%s: no container started, whatever it was", name)
		}
	}
}

// TestFIFOForPasswd: two containers of an image with a FIFO for /etc/passwd, and one that makes it while it runs, start like others.
func TestFIFOForPasswd(t *testing.T) {
	s := inProcess(t)
	for range 2 {
		c := s.NewContainer(t, s.Pod(t), "env")
		c.User = runtime.User{UID: 1000, GID: 1000}
		etc := filepath.Join(c.Rootfs, "etc")
		if err := errors.Join(os.Mkdir(etc, 0o755), unix.Mkfifo(filepath.Join(etc, "passwd"), 0o644)); err != nil {
			t.Fatal(err)
		}
		has(t, output(t, s, c), "HOME=/")
	}
	c := s.NewContainer(t, s.Pod(t), "ignore")
	etc := filepath.Join(c.Rootfs, "etc")
	if err := errors.Join(os.Mkdir(etc, 0o755),
		os.WriteFile(filepath.Join(etc, "passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s.Start(t, c)
	for _, home := range []string{"HOME=/root", "HOME=/"} {
		var out runtimetest.Sink
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		x, err := s.Engine.Exec(ctx, runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "env"}, Stdout: &out})
		cancel()
		if err != nil || x.Code != 0 {
			t.Fatalf("%+v, %v", x, err)
		}
		has(t, out.String(), home)
		_ = os.Remove(filepath.Join(etc, "passwd"))
		_ = unix.Mkfifo(filepath.Join(etc, "passwd"), 0o644)
	}
}

// TestStoppedOnTheWayIn: a container that stops every process that comes in has no command run in it. The command's caller gets its
// time's end for an answer, nothing is left, and in other containers commands run meanwhile.
func TestStoppedOnTheWayIn(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	hostile, other := s.NewContainer(t, s.Pod(t), "still"), s.NewContainer(t, s.Pod(t), "ignore")
	hostile.LogPath = filepath.Join(t.TempDir(), "log")
	s.Start(t, hostile)
	s.Start(t, other)
	awaitLog(t, hostile.LogPath, "ready")
	before := children(t, k.cmd.Process.Pid)
	ended := make(chan error, 4)
	began := time.Now()
	for range cap(ended) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, err := s.Exec(ctx, hostile.ID, "exit", "0")
			ended <- err
		}()
	}
	if x, err := s.Exec(t.Context(), other.ID, "exit", "3"); err != nil || x.Code != 3 {
		t.Errorf("in another container: %+v, %v", x, err)
	}
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in a container that stops it: %v", err)
		}
	}
	if took := time.Since(began); took > soon {
		t.Errorf("it took %v", took)
	}
	if list := children(t, k.cmd.Process.Pid); len(list) > len(before) {
		t.Errorf("processes:\n%v\nbefore:\n%v", list, before)
	}
}

// TestStoppedStart: a container that joins a pod whose processes are held still by another does not start, and the pod can be removed
// at once all the same.
func TestStoppedStart(t *testing.T) {
	s := newKeeper(t).setup()
	p := runtimetest.NewPod()
	p.ShareProcess = true
	s.Ensure(t, p)
	hostile := s.NewContainer(t, p, "still")
	hostile.LogPath = filepath.Join(t.TempDir(), "log")
	s.Start(t, hostile)
	awaitLog(t, hostile.LogPath, "ready")
	var err error
	for tries := 0; err == nil && tries < 5; tries++ { // it can come through
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = s.Engine.Start(ctx, s.NewContainer(t, p, "ignore"))
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start whose caller has enough: %v", err)
	}
	started := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Engine.Start(t.Context(), s.NewContainer(t, p, "ignore")); err != nil {
				started <- err
				return
			}
		}
	}()
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	if err := s.Engine.RemovePod(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > soon {
		t.Errorf("the removal took %v", took)
	}
	if err := <-started; err == nil || !strings.Contains(err.Error(), "being removed") {
		t.Errorf("the start of a removed pod: %v", err)
	}
}

// children are the processes of one that have not ended.
func children(t *testing.T, parent int) []string {
	t.Helper()
	var out []string
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		after := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(after) > 1 && after[0] != "Z" && after[1] == strconv.Itoa(parent) {
			out = append(out, string(b[:min(len(b), 40)]))
		}
	}
	return out
}

// TestKeeperThatDoesNotAnswer: who asks one that is stopped, or is not there, learns which.
func TestKeeperThatDoesNotAnswer(t *testing.T) {
	k := newKeeper(t)
	pid := k.cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var err error
	for tries := 0; err == nil && tries < 20; tries++ { // its threads stop one by one
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = k.client.Info(ctx)
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, runtime.ErrUnavailable) ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d does not answer", pid)) {
		t.Errorf("a stopped keeper: %v", err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitReady(t, k.client)
	dir := t.TempDir()
	_, err = keeper.New(keeper.ClientConfig{RunDir: dir}).Info(t.Context())
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "ledge keeper") {
		t.Errorf("no keeper: %v", err)
	}
}
