package netns_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/network/netns"
)

// In the copy of itself that a test starts there is one processor and main has the first thread: the next goroutine runs on it as well, as
// soon as main waits. Nothing but this order is left to Go.
func TestMain(m *testing.M) {
	if os.Getenv("LEDGE_TEST_FIRST_THREAD") == "" {
		os.Exit(m.Run())
	}
	goruntime.GOMAXPROCS(1)
	if err := enterAll(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func enterAll() error {
	if unix.Gettid() != unix.Getpid() {
		return errors.New("main is not on the first thread: this test shows nothing")
	}
	first := make(chan bool)
	go func() { first <- unix.Gettid() == unix.Getpid() }()
	if !<-first {
		return errors.New("a goroutine that main waits for is not on the first thread: this test shows nothing")
	}
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	look := func() error { // what the rest of the process sees while somebody is in another namespace
		now, err := os.Readlink("/proc/self/ns/net")
		if err == nil && now != before {
			err = fmt.Errorf("/proc/self shows %s, not %s", now, before)
		}
		here, herr := os.Readlink("/proc/thread-self/ns/net")
		if herr == nil && here == before {
			herr = errors.New("the thread is not in another namespace")
		}
		return errors.Join(err, herr)
	}
	for range 20 {
		pin := filepath.Join(os.TempDir(), fmt.Sprint("ledge-netns-", os.Getpid()))
		if err := os.WriteFile(pin, nil, 0o600); err != nil {
			return err
		}
		err := netns.InNew(func() error {
			return errors.Join(look(), unix.Mount("/proc/thread-self/ns/net", pin, "", unix.MS_BIND, ""))
		})
		if err == nil {
			var fd int
			if fd, err = netns.Open(pin); err == nil {
				err = errors.Join(netns.Within(fd, look), unix.Close(fd))
			}
		}
		if err == nil {
			if _, derr := netns.Dial(context.Background(), pin, 9); derr == nil {
				err = errors.New("somebody answered in an empty namespace")
			}
		}
		err = errors.Join(err, unix.Unmount(pin, unix.MNT_DETACH), os.Remove(pin))
		if err != nil {
			return err
		}
		if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
			return fmt.Errorf("afterwards /proc/self shows %s, not %s (%v)", after, before, err)
		}
	}
	return nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// TestFirstThread: whoever enters a namespace, the process's first thread, by which it sees itself, does not.
func TestFirstThread(t *testing.T) {
	needRoot(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEDGE_TEST_FIRST_THREAD=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDial: a connection to a port of a namespace's loopback works from outside of it.
func TestDial(t *testing.T) {
	needRoot(t)
	pin := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err := netns.InNew(func() (err error) {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		if err := up(lo.Name); err != nil {
			return err
		}
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", pin, "", unix.MS_BIND, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(pin, unix.MNT_DETACH) }()
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err == nil {
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()
	c, err := netns.Dial(t.Context(), pin, uint16(listener.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if said, err := bufio.NewReader(c).ReadString('\n'); said != "hello\n" {
		t.Errorf("%q, %v", said, err)
	}
}

func up(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
