package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// machine makes a directory tree that looks like a machine.
func machine(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Proc: root + "/proc", Sys: root + "/sys", Etc: root + "/etc", Run: root + "/run", Root: root,
		Interfaces:  func() ([]Interface, error) { return nil, nil },
		ClockSynced: func() (bool, error) { return true, nil }})
}

// N-1.55, N-1.63.
func TestInfo(t *testing.T) {
	h := machine(t, map[string]string{
		"etc/machine-id":                 "abc\n",
		"etc/os-release":                 "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"proc/sys/kernel/random/boot_id": "boot-1\n",
		"proc/sys/kernel/osrelease":      "6.1.0-rpi\n",
		"proc/sys/kernel/hostname":       "board7\n",
		"proc/device-tree/serial-number": "10000000abcdef\x00",
		"proc/device-tree/model":         "Raspberry Pi 4 Model B Rev 1.4\x00",
		"sys/devices/system/cpu/online":  "0-2,4\n",
		"proc/uptime":                    "350735.47 234388.90\n",
	})
	i, err := h.Info()
	if err != nil || i.MachineID != "abc" || i.BootID != "boot-1" || i.OSImage != "Debian GNU/Linux 12 (bookworm)" ||
		i.KernelVersion != "6.1.0-rpi" || i.SystemUUID != "10000000abcdef" || i.CPUs != 4 || i.Hostname != "board7" {
		t.Errorf("%+v %v", i, err)
	}
	if got := h.Model(); got != "Raspberry Pi 4 Model B Rev 1.4" {
		t.Errorf("model %q", got)
	}
	if up, err := h.Uptime(); err != nil || up.Round(time.Second) != 350735*time.Second {
		t.Error(up, err)
	}
	// A board that tells nothing still has a name and processors.
	bare := machine(t, map[string]string{"etc/machine-id": "m"})
	if i, err := bare.Info(); err != nil || i.Hostname == "" || i.CPUs < 1 || i.SystemUUID != "m" || i.OSImage != "Linux" {
		t.Errorf("%+v %v", i, err)
	}
	if _, err := bare.Uptime(); err == nil {
		t.Error("an uptime out of nothing")
	}
	if i, _ := machine(t, map[string]string{"usr/lib/os-release": "PRETTY_NAME='Alpine'\n",
		"sys/class/dmi/id/product_uuid": "U\n"}).Info(); i.OSImage != "Alpine" || i.SystemUUID != "U" {
		t.Errorf("%+v", i)
	}
}

