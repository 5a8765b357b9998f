package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/host/heap"
	"ledge/internal/testrun"
)

// The binary starts anew for every container, and for every look at the store: what its packages make before main is
// paid each time, and stays in both long-lived processes. GODEBUG=inittrace=1 counts it exactly.
func TestInitBudget(t *testing.T) {
	cmd := exec.Command(ledgeBin(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, ours := 0, 0
	for line := range strings.Lines(string(out)) {
		var pkg, at, took string
		var bytes int
		if n, _ := fmt.Sscanf(line, "init %s @%s ms, %s ms clock, %d bytes", &pkg, &at, &took, &bytes); n < 4 {
			continue
		}
		all += bytes
		if strings.HasPrefix(pkg, "ledge/") || pkg == "main" {
			ours += bytes
			most := 16 << 10
			if pkg == "ledge/api" { // the fifteen kinds of the core group, some 1.6 KiB each
				most = 28 << 10
			}
			if bytes > most {
				t.Errorf("%s makes %d bytes before main; %d KiB is the limit", pkg, bytes, most>>10)
			}
		}
	}
	if all == 0 {
		t.Fatalf("no init trace in:\n%s", out)
	}
	t.Logf("%d bytes, %d of them ours", all, ours)
	if all > 1200<<10 {
		t.Errorf("the packages make %d bytes before main, the limit is 1200 KiB", all)
	}
}

// The memory of a node without pods: PSS 32 MB, of it anonymous 12 MB (architecture: Budgets).
func TestIdleMemory(t *testing.T) {
	testrun.Measured(t) // decision 13 has what was seen in a guest
	evict(t, ledgeBin(t))
	b := newBoard(t)
	b.serve()
	time.Sleep(heap.First + 30*time.Second) // beats and reports go on, and bring back what they need
	var all, anonymous int
	for _, pid := range []int{b.cmd.Process.Pid, b.keeperPID()} {
		p, a := pss(t, pid)
		if !heapRefusesHugePages(t, pid) {
			t.Errorf("the heap of process %d takes huge pages where the kernel gives them (scripts/build.sh, disablethp)", pid)
		}
		if takesHugePages(t, pid) {
			t.Errorf("process %d takes huge pages where the kernel gives them (libct/hugepages.go)", pid)
		}
		t.Logf("%d: PSS %d KiB, of it anonymous %d KiB", pid, p, a)
		all, anonymous = all+p, anonymous+a
	}
	if all > 32<<10 || anonymous > 12<<10 {
		t.Errorf("brain and keeper at rest: PSS %d KiB, budget 32 MiB; of it anonymous %d KiB, budget 12 MiB", all, anonymous)
	}
	b.importRough()
	b.apply(roughPod("innocent", `"run"`, ""))
	if !takesHugePages(t, b.running("innocent")) {
		t.Error("the kernel gives a container no huge pages, as it does its keeper")
	}
}

// takesHugePages is what the kernel says of a process.
func takesHugePages(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(text), "\nTHP_enabled:\t0\n")
}

// heapRefusesHugePages looks at the flags of the memory that Go's heap is in, its largest.
func heapRefusesHugePages(t *testing.T, pid int) bool {
	t.Helper()
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		return true // this kernel has none to give
	}
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "smaps"))
	if err != nil {
		t.Fatal(err)
	}
	most, kb, refuses := 0, 0, false
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kb); n == 1 {
			continue
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && kb > most {
			most, refuses = kb, slices.Contains(strings.Fields(flags), "nh")
		}
	}
	return refuses
}

// evict takes a file out of the page cache, as a boot does. Kernels from 6.18 map whole folios of the page cache: of a
// file just written those are up to 2 MB, and a single touched byte counts as so much.
func evict(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

func pss(t *testing.T, pid int) (all, anonymous int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "smaps_rollup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 {
			all = kb
		}
		if n, _ := fmt.Sscanf(line, "Pss_Anon: %d kB", &kb); n == 1 {
			anonymous = kb
		}
	}
	if all == 0 {
		t.Fatalf("no PSS of process %d", pid)
	}
	return all, anonymous
}
