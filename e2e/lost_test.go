package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const keptPods = `apiVersion: v1
kind: ReplicationController
metadata: {name: kept}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: ledge.local/self, args: [sleep, infinity]}]
`

// TestOlderStore: a backup that is older than what runs does not cost the pods that came after it.
func TestOlderStore(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	file := filepath.Join(t.TempDir(), "backup")
	b.must("backup", "save", file)
	b.apply(webPod)
	b.apply(keptPods)
	pid := b.running("web")
	kept := func() string { return b.must("get", "pods", "-l", "app=kept", "-o", "name") }
	b.eventually("the controller's pod runs", func() error { return contains(b.must("get", "rc", "kept"), " 1         1         1 ") })
	was := kept()
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.must("backup", "restore", file, "--data-dir", b.data)
	b.serve()
	if now := b.running("web"); now != pid {
		t.Errorf("process %d became %d", pid, now)
	}
	b.eventually("an event says so", func() error { return contains(b.ledge("get", "events"), "PodRestored") })
	if out := b.must("get", "pods"); !strings.Contains(out, "1/1     Running   0 ") {
		t.Error(out)
	}
	// The controller is lost, and its pod is not: the next of its name has it.
	if now := kept(); now != was {
		t.Errorf("%q became %q", was, now)
	}
	b.apply(keptPods)
	b.eventually("the controller has its pod", func() error { return contains(b.must("get", "rc", "kept"), " 1         1         1 ") })
	if now := kept(); now != was {
		t.Errorf("%q became %q", was, now)
	}
	b.must("delete", "rc", "kept")
	b.eventually("its pod went with it", func() error {
		if now := kept(); now != "" {
			return errors.New(now)
		}
		return nil
	})
	b.must("delete", "pod", "web")
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes after delete: %v", p)
	}
}
