package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func write(t testing.TB, files map[string]string, root string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const psi = "some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1000\n"

// machine makes the files of a cgroup tree with one pod of one container, as v1 or v2 has them.
func machine(t testing.TB, version int, podCPU time.Duration) (*Collector, []Pod) {
	t.Helper()
	root := t.TempDir()
	const pod, c = "top/kubepods/burstable/podu1", "top/kubepods/burstable/podu1/u1.c.0"
	for _, dir := range []string{"", pod, c} {
		if version == 2 {
			files := map[string]string{
				"cpu.stat":    fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 2\n", podCPU.Microseconds()),
				"memory.stat": "anon 3000\nfile 9000\nkernel 7\ninactive_file 4000\nactive_file 5000\npgfault 11\npgmajfault 2\n",
			}
			if dir != "" { // the root cgroup has none of these
				for name, text := range map[string]string{"memory.current": "12500", "memory.swap.current": "64", "memory.swap.max": "max",
					"pids.current": "3", "cpu.pressure": psi, "memory.pressure": psi, "io.pressure": psi} {
					files[name] = text + "\n"
				}
			}
			write(t, files, filepath.Join(root, "cg", dir))
			continue
		}
		write(t, map[string]string{
			"cpuacct/" + dir + "/cpuacct.usage":        fmt.Sprintln(podCPU.Nanoseconds()),
			"memory/" + dir + "/memory.usage_in_bytes": "12500\n",
			"memory/" + dir + "/memory.stat": "cache 1\nrss 1\ninactive_file 1\ntotal_cache 9000\ntotal_rss 3000\ntotal_inactive_file 4000\n" +
				"total_pgfault 11\ntotal_pgmajfault 2\n",
			"pids/" + dir + "/pids.current": "3\n",
		}, filepath.Join(root, "cg"))
	}
	write(t, map[string]string{"77/net/dev": "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n" +
		"    lo:     5    1 0 0 0 0 0 0      5 1 0 0 0 0 0 0\n  eth0: 1000    9 1 0 0 0 0 0   2000 8 2 0 0 0 0 0\n",
		"pressure/cpu": psi}, filepath.Join(root, "proc"))
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return New(Config{Mount: filepath.Join(root, "cg"), Proc: filepath.Join(root, "proc")}), []Pod{
		{UID: "u1", Namespace: "ns", Name: "p", Labels: map[string]string{"a": "b"}, Cgroup: "kubepods/burstable/podu1", StartedAt: began,
			Containers: []Container{{ID: "u1.c.0", Name: "c", Pid: 77, StartedAt: began}, {ID: "u1.gone.0", Name: "gone", Pid: 78}}},
		{UID: "u2", Namespace: "ns", Name: "gone", Cgroup: "kubepods/podu2"},
	}
}

func TestRead(t *testing.T) {
	for version := 1; version <= 2; version++ {
		c, pods := machine(t, version, 2*time.Second)
		now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
		p := c.Read(now, version, "/top", pods)
		if len(p.Pods) != 1 || len(p.Pods[0].Containers) != 1 {
			t.Fatalf("v%d: %+v", version, p)
		}
		if got := c.Last(); !got.At.Equal(now) || len(got.Pods) != 1 {
			t.Errorf("v%d: the last pass is %+v", version, got)
		}
		for what, u := range map[string]Usage{"pod": p.Pods[0].Usage, "container": p.Pods[0].Containers[0].Usage, "node": p.Node} {
			if u.CPU == nil || u.Memory == nil {
				t.Fatalf("v%d %s: %+v", version, what, u)
			}
			if u.CPU.Total != 2*time.Second || u.CPU.Window != 0 || u.CPU.NanoCores != 0 {
				t.Errorf("v%d %s: CPU %+v", version, what, u.CPU)
			}
			wantUsage := int64(12500)
			if what == "node" && version == 2 {
				wantUsage = 12000 // of its parts
			}
			m := *u.Memory
			if m.Usage != wantUsage || m.WorkingSet != wantUsage-4000 || m.RSS != 3000 || m.PageFaults != 11 || m.MajorFaults != 2 { // N-6.4
				t.Errorf("v%d %s: memory %+v", version, what, m)
			}
			if swap := version == 2 && what != "node"; (m.Swap != nil) != swap || swap && *m.Swap != 64 || m.SwapLimit != nil {
				t.Errorf("v%d %s: swap %v of %v", version, what, m.Swap, m.SwapLimit)
			}
			if has := version == 1 || what != "node"; (u.Pids != nil) != has || has && *u.Pids != 3 {
				t.Errorf("v%d %s: pids %v", version, what, u.Pids)
			}
			want := 0
			if what == "node" {
				want = 1
			} else if version == 2 {
				want = 3
			}
			if len(u.Stalls) != want {
				t.Errorf("v%d %s: stalls %v", version, what, u.Stalls)
			}
		}
		wantStall := Pressure{Some: Stall{1.5, 0.25, 0, 123456 * time.Microsecond}, Full: Stall{Avg10: 0.5, Total: time.Millisecond}}
		if got := p.Node.Stalls["cpu"]; got != wantStall {
			t.Errorf("v%d: %+v", version, got)
		}
		if n := p.Pods[0].Network; len(n) != 1 || n[0] != (Traffic{"eth0", 1000, 1, 2000, 2}) {
			t.Errorf("v%d: network %+v", version, n)
		}
	}
}

// TestGroup: a cgroup without a limit, or with one that nobody means, has nothing available of it.
// TestResident: where the kernel counts no memory of cgroups, it is that of their processes; what they share counts once.
func TestResident(t *testing.T) { // N-6.25, N-6.28, docs/decisions/0025
	for version := 1; version <= 2; version++ {
		c, pods := machine(t, version, time.Second)
		tree := "cg/top/kubepods/burstable/podu1"
		if version == 1 {
			tree = "cg/pids/top/kubepods/burstable/podu1"
		}
		root := filepath.Dir(c.cfg.Mount)
		for _, dir := range []string{"", "top/kubepods/burstable/podu1", "top/kubepods/burstable/podu1/u1.c.0"} {
			gone := filepath.Join(c.cfg.Mount, dir, "memory.stat")
			if version == 1 {
				gone = filepath.Join(c.cfg.Mount, "memory", dir, "memory.stat")
			}
			if err := os.Remove(gone); err != nil {
				t.Fatal(err)
			}
		}
		status := func(anon, file, shmem int) string {
			return fmt.Sprintf("Name:\tx\nVmRSS:\t%d kB\nRssAnon:\t   %d kB\nRssFile:\t%d kB\nRssShmem:\t%d kB\nThreads:\t1\n", anon+file+shmem,
				anon, file, shmem)
		}
		write(t, map[string]string{
			tree + "/cgroup.procs":               "70\n",
			tree + "/u1.c.0/cgroup.procs":        "77\n78\n79\n", // the last has ended meanwhile
			tree + "/u1.c.0/nested/cgroup.procs": "80\n",
			"proc/70/status":                     status(4, 999, 0),
			"proc/77/status":                     status(100, 999, 30),
			"proc/78/status":                     status(200, 999, 20),
			"proc/80/status":                     status(1000, 999, 10),
		}, root)
		p := c.Read(time.Now(), version, "/top", pods)
		if len(p.Pods) != 1 || len(p.Pods[0].Containers) != 1 || p.Pods[0].Memory == nil || p.Pods[0].Containers[0].Memory == nil {
			t.Fatalf("v%d: %+v", version, p)
		}
		const container = (100 + 200 + 1000 + 30) << 10
		if got := *p.Pods[0].Containers[0].Memory; got != (Memory{Usage: container, WorkingSet: container, RSS: container, Needed: container}) {
			t.Errorf("v%d: the container has %+v, want %d", version, got, container)
		}
		if got := p.Pods[0].Memory.WorkingSet; got != container+4<<10 {
			t.Errorf("v%d: the pod has %d, want %d", version, got, container+4<<10)
		}
		if p.Node.Memory != nil {
			t.Errorf("v%d: the board's is in meminfo: %+v", version, p.Node.Memory)
		}
	}
}

func TestGroup(t *testing.T) { // N-6.5
	for version, file := range map[int]string{1: "memory/top/kubepods/memory.limit_in_bytes", 2: "top/kubepods/memory.max"} {
		for text, want := range map[string]int64{"1000000\n": 1000000, "4611686018427387904\n": 1 << 62, "4611686018427387905\n": 0,
			"9223372036854771712\n": 0, "max\n": 0, "0\n": 0, "": 0} {
			root := t.TempDir()
			usage, stat := "top/kubepods/memory.current", "top/kubepods/memory.stat"
			if version == 1 {
				usage, stat = "memory/top/kubepods/memory.usage_in_bytes", "memory/top/kubepods/memory.stat"
			}
			files := map[string]string{file: text, usage: "5000\n", stat: "inactive_file 2000\ntotal_inactive_file 2000\n"}
			write(t, files, root)
			m, limit, ok := New(Config{Mount: root}).Group(version, "/top/kubepods")
			if ok != (want > 0) || limit != want || ok && m.WorkingSet != 3000 {
				t.Errorf("v%d, %q: %+v of %d, %v", version, text, m, limit, ok)
			}
		}
		if _, _, ok := New(Config{Mount: t.TempDir()}).Group(version, "/top/kubepods"); ok {
			t.Errorf("v%d: there is no such cgroup", version)
		}
	}
}

// TestMeanwhile: pages of files that come or go while memory.stat is read are not taken for memory that is needed.
func TestMeanwhile(t *testing.T) { // N-6.4
	for name, used := range map[string][2]string{"come": {"5000\n", "9000\n"}, "go": {"9000\n", "5000\n"}} {
		root := t.TempDir()
		const usage, stat = "kubepods/memory.current", "kubepods/memory.stat"
		write(t, map[string]string{"kubepods/memory.max": "10000\n", usage: used[0]}, root)
		pipe := filepath.Join(root, stat)
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		go func() { // it opens when somebody reads, and changes what is used before it lets him have the rest
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				told <- err
				return
			}
			err = os.WriteFile(filepath.Join(root, usage), []byte(used[1]), 0o600)
			_, werr := f.WriteString("inactive_file 3000\nactive_file 1000\n")
			told <- errors.Join(err, werr, f.Close())
		}()
		m, _, ok := New(Config{Mount: root}).Group(2, "/kubepods")
		if err := <-told; err != nil || !ok || m.Needed != 1000 || m.Usage != 5000 {
			t.Errorf("they %s: %+v, %v, %v", name, m, ok, err)
		}
	}
}

