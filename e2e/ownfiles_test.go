package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/brain"
	"ledge/internal/testrun"
)

// pour writes into a file until nothing more goes in, and says how much did.
func pour(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	for n < 64<<20 {
		w, err := f.Write(make([]byte, 4096))
		n += w
		if errors.Is(err, unix.ENOSPC) {
			return n
		}
		must(t, err)
	}
	t.Errorf("%s takes %d MB and more", path, n>>20)
	return n
}

// TestPodFillsItsOwnFiles: what every container is given to write to (/etc/hosts, the termination log) has a bound, counts for the
// pod's ephemeral storage, and is not the run directory's. A run directory that others have filled keeps no brain down.
func TestPodFillsItsOwnFiles(t *testing.T) { // N-6.34
	t.Parallel()
	testrun.OnHost(t)
	b := newBoard(t)
	at := t.TempDir()
	must(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=16m,nr_inodes=4000,mode=700"))
	b.runDir = filepath.Join(at, "r")
	t.Cleanup(func() {
		b.finish()
		b.over = true
		must(t, unix.Unmount(at, 0))
	})
	b.serve(noEviction)
	b.importRough()
	b.apply(roughPod("pours", `"eat", "1"`, ""))
	b.apply(roughPod("limited", `"eat", "1"`, "    resources: {limits: {ephemeral-storage: 300Ki}}\n"))
	b.apply(roughPod("tells", `"write", "/dev/termination-log"`, ""))
	first := b.podProcess("pours")
	var before, after unix.Statfs_t
	must(t, unix.Statfs(at, &before))
	for _, file := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/dev/termination-log"} {
		n := pour(t, fmt.Sprintf("/proc/%d/root%s", first, file))
		t.Logf("%-22s %7d bytes until it is full", file, n)
		if n > brain.OwnFiles {
			t.Errorf("%s took %d bytes", file, n)
		}
	}
	must(t, unix.Statfs(at, &after))
	if lost := int64(before.Bavail-after.Bavail) * after.Bsize; lost > 256<<10 {
		t.Errorf("the run directory has %d bytes less", lost)
	}
	n := pour(t, fmt.Sprintf("/proc/%d/root/etc/hosts", b.podProcess("limited")))
	b.eventually("the pod that had a limit is evicted", func() error {
		return contains(b.pod("limited").Status.Message, "Pod ephemeral local storage usage exceeds the total limit of containers 300Ki")
	})
	t.Logf("%-22s %7d bytes in a pod with a limit of 300Ki: evicted", "/etc/hosts", n)

	told := b.pod("tells").Status.ContainerStatuses[0].State.Terminated
	if told == nil || told.Message == "" {
		t.Fatalf("%+v", told)
	}
	for _, what := range []string{"bytes", "inodes"} {
		b.endBy("kill")
		fillUp(t, filepath.Join(at, "filler"), what)
		began := time.Now()
		b.start(noEviction)
		b.eventually("the node is Ready with a full run directory: "+what, b.readyOrEnded)
		t.Logf("%-22s Ready after %d ms", "run directory, 0 "+what, time.Since(began).Milliseconds())
		b.unhurt("pours")
		if out, _ := b.try("doctor"); !strings.Contains(out, "is full") {
			t.Errorf("doctor does not say it:\n%s", out)
		}
		if now := b.pod("tells").Status.ContainerStatuses[0].State.Terminated; now == nil || now.Message != told.Message {
			t.Errorf("what a container said last is lost: %+v", now)
		}
		must(t, os.RemoveAll(filepath.Join(at, "filler")))
	}
	b.must("delete", "pod", "pours")
	b.eventually("nothing is left of the pod's files", func() error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Contains(string(mounts), b.runDir+"/files/") {
			err = errors.New("a mount")
		}
		return err
	})
}

// podProcess is the first process of a pod.
func (b *testBoard) podProcess(name string) (pid int) {
	b.t.Helper()
	b.eventually(name+" runs", func() error {
		pids := b.processes(string(b.pod(name).UID))
		if len(pids) == 0 {
			return errors.New("no process")
		}
		pid = pids[0]
		return contains(b.ledge("get", "pod", name), " Running ")
	})
	return pid
}