func TestCountList(t *testing.T) {
	for in, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0, "1-": 0} {
		if got := countList(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

// N-6.6.
func TestPIDs(t *testing.T) {
	tree := func(pidMax, threads, load string) *Host {
		return machine(t, map[string]string{"proc/sys/kernel/pid_max": pidMax, "proc/sys/kernel/threads-max": threads, "proc/loadavg": load})
	}
	for _, c := range []struct {
		pidMax, threads string
		want            int64
	}{{"32768\n", "9000\n", 9000}, {"4194304\n", "7000000\n", 4194304}} {
		most, used, err := tree(c.pidMax, c.threads, "0.1 0.2 0.3 2/431 999\n").PIDs()
		if err != nil || most != c.want || used != 431 {
			t.Error(most, used, err)
		}
	}
	if _, used, err := tree("1\n", "1\n", "nonsense").PIDs(); err != nil || used < 1 {
		t.Error("no fall back to sysinfo:", used, err)
	}
	if _, _, err := tree("x", "1", "").PIDs(); err == nil {
		t.Error("nonsense was accepted")
	}
}

// TestMemory: RAM is MemTotal (N-6.5), and what can be had of it is the kernel's word.
func TestMemory(t *testing.T) {
	h := machine(t, map[string]string{
		"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nActive(file): 90 kB\nInactive(file): 80 kB\nSwapTotal: 50 kB\nSwapFree: 40 kB\nMapped: 30 kB\n",
		"proc/swaps":   "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 2048 0 100\n/var/swap file 1024 0 -2\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		"sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages":      "1\n",
	})
	m, err := h.Memory()
	if want := (Memory{1000 << 10, 600 << 10, 50 << 10, 40 << 10}); err != nil || m != want {
		t.Errorf("%+v %v", m, err)
	}
	if available, mapped, total, err := h.MemoryAvailable(); err != nil || available != 600<<10 || mapped != 30<<10 || total != 1000<<10 {
		t.Errorf("%d of %d, %d mapped, %v", available, total, mapped, err)
	}
	if err := os.WriteFile(filepath.Join(h.cfg.Proc, "meminfo"),
		[]byte("MemTotal: 1000 kB\nMemAvailable: 7 kB\nActive(file): 9 kB\nInactive(file): 1 kB\nMapped: 90 kB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if available, mapped, _, err := h.MemoryAvailable(); err != nil || available != 7<<10 || mapped != 10<<10 { // the rest is shared memory
		t.Errorf("not what is so now: %d, %d mapped, %v", available, mapped, err)
	}
	swaps, err := h.Swaps()
	if want := []Swap{{"/dev/zram0", 2 << 20}, {"/var/swap", 1 << 20}}; err != nil || !slices.Equal(swaps, want) {
		t.Errorf("%+v %v", swaps, err)
	}
	if !swaps[0].InMemory() || swaps[1].InMemory() {
		t.Errorf("%+v: what is on a disk?", swaps)
	}
	if got := fmt.Sprint(h.HugePages()); got != "map[1Gi:0 2Mi:6291456 64Ki:65536]" {
		t.Error(got)
	}
	empty := machine(t, map[string]string{"proc/meminfo": ""})
	if _, err := empty.Memory(); err == nil {
		t.Error("memory out of nothing")
	}
	for _, text := range []string{"", "MemTotal: 1000 kB\n", "MemAvailable: 5 kB\n", "MemTotal: x kB\n"} {
		if n, _, _, err := machine(t, map[string]string{"proc/meminfo": text}).MemoryAvailable(); err == nil {
			t.Errorf("%d available out of %q", n, text)
		}
	}
	if s, err := empty.Swaps(); err != nil || s != nil {
		t.Error(s, err)
	}
}

// BenchmarkGlance is what a glance at the board's memory reads.
func BenchmarkGlance(b *testing.B) {
	h := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := h.MemoryAvailable(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRoom is what a look at disks and processes reads.
func BenchmarkRoom(b *testing.B) {
	h, dir := New(Config{}), b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		for range 2 {
			if _, err := h.Filesystem(dir); err != nil {
				b.Fatal(err)
			}
		}
		Apart(dir, "/")
		if _, _, err := h.PIDs(); err != nil {
			b.Fatal(err)
		}
	}
}

// N-6.2 to N-6.4.
func TestWorkingSet(t *testing.T) {
	v2 := machine(t, map[string]string{"sys/fs/cgroup/memory.stat": "anon 500\nfile 300\ninactive_file 100\nother x\n"})
	v1 := machine(t, map[string]string{"sys/fs/cgroup/memory/memory.usage_in_bytes": "900\n",
		"sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 250\n"})
	negative := machine(t, map[string]string{"sys/fs/cgroup/memory.stat": "anon 5\nfile 3\ninactive_file 100\n"})
	for _, c := range []struct {
		h    *Host
		want int64
	}{{v2, 700}, {v1, 650}, {negative, 0}} {
		if got, err := c.h.WorkingSet(); err != nil || got != c.want {
			t.Error(got, err)
		}
	}
	if _, err := machine(t, nil).WorkingSet(); err == nil { // N-6.7: no observation is no value
		t.Error("a working set without a memory controller")
	}
}

func TestPressure(t *testing.T) {
	h := machine(t, map[string]string{
		"proc/pressure/memory": "some avg10=1.50 avg60=2.25 avg300=0.10 total=3000000\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1000\n",
		"proc/pressure/io":     "some avg10=x\n",
	})
	p, err := h.Pressure("memory")
	if err != nil || p.Some != (Stall{1.5, 2.25, 0.1, 3 * time.Second}) || p.Full.Total != time.Millisecond || p.Full.Avg10 != 0.5 {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := h.Pressure("io"); err == nil {
		t.Error("nonsense was accepted")
	}
	if _, err := h.Pressure("cpu"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestCgroups(t *testing.T) {
	const v1 = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t4\t1\t0\npids\t8\t1\t1\nhugetlb\t0\t1\t1\n"
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}, "{unified [cpuset cpu io memory pids]}"},
		{map[string]string{"sys/fs/cgroup/unified/cgroup.controllers": "\n", "sys/fs/cgroup/cpu/tasks": "", "proc/cgroups": v1},
			"{hybrid [cpu pids]}"},
		{map[string]string{"sys/fs/cgroup/cpu/tasks": "", "proc/cgroups": v1}, "{legacy [cpu pids]}"},
		{nil, "{none []}"},
	} {
		if got := fmt.Sprint(machine(t, c.files).Cgroups()); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	// On this machine the files and the file system types tell the same.
	here := New(Config{})
	if byType, byFiles := here.cgroupMode(), here.cgroupModeByFiles(); byType != byFiles {
		t.Errorf("%s by type, %s by files (%v)", byType, byFiles, cgroups.Mode())
	}
}

func TestResolvConf(t *testing.T) {
	const stub, real = "nameserver 127.0.0.53\noptions edns0\n", "# 127.0.0.53\nnameserver 192.0.2.1\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"plain", map[string]string{"etc/resolv.conf": real, "run/systemd/resolve/resolv.conf": real}, "etc/resolv.conf"},
		{"resolved", map[string]string{"etc/resolv.conf": stub, "run/systemd/resolve/resolv.conf": real}, "run/systemd/resolve/resolv.conf"},
		{"NetworkManager", map[string]string{"etc/resolv.conf": "nameserver 127.0.0.1\n", "run/NetworkManager/no-stub-resolv.conf": real},
			"run/NetworkManager/no-stub-resolv.conf"},
		{"resolved without servers", map[string]string{"etc/resolv.conf": stub, "run/systemd/resolve/resolv.conf": "# none\n"},
			"etc/resolv.conf"},
		{"none", map[string]string{}, "etc/resolv.conf"},
		{"both", map[string]string{"etc/resolv.conf": stub + "nameserver 192.0.2.1\n", "run/systemd/resolve/resolv.conf": real},
			"etc/resolv.conf"},
	} {
		if got := machine(t, c.files).ResolvConf(); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// N-1.43, as far as no name server is needed.
func TestAddresses(t *testing.T) {
	p := netip.MustParsePrefix
	h := machine(t, map[string]string{
		"proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
			"wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
			"eth1\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" +
			"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
		"proc/net/if_inet6":           "20010db8000000000000000000000007 04 40 00 01 eth1\n20010db8000000000000000000000008 04 40 00 80 eth1\n",
		"sys/class/net/eth0/device/x": "", "sys/class/net/eth1/device/x": "",
	})
	h.cfg.Interfaces = func() ([]Interface, error) {
		return []Interface{
			{Name: "lo", Up: true, Loopback: true, Addresses: []netip.Prefix{p("127.0.0.1/8"), p("203.0.113.1/32")}},
			{Name: "docker0", Up: true, Addresses: []netip.Prefix{p("172.17.0.1/16")}},
			{Name: "ledge0", Up: true, Addresses: []netip.Prefix{p("10.42.0.1/24")}},
			{Name: "eth0", Up: true, Addresses: []netip.Prefix{p("192.0.2.7/24"), p("fe80::1/64")}},
			{Name: "wlan0", Up: true, Addresses: []netip.Prefix{p("192.168.1.9/24")}},
			{Name: "eth1", Up: true, Addresses: []netip.Prefix{p("2001:db8::7/64"), p("2001:db8::8/64"), p("192.168.2.9/24")}},
			{Name: "eth2", Addresses: []netip.Prefix{p("192.168.3.9/24")}},
		}, nil
	}
	got, err := h.Addresses("ledge0")
	if want := "[192.168.2.9 2001:db8::8 192.168.1.9 192.0.2.7 172.17.0.1]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s, %v", got, want, err)
	}
	nets, err := h.Prefixes()
	if want := "[10.42.0.0/24 127.0.0.0/8 172.17.0.0/16 192.0.2.0/24 192.168.1.0/24 192.168.2.0/24 192.168.3.0/24 203.0.113.1/32]"; err != nil || fmt.Sprint(nets) != want {
		t.Errorf("got %v, want %s, %v", nets, want, err)
	}
	// A board on no network: hardware before bridges.
	h.cfg.Proc = t.TempDir()
	if got, err := h.Addresses("ledge0"); err != nil || got[0] != netip.MustParseAddr("192.0.2.7") {
		t.Error(got, err)
	}
	h.cfg.Interfaces = func() ([]Interface, error) { return nil, errors.New("no luck") }
	if _, err := h.Addresses(); err == nil {
		t.Error("no error")
	}
}

// TestOutside: where a board meets others.
func TestOutside(t *testing.T) {
	p := netip.MustParsePrefix
	h := machine(t, map[string]string{
		"proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
			"veth0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n",
		"proc/net/if_inet6":           "20010db8000000000000000000000007 04 40 00 01 eth0\n",
		"sys/class/net/eth0/device/x": "", "sys/class/net/eth1/device/x": "", "sys/class/net/eth2/device/x": "", "sys/class/net/ppp0/device/x": "",
		"sys/class/net/br0/lower_bond0": "", "sys/class/net/bond0/lower_eth3": "", "sys/class/net/eth3/device/x": "",
		"sys/class/net/ledge0/lower_vethA": "", "sys/class/net/round/lower_round": "",
	})
	h.cfg.Interfaces = func() (out []Interface, _ error) {
		for i, text := range []string{"lo 127.0.0.1/8", "eth0 192.0.2.7/24,2001:db8::7/64,2001:db8::8/64,fe80::1/64", "eth1 fe80::2/64", "ledge0 10.42.0.1/24",
			"br0 192.168.2.1/24", "veth0 192.168.1.9/24", "ppp0 10.0.0.1/32", "eth2 192.168.3.9/24", "round 10.1.0.1/24"} {
			name, list, _ := strings.Cut(text, " ")
			i := Interface{Name: name, Index: i, Up: name != "eth2", Loopback: name == "lo", Multicast: name != "ppp0"}
			for a := range strings.SplitSeq(list, ",") {
				i.Addresses = append(i.Addresses, p(a))
			}
			out = append(out, i)
		}
		return out, nil
	}
	all, err := Outside(h)
	var got []string
	for _, i := range all {
		got = append(got, fmt.Sprint(i.Name, i.Addresses))
	}
	if want := "eth0[192.0.2.7/24 2001:db8::8/64] eth1[fe80::2/64] br0[192.168.2.1/24] veth0[192.168.1.9/24]"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s, %v", got, want, err)
	}
	if got := strings.Join(Inside(h), " "); got != "lo ledge0 round" {
		t.Errorf("inside are %s", got)
	}
}

// An IPv6-only network has its default route elsewhere.
func TestAddressesIPv6Only(t *testing.T) {
	zero := strings.Repeat("0", 32)
	h := machine(t, map[string]string{"proc/net/ipv6_route": zero + " 00 " + zero + " 00 " + zero +
		" 00000400 00000002 00000000 00000003     eth1\n" +
		zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo\n"})
	h.cfg.Interfaces = func() ([]Interface, error) {
		return []Interface{
			{Name: "br0", Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}},
			{Name: "eth1", Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::7/64")}},
		}, nil
	}
	if got, err := h.Addresses(); err != nil || fmt.Sprint(got) != "[2001:db8::7 192.0.2.1]" {
		t.Error(got, err)
	}
}

func TestClock(t *testing.T) {
	build := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		saved, want time.Time
	}{
		{time.Time{}, build}, {build.AddDate(-1, 0, 0), build}, {build.AddDate(0, 3, 0), build.AddDate(0, 3, 0)},
		{build.AddDate(100, 0, 0), build}, // damage
	} {
		if got := Floor(build, c.saved); got != c.want {
			t.Errorf("saved %s: %s, want %s", c.saved, got, c.want)
		}
	}
	if got := Believable(time.Unix(0, 0), build); got != build {
		t.Error(got)
	}
	if later := build.Add(time.Hour); Believable(later, build) != later {
		t.Error("a good clock was not believed")
	}

	file := filepath.Join(t.TempDir(), "clock")
	if got, err := SavedClock(file); err != nil || !got.IsZero() {
		t.Error(got, err)
	}
	for range 2 {
		if err := SaveClock(file, build); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := SavedClock(file); err != nil || !got.Equal(build) {
		t.Error(got, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Error("left beside the file:", entries, err)
	}
	for _, torn := range []string{"", "2026-1", "\x00\x00\x00"} {
		if err := os.WriteFile(file, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := SavedClock(file); err != nil || !got.IsZero() {
			t.Errorf("%q: %s %v", torn, got, err)
		}
	}
	if err := SaveClock(filepath.Join(file, "x"), build); err == nil {
		t.Error("saved below a file")
	}
	if got, err := SavedClock("/dev/null/clock"); err != nil || !got.IsZero() { // the start names that in its own words
		t.Errorf("below a file: %v %v", got, err)
	}
	if _, err := SavedClock(filepath.Dir(file)); err == nil {
		t.Error("read a directory")
	}
}

func TestFilesystems(t *testing.T) {
	h := New(Config{})
	f, err := h.Filesystem(t.TempDir())
	if err != nil || f.Capacity <= 0 || f.Available <= 0 || f.Available > f.Capacity || f.InodesFree > f.Inodes {
		t.Errorf("%+v %v", f, err)
	}
	if f, err := h.Filesystem("/proc"); err != nil || f.Type != unix.PROC_SUPER_MAGIC || f.TypeName() != "type 0x9fa0" {
		t.Errorf("%+v %s %v", f, f.TypeName(), err)
	}
	if f, err := h.Filesystem("/dev/shm"); err != nil || f.TypeName() != "tmpfs" {
		t.Errorf("%s %v", f.TypeName(), err)
	}
	if _, err := h.Filesystem("/no/such"); err == nil {
		t.Error("a file system of nothing")
	}
}

func TestOverlayCapable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := OverlayCapable(dir); err != nil {
		t.Error(err)
	}
	if err := OverlayCapable("/proc"); err == nil {
		t.Error("/proc can carry overlayfs")
	}
	// On an overlay there can be no second one: what a data directory inside a container meets.
	for _, d := range []string{"l", "u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(dir, "m")
	opts := fmt.Sprintf("lowerdir=%[1]s/l,upperdir=%[1]s/u,workdir=%[1]s/w", dir)
	if err := unix.Mount("overlay", at, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	nested := OverlayCapable(at)
	if c := doctorOf(New(Config{})).checkOverlay(at); (c.Verdict == OK) != (nested == nil) {
		t.Errorf("%+v", c)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal("something is still open:", err)
	}
	if nested == nil {
		t.Error("an overlay can carry another")
	}
	mounts, err := os.ReadFile("/proc/self/mounts") // others mount at the same time
	if err != nil || strings.Contains(string(mounts), dir) || strings.Contains(string(mounts), "/proc/.ledge") {
		t.Error("a mount was left", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 4 {
		t.Error("left:", entries)
	}
}

func TestThisMachine(t *testing.T) {
	h := New(Config{})
	m, err := h.Memory()
	if err != nil || m.Total <= 0 || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("%+v %v", m, err)
	}
	if most, used, err := h.PIDs(); err != nil || used < 1 || used > most {
		t.Errorf("%d %d %v", most, used, err)
	}
	i, err := h.Info()
	if err != nil || i.Hostname == "" || i.BootID == "" || i.KernelVersion == "" || i.CPUs < 1 || i.OS != "linux" {
		t.Errorf("%+v %v", i, err)
	}
	if up, err := h.Uptime(); err != nil || up <= 0 {
		t.Error(up, err)
	}
	if _, err := h.ClockSynced(); err != nil {
		t.Error(err)
	}
	have, err := New(Config{}).Addresses()
	for _, a := range have {
		if !usable(a) {
			t.Errorf("%s is no address others can use", a)
		}
	}
	nets, err2 := New(Config{}).Prefixes()
	if errors.Join(err, err2) != nil || !slices.ContainsFunc(nets,
		func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr("127.0.0.1")) }) {
		t.Error(nets, err, err2)
	}
}

func BenchmarkSample(b *testing.B) {
	h := New(Config{})
	for b.Loop() {
		_, err1 := h.Info()
		_, err2 := h.Memory()
		_, _, err3 := h.PIDs()
		_, err4 := h.Filesystem("/")
		_, err5 := h.Addresses()
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			b.Fatal(err)
		}
	}
}
