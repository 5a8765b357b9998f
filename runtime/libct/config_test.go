package libct

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// anyHost is a machine where everything can be done, so that a configuration does not depend on the one the test
// runs on.
var anyHost = hostFacts{kernel: [2]int{6, 12}, seccomp: true, caps: 1<<41 - 1, mqueue: true, cgroupNS: true, recReadOnly: true}

func testRunner(unified bool) *Runner {
	return &Runner{tree: &tree{unified: unified, root: "/r"}, host: anyHost, warned: map[string]bool{}}
}

func compile(t *testing.T, r *Runner, p runtime.Pod, c runtime.Container) *configs.Config {
	t.Helper()
	c.ID = "c1"
	if p.Cgroup == "" {
		p.Cgroup = "kubepods/besteffort/podu"
	}
	cfg, err := r.compile("/run/pods/u", p, c)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestVersion holds the version we tell to the one we link.
func TestVersion(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if os.IsNotExist(err) {
		t.Skip("needs the project's files; the test VM has none")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "github.com/opencontainers/runc "+Version+"\n") {
		t.Errorf("go.mod does not require runc %s", Version)
	}
}

// TestWeight (N-7.41): linear, to the ends.
func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{0: 0, 1: 1, 2: 1, 102: 4, 512: 20, 1024: 39, 262144: 10000, 1 << 40: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight(%d) = %d, want %d", shares, got, want)
		}
	}
}

// TestResources (N-7.40, N-7.44, N-8.9).
func TestResources(t *testing.T) {
	in := runtime.Resources{CPUShares: 1024, CPUQuotaUS: 50000, CPUPeriodUS: 100000, MemoryBytes: 1 << 20, PidsLimit: 7, CPUSet: "0"}
	v1, err := testRunner(false).tree.resources(in)
	if err != nil || v1.CpuShares != 1024 || v1.CpuWeight != 0 || v1.CpuQuota != 50000 || v1.CpuPeriod != 100000 ||
		v1.Memory != 1<<20 || v1.MemorySwap != 0 || *v1.PidsLimit != 7 || v1.CpusetCpus != "0" {
		t.Errorf("v1: %+v %v", v1, err)
	}
	v2, err := testRunner(true).tree.resources(in)
	if err != nil || v2.CpuShares != 0 || v2.CpuWeight != 39 || v2.Memory != 1<<20 || *v2.PidsLimit != 7 {
		t.Errorf("v2: %+v %v", v2, err)
	}
	none, err := testRunner(true).tree.resources(runtime.Resources{})
	if err != nil || none.PidsLimit != nil || none.CpuWeight != 0 || none.Unified != nil {
		t.Errorf("nothing asked for, something set: %+v %v", none, err)
	}
	in.Unified = map[string]string{"memory.high": "1"}
	if _, err := testRunner(false).tree.resources(in); err == nil {
		t.Error("unified resources on v1 were ignored")
	}
	if v2, err := testRunner(true).tree.resources(in); err != nil || v2.Unified["memory.high"] != "1" {
		t.Errorf("unified: %+v %v", v2, err)
	}
}

