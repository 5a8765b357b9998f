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
var rawDisks = []string{"nvme", "nvme-generic", "scsi_generic", "bsg", "mtd", "ubi", "mmc_rpmb", "raw", "scsi_tape", "nvme-fabrics"}

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
	return slices.Contains(rawDisks, f.Subsystem) || speaks(f, usbDisk) || slices.Contains(wholeBoard, f.Path) ||
		f.Major == majorMisc && strings.HasPrefix(base, "dm-")
}

// Classes of USB interfaces, by which a program takes a device from the kernel's own driver.
const (
	usbInput = "03"
	usbDisk  = "08"
	usbHub   = "09"
)

// speaks says whether a device is the whole of a USB device that has such an interface.
func speaks(f Found, class string) bool { return slices.Contains(strings.Fields(f.Speaks), class) }

// Guarded says whether a device is given only by a class that names it without a pattern: what the board itself lives by.
func Guarded(f Found) bool {
	base := path.Base(f.Path)
	switch f.Major {
	case majorTTY:
		return f.Minor < firstSerial || f.Console
	case majorConsole, majorVCS:
		return true
	}
	if speaks(f, usbInput) || speaks(f, usbHub) {
		return true
	}
	return f.Console || f.Subsystem == "watchdog" || strings.HasPrefix(base, "watchdog") || f.Subsystem == "input" ||
		base == "uinput" || base == "uhid" || f.Subsystem == "rtc" || f.Subsystem == "tpm" || f.Subsystem == "tpmrm"
}
