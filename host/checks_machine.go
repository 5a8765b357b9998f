package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (d doctor) checkMemory() Check {
	const name = "memory"
	m, err := d.h.Memory()
	if err != nil {
		return Check{name, Warn, oneLine(err.Error()), "mount /proc"}
	}
	detail := fmt.Sprintf("%s of %s available", megabytes(m.Available), megabytes(m.Total))
	if m.Total < 200e6 {
		return Check{name, Warn, detail, "a board with 256 MB or more: Kubernetes' default keeps 100 MiB free"}
	}
	return ok(name, detail)
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }

func (d doctor) checkSwap() Check {
	const name = "swap"
	swaps, err := d.h.Swaps()
	if err != nil {
		return Check{name, Warn, oneLine(err.Error()), "mount /proc"}
	}
	if len(swaps) == 0 {
		return ok(name, "off")
	}
	var list []string
	wears := ""
	for _, s := range swaps {
		list = append(list, s.Path+" "+megabytes(s.Size))
		// Raspberry Pi OS swaps to a file on its card.
		if strings.Contains(s.Path, "mmcblk") || !strings.HasPrefix(s.Path, "/dev/") {
			wears = s.Path
		}
	}
	detail := strings.Join(list, ", ") + "; pods with a memory limit do not use it"
	if wears != "" {
		return Check{name, Warn, detail, wears + " may be on the card, which swapping wears out: prefer zram (package zram-tools or rpi-swap)"}
	}
	return ok(name, detail)
}

func (d doctor) checkPIDs() Check {
	const name = "tasks"
	most, used, err := d.h.PIDs()
	if err != nil {
		return Check{name, Warn, oneLine(err.Error()), "mount /proc"}
	}
	detail := fmt.Sprintf("%d of %d", used, most)
	if used*10 > most*9 {
		return Check{name, Warn, detail, "raise kernel.pid_max or kernel.threads-max (sysctl)"}
	}
	return ok(name, detail)
}

// Existing is the nearest directory above a path that is there.
func Existing(path string) string {
	for path != "/" && path != "." && path != "" {
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return "/"
}

// A board needs some room for images; below this it is a matter of days.
const littleRoom = 512 << 20

func (d doctor) checkDataDir(dir string) Check {
	const name = "data directory"
	at := Existing(dir)
	bad := func(err error) Check {
		return Check{name, Fail, oneLine(err.Error()), "run as root, on a file system that is not read-only, or choose another --data-dir"}
	}
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return bad(fmt.Errorf("%s is not a directory", dir))
	}
	f, err := os.CreateTemp(at, ".ledge-doctor-")
	if err != nil {
		return bad(err)
	}
	_, werr := f.WriteString("x")
	if err := errors.Join(werr, f.Close(), os.Remove(f.Name())); err != nil {
		return bad(err)
	}
	fs, err := d.h.Filesystem(at)
	if err != nil {
		return bad(err)
	}
	return judgeDataDir(dir, fs)
}

func judgeDataDir(dir string, fs Filesystem) Check {
	const name = "data directory"
	detail := fmt.Sprintf("%s on %s: %s of %s free", dir, fs.TypeName(), megabytes(fs.Available), megabytes(fs.Capacity))
	switch {
	case slices.Contains([]int64{vfatMagic, exfatMagic, ntfsMagic, ntfs3Magic, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1}, fs.Type):
		return Check{name, Fail, detail + ": images need owners, links and attributes", "put it on ext4, f2fs, xfs or btrfs (--data-dir)"}
	case fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC:
		return Check{name, Warn, detail + ", in memory: it is gone after a reboot", "put it on the card or disk (--data-dir)"}
	case fs.Type == unix.NFS_SUPER_MAGIC || fs.Type == fuseMagic:
		return Check{name, Warn, detail + ": a power cut may lose what was said to be safe", "put it on a disk of the board (--data-dir)"}
	case fs.Available < littleRoom || fs.Inodes > 0 && fs.InodesFree*20 < fs.Inodes:
		return Check{name, Warn, detail + fmt.Sprintf(", %d of %d inodes", fs.InodesFree, fs.Inodes),
			"make room: images and logs need more than 0.5 GB and files"}
	}
	return ok(name, detail)
}

func (d doctor) checkOverlay(dir string) Check {
	const name = "overlayfs"
	err := d.h.cfg.OverlayCapable(Existing(dir))
	switch {
	case err == nil:
		return ok(name, "works in "+dir)
	case NoRoom(err): // one that cannot even be asked is not found wanting: a board must come up on a full card
		return Check{name, Warn, "not tried: no room in " + dir, "make room there"}
	case errors.Is(err, unix.ENODEV):
		return Check{name, Fail, "the kernel has none", "install the kernel's modules, or a kernel with CONFIG_OVERLAY_FS"}
	case errors.Is(err, unix.ENOSYS): // before Linux 5.2: ask what it says of itself
		if d.driver("overlay", "OVERLAY_FS") != "" {
			return ok(name, "in the kernel")
		}
		return Check{name, Fail, "the kernel has none", "install the kernel's modules, or a kernel with CONFIG_OVERLAY_FS"}
	}
	return Check{name, Fail, "cannot be used in " + dir + ": " + oneLine(err.Error()),
		"run as root, with the data directory on ext4, xfs, btrfs or f2fs (--data-dir)"}
}

func (d doctor) checkResolver() Check {
	const name = "name servers"
	path := d.h.ResolvConf()
	servers := nameServers(path)
	if onlyLoopback(servers) {
		return Check{name, Warn, path + " has none that pods can reach",
			"put a name server that is not on 127.0.0.0/8 into a file and name it as resolvConf in the configuration"}
	}
	return ok(name, strings.Join(servers, " ")+" from "+path)
}

func (d doctor) checkAddress() Check {
	const name = "address"
	addrs, err := d.h.Addresses()
	if err != nil {
		return Check{name, Warn, oneLine(err.Error()), "connect the board to a network"}
	}
	if len(addrs) == 0 {
		return Check{name, Warn, "the board has none: it works alone", "connect it to a network, or set --node-ip"}
	}
	return ok(name, addrs[0].String())
}

func (d doctor) checkClock(now, floor time.Time) Check {
	const name = "clock"
	const remedy = "switch time synchronisation on (systemd-timesyncd, chrony); pods run without it"
	if now.Before(floor) {
		return Check{name, Warn, fmt.Sprintf("it says %s, but it was %s before: it is not set", now.UTC().Format(time.DateOnly),
			floor.UTC().Format(time.DateOnly)), remedy}
	}
	synced, err := d.h.ClockSynced()
	if err != nil {
		return Check{name, Warn, oneLine(err.Error()), remedy}
	}
	if !synced {
		return Check{name, Warn, "not synchronised with anything", remedy}
	}
	return ok(name, "synchronised")
}
