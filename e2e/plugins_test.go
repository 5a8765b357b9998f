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

// vendor is a device plugin of three radios beside a board, and what it has logged.
type vendor struct {
	*testBoard
	prog, dir, sockets, node, mount string
	log                             *os.File
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{prog: labPlugin(t), testBoard: newBoard(t)}
	var like unix.Stat_t
	if err := unix.Stat("/dev/fuse", &like); err != nil {
		t.Skipf("no device to lend: %v", err)
	}
	var err error
	v.dir, err = os.MkdirTemp("/tmp", "plug") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(v.dir) })
	v.sockets, v.node, v.mount = filepath.Join(v.dir, "device-plugins"), filepath.Join(v.dir, "radio"), filepath.Join(v.dir, "lib")
	must(t, errors.Join(os.Mkdir(v.sockets, 0o755), os.Mkdir(v.mount, 0o755),
		os.WriteFile(filepath.Join(v.mount, "firmware"), []byte("v1"), 0o644), unix.Mknod(v.node, unix.S_IFCHR|0o600, int(like.Rdev))))
	must(t, os.WriteFile(v.config, []byte(boardConfig+"devicePlugins: "+v.sockets+"\n"), 0o600))
	v.log, err = os.Create(filepath.Join(v.dir, "log"))
	must(t, err)
	return v
}

func (v *vendor) begin(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(v.prog, v.sockets, "example.com/radio", v.node, "/dev/radio", v.mount, "r0", "r1", "r2")
	cmd.Env = append(os.Environ(), "AUTHORITY="+filepath.Join(v.sockets, "kubelet.sock")) // as older plugins have it
	cmd.Stderr = v.log
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func (v *vendor) said(what string, times int) func() error {
	return func() error {
		data, _ := os.ReadFile(v.log.Name())
		if n := strings.Count(string(data), what); n < times {
			return fmt.Errorf("%q stands there %d times, not %d:\n%s", what, n, times, data)
		}
		return nil
	}
}

// counts waits until the Node has these.
func (v *vendor) counts(capacity, allocatable string) {
	v.eventually("the Node counts "+allocatable+" of "+capacity, func() error {
		out := v.ledge("get", "node", "-o", "yaml")
		rest, part, ok := strings.Cut(out, "allocatable:")
		first, second, ok2 := strings.Cut(part, "capacity:")
		second, _, _ = strings.Cut(second, "conditions:")
		if !ok || !ok2 || !strings.Contains(first, `example.com/radio: "`+allocatable+`"`) || !strings.Contains(second, `example.com/radio: "`+capacity+`"`) {
			return fmt.Errorf("not counted in\n%s%s", rest, part)
		}
		return nil
	})
}

// opens has a pod open its device.
func (v *vendor) opens(t *testing.T, pod string) {
	t.Helper()
	if out, err := v.try("exec", pod, "--", "/testprog", "opennodes", "/dev/radio"); !strings.Contains(out, "/dev/radio write ok") {
		t.Errorf("%s opens its device: %v\n%s", pod, err, out)
	}
}

// TestDevicePlugins: what a vendor ships registers, is counted, and gives its device to a pod that is nobody special; the pod keeps it when
// the brain is killed, and what has no plugin any more is given to nobody.
func TestDevicePlugins(t *testing.T) {
	if testing.Short() {
		t.Skip("pods come and go")
	}
	t.Parallel()
	onHost(t)
	v := newVendor(t)
	v.serve()
	v.importRough()
	running := v.begin(t)
	v.counts("3", "3")
	asks := strings.Replace(devicePod, "    args:", "    resources: {limits: {example.com/radio: 2}}\n    args:", 1)
	v.apply(fmt.Sprintf(asks, "first"))
	pid := v.running("first")
	v.eventually("the plugin was asked", v.said("allocate r1,r2", 1)) // as it prefers
	must(t, v.said("prestart", 1)())
	v.opens(t, "first")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if must(t, err); !strings.Contains(string(environ), "PLUGGED=r1,r2\x00") {
		t.Errorf("its variables are %q", environ)
	}
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/plugged/firmware", pid)); err != nil || string(data) != "v1" {
		t.Errorf("its mount: %q %v", data, err)
	}
	v.apply(fmt.Sprintf(asks, "second"))
	v.eventually("another waits for one that is free", func() error {
		return contains(v.ledge("get", "events"), "Insufficient example.com/radio")
	})
	_ = v.signal(syscall.SIGKILL)
	v.serve()
	v.eventually("the plugin registers anew", v.said("registered", 2))
	v.counts("3", "3")
	if now := v.running("first"); now != pid {
		t.Errorf("the pod was begun again: %d, was %d", now, pid)
	}
	must(t, os.WriteFile(filepath.Join(v.sockets, "unhealthy"), []byte("r0"), 0o644))
	v.counts("3", "2")
	must(t, os.Remove(filepath.Join(v.sockets, "unhealthy")))
	v.ledge("delete", "pod", "first")
	v.running("second")
	v.opens(t, "second")
	_ = running.Process.Kill()
	_ = running.Wait()
	v.counts("3", "0")
	v.begin(t)
	v.counts("3", "3")
}