// TestRate: what a pass tells of the time since the one before it, and never of a cgroup that is not the same.
func TestRate(t *testing.T) {
	c, pods := machine(t, 1, 10*time.Second)
	now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	set := func(total time.Duration) {
		write(t, map[string]string{"cpuacct/top/kubepods/burstable/podu1/cpuacct.usage": fmt.Sprint(total.Nanoseconds())}, c.cfg.Mount)
	}
	for _, s := range []struct {
		total time.Duration
		after time.Duration
		want  int64
		known bool
	}{
		{10 * time.Second, 0, 0, false},
		{13 * time.Second, 15 * time.Second, 2e8, true},
		{13 * time.Second, 5 * time.Second, 0, true},
		{14 * time.Second, time.Second, 1e9, true},
		{1 * time.Second, time.Second, 0, false}, // made anew
		{2 * time.Second, 2 * time.Second, 5e8, true},
		{3 * time.Second, 0, 0, false},            // no time has passed
		{4 * time.Second, -time.Minute, 0, false}, // nor has it when the clock was set back
		{5 * time.Second, 10 * time.Second, 1e8, true},
	} {
		now = now.Add(s.after)
		set(s.total)
		u := c.Read(now, 1, "/top", pods).Pods[0].CPU
		if u.Total != s.total || u.NanoCores != s.want || (u.Window > 0) != s.known {
			t.Errorf("%s after %s: %+v", s.total, s.after, u)
		}
	}
	c.Read(now.Add(time.Second), 1, "/top", nil)
	if u := c.Read(now.Add(2*time.Second), 1, "/top", pods).Pods[0].CPU; u.Window != 0 {
		t.Errorf("over a pass without it: %+v", u)
	}
	if n := len(c.cpu); n != 3 {
		t.Errorf("%d cgroups are remembered", n)
	}
}

