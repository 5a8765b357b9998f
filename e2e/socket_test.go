package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/brain/place"
)

// Containers that got at the sockets: root in each, in ways that stand nearer and nearer to the board's own root.
const intruders = `apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: run, hostPath: {path: %[1]s}}]
  containers: [{name: c, image: ledge.local/self, args: [pause], volumeMounts: [{name: run, mountPath: /board}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: privileged}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  hostIPC: true
  volumes: [{name: run, hostPath: {path: %[1]s}}]
  containers: [{name: c, image: ledge.local/self, args: [pause], securityContext: {privileged: true}, volumeMounts: [{name: run, mountPath: /board}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: seesall}
spec:
  terminationGracePeriodSeconds: 1
  hostPID: true
  hostNetwork: true
  volumes: [{name: run, hostPath: {path: %[1]s}}]
  containers: [{name: c, image: ledge.local/self, args: [pause], securityContext: {privileged: true}, volumeMounts: [{name: run, mountPath: /board}]}]
`

// TestSocketInContainers: whoever is root in a container is not root of the board, though the kernel gives it uid 0.
func TestSocketInContainers(t *testing.T) {
	b := newBoard(t)
	b.serve()
	b.apply(fmt.Sprintf(intruders, b.runDir))
	for pod, want := range map[string]string{"plain": "another PID namespace", "privileged": "another PID namespace",
		"seesall": "another root directory"} {
		b.running(pod)
		out, err := b.try("exec", pod, "--", "/ledge", "--run-dir", "/board", "get", "secrets", "-A")
		if err == nil || !strings.Contains(out, want) || !strings.Contains(out, "this socket is for root of the board itself") {
			t.Errorf("%s: %v, want %q in\n%s", pod, err, want, out)
		}
	}
	b.must("get", "secrets", "-A") // root of the board

	// The keeper hangs up. Its clients are the brain and reset; here one asks that is in another PID namespace.
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(b.runDir, "keeper.sock"), place.Socket(dir)))
	intruder := exec.Command(ledgeBin(t), "--run-dir", dir, "get", "nodes")
	intruder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if out, err := intruder.CombinedOutput(); err == nil {
		t.Errorf("the keeper answered: %s", out)
	}
	data, err := os.ReadFile(filepath.Join(b.runDir, "keeper.log"))
	must(t, err)
	if !strings.Contains(string(data), "not of this board, was turned away") || !strings.Contains(string(data), "another PID namespace") {
		t.Errorf("the keeper's log: %s", data)
	}
}
