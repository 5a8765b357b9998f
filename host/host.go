// Package host reads the machine: /proc, /sys, file systems, addresses, the clock. It imports nothing of ledge and
// changes nothing (but the file of the saved clock, and what Reclaim takes). Where the agent needs it, cmd/ledge joins the two.
package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Config says where the machine is read. The zero value is this machine.
type Config struct {
	Proc string // /proc
	Sys  string // /sys
	Etc  string // /etc
	Run  string // /run
	Root string // /boot, /lib/modules and /usr/lib are looked for below it; empty: /
	// Interfaces lists the network interfaces with addresses; nil: those of this machine.
	Interfaces func() ([]Interface, error)
	// ClockSynced tells whether something that knows the time keeps the clock; nil: this kernel's answer.
	ClockSynced func() (bool, error)
	// OverlayCapable tries whether the root file systems of pods can stand in a directory; nil: this kernel does.
	OverlayCapable func(dir string) error
}

// Host reads one machine.
type Host struct {
	cfg     Config
	meminfo gauge
}

// New prepares a Host; it reads nothing yet.
func New(cfg Config) *Host {
	for _, d := range []struct {
		to  *string
		def string
	}{{&cfg.Proc, "/proc"}, {&cfg.Sys, "/sys"}, {&cfg.Etc, "/etc"}, {&cfg.Run, "/run"}, {&cfg.Root, "/"}} {
		if *d.to == "" {
			*d.to = d.def
		}
	}
	if cfg.Interfaces == nil {
		cfg.Interfaces = kernelInterfaces
	}
	if cfg.ClockSynced == nil {
		cfg.ClockSynced = kernelClockSynced
	}
	if cfg.OverlayCapable == nil {
		cfg.OverlayCapable = OverlayCapable
	}
	return &Host{cfg: cfg}
}

// Root is what /boot is looked for below.
func (h *Host) Root() string { return h.cfg.Root }

// Info is what does not change while the machine runs, but for a new host name (N-1.63).
type Info struct {
	Hostname, MachineID, SystemUUID, BootID string
	KernelVersion, OSImage, OS, Arch        string
	CPUs                                    int
}

// Info reads it. A file that is missing leaves its field empty: boards differ in what they have.
func (h *Host) Info() (Info, error) {
	i := Info{OS: goruntime.GOOS, Arch: goruntime.GOARCH, CPUs: h.CPUs(), BootID: h.BootID()}
	var err error
	if i.Hostname = h.line(h.cfg.Proc, "sys/kernel/hostname"); i.Hostname == "" {
		if i.Hostname, err = os.Hostname(); err != nil {
			return i, fmt.Errorf("read host name: %w", err)
		}
	}
	i.MachineID = h.line(h.cfg.Etc, "machine-id")
	i.SystemUUID = h.systemUUID()
	if i.SystemUUID == "" {
		i.SystemUUID = i.MachineID
	}
	i.KernelVersion = h.line(h.cfg.Proc, "sys/kernel/osrelease")
	i.OSImage = h.osImage()
	return i, nil
}

// systemUUID names the hardware. ARM boards have a device tree with a serial number instead of DMI tables.
func (h *Host) systemUUID() string {
	for _, at := range [][2]string{{h.cfg.Sys, "class/dmi/id/product_uuid"}, {h.cfg.Proc, "device-tree/system-id"},
		{h.cfg.Proc, "device-tree/vm,uuid"}, {h.cfg.Proc, "device-tree/serial-number"}} {
		if id := strings.Trim(h.line(at[0], at[1]), "\x00"); id != "" {
			return id
		}
	}
	return ""
}

// BootID is the kernel's name for this boot; empty if it has none.
func (h *Host) BootID() string { return h.line(h.cfg.Proc, "sys/kernel/random/boot_id") }

// Model is what the board calls itself, such as "Raspberry Pi 4 Model B Rev 1.4"; empty on most PCs.
func (h *Host) Model() string { return strings.Trim(h.line(h.cfg.Proc, "device-tree/model"), "\x00") }

// CPUs is the number of CPUs that are online (N-1.55): all of them, whatever subset this process may use.
func (h *Host) CPUs() int {
	if n := countList(h.line(h.cfg.Sys, "devices/system/cpu/online")); n > 0 {
		return n
	}
	return goruntime.NumCPU()
}

// countList counts the numbers in a kernel list such as 0-3,5; what is no list counts 0.
func countList(s string) int {
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, span := strings.Cut(part, "-")
		if !span {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || b < a {
			return 0
		}
		n += b - a + 1
	}
	return n
}

// Uptime is how long the kernel has been running.
func (h *Host) Uptime() (time.Duration, error) {
	first, _, _ := strings.Cut(h.line(h.cfg.Proc, "uptime"), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("read uptime: %w", err)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// PIDs is how many tasks there may be, and are, threads included (N-6.6).
func (h *Host) PIDs() (most, used int64, err error) {
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		n, err := strconv.ParseInt(h.line(h.cfg.Proc, name), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", name, err)
		}
		if most == 0 || n < most {
			most = n
		}
	}
	f := strings.Fields(h.line(h.cfg.Proc, "loadavg"))
	if len(f) >= 4 {
		_, all, _ := strings.Cut(f[3], "/")
		if used, err = strconv.ParseInt(all, 10, 64); err == nil {
			return most, used, nil
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, 0, fmt.Errorf("count tasks: %w", err)
	}
	return most, int64(info.Procs), nil
}

// line is the first line of a file, empty when it cannot be read.
func (h *Host) line(root, name string) string {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(first)
}

// osImage is what the distribution calls itself.
func (h *Host) osImage() string {
	for _, file := range []string{filepath.Join(h.cfg.Etc, "os-release"), filepath.Join(h.cfg.Root, "usr/lib/os-release")} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if v, ok := strings.CutPrefix(sc.Text(), "PRETTY_NAME="); ok {
				return strings.Trim(strings.TrimSpace(v), `"'`)
			}
		}
	}
	return "Linux"
}

// ResolvConf is the resolver configuration pods can use. A name server on the host's loopback (systemd-resolved's stub,
// NetworkManager's dnsmasq) would be a pod's own loopback, so the list behind it is taken where there is one.
func (h *Host) ResolvConf() string {
	own := filepath.Join(h.cfg.Etc, "resolv.conf")
	if !onlyLoopback(nameServers(own)) {
		return own
	}
	for _, name := range []string{"systemd/resolve/resolv.conf", "NetworkManager/no-stub-resolv.conf"} {
		behind := filepath.Join(h.cfg.Run, name)
		if s := nameServers(behind); len(s) > 0 && !onlyLoopback(s) {
			return behind
		}
	}
	return own
}

// nameServers are those of a resolver configuration; none if it cannot be read.
func nameServers(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "nameserver" {
			out = append(out, f[1])
		}
	}
	return out
}

// onlyLoopback is true without any name server: the C library then asks the loopback.
func onlyLoopback(servers []string) bool {
	for _, s := range servers {
		if !strings.HasPrefix(s, "127.") && s != "::1" {
			return false
		}
	}
	return true
}
