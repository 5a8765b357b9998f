package libct

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// seccompFor chooses the filter of a container; nil is no filter.
func seccompFor(c runtime.Container, caps []string, host hostFacts) (*configs.Seccomp, error) {
	if c.Privileged || c.Seccomp.Unconfined {
		return nil, nil
	}
	if !seccomp.Enabled || !host.seccomp {
		return nil, errNoSeccomp
	}
	if len(c.Seccomp.Profile) == 0 {
		return defaultProfile(caps, host), nil
	}
	var spec specs.LinuxSeccomp
	if err := json.Unmarshal(c.Seccomp.Profile, &spec); err != nil {
		return nil, fmt.Errorf("read the seccomp profile: %w", err)
	}
	if err := plainProfile(c.Seccomp.Profile); err != nil {
		return nil, fmt.Errorf("read the seccomp profile: %w", err)
	}
	if spec.DefaultAction == "" {
		return nil, fmt.Errorf("read the seccomp profile: no defaultAction")
	}
	if spec.ListenerPath != "" {
		return nil, fmt.Errorf("read the seccomp profile: listenerPath: a profile cannot name an agent on the host")
	}
	p, err := specconv.SetupSeccomp(&spec)
	if err != nil {
		return nil, fmt.Errorf("read the seccomp profile: %w", err)
	}
	return p, nil
}

// nsFlags are the clone(2) flags that make a namespace.
const nsFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// personalities that programs ask for and that change nothing dangerous: Linux, and Linux on 32 bits
// (PER_LINUX32), each with and without UNAME26, and the question (all ones).
var personalities = []uint64{0x0, 0x8, 0x20000, 0x20008, 0xffffffff}

// What of an argument counts: no family of sockets is larger, and no other ioctl ends like those that are refused.
const familyBits, ioctlBits = 6, 16

// The ioctls that set the project of a file, and whether a directory hands its own down: FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS and that
// of 32-bit programs.
const (
	fsSetXAttr   = 0x401c5820
	fsSetFlags   = 0x40086602
	fsSetFlags32 = 0x40046602
)

// except gives conditions of which one holds for every argument whose last bits are not those of one of some values, and none for the
// others. Comparing with "is not" would not do: a filter compares 64 bits, and the kernel takes an int of them, so that a caller who
// sets the upper ones would be let through.
func except(index uint, bits int, values ...uint64) (out []*configs.Arg) {
	var split func(from int, prefix uint64)
	split = func(from int, prefix uint64) { // prefix are the bits above from
		mask := uint64(1)<<bits - uint64(1)<<from
		if !slices.ContainsFunc(values, func(v uint64) bool { return v&mask == prefix }) {
			out = append(out, &configs.Arg{Index: index, Value: mask, ValueTwo: prefix, Op: configs.MaskEqualTo})
		} else if from > 0 {
			split(from-1, prefix)
			split(from-1, prefix|1<<(from-1))
		}
	}
	split(bits, 0)
	return out
}

// defaultProfile is an allow-list that depends on the capabilities the container holds.
func defaultProfile(caps []string, host hostFacts) *configs.Seccomp {
	eperm, enosys, enotty := uint(unix.EPERM), uint(unix.ENOSYS), uint(unix.ENOTTY)
	p := &configs.Seccomp{DefaultAction: configs.Errno, DefaultErrnoRet: &eperm, Architectures: seccompArches()}
	if seccomp.FlagSupported(specs.LinuxSeccompFlagSpecAllow) == nil {
		// Without it the kernel switches speculative store bypass off for the container: slow, and no gain here.
		p.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow}
	}
	allow := func(name string, args ...*configs.Arg) {
		p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: name, Action: configs.Allow, Args: args})
	}
	names := map[string]bool{}
	for _, list := range []string{callsFiles, callsEvents, callsMemory, callsProcess, callsSignalsAndTime, callsTalk,
		callsIdentity} {
		for _, n := range strings.Fields(list) {
			names[n] = true
		}
	}
	for _, c := range caps {
		for _, n := range strings.Fields(callsByCap[c]) {
			names[n] = true
		}
	}
	if host.kernelAtLeast(4, 8) {
		names["ptrace"] = true // before 4.8 a tracer could change a call after the filter had seen it
	}
	for _, n := range sortedKeys(names) {
		allow(n)
	}
	for _, v := range personalities {
		allow("personality", &configs.Arg{Index: 0, Value: v, Op: configs.EqualTo})
	}
	// Sockets of every family but AF_VSOCK, which reaches the hypervisor's host from any namespace. socketcall, the way
	// of 32-bit x86 programs before Linux 4.3, has the family in memory, where a filter cannot look. It needs a rule: libseccomp
	// makes one for it of each rule for a call that it can stand for, without the family.
	for _, a := range except(0, familyBits, unix.AF_VSOCK) {
		allow("socket", a)
	}
	p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: "socketcall", Action: configs.Errno, ErrnoRet: &enosys})
	// A file's owner could take it out of the quota of its volume, by another project or a directory that does not hand its own down.
	// ENOTTY: as on a file system that has neither. file_setattr, which does the same, is in no list.
	for _, a := range except(1, ioctlBits, fsSetXAttr, fsSetFlags) {
		allow("ioctl", a)
	}
	for _, n := range []uint64{fsSetXAttr, fsSetFlags, fsSetFlags32} {
		p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: "ioctl", Action: configs.Errno, ErrnoRet: &enotty,
			Args: []*configs.Arg{{Index: 1, Value: 0xffffffff, ValueTwo: n, Op: configs.MaskEqualTo}}})
	}
	if !names["clone"] {
		allow("clone", &configs.Arg{Index: 0, Value: nsFlags, ValueTwo: 0, Op: configs.MaskEqualTo})
		// The flags of clone3 are in memory, where a filter cannot look. ENOSYS makes libc use clone.
		p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: "clone3", Action: configs.Errno, ErrnoRet: &enosys})
	}
	return p
}

// seccompArches are the ABIs a process of this machine may use. Each one costs milliseconds at every start, so x32,
// which distributions switch off in their kernels, is not among them: a process that uses it is killed.
func seccompArches() []string {
	switch goruntime.GOARCH {
	case "amd64":
		return []string{"amd64", "x86"}
	case "arm64":
		return []string{"arm64", "arm"}
	default:
		return []string{goruntime.GOARCH}
	}
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// plainProfile refuses what Docker's own format has beyond the runtime-spec's: rules that hold only with certain
// capabilities or architectures. Left out, they would let through too much or too little, and nobody would know.
func plainProfile(text []byte) error {
	type condition struct {
		Caps, Arches []string
		MinKernel    string
	}
	some := func(c condition) bool { return len(c.Caps)+len(c.Arches) > 0 || c.MinKernel != "" }
	var p struct {
		ArchMap  []json.RawMessage
		Syscalls []struct {
			Names              []string
			Includes, Excludes condition
		}
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if len(p.ArchMap) > 0 {
		return fmt.Errorf("archMap is Docker's own; name the architectures under architectures")
	}
	for _, s := range p.Syscalls {
		if some(s.Includes) || some(s.Excludes) {
			return fmt.Errorf("the rule for %v has includes or excludes, which are Docker's own", s.Names)
		}
	}
	return nil
}
