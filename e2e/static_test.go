package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestManifests: pods in the directory are static pods, other objects are applied; a file that changes, breaks or goes
// is seen at once.
func TestManifests(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	put := func(text string) { // as a careful editor does
		t.Helper()
		tmp := filepath.Join(dir, ".tmp")
		must(t, os.WriteFile(tmp, []byte(text), 0o600))
		must(t, os.Rename(tmp, file))
	}
	const config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: beside}\ndata: {a: b}\n"
	put(webPod + config)
	b.serve("--manifests", dir)
	name := "web-" + b.name
	pid := b.running(name)
	if got := b.must("get", "configmaps", "beside"); !strings.Contains(got, "beside") {
		t.Error(got)
	}
	if got := b.must("get", "pods"); strings.Contains(got, "web ") {
		t.Errorf("applied as well: %s", got)
	}
	same := func(when string) {
		t.Helper()
		if now := b.running(name); now != pid {
			t.Errorf("%s process %d became %d", when, pid, now)
		}
	}
	b.must("delete", "pod", name)
	b.eventually("its mirror is there again", func() error { return contains(b.ledge("get", "pod", name), "1/1     Running") })
	same("after its mirror was deleted")
	_ = b.signal(syscall.SIGKILL)
	b.serve("--manifests", dir)
	same("after a kill of the brain")

	put("kind: [")
	b.eventually("the broken file is told of", func() error { return contains(b.ledge("get", "events"), "FailedStaticPod") })
	same("after its file broke")
	_ = b.signal(syscall.SIGKILL)
	b.serve("--manifests", dir)
	same("after a start with a broken file")

	began := time.Now()
	put(strings.Replace(webPod, `"8080"`, `"8081"`, 1) + config)
	b.eventually("the changed pod runs", func() error {
		if p := b.processes("/kubepods/"); len(p) != 1 || p[0] == pid {
			return fmt.Errorf("processes %v", p)
		}
		return contains(b.ledge("get", "pod", name), "1/1     Running")
	})
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("a change was seen after %s: not told, found", d)
	}
	must(t, os.Remove(file))
	b.eventually("what the removed file made is gone", func() error { return contains(b.ledge("get", "pods"), "No resources") })
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes %v", p)
	}
}

// TestStaticPodPath: the kubelet's flag takes pods and nothing else, and a drain ends them.
func TestStaticPodPath(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "web"), []byte(webPod), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "other"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"), 0o600))
	b.serve("--pod-manifest-path", dir, "--on-term=drain")
	b.running("web-" + b.name)
	b.eventually("the other file is refused",
		func() error { return contains(b.ledge("get", "events"), "a static pod is a Pod of apiVersion v1") })
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes after a drain: %v", p)
	}
	other := newBoard(t) // on this one another node's test may have taken the freed pod network
	other.configure("staticPodPath: " + dir + "\n")
	other.serve()
	other.running("web-" + other.name)
}
