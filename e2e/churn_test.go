package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

const churnPods, churnRounds = 50, 10

// crowdPod is one of several kinds: between them they have of everything that a pod leaves on a board.
func crowdPod(i, hostPort int) string {
	kinds := []string{`
  containers: [{name: c, image: ledge.local/self, args: ["pause"]}]`, `
  containers:
  - {name: c, image: ledge.local/self, args: ["pause"], volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d, subPath: a/b}]}
  volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: d, emptyDir: {}},
    {name: i, image: {reference: ledge.local/self}}]`, `
  initContainers:
  - {name: i, image: ledge.local/self, args: ["echo", "first"]}
  - {name: s, image: ledge.local/self, args: ["pause"], restartPolicy: Always}
  containers:
  - name: c
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    ports: [{containerPort: 8080, hostPort: PORT}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, timeoutSeconds: 20}
    livenessProbe: {exec: {command: ["/bin/echo", "up"]}, periodSeconds: 1, timeoutSeconds: 20}
    lifecycle: {preStop: {exec: {command: ["/bin/echo", "bye"]}}}`, `
  restartPolicy: Never
  containers: [{name: c, image: ledge.local/self, args: ["echo", "over"]}]`, `
  shareProcessNamespace: true
  containers: [{name: c, image: ledge.local/self, args: ["pause"]}, {name: d, image: ledge.local/self, args: ["pause"]}]`}
	spec := strings.ReplaceAll(kinds[i%len(kinds)], "PORT", fmt.Sprint(hostPort+i))
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  terminationGracePeriodSeconds: 5%s\n", i, spec)
}

// TestChurn makes, runs and deletes pods, 50 at a time and 500 in all, on one node: nothing of it may stay.
func TestChurn(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("takes minutes: set LEDGE_LONG")
	}
	b := newBoard(t)
	b.serve()
	fresh := b.goroutines() // of a brain that has seen nothing; the keeper goes on
	b.serve()
	first := b.churn(0)
	for round := 1; round < churnRounds; round++ {
		now := b.churn(round)
		t.Logf("after %d pods: %v", (round+1)*churnPods, now)
	}
	var last footprint
	b.eventually("the node is as small as after the first pods", func() error {
		last = b.footprint()
		for what, n := range last {
			if n > first[what]+churnSlack[what] {
				return fmt.Errorf("%s: %d, after the first %d pods %d", what, n, churnPods, first[what])
			}
		}
		return nil
	})
	t.Logf("first %v\nlast  %v", first, last)
	if now := b.goroutines(); now > fresh+5 {
		t.Errorf("%d goroutines, in a fresh brain %d", now, fresh)
	}
	b.serve() // what finish expects
}

// churn is one round; it gives what the node is made of once the pods are gone.
func (b *testBoard) churn(round int) footprint {
	b.t.Helper()
	var yaml strings.Builder
	names := []string{"delete", "pod"}
	for i := range churnPods {
		yaml.WriteString(crowdPod(i, 42000))
		names = append(names, fmt.Sprintf("p%d", i))
	}
	b.apply(yaml.String())
	b.eventually(fmt.Sprintf("the pods of round %d run", round), func() error {
		list := b.ledge("get", "pods")
		running, over := strings.Count(list, " Running "), strings.Count(list, " Completed ")
		if running != churnPods*4/5 || over != churnPods/5 {
			return fmt.Errorf("%d run, %d are over:\n%s", running, over, list)
		}
		return nil
	})
	b.must(names...)
	var now footprint
	b.eventually("the pods are gone from the board", func() error {
		now = b.footprint()
		if now["mounts"] != 0 || len(b.processes("/kubepods/")) > 0 {
			return fmt.Errorf("%d processes, %v", len(b.processes("/kubepods/")), now)
		}
		return nil
	})
	return now
}

// footprint counts what a node is made of.
type footprint map[string]int

// churnSlack is what comes and goes by itself: a connection, a thread that waits for the next call, memory that is
// given back when the node is at rest.
var churnSlack = footprint{"brain files": 6, "keeper files": 4, "brain threads": 12, "keeper threads": 12,
	"brain anonymous KiB": 8 << 10, "keeper anonymous KiB": 4 << 10, "files of the store and the run directory": 8}

func (b *testBoard) footprint() footprint {
	b.t.Helper()
	out := footprint{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.t.Fatal(err)
	}
	out["mounts"] = bytes.Count(mounts, []byte(b.runDir+"/")) + bytes.Count(mounts, []byte(b.data+"/"))
	for _, pattern := range []string{"/sys/fs/cgroup/" + b.name, "/sys/fs/cgroup/*/" + b.name} {
		roots, err := filepath.Glob(pattern)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, root := range roots {
			out["cgroups"] += b.entries(root, fs.DirEntry.IsDir)
		}
	}
	links, err := filepath.Glob("/sys/class/net/" + b.name + "/brif/*")
	if err != nil {
		b.t.Fatal(err)
	}
	out["interfaces"] = len(links)
	if rules, err := exec.Command("nft", "list", "ruleset").Output(); err == nil {
		table := strings.ReplaceAll(b.name, "-", ".")
		for part := range strings.SplitSeq(string(rules), "\ntable ") {
			if head, body, ok := strings.Cut(part, "\n"); ok && strings.Contains(head, table) {
				out["nftables lines"] += strings.Count(body, "\n")
			}
		}
	}
	all := func(fs.DirEntry) bool { return true }
	out["files of the store and the run directory"] = b.entries(b.data, all) + b.entries(b.runDir, all)
	for who, pid := range map[string]int{"brain": b.cmd.Process.Pid, "keeper": b.keeperPID()} {
		for what, dir := range map[string]string{" files": "fd", " threads": "task"} {
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
			if err != nil {
				b.t.Fatal(err)
			}
			out[who+what] = len(entries)
		}
		_, out[who+" anonymous KiB"] = pss(b.t, pid)
	}
	return out
}

// entries counts what is below a directory. What goes away meanwhile is not counted.
func (b *testBoard) entries(root string, which func(fs.DirEntry) bool) (n int) {
	_ = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && which(e) {
			n++
		}
		return nil
	})
	return n
}

// goroutines ends the brain by the signal that has the Go runtime tell what it was doing, and counts that.
func (b *testBoard) goroutines() int {
	b.t.Helper()
	before, err := os.ReadFile(b.log.Name())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-b.done:
	case <-time.After(testrun.Patience(60 * time.Second)):
		b.t.Fatal("the brain did not end after SIGQUIT")
	}
	b.cmd = nil
	after, err := os.ReadFile(b.log.Name())
	if err != nil {
		b.t.Fatal(err)
	}
	n := bytes.Count(after[len(before):], []byte("\ngoroutine "))
	if n == 0 {
		b.t.Fatalf("no goroutines in the log:\n%s", tail(string(after), 2000))
	}
	return n
}
