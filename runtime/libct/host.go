package libct

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const capSysResource = 24

// hostFacts is what the machine and this process can do, read once.
type hostFacts struct {
	kernel      [2]int
	seccomp     bool
	caps        uint64 // permitted to this process
	oomScoreAdj int    // of this process
	mqueue      bool
	cgroupNS    bool
	recReadOnly bool // mount_setattr(2), kernel 5.12
	apparmor    bool
	selinux     bool
	throttle    []string // files below /sys that tell when a CPU got too hot
}

func readHostFacts() (hostFacts, error) {
	var f hostFacts
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return f, fmt.Errorf("uname: %w", err)
	}
	f.kernel = parseKernel(unix.ByteSliceToString(u.Release[:]))

	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(status)) {
		key, val, _ := strings.Cut(strings.TrimSpace(line), ":")
		val = strings.TrimSpace(val)
		switch key {
		case "CapPrm":
			if f.caps, err = strconv.ParseUint(val, 16, 64); err != nil {
				return f, fmt.Errorf("CapPrm of /proc/self/status: %w", err)
			}
		case "Seccomp": // the line is there only if the kernel has seccomp
			f.seccomp = true
		}
	}
	adj, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return f, err
	}
	if f.oomScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(adj))); err != nil {
		return f, fmt.Errorf("oom_score_adj of this process: %w", err)
	}
	if fs, err := os.ReadFile("/proc/filesystems"); err == nil {
		f.mqueue = strings.Contains(string(fs), "\tmqueue\n")
	}
	on, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	f.apparmor = strings.HasPrefix(string(on), "Y")
	_, err = os.Stat("/sys/fs/selinux/enforce")
	f.selinux = err == nil
	f.throttle, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	_, err = os.Stat("/proc/self/ns/cgroup")
	f.cgroupNS = err == nil
	// A bad descriptor is refused with EBADF by a kernel that knows the call.
	err = unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{})
	f.recReadOnly = !errors.Is(err, unix.ENOSYS)
	return f, nil
}

func parseKernel(release string) (v [2]int) {
	major, rest, _ := strings.Cut(release, ".")
	v[0], _ = strconv.Atoi(major)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	v[1], _ = strconv.Atoi(rest)
	return v
}

func (f hostFacts) kernelAtLeast(major, minor int) bool {
	return f.kernel[0] > major || f.kernel[0] == major && f.kernel[1] >= minor
}

func (f hostFacts) hasCap(n int) bool { return f.caps>>n&1 == 1 }
