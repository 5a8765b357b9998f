package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// labPlugin is a device plugin made of Kubernetes' own messages and Google's gRPC.
func labPlugin(t *testing.T) string {
	t.Helper()
	var words bytes.Buffer
	cmd := exec.Command("../lab/peer.sh", "deviceplugin")
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the device plugin is not built here and its modules cannot be had: %v\n%s", err, words.String())
	}
	return strings.TrimSpace(string(out))
}

// TestDevicePlugins: what a vendor ships registers, is counted, and gives its device to a pod that is nobody special; the pod keeps it when
// the brain is killed, and what has no plugin any more is given to nobody.
func TestDevicePlugins(t *testing.T) {
	if testing.Short() {
		t.Skip("pods come and go")
	}
	t.Parallel()
	onHost(t)
	prog := labPlugin(t)
	b := newBoard(t)
	var like unix.Stat_t
	if err := unix.Stat("/dev/fuse", &like); err != nil {
		t.Skipf("no device to lend: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "plug") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sockets, node, mount := filepath.Join(dir, "device-plugins"), filepath.Join(dir, "radio"), filepath.Join(dir, "lib")
	must(t, errors.Join(os.Mkdir(sockets, 0o755), os.Mkdir(mount, 0o755), os.WriteFile(filepath.Join(mount, "firmware"), []byte("v1"), 0o644),
		unix.Mknod(node, unix.S_IFCHR|0o600, int(like.Rdev))))
	must(t, os.WriteFile(b.config, []byte(boardConfig+"devicePlugins: "+sockets+"\n"), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	begin := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command(prog, sockets, "example.com/radio", node, "/dev/radio", mount, "r0", "r1", "r2")
		cmd.Env = append(os.Environ(), "AUTHORITY="+filepath.Join(sockets, "kubelet.sock")) // as older plugins have it
		cmd.Stderr = log
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	said := func(what string, times int) func() error {
		return func() error {
			data, _ := os.ReadFile(log.Name())
			if n := strings.Count(string(data), what); n < times {
				return fmt.Errorf("%q stands there %d times, not %d:\n%s", what, n, times, data)
			}
			return nil
		}
	}
	b.serve()
	b.importRough()
	vendor := begin()
	there := func(capacity, allocatable string) {
		t.Helper()
		b.eventually("the Node counts", func() error {
			return contains(b.ledge("get", "node", "-o", "jsonpath={.items[0].status.capacity.example\\.com/radio}/{.items[0].status.allocatable.example\\.com/radio}"),
				capacity+"/"+allocatable)
		})
	}
	there("3", "3")
	asks := strings.Replace(devicePod, "    args:", "    resources: {limits: {example.com/radio: 2}}\n    args:", 1)
	b.apply(fmt.Sprintf(asks, "first"))
	pid := b.running("first")
	b.eventually("the plugin was asked", said("allocate r1,r2", 1)) // as it prefers
	if err := said("prestart", 1)(); err != nil {
		t.Error(err)
	}
	opens := func(pod string) {
		t.Helper()
		if out, err := b.try("exec", pod, "--", "/testprog", "opennodes", "/dev/radio"); !strings.Contains(out, "/dev/radio write ok") {
			t.Errorf("%s opens its device: %v\n%s", pod, err, out)
		}
	}
	opens("first")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if must(t, err); !strings.Contains(string(environ), "PLUGGED=r1,r2\x00") {
		t.Errorf("its variables are %q", environ)
	}
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/plugged/firmware", pid)); err != nil || string(data) != "v1" {
		t.Errorf("its mount: %q %v", data, err)
	}
	b.apply(fmt.Sprintf(asks, "second"))
	b.eventually("another waits for one that is free", func() error { return contains(b.ledge("get", "events"), "Insufficient example.com/radio") })
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.eventually("the plugin registers anew", said("registered", 2))
	there("3", "3")
	if now := b.running("first"); now != pid {
		t.Errorf("the pod was begun again: %d, was %d", now, pid)
	}
	must(t, os.WriteFile(filepath.Join(sockets, "unhealthy"), []byte("r0"), 0o644))
	there("3", "2")
	must(t, os.Remove(filepath.Join(sockets, "unhealthy")))
	b.ledge("delete", "pod", "first")
	b.running("second")
	opens("second")
	_ = vendor.Process.Kill()
	_ = vendor.Wait()
	there("3", "0")
	begin()
	there("3", "3")
}
