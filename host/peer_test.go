package host

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"

	"golang.org/x/sys/unix"
)

// TestPeerProcess is no test but what the processes of TestTrustPeer do.
func TestPeerProcess(t *testing.T) {
	verb, path, _ := strings.Cut(os.Getenv("LEDGE_PEER"), ":")
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	switch verb {
	case "chroot":
		fail(unix.Chroot(path))
		path = "/s"
		fallthrough
	case "dial":
		c, err := net.Dial("unix", path)
		fail(err)
		_, _ = io.Copy(io.Discard, c) // stays until it is let go
	case "vanish":
		_, err := net.Dial("unix", path)
		fail(err)
	case "serve": // ledge in a container, asked from inside and from outside
		fail(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		fail(unix.Mount("proc", "/proc", "proc", 0, ""))
		l, err := net.Listen("unix", path)
		fail(err)
		in, err := net.Dial("unix", path)
		fail(err)
		defer in.Close()
		for range 2 {
			c, err := l.Accept()
			fail(err)
			fmt.Println("answer:", TrustPeer(c))
			c.Close()
		}
	default:
		t.Skip("is what TestTrustPeer starts")
	}
}

func peerProcess(t *testing.T, job string, flags uintptr) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), "LEDGE_PEER="+job)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 { // root there is root here
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = all, all, true
	}
	return cmd
}

// Root of the board is trusted, root in a container is not, in whatever single respect it stands elsewhere.
func TestTrustPeer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stdin, after unix.Stat_t
	if err := unix.Fstat(0, &stdin); err != nil {
		t.Fatal(err)
	}
	defer func() { // a kernel that knows no SO_PEERPIDFD gives none to close
		if err := unix.Fstat(0, &after); err != nil || after.Ino != stdin.Ino || after.Dev != stdin.Dev {
			t.Errorf("standard input was closed: %v", err)
		}
	}()
	for _, tc := range []struct {
		name, job string
		flags     uintptr
		want      string
	}{
		{"as we are", "dial:" + path, 0, ""},
		{"another network and mounts", "dial:" + path, unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, ""},
		{"another PID namespace", "dial:" + path, unix.CLONE_NEWPID, "another PID namespace"},
		{"another user namespace", "dial:" + path, unix.CLONE_NEWUSER, "another user namespace"},
		{"another root directory", "chroot:" + dir, 0, "another root directory"},
		{"ended", "vanish:" + path, 0, "process"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := peerProcess(t, tc.job, tc.flags)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := strings.HasPrefix(tc.job, "vanish")
			if ended {
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			err = TrustPeer(c)
			c.Close()
			if !ended {
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// In a container ledge trusts who is there with it, and nobody outside.
func TestTrustPeerInContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "s")
	cmd := peerProcess(t, "serve:"+path, unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWUSER)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	testrun.Succeeds(t, 30*time.Second, "the peer listens", func() error {
		var err error
		c, err = net.Dial("unix", path)
		return err
	})
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"answer: <nil>", "answer: it is in a PID namespace that cannot be seen from here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
