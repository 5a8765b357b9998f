package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A board's disk has no name that holds: a card is mmcblk0 here and mmcblk1 there, a stick whatever comes first. So its
// partitions are known by the labels of their file systems.

// FirmwareLabel is the label of the partition that the machine's firmware reads, and people write.
const FirmwareLabel = "LEDGE"

// disk is a partition, or a disk without any.
type disk struct {
	device string // /dev/mmcblk0p2
	whole  string // mmcblk0
	label  string
	fat    bool
}

// findDisks looks at every disk of the machine. One that cannot be read, such as a drive without a card, is passed over.
func findDisks(sys, dev string) ([]disk, error) {
	list, err := os.ReadDir(filepath.Join(sys, "class/block"))
	if err != nil {
		return nil, fmt.Errorf("look for disks: %w", err)
	}
	var found []disk
	for _, e := range list { // sorted
		d := disk{device: filepath.Join(dev, e.Name()), whole: e.Name()}
		at := filepath.Join(sys, "class/block", e.Name())
		if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				continue
			}
			d.whole = filepath.Base(filepath.Dir(at))
		}
		if d.label, d.fat, err = readLabel(d.device); err == nil && d.label != "" {
			found = append(found, d)
		}
	}
	return found, nil
}

// readHead reads where file systems say what they are.
func readHead(device string) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 2048)
	_, err = io.ReadFull(f, head)
	return head, err
}

func readLabel(device string) (label string, fat bool, err error) {
	head, err := readHead(device)
	if err != nil {
		return "", false, err
	}
	label, fat = volumeLabel(head)
	return label, fat, nil
}

// volumeLabel reads the label out of the first 2 KiB of a file system: ext2 to ext4, XFS, FAT.
func volumeLabel(head []byte) (label string, fat bool) {
	switch {
	case head[0x438] == 0x53 && head[0x439] == 0xef:
		name, _, _ := bytes.Cut(head[0x478:0x488], []byte{0})
		return string(name), false
	case bytes.HasPrefix(head, []byte("XFSB")):
		name, _, _ := bytes.Cut(head[108:120], []byte{0})
		return string(name), false
	case head[510] != 0x55 || head[511] != 0xaa:
		return "", false
	case bytes.HasPrefix(head[82:], []byte("FAT32")):
		return strings.TrimRight(string(head[71:82]), " "), true
	case bytes.HasPrefix(head[54:], []byte("FAT1")):
		return strings.TrimRight(string(head[43:54]), " "), true
	}
	return "", false
}

// chooseDisks says which device has the data, given a device or LABEL=..., and which is the firmware's; "" if there is none.
// Of two with the same label neither is taken: the pods of a node must not come up on another one's card.
func chooseDisks(data string, disks []disk) (device, firmware string, err error) {
	device = data
	labelled := func(label string) (all []disk) {
		for _, d := range disks {
			if d.label == label {
				all = append(all, d)
			}
		}
		return all
	}
	if label, ok := strings.CutPrefix(data, "LABEL="); ok {
		switch all := labelled(label); len(all) {
		case 0:
			return "", "", fmt.Errorf("no disk has a partition labelled %s", label)
		case 1:
			device = all[0].device
		default:
			return "", "", fmt.Errorf("%s and %s are both labelled %s: unplug one of the disks", all[0].device, all[1].device, label)
		}
	}
	whole := func(d disk) bool {
		return slices.ContainsFunc(disks, func(o disk) bool { return o.device == device && o.whole == d.whole })
	}
	all := labelled(FirmwareLabel)
	if i := slices.IndexFunc(all, whole); i >= 0 {
		firmware = all[i].device
	} else if len(all) == 1 {
		firmware = all[0].device
	}
	return device, firmware, nil
}

// Disks finds the data partition, named by a device or as LABEL=..., and the firmware's ("" if there is none).
func Disks(data string) (device, firmware string, err error) {
	disks, err := findDisks("/sys", "/dev")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	return chooseDisks(data, disks)
}