func TestMetrics(t *testing.T) {
	c, pods := machine(t, 2, 2*time.Second)
	pods[0].Containers = pods[0].Containers[:1]
	now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	p := c.Read(now, 2, "/top", pods)
	if n, ps := NodeMetrics(p, "n"), PodMetrics(p); n != nil || len(ps) != 0 {
		t.Errorf("from one pass: %+v %+v", n, ps)
	}
	write(t, map[string]string{"top/kubepods/burstable/podu1/u1.c.0/cpu.stat": "usage_usec 3500000\n"}, c.cfg.Mount)
	p = c.Read(now.Add(15*time.Second), 2, "/top", pods)
	n, ps := NodeMetrics(p, "n"), PodMetrics(p)
	if n == nil || len(ps) != 1 {
		t.Fatalf("%+v %+v", n, ps)
	}
	got, err := json.Marshal(ps[0])
	if want := `{"metadata":{"name":"p","namespace":"ns","creationTimestamp":"2026-01-01T01:00:15Z","labels":{"a":"b"}},` +
		`"timestamp":"2026-01-01T01:00:15Z","window":"15s","containers":[{"name":"c","usage":{"cpu":"100m","memory":"8500"}}]}`; err != nil ||
		string(got) != want {
		t.Errorf("%s %v\nwant %s", got, err, want)
	}
	got, err = json.Marshal(n)
	if want := `{"metadata":{"name":"n","creationTimestamp":"2026-01-01T01:00:15Z"},"timestamp":"2026-01-01T01:00:15Z","window":"15s",` +
		`"usage":{"cpu":"0","memory":"8000"}}`; err != nil || string(got) != want {
		t.Errorf("%s %v\nwant %s", got, err, want)
	}
}

