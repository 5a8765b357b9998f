package libct

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// maskedPaths are hidden from a container: they tell about the host, or change it, and have no namespace.
// /sys/devices/virtual/powercap gives the power draw that side channels live on (GHSA-7ww5-4wqc-m92c).
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// compile translates a container into libcontainer's terms. It looks at nothing but its arguments and the host's
// device nodes (for a privileged container).
func (r *Runner) compile(podDir string, p runtime.Pod, c runtime.Container) (*configs.Config, error) {
	if err := r.checkAppArmor(c.AppArmor); err != nil {
		return nil, err
	}
	caps, err := capSets(c, r.host)
	if err != nil {
		return nil, err
	}
	filter, err := seccompFor(c, caps.Bounding, r.host)
	if err != nil {
		return nil, err
	}
	mounts, propagation, err := mountsFor(p, c, podDir, r.host)
	if err != nil {
		return nil, err
	}
	limits, err := r.rlimits(c.Rlimits)
	if err != nil {
		return nil, err
	}
	res, err := r.tree.resources(c.Resources)
	if err != nil {
		return nil, err
	}
	cfg := &configs.Config{
		Rootfs:          c.Rootfs,
		Readonlyfs:      c.ReadonlyRootfs,
		RootPropagation: propagation,
		Namespaces:      r.namespaces(podDir, p, c),
		Capabilities:    caps,
		Seccomp:         filter,
		NoNewPrivileges: c.NoNewPrivs,
		Mounts:          mounts,
		Rlimits:         limits,
		AppArmorProfile: c.AppArmor,
		OomScoreAdj:     r.oomScoreAdj(c.Resources.OOMScoreAdj),
		Cgroups:         &cgroups.Cgroup{Path: r.tree.containerCgroup(p, c.ID), Resources: res},
		Devices:         defaultDevices(),
		UIDMappings:     idMappings(p),
		GIDMappings:     idMappings(p),
		Version:         "1.3.0",
	}
	nodes, rules, err := givenDevices(p, c)
	if err != nil {
		return nil, err
	}
	cfg.Devices = append(cfg.Devices, nodes...)
	res.Devices = append(defaultRules(), rules...)
	if c.Privileged {
		if cfg.Devices, err = hostDevices("/dev"); err != nil {
			return nil, fmt.Errorf("list the host's devices: %w", err)
		}
		cfg.Devices = slices.DeleteFunc(cfg.Devices, func(d *devices.Device) bool { // the board may have another one there
			return slices.ContainsFunc(nodes, func(n *devices.Device) bool { return n.Path == d.Path })
		})
		cfg.Devices = append(cfg.Devices, nodes...)
		res.Devices = allRules()
	}
	switch {
	case c.ProcMount != "" && c.ProcMount != "Default" && c.ProcMount != "Unmasked":
		return nil, fmt.Errorf("procMount %q is neither Default nor Unmasked", c.ProcMount)
	case !c.Privileged && c.ProcMount != "Unmasked":
		// How hot a CPU gets tells what others compute on it.
		cfg.MaskPaths, cfg.ReadonlyPaths = slices.Concat(maskedPaths, r.host.throttle), readonlyPaths
	}
	if !c.Privileged && !r.tree.unified {
		// On v1 the controllers are mounted read-only below a tmpfs that would not be.
		cfg.ReadonlyPaths = append(slices.Clone(cfg.ReadonlyPaths), "/sys/fs/cgroup")
	}
	return cfg, nil
}

// namespaces: those of the pod are joined where they are pinned, the container's own are new.
func (r *Runner) namespaces(podDir string, p runtime.Pod, c runtime.Container) configs.Namespaces {
	ns := configs.Namespaces{{Type: configs.NEWNS}}
	switch {
	case p.ShareProcess:
		ns.Add(configs.NEWPID, filepath.Join(podDir, "ns", "pid"))
	case !p.HostPID:
		ns.Add(configs.NEWPID, "")
	}
	if p.Users != nil {
		ns.Add(configs.NEWUSER, filepath.Join(podDir, "ns", "user"))
	}
	for _, kind := range pinned(p) {
		ns.Add(kind.libct, filepath.Join(podDir, "ns", kind.name))
	}
	// A privileged container manages cgroups (it may be a container engine): it sees the whole tree.
	if r.host.cgroupNS && !c.Privileged {
		ns.Add(configs.NEWCGROUP, "")
	}
	return ns
}

// oomScoreAdj degrades where the process may not lower it (no CAP_SYS_RESOURCE): the nearest that is allowed.
func (r *Runner) oomScoreAdj(want *int) *int {
	if want == nil {
		want = new(0) // what the keeper has for itself is not for containers
	}
	if *want >= r.host.oomScoreAdj || r.host.hasCap(capSysResource) {
		return want
	}
	r.warn("oom_score_adj cannot be lowered without CAP_SYS_RESOURCE: important pods are not protected from the OOM killer")
	adj := r.host.oomScoreAdj
	return &adj
}

var rlimitNumbers = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
	"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

func (r *Runner) rlimits(list []runtime.Rlimit) ([]configs.Rlimit, error) {
	var out []configs.Rlimit
	for _, l := range list {
		n, ok := rlimitNumbers[l.Type]
		if !ok {
			return nil, fmt.Errorf("rlimit %q is not known", l.Type)
		}
		if l.Soft > l.Hard {
			return nil, fmt.Errorf("rlimit %s: soft limit %d above the hard limit %d", l.Type, l.Soft, l.Hard)
		}
		var have unix.Rlimit
		if err := unix.Getrlimit(n, &have); err != nil {
			return nil, fmt.Errorf("read %s: %w", l.Type, err)
		}
		if l.Hard > have.Max && !r.host.hasCap(capSysResource) {
			r.warn("hard limits cannot be raised without CAP_SYS_RESOURCE: containers get the keeper's")
			l.Hard, l.Soft = have.Max, min(l.Soft, have.Max)
		}
		out = append(out, configs.Rlimit{Type: n, Hard: l.Hard, Soft: l.Soft})
	}
	return out, nil
}

// checkRootfs refuses an image that would have the mounts of /proc, /sys or /dev land somewhere else
// (CVE-2023-27561, CVE-2026-41579).
func checkRootfs(rootfs string) error {
	if !path.IsAbs(rootfs) || path.Clean(rootfs) != rootfs || rootfs == "/" {
		return fmt.Errorf("rootfs %q: want a clean absolute path", rootfs)
	}
	if st, err := os.Stat(rootfs); err != nil {
		return fmt.Errorf("rootfs: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("rootfs %s is not a directory", rootfs)
	}
	for _, d := range []string{"proc", "sys", "dev"} {
		st, err := os.Lstat(filepath.Join(rootfs, d))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("rootfs: %w", err)
		}
		if !st.IsDir() {
			return fmt.Errorf("the image has a %s where the directory /%s belongs; refused", st.Mode().Type(), d)
		}
	}
	return nil
}
