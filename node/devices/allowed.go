package devices

import (
	"path"
	"slices"
	"strings"
)

// Numbers of the kernel's list, Documentation/admin-guide/devices.txt.
const (
	majorMemory  = 1
	majorTTY     = 4 // below 64 the screens, from there on serial ports
	majorConsole = 5
	majorVCS     = 7
	majorMisc    = 10
	majorMSR     = 202
	majorCPUID   = 203

	firstSerial = 64
)

// rawDisks are the subsystems by which disks and flash are written beside their block devices.
var rawDisks = []string{"nvme", "nvme-generic", "scsi_generic", "bsg", "mtd", "ubi", "mmc_rpmb", "raw", "tape"}

// wholeBoard are the devices of drivers by which the whole board is had: other disks, its memory, its processors.
var wholeBoard = []string{"/dev/mapper/control", "/dev/loop-control", "/dev/btrfs-control", "/dev/snapshot", "/dev/mcelog", "/dev/ubi_ctrl"}

// Forbidden says whether a device is given to nobody, whatever the configuration says: who has it has the board, and needs a privileged
// pod for it. Block devices are not even found.
func Forbidden(f Found) bool {
	switch f.Major {
	case majorMemory, majorMSR, majorCPUID:
		return true
	}
	base := path.Base(f.Path)
	return slices.Contains(rawDisks, f.Subsystem) || slices.Contains(wholeBoard, f.Path) ||
		f.Major == majorMisc && strings.HasPrefix(base, "dm-")
}

// Guarded says whether a device is given only by a class that names it without a pattern: what the board itself lives by.
func Guarded(f Found) bool {
	base := path.Base(f.Path)
	switch f.Major {
	case majorTTY:
		return f.Minor < firstSerial || f.Console
	case majorConsole, majorVCS:
		return true
	}
	return f.Console || f.Subsystem == "watchdog" || strings.HasPrefix(base, "watchdog") || f.Subsystem == "input" ||
		base == "uinput" || base == "uhid" || f.Subsystem == "rtc" || f.Subsystem == "tpm" || f.Subsystem == "tpmrm"
}
