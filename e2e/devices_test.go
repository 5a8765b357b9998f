package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const devicePod = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 4711, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: ` + roughImage + `
    args: ["run"]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// TestDevices: a pod waits for a device, gets it when it is plugged in, keeps it when the brain is killed, is told when it is pulled, and
// runs again when it is back. It is nobody special.
func TestDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("pods come and go")
	}
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	var like unix.Stat_t
	if err := unix.Stat("/dev/fuse", &like); err != nil {
		t.Skipf("no device to lend: %v", err)
	}
	dir := "/dev/" + b.name
	must(t, os.MkdirAll(dir+"/by-id", 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node, link := filepath.Join(dir, "ttyX3"), filepath.Join(dir, "by-id", "stick")
	plug := func(at string) {
		t.Helper()
		must(t, errors.Join(os.RemoveAll(link), unix.Mknod(at, unix.S_IFCHR|0o600, int(like.Rdev)), os.Symlink(at, link)))
		tellOfDevices(t)
	}
	must(t, os.WriteFile(b.config, []byte(boardConfig+"devices: [{name: stick, globs: ["+dir+"/by-id/*]}]\n"), 0o600))
	b.serve()
	b.importRough()
	asks := strings.Replace(devicePod, "    args:", "    resources: {limits: {ledge.local/stick: 1}}\n    args:", 1)
	b.apply(fmt.Sprintf(asks, "first"))
	b.eventually("the pod waits for a device", func() error {
		return contains(b.ledge("get", "events"), "Insufficient ledge.local/stick")
	})
	plug(node)
	pid := b.running("first")
	opens := func(pod, path, want string) {
		t.Helper()
		if out, err := b.try("exec", pod, "--", "/testprog", "opennodes", path); !strings.Contains(out, path+" write "+want) {
			t.Errorf("%s opens %s: %v\n%s", pod, path, err, out)
		}
	}
	opens("first", "/dev/ledge/stick", "ok")
	opens("first", node, "ok")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if must(t, err); !strings.Contains(string(environ), "LEDGE_DEVICE_STICK="+node+"\x00") {
		t.Errorf("its variables are %q", environ)
	}
	if out := b.ledge("status"); !strings.Contains(out, "default/first") || !strings.Contains(out, "ledge.local/stick") {
		t.Errorf("status does not tell of it:\n%s", out)
	}
	volume := strings.Replace(fmt.Sprintf(devicePod, "second"), "  containers:", "  volumes: [{name: d, hostPath: {path: "+link+
		", type: CharDevice}}]\n  containers:", 1) + "    volumeMounts: [{name: d, mountPath: /dev/mine}]\n"
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.apply(volume)
	b.eventually("who names the device is told who has it", func() error {
		return contains(b.ledge("get", "pod", "second", "-o", "yaml"), "is given to default/first")
	})
	must(t, os.Remove(node)) // and with it where the link leads
	tellOfDevices(t)
	b.eventually("the pod is told", func() error { return contains(b.ledge("get", "events"), "DeviceUnplugged") })
	b.eventually("it waits", func() error {
		return contains(b.ledge("get", "pod", "first", "-o", "yaml"), "it waits for its stick")
	})
	node = filepath.Join(dir, "ttyX7")
	plug(node)
	b.running("first")
	opens("first", node, "ok")
	b.ledge("delete", "pod", "first")
	b.running("second")
	opens("second", "/dev/mine", "ok")
}

// tellOfDevices has the kernel tell that a device has changed.
func tellOfDevices(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/sys/class/mem/null/uevent", []byte("change"), 0); err != nil {
		t.Logf("the board has to find out by itself: %v", err)
	}
	time.Sleep(10 * time.Millisecond)
}
