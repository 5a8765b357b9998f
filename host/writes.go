package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Counter is what has been written since something began to count.
type Counter struct {
	Of    string    // who counts: another counter starts from nothing
	Since time.Time // when it began
	Bytes int64
}

// ProcessWrites returns how much a process has written to disks: the pages it made dirty, less those of files that
// were removed before they were written. File systems in memory do not count.
func (h *Host) ProcessWrites(pid int) (Counter, error) {
	dir := filepath.Join(h.cfg.Proc, strconv.Itoa(pid))
	data, err := os.ReadFile(filepath.Join(dir, "io"))
	if err != nil {
		return Counter{}, fmt.Errorf("read what process %d has written: %w", pid, err)
	}
	var written, cancelled int64
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "write_bytes":
			written = n
		case "cancelled_write_bytes":
			cancelled = n
		}
	}
	ticks, err := startTicks(dir)
	if err != nil {
		return Counter{}, err
	}
	boot, err := h.booted()
	if err != nil {
		return Counter{}, err
	}
	const perSecond = 100 // USER_HZ, the same on every machine
	return Counter{Of: fmt.Sprintf("process %d of %d", pid, ticks), Since: boot.Add(time.Duration(ticks) * time.Second / perSecond),
		Bytes: max(0, written-cancelled)}, nil
}

// startTicks is when a process began, in ticks since the boot. Its name may have blanks and brackets in it.
func startTicks(dir string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	if f := strings.Fields(rest); len(f) > 19 {
		return strconv.ParseInt(f[19], 10, 64)
	}
	return 0, fmt.Errorf("%s/stat has no start time", dir)
}

func (h *Host) booted() (time.Time, error) {
	up, err := h.Uptime()
	return time.Now().Add(-up), err
}

// Disk is a whole disk that a directory is on.
type Disk struct {
	Name   string // "mmcblk0"
	Number string // "179:0"
}

// ErrNoDisk says that a directory's file system is on no single disk that the kernel names: memory, a network, a pool.
var ErrNoDisk = errors.New("not on a disk of its own")

// DiskOf finds the disk of a directory; of a partition the whole.
func (h *Host) DiskOf(dir string) (Disk, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("find the disk of %s: %w", dir, err)
	}
	return h.disk(fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
}

// DiskAt is the disk of a device: /dev/sda1.
func DiskAt(h *Host, device string) (Disk, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Disk{}, ErrNoDisk
	}
	return h.disk(fmt.Sprintf("%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))))
}

// HasGroup says whether there is a cgroup of version 2.
func HasGroup(h *Host, group string) bool {
	_, err := os.Stat(filepath.Join(h.cfg.Sys, "fs/cgroup", group))
	return err == nil
}

// CountsWrites says whether the kernel counts for a cgroup what goes through its cache too: version 2 does.
func CountsWrites(h *Host) bool { return h.cgroupMode() == Unified }

func (h *Host) disk(number string) (Disk, error) {
	at, err := filepath.EvalSymlinks(filepath.Join(h.cfg.Sys, "dev/block", number))
	if err != nil {
		return Disk{}, ErrNoDisk
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
		at = filepath.Dir(at)
	}
	whole, err := os.ReadFile(filepath.Join(at, "dev"))
	if err != nil {
		return Disk{}, ErrNoDisk
	}
	return Disk{Name: filepath.Base(at), Number: strings.TrimSpace(string(whole))}, nil
}

// DiskWrites is what a disk has been given since the boot, by everything on the machine.
func (h *Host) DiskWrites(d Disk) (Counter, error) {
	f := strings.Fields(h.line(h.cfg.Sys, "block/"+d.Name+"/stat"))
	if len(f) < 7 {
		return Counter{}, fmt.Errorf("the kernel does not count the writes of %s", d.Name)
	}
	sectors, err := strconv.ParseInt(f[6], 10, 64)
	if err != nil {
		return Counter{}, fmt.Errorf("read the writes of %s: %w", d.Name, err)
	}
	boot, err := h.booted()
	return Counter{Of: "disk " + d.Name, Since: boot, Bytes: sectors * 512}, err
}

// GroupWrites is what a cgroup and all below it have written to a disk. On version 1 the kernel counts there only what
// is written past its cache.
func (h *Host) GroupWrites(group string, d Disk) (Counter, error) {
	file, find := filepath.Join("fs/cgroup", group, "io.stat"), v2Writes
	if m := h.cgroupMode(); m == Hybrid || m == Legacy {
		file, find = filepath.Join("fs/cgroup/blkio", group, "blkio.throttle.io_service_bytes_recursive"), v1Writes
	}
	path := filepath.Join(h.cfg.Sys, file)
	data, err := os.ReadFile(path)
	if err != nil {
		return Counter{}, fmt.Errorf("read what the cgroup has written: %w", err)
	}
	var st unix.Stat_t // a group that was made again counts anew
	if err := unix.Stat(filepath.Dir(path), &st); err != nil {
		return Counter{}, err
	}
	return Counter{Of: fmt.Sprintf("cgroup %s %d", group, st.Ino), Since: time.Unix(st.Ctim.Unix()), Bytes: find(string(data), d.Number)}, nil
}

// v2Writes reads io.stat: "179:0 rbytes=1 wbytes=2 rios=...".
func v2Writes(text, number string) (n int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != number {
			continue
		}
		for _, pair := range f[1:] {
			if value, found := strings.CutPrefix(pair, "wbytes="); found {
				n, _ = strconv.ParseInt(value, 10, 64)
			}
		}
	}
	return n
}

// v1Writes reads blkio's file: "179:0 Write 2".
func v1Writes(text, number string) (n int64) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == number && f[1] == "Write" {
			n, _ = strconv.ParseInt(f[2], 10, 64)
		}
	}
	return n
}

// Wear is what a disk says of its own flash. Only eMMC tells it here: SD cards have no such register, and NVMe and SATA
// want to be asked by commands of their own (nvme smart-log, smartctl).
type Wear struct {
	// UsedPercent of its life, at most: it is told in tenths. 100 and Exceeded: more than it was made for.
	UsedPercent int    `json:"usedPercent"`
	Exceeded    bool   `json:"exceeded,omitempty"`
	Reserve     string `json:"reserve,omitempty"` // of spare blocks: normal, low (80 % are used), urgent (90 %)
}

// Wear asks a disk; nil: it does not tell.
func (h *Host) Wear(d Disk) *Wear {
	dir := "block/" + d.Name + "/device"
	var w Wear
	told := false
	for _, f := range strings.Fields(h.line(h.cfg.Sys, dir+"/life_time")) { // of its parts of both types
		n, err := strconv.ParseInt(f, 0, 64)
		if err != nil || n < 1 || n > 0xb {
			continue // 0: not defined
		}
		told = true
		w.UsedPercent, w.Exceeded = max(w.UsedPercent, min(100, int(n)*10)), w.Exceeded || n == 0xb
	}
	reserve, _ := strconv.ParseInt(h.line(h.cfg.Sys, dir+"/pre_eol_info"), 0, 64)
	if reserve >= 1 && reserve <= 3 {
		told = true
		w.Reserve = []string{"normal", "low", "urgent"}[reserve-1]
	}
	if !told {
		return nil
	}
	return &w
}