func TestNamespaces(t *testing.T) {
	r := testRunner(true)
	list := func(p runtime.Pod, c runtime.Container) string {
		var out []string
		for _, n := range compile(t, r, p, c).Namespaces {
			out = append(out, strings.TrimPrefix(string(n.Type), "NEW")+":"+strings.TrimPrefix(n.Path, "/run/pods/u/"))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for want, in := range map[string]struct {
		p runtime.Pod
		c runtime.Container
	}{
		"CGROUP: IPC:ns/ipc NET:ns/net NS: PID: UTS:ns/uts":       {},
		"CGROUP: IPC:ns/ipc NS: PID:":                             {p: runtime.Pod{HostNetwork: true}},
		"CGROUP: NET:ns/net NS: PID: UTS:ns/uts":                  {p: runtime.Pod{HostIPC: true}},
		"CGROUP: IPC:ns/ipc NET:ns/net NS: UTS:ns/uts":            {p: runtime.Pod{HostPID: true}},
		"CGROUP: IPC:ns/ipc NET:ns/net NS: PID:ns/pid UTS:ns/uts": {p: runtime.Pod{ShareProcess: true}},
		"IPC:ns/ipc NET:ns/net NS: PID: UTS:ns/uts":               {c: runtime.Container{Privileged: true}},
	} {
		if got := list(in.p, in.c); got != want {
			t.Errorf("%+v %v: %s, want %s", in.p, in.c.Privileged, got, want)
		}
	}
}

// TestNeverAllCaps: libcontainer takes no set for all of them (CVE-2019-12618 was a driver that forgot).
func TestNeverAllCaps(t *testing.T) {
	cfg := compile(t, testRunner(true), runtime.Pod{}, runtime.Container{})
	if c := cfg.Capabilities; c == nil || len(c.Bounding)+len(c.Effective)+len(c.Permitted)+len(c.Inheritable)+len(c.Ambient) > 0 {
		t.Errorf("nothing asked for: %+v", c)
	}
	cfg = compile(t, testRunner(true), runtime.Pod{}, runtime.Container{Capabilities: []string{"CAP_KILL", "CAP_CHOWN", "CAP_KILL"}})
	if c := cfg.Capabilities; !slices.Equal(c.Bounding, []string{"CAP_CHOWN", "CAP_KILL"}) || c.Inheritable != nil || c.Ambient != nil {
		t.Errorf("two asked for: %+v", c)
	}
	cfg = compile(t, testRunner(true), runtime.Pod{}, runtime.Container{Capabilities: []string{"ALL"}, DropCaps: []string{"CAP_KILL"}})
	if c := cfg.Capabilities; len(c.Bounding) != 40 || slices.Contains(c.Bounding, "CAP_KILL") || c.Inheritable != nil || c.Ambient != nil {
		t.Errorf("all but one: %+v", c)
	}
	cfg = compile(t, testRunner(true), runtime.Pod{}, runtime.Container{Privileged: true, DropCaps: []string{"CAP_KILL"}})
	if c := cfg.Capabilities; len(c.Bounding) != 41 || c.Inheritable != nil || c.Ambient != nil || cfg.Seccomp != nil || cfg.MaskPaths != nil {
		t.Errorf("privileged: %d capabilities, %+v", len(c.Bounding), cfg)
	}
}

func TestMounts(t *testing.T) {
	c := runtime.Container{Mounts: []runtime.Mount{
		{Source: "/h/deep", Target: "/a/b/c"},
		{Source: "/h/ro", Target: "/a/", ReadOnly: true, Recursive: true, ReadOnlyBelow: true, Propagation: "rslave"},
		{Type: "tmpfs", Target: "/dev/shm", Options: []string{"size=5m", "noexec"}},
		{Source: "/h/x", Target: "/a/x", Options: []string{"nosuid", "nodev"}, Recursive: true},
	}}
	cfg := compile(t, testRunner(true), runtime.Pod{}, c)
	var order []string
	by := map[string]*configs.Mount{}
	for _, m := range cfg.Mounts {
		order = append(order, m.Destination)
		by[m.Destination] = m
	}
	want := "/proc /dev /dev/pts /sys /sys/fs/cgroup /dev/mqueue /a /dev/shm /a/x /a/b/c"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if m := by["/a"]; m.Flags != unix.MS_BIND|unix.MS_REC|unix.MS_RDONLY || m.RecAttr == nil || m.RecAttr.Attr_set != unix.MOUNT_ATTR_RDONLY ||
		m.PropagationFlags[0] != unix.MS_SLAVE|unix.MS_REC {
		t.Errorf("read-only and recursive: %+v", m)
	}
	if m := by["/dev/shm"]; m.Device != "tmpfs" || m.Data != "size=5m" || m.Flags&unix.MS_NOEXEC == 0 {
		t.Errorf("tmpfs: %+v", m)
	}
	if m := by["/a/b/c"]; m.Flags != unix.MS_BIND || m.PropagationFlags[0] != unix.MS_PRIVATE|unix.MS_REC {
		t.Errorf("plain: %+v", m)
	}
	if cfg.RootPropagation != unix.MS_SLAVE|unix.MS_REC {
		t.Errorf("root propagation %#x", cfg.RootPropagation)
	}
}

// TestDefaultProfile: no list lets through by accident what the kernel guards with no capability, or what has no
// business in a container.
func TestDefaultProfile(t *testing.T) {
	never := strings.Fields(`add_key keyctl request_key userfaultfd io_uring_setup io_uring_enter io_uring_register kexec_load
		kexec_file_load swapon swapoff nfsservctl uselib ustat_x sysfs _sysctl create_module query_module get_kernel_syms
		vm86 vm86old move_pages migrate_pages socketcall file_setattr`)
	var all []string
	for name := range capNumbers() {
		all = append(all, name)
	}
	for who, caps := range map[string][]string{"nobody": nil, "who has everything": all} {
		for _, s := range defaultProfile(caps, anyHost).Syscalls {
			if s.Action == configs.Allow && slices.Contains(never, s.Name) {
				t.Errorf("%s may call %s", who, s.Name)
			}
		}
	}
	guarded := map[string]bool{}
	for _, list := range callsByCap {
		for _, n := range strings.Fields(list) {
			guarded[n] = n != "ptrace" && n != "clone" // these two also have rules of their own
		}
	}
	for _, s := range defaultProfile(nil, anyHost).Syscalls {
		if s.Action == configs.Allow && guarded[s.Name] {
			t.Errorf("%s is let through without its capability", s.Name)
		}
	}
	old := anyHost
	old.kernel = [2]int{4, 7}
	for _, s := range defaultProfile(nil, old).Syscalls {
		if s.Name == "ptrace" {
			t.Error("ptrace before 4.8")
		}
	}
}

// TestExcept: an argument is let through unless its last bits are those of a value that is refused, whatever stands above them.
func TestExcept(t *testing.T) {
	for _, c := range []struct {
		bits   int
		values []uint64
	}{{familyBits, []uint64{unix.AF_VSOCK}}, {ioctlBits, []uint64{fsSetXAttr, fsSetFlags, fsSetFlags32}},
		{4, []uint64{0, 15, 8}}, {1, []uint64{0, 1}}} {
		low := uint64(1)<<c.bits - 1
		for n := range low + 1 {
			for _, arg := range []uint64{n, n | 1<<32, n | ^low} {
				holds := 0
				for _, a := range except(0, c.bits, c.values...) {
					if a.Op == configs.MaskEqualTo && arg&a.Value == a.ValueTwo {
						holds++
					}
				}
				refused := slices.ContainsFunc(c.values, func(v uint64) bool { return v&low == n })
				if (holds == 1) == refused || holds > 1 {
					t.Fatalf("%d bits, %#x: %d conditions hold, refused %v", c.bits, arg, holds, refused)
				}
			}
		}
	}
}

// TestSyscallNames: a slip of the pen would be skipped in silence when the filter is built.
func TestSyscallNames(t *testing.T) {
	// Newer than the oldest libseccomp we build with (2.5).
	young := strings.Fields(`cachestat fchmodat2 file_getattr futex_requeue futex_wait futex_wake getxattrat
		listmount listxattrat lsm_get_self_attr lsm_list_modules lsm_set_self_attr map_shadow_stack mseal open_tree_attr
		removexattrat riscv_hwprobe set_mempolicy_home_node setxattrat statmount uretprobe process_mrelease futex_waitv quotactl_fd`)
	var all []string
	for name := range capNumbers() {
		all = append(all, name)
	}
	for _, s := range defaultProfile(all, anyHost).Syscalls {
		if _, err := seccomp.GetSyscallFromName(s.Name); err != nil && !slices.Contains(young, s.Name) {
			t.Errorf("%q is no system call that libseccomp knows", s.Name)
		}
	}
}

// TestMaskIsComplete compares with what libcontainer's own example hides, so that an update shows what we miss.
func TestMaskIsComplete(t *testing.T) {
	spec := specconv.Example()
	for _, p := range spec.Linux.MaskedPaths {
		if !slices.Contains(maskedPaths, p) {
			t.Errorf("not masked: %s", p)
		}
	}
	for _, p := range spec.Linux.ReadonlyPaths {
		if !slices.Contains(readonlyPaths, p) {
			t.Errorf("not read-only: %s", p)
		}
	}
}

func TestDegrades(t *testing.T) {
	r := testRunner(true)
	var warned []string
	r.cfg.Warn = func(msg string) { warned = append(warned, msg) }
	r.host.caps &^= 1 << capSysResource
	low, high := -997, 1000
	for range 2 {
		if got := r.oomScoreAdj(&low); *got != 0 {
			t.Errorf("oom_score_adj %d", *got)
		}
	}
	if got := r.oomScoreAdj(&high); *got != 1000 || *r.oomScoreAdj(nil) != 0 { // the keeper's own is not for containers
		t.Errorf("oom_score_adj %d", *got)
	}
	if len(warned) != 1 {
		t.Errorf("warned %d times: %v", len(warned), warned)
	}
	lim, err := r.rlimits([]runtime.Rlimit{{Type: "RLIMIT_MEMLOCK", Soft: 1 << 40, Hard: 1 << 50}})
	if err != nil || len(warned) != 2 || lim[0].Hard >= 1<<50 || lim[0].Soft > lim[0].Hard {
		t.Errorf("rlimits %+v %v, warned %v", lim, err, warned)
	}
}

func TestSysctls(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.ip_forward": "net/ipv4/ip_forward", "net/ipv4/ip_forward": "net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/1.forwarding": "net/ipv4/conf/eth0.1/forwarding", "kernel.shmmax": "kernel/shmmax", "x": "x",
	} {
		if got := sysctlKey(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	ok := runtime.Pod{Sysctls: map[string]string{"net.core.somaxconn": "1", "kernel.sem": "1", "fs.mqueue.msg_max": "1",
		"net/ipv4/conf/eth0.1/forwarding": "1"}}
	if err := checkSysctls(ok); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"kernel.core_pattern", "vm.swappiness", "fs.file-max", "net/../kernel/x", "net..x", "/net/x", "net.", "",
		"kernel.shmmax/../../x", "net.ipv4.conf./etc"} {
		if err := checkSysctls(runtime.Pod{Sysctls: map[string]string{bad: "1"}}); err == nil {
			t.Errorf("%q was let through", bad)
		}
	}
}

func TestParseKernel(t *testing.T) {
	for in, want := range map[string][2]int{"6.1.0-13-amd64": {6, 1}, "6.18.44-fc-v669": {6, 18}, "5.15": {5, 15}, "4.9-rt": {4, 9}, "x": {}} {
		if got := parseKernel(in); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

// TestStateIsJSON: libcontainer writes the configuration to disk for its init, and reads it back there.
func TestStateIsJSON(t *testing.T) {
	cfg := compile(t, testRunner(true), runtime.Pod{},
		runtime.Container{Mounts: []runtime.Mount{{Source: "/h", Target: "/x", ReadOnly: true, Recursive: true, ReadOnlyBelow: true}}})
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var back configs.Config
	if err := json.Unmarshal(b, &back); err != nil || len(back.Mounts) != len(cfg.Mounts) ||
		back.Cgroups.Path != "/r/kubepods/besteffort/podu/c1" {
		t.Errorf("%v: %s", err, back.Cgroups.Path)
	}
	if !regexp.MustCompile(`"Attr_set":1\b`).Match(b) {
		t.Errorf("the recursive read-only attribute is lost")
	}
}

// TestAppArmorRefused: a profile that is not enforced is not forgotten.
func TestAppArmorRefused(t *testing.T) {
	if _, err := testRunner(true).compile("/run/pods/u", runtime.Pod{Cgroup: "kubepods/podu"},
		runtime.Container{ID: "c", AppArmor: "x"}); err == nil ||
		!strings.Contains(err.Error(), "AppArmor is not enabled on the host") {
		t.Error(err)
	}
}

// TestHottestPaths are hidden wherever this machine has them.
func TestHottestPaths(t *testing.T) {
	r := testRunner(true)
	r.host.throttle = []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}
	if cfg := compile(t, r, runtime.Pod{}, runtime.Container{}); !slices.Contains(cfg.MaskPaths, r.host.throttle[0]) ||
		!slices.Contains(cfg.MaskPaths, "/proc/kcore") {
		t.Errorf("%v", cfg.MaskPaths)
	}
	if cfg := compile(t, r, runtime.Pod{}, runtime.Container{ProcMount: "Unmasked"}); len(cfg.MaskPaths) > 0 {
		t.Errorf("%v", cfg.MaskPaths)
	}
}

// TestInitProgram: small, and a file that a kernel would run.
func TestInitProgram(t *testing.T) {
	b, err := initProgram()
	if err != nil || len(b) > 1024 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_EXEC || len(f.Progs) != 1 || f.Progs[0].Type != elf.PT_LOAD || f.Progs[0].Flags != elf.PF_R|elf.PF_X ||
		f.Entry <= initBase || f.Entry >= initBase+f.Progs[0].Filesz || f.Progs[0].Filesz != uint64(len(b)) {
		t.Errorf("%+v %+v", f.FileHeader, f.Progs[0].ProgHeader)
	}
	t.Logf("%d bytes", len(b))
}

// TestPrivilegedWithABlock: a privileged container has all of the board's devices, and at the path of one that it was given that one.
func TestPrivilegedWithABlock(t *testing.T) { // N-13.18
	var at string
	for _, path := range []string{"/dev/kmsg", "/dev/fuse", "/dev/ptmx", "/dev/tty1", "/dev/urandom"} {
		if _, err := os.Lstat(path); err == nil && at == "" {
			at = path
		}
	}
	cfg := compile(t, testRunner(true), runtime.Pod{},
		runtime.Container{Privileged: true, Blocks: []runtime.Device{{Path: at, Major: 8, Minor: 16}}})
	var got []string
	for _, d := range cfg.Devices {
		if d.Path == at {
			got = append(got, fmt.Sprintf("%c %d:%d", d.Type, d.Major, d.Minor))
		}
	}
	if len(got) != 1 || got[0] != "b 8:16" || len(cfg.Devices) < 2 {
		t.Errorf("at %s are %v, of %d", at, got, len(cfg.Devices))
	}
}