// TestResourceText: the names, types and labels that Kubernetes documents for /metrics/resource.
func TestResourceText(t *testing.T) {
	c, pods := machine(t, 2, 2*time.Second)
	p := c.Read(time.UnixMilli(1767229200000), 2, "/top", pods)
	var lines []string
	for line := range strings.Lines(string(ResourceText(p))) {
		if !strings.HasPrefix(line, "# HELP") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	want := `# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} 2 1767229200000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",namespace="ns",pod="p"} 8500 1767229200000
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="ns",pod="p"} 1.7672256e+09 1767229200000
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="c",namespace="ns",pod="p"} 64 1767229200000
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 2 1767229200000
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 8000 1767229200000
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 2 1767229200000
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="ns",pod="p"} 8500 1767229200000
# TYPE pod_swap_usage_bytes gauge
pod_swap_usage_bytes{namespace="ns",pod="p"} 64 1767229200000
# TYPE resource_scrape_error gauge
resource_scrape_error 0`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(ResourceText(Pass{})); !strings.HasSuffix(got, "\nresource_scrape_error 1\n") || strings.Count(got, "\n") != 3 {
		t.Errorf("before the first pass: %q", got)
	}
}

func TestSummary(t *testing.T) {
	c, pods := machine(t, 2, 2*time.Second)
	p := c.Read(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC), 2, "/top", pods)
	dir := t.TempDir()
	write(t, map[string]string{"logs/0.log": strings.Repeat("x", 5000), "vol/a": "1", "root/etc/x": "2"}, dir)
	data, err := Summary(p, Machine{Node: "n", MemoryAvailable: 5, MaxPID: 100, CurPID: 7,
		FS: FSUsage{CapacityBytes: 1000, AvailableBytes: 400, UsedBytes: 600}},
		func(Pod) Places {
			return Places{Rootfs: map[string]string{"c": filepath.Join(dir, "root")}, Logs: map[string]string{"c": filepath.Join(dir, "logs")},
				Volumes: map[string]string{"v": filepath.Join(dir, "vol")}}
		})
	if err != nil {
		t.Fatal(err)
	}
	var got summary
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if n := got.Node; n.NodeName != "n" || *n.Memory.AvailableBytes != 5 || n.FS.UsedBytes != 600 || n.Rlimit.CurProc != 7 ||
		n.CPU.PSI.Some.Total != 123456000 {
		t.Errorf("node %s", data)
	}
	pod := got.Pods[0]
	k := pod.Containers[0]
	if pod.PodRef != (podRef{"p", "ns", "u1"}) || pod.ProcessStats.ProcessCount != 3 || pod.Network.RxBytes != 1000 ||
		pod.Network.Interfaces[0].Name != "eth0" ||
		k.Memory.WorkingSetBytes != 8500 || k.IO.PSI.Full.Avg10 != 0.5 || k.Swap.SwapUsageBytes != 64 {
		t.Errorf("pod %s", data)
	}
	logs, err := DiskUsage(filepath.Join(dir, "logs"))
	if err != nil || k.Logs.UsedBytes != logs.Bytes || k.Logs.InodesUsed != 2 || k.Logs.CapacityBytes != 1000 || k.Rootfs.InodesUsed != 3 ||
		pod.Volume[0].Name != "v" {
		t.Errorf("files %s %v", data, err)
	}
	if e := pod.EphemeralStorage; e.UsedBytes != k.Logs.UsedBytes+k.Rootfs.UsedBytes+pod.Volume[0].UsedBytes || e.InodesUsed != 7 {
		t.Errorf("all of it %+v", e)
	}
}

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	write(t, map[string]string{"a/big": strings.Repeat("x", 100000), "a/small": "x", "b/other": "y"}, dir)
	if err := os.Link(filepath.Join(dir, "a/big"), filepath.Join(dir, "b/again")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(dir, "b/away")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "b/holes"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	d, err := DiskUsage(filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "none"))
	if err != nil || d.Bytes < 100000 || d.Bytes > 200000 || d.Inodes != 7 { // a, big, small, b, other, away, holes
		t.Errorf("%+v %v", d, err)
	}
}

func TestParsePressure(t *testing.T) {
	for _, bad := range []string{"", "nothing\n", "some avg10=x\n", "half avg10=1\n"} {
		if p, ok := parsePressure([]byte(bad)); ok {
			t.Errorf("%q is %+v", bad, p)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(psi))
	f.Add([]byte("usage_usec 5\nanon 3\n\nx\n 7\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = parsePressure(data)
		n := 0
		pairs(data, func([]byte, int64) { n++ })
		if n > len(data) {
			t.Fatal("more pairs than bytes")
		}
	})
}
