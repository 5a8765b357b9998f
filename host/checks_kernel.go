package host

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func (d doctor) checkKernel() Check {
	v := d.h.line(d.h.cfg.Proc, "sys/kernel/osrelease")
	major, minor := kernelVersion(v)
	before := func(x, y int) bool { return major < x || major == x && minor < y }
	const remedy = "install a kernel of the last five years"
	switch {
	case before(5, 3):
		return Check{"kernel", Fail, "Linux " + v + " is older than 5.3, the first that can hold on to processes (pidfd)", remedy}
	case before(5, 8):
		return Check{"kernel", Warn, "Linux " + v + " is older than 5.8: write errors of the card may go unnoticed", remedy}
	}
	return ok("kernel", "Linux "+v)
}

func kernelVersion(s string) (major, minor int) {
	digits := func(s string) int {
		if end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			s = s[:end]
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0
		}
		return n
	}
	first, rest, _ := strings.Cut(s, ".")
	return digits(first), digits(rest)
}

// checkPrivileges: without CAP_SYS_RESOURCE the kernel refuses to lower oom_score_adj and to raise hard limits.
func (d doctor) checkPrivileges() Check {
	const name, remedy = "privileges", "run ledge as root, outside of a confined container"
	mask, err := strconv.ParseUint(d.status("CapEff"), 16, 64)
	if err != nil {
		return Check{name, Warn, "capabilities cannot be read", remedy}
	}
	var lacks []string
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_MKNOD, "CAP_MKNOD"},
		{unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT"}} {
		if mask&(1<<c.bit) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) > 0 {
		return Check{name, Fail, "missing: " + strings.Join(lacks, " "), remedy}
	}
	if mask&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return Check{name, Warn, "missing: CAP_SYS_RESOURCE: important pods are not spared when memory runs out (oom_score_adj)",
			"run ledge with all of root's capabilities"}
	}
	return ok(name, "root's")
}

// status is a field of /proc/self/status.
func (d doctor) status(name string) string {
	data, err := os.ReadFile(filepath.Join(d.h.cfg.Proc, "self/status"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if v, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (d doctor) checkNamespaces() Check {
	const name = "namespaces"
	have := func(ns string) bool {
		_, err := os.Lstat(filepath.Join(d.h.cfg.Proc, "self/ns", ns))
		return err == nil
	}
	var missing []string
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		if !have(ns) {
			missing = append(missing, ns)
		}
	}
	if len(missing) > 0 {
		return Check{name, Fail, "missing: " + strings.Join(missing, " "), "use a kernel with CONFIG_NAMESPACES and these kinds of it"}
	}
	if !have("cgroup") || !have("user") || d.h.line(d.h.cfg.Proc, "sys/user/max_user_namespaces") == "0" {
		return Check{name, Warn, "no cgroup or user namespaces: pods see the host's cgroups, or cannot have hostUsers: false",
			"use a kernel with CONFIG_CGROUPS and CONFIG_USER_NS, and user.max_user_namespaces above 0"}
	}
	return ok(name, "mnt pid net ipc uts cgroup user")
}

func (d doctor) checkSeccomp() Check {
	const name = "seccomp"
	actions := strings.Fields(d.h.line(d.h.cfg.Proc, "sys/kernel/seccomp/actions_avail"))
	if !slices.Contains(actions, "errno") {
		return Check{name, Fail, "the kernel has no system call filter",
			"use a kernel with CONFIG_SECCOMP_FILTER, or set seccompDefault: false in the configuration"}
	}
	return ok(name, "filters: "+strings.Join(actions, " "))
}

func (d doctor) checkCgroups() Check {
	const name = "cgroups"
	switch mode, have := d.h.Cgroups().Mode, d.h.Cgroups().Controllers; {
	case mode == Unified:
		return ok(name, "version 2")
	case mode == NoCgroup:
	case !slices.Contains(have, "devices"):
		return Check{name, Fail, "version 1 without the devices controller: containers could open every device",
			"mount that hierarchy, boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or use a kernel with CONFIG_CGROUP_DEVICE"}
	default:
		return Check{name, Warn, fmt.Sprintf("version 1 (%s): pods run, some limits and signals are coarser", mode),
			"boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line if the distribution allows it"}
	}
	return Check{name, Fail, "no hierarchy is mounted", "mount cgroup2 at /sys/fs/cgroup (systemd does)"}
}

// Controllers looks for what bounds pods. They run without, too.
func (h *Host) Controllers() Check {
	const name = "controllers"
	have := h.Cgroups().Controllers
	lacks := func(c string) bool { return !slices.Contains(have, c) }
	var none, remedies []string
	if lacks("memory") {
		none, remedies = append(none, "memory"), append(remedies, doctor{h}.cmdlineRemedy("cgroup_enable=memory"))
	}
	if lacks("pids") || lacks("cpu") {
		for _, c := range []string{"pids", "cpu"} {
			if lacks(c) {
				none = append(none, c)
			}
		}
		remedies = append(remedies, "use a kernel with CONFIG_CGROUP_PIDS and CONFIG_CGROUP_SCHED, and nothing like cgroup_disable= on its command line")
	}
	if len(none) > 0 {
		return Check{name, Fail, "missing: " + strings.Join(none, " ") + ": pods cannot be bounded by it, and one can take the board down",
			strings.Join(remedies, "; ")}
	}
	var less []string
	for _, c := range []string{"cpuset", "io"} {
		if lacks(c) && (c != "io" || lacks("blkio")) { // version 1's name
			less = append(less, c)
		}
	}
	if len(less) > 0 {
		return Check{name, Warn, "missing: " + strings.Join(less, " "), "use a kernel with CONFIG_CPUSETS and CONFIG_BLK_CGROUP"}
	}
	return ok(name, strings.Join(have, " "))
}

func (d doctor) checkPressure() Check {
	const name = "pressure (PSI)"
	p, err := d.h.Pressure("memory")
	if err != nil {
		return Check{name, Warn, "the kernel does not report it: shortage of memory is seen later", d.cmdlineRemedy("psi=1")}
	}
	return ok(name, fmt.Sprintf("memory %.0f %% of the last minute", p.Some.Avg60))
}

// checkModule looks for a driver: loaded or built in, as a module on disk, or in the kernel's configuration.
func (d doctor) checkModule(name, option string) Check {
	where := d.driver(name, option)
	if where == "" {
		return Check{name, Fail, "not in this kernel",
			fmt.Sprintf("install the kernel's modules, use a kernel with CONFIG_%s, or run ledge with --bridge none", option)}
	}
	return ok(name, where)
}

func (d doctor) driver(name, option string) string {
	if _, err := os.Stat(filepath.Join(d.h.cfg.Sys, "module", name)); err == nil {
		return "in the kernel"
	}
	dir := filepath.Join(d.h.cfg.Root, "lib/modules", d.h.line(d.h.cfg.Proc, "sys/kernel/osrelease"))
	for _, list := range [][2]string{{"modules.builtin", "in the kernel"}, {"modules.dep", "a module, loaded when needed"}} {
		data, err := os.ReadFile(filepath.Join(dir, list[0]))
		if err == nil && strings.Contains(strings.ReplaceAll(string(data), "-", "_"), "/"+name+".ko") {
			return list[1]
		}
	}
	switch d.kernelOption("CONFIG_" + option) {
	case "y":
		return "in the kernel"
	case "":
		return "not known; the kernel tells nothing about itself"
	}
	return "" // off, or a module that is not there
}

// kernelOption reads the kernel's configuration: y, m or n, or nothing where the kernel keeps it to itself.
func (d doctor) kernelOption(name string) string {
	f, err := os.Open(filepath.Join(d.h.cfg.Proc, "config.gz"))
	var in io.Reader
	if err == nil {
		defer f.Close()
		if in, err = gzip.NewReader(f); err != nil {
			return ""
		}
	} else {
		f, err := os.Open(filepath.Join(d.h.cfg.Root, "boot", "config-"+d.h.line(d.h.cfg.Proc, "sys/kernel/osrelease")))
		if err != nil {
			return ""
		}
		defer f.Close()
		in = f
	}
	lines, value := bufio.NewScanner(in), "n"
	for lines.Scan() {
		if v, found := strings.CutPrefix(lines.Text(), name+"="); found {
			value = v
		}
	}
	if lines.Err() != nil {
		return ""
	}
	return value
}

func (d doctor) checkNFTables() Check {
	const name = "nftables"
	if err := listNFTables(); err != nil {
		return Check{name, Fail, fmt.Sprintf("the kernel does not answer: %v", err),
			"use a kernel with CONFIG_NF_TABLES (module nf_tables), or run ledge with --bridge none"}
	}
	return ok(name, "answers")
}

// listNFTables asks the kernel for all its tables, which loads the module if it is one.
func listNFTables() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	wait := unix.Timeval{Sec: 2}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	const kind, dump = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE, unix.NLM_F_REQUEST | unix.NLM_F_DUMP
	msg := []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // nlmsghdr, nfgenmsg
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], kind)
	binary.NativeEndian.PutUint16(msg[6:], dump)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr {
		return errors.New("short answer")
	}
	if binary.NativeEndian.Uint16(buf[4:]) == unix.NLMSG_ERROR && n >= unix.SizeofNlMsghdr+4 {
		if code := int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); code != 0 {
			return unix.Errno(-code)
		}
	}
	return nil
}
