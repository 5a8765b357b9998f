package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func ext4Head(label string) []byte {
	head := make([]byte, 2048)
	head[0x438], head[0x439] = 0x53, 0xef
	copy(head[0x478:0x488], label)
	return head
}

func fatHead(at, kindAt int, kind, label string) []byte {
	head := make([]byte, 2048)
	head[510], head[511] = 0x55, 0xaa
	copy(head[kindAt:], kind)
	copy(head[at:at+11], label+"           ")
	return head
}

func TestVolumeLabel(t *testing.T) {
	for want, head := range map[string][]byte{
		"":                 make([]byte, 2048),
		"ledge-data":       ext4Head("ledge-data"),
		"sixteen-letters!": ext4Head("sixteen-letters!"),
		"LEDGE":            fatHead(71, 82, "FAT32   ", "LEDGE"),
		"MY BOARD":         fatHead(43, 54, "FAT16   ", "MY BOARD"),
	} {
		if got, _ := volumeLabel(head); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got, _ := volumeLabel(fatHead(71, 82, "NTFS", "LEDGE")); got != "" {
		t.Errorf("of something else: %q", got)
	}
}

func TestChooseDisks(t *testing.T) {
	card := []disk{{"/dev/mmcblk0p1", "mmcblk0", "LEDGE", true}, {"/dev/mmcblk0p2", "mmcblk0", "ledge-data", false}}
	stick := []disk{{"/dev/sda1", "sda", "LEDGE", true}, {"/dev/sda2", "sda", "backup", false}}
	for name, c := range map[string]struct {
		data             string
		disks            []disk
		device, firmware string
		wrong            bool
	}{
		"a card":                 {"LABEL=ledge-data", card, "/dev/mmcblk0p2", "/dev/mmcblk0p1", false},
		"a card and a stick":     {"LABEL=ledge-data", append(stick, card...), "/dev/mmcblk0p2", "/dev/mmcblk0p1", false},
		"not yet":                {"LABEL=ledge-data", stick, "", "", true},
		"two cards":              {"LABEL=ledge-data", append(card, disk{"/dev/mmcblk1p2", "mmcblk1", "ledge-data", false}), "", "", true},
		"data on a disk":         {"LABEL=data", []disk{card[0], {"/dev/sda", "sda", "data", false}}, "/dev/sda", "/dev/mmcblk0p1", false},
		"a device":               {"/dev/vda", nil, "/dev/vda", "", false},
		"a device of a card":     {"/dev/sda2", append(stick, card...), "/dev/sda2", "/dev/sda1", false},
		"two firmwares, neither": {"/dev/vda", append(stick, card...), "/dev/vda", "", false},
	} {
		device, firmware, err := chooseDisks(c.data, c.disks)
		if device != c.device || firmware != c.firmware || (err != nil) != c.wrong {
			t.Errorf("%s: %q, %q, %v", name, device, firmware, err)
		}
	}
}

func TestFindDisks(t *testing.T) {
	sys, dev := t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(sys, "class/block"), 0o755))
	for _, name := range []string{"sda", "sda/sda1", "sda/sda2", "sr0"} {
		at := filepath.Join(sys, "devices", name)
		must(os.MkdirAll(at, 0o755))
		must(os.Symlink(at, filepath.Join(sys, "class/block", filepath.Base(name))))
		if filepath.Dir(name) != "." {
			must(os.WriteFile(filepath.Join(at, "partition"), nil, 0o644))
		}
	}
	must(os.WriteFile(filepath.Join(dev, "sda"), make([]byte, 4096), 0o600))
	must(os.WriteFile(filepath.Join(dev, "sda1"), fatHead(71, 82, "FAT32", "LEDGE"), 0o600))
	must(os.WriteFile(filepath.Join(dev, "sda2"), ext4Head("ledge-data"), 0o600))
	got, err := findDisks(sys, dev)
	want := []disk{{filepath.Join(dev, "sda1"), "sda", "LEDGE", true}, {filepath.Join(dev, "sda2"), "sda", "ledge-data", false}}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAddedAlias(t *testing.T) {
	for event, want := range map[string]string{
		"": "",
		"add@/devices/pci0/0000:00:03.0\x00ACTION=add\x00MODALIAS=pci:v00001AF4d00001000\x00SEQNUM=7\x00": "pci:v00001AF4d00001000",
		"add@/devices/virtual/net/veth0\x00ACTION=add\x00SUBSYSTEM=net\x00":                               "",
		"remove@/devices/usb1\x00ACTION=remove\x00MODALIAS=usb:v1D6B\x00":                                 "",
	} {
		if got := addedAlias(event); got != want {
			t.Errorf("%q: %q, want %q", event, got, want)
		}
	}
}

// TestLabelled: a disk for claims is the one with the label, and no FAT.
func TestLabelled(t *testing.T) {
	list := []disk{{"/dev/sda1", "sda", "DATA", false}, {"/dev/sdb1", "sdb", "STICK", true}, {"/dev/sdc1", "sdc", "TWO", false},
		{"/dev/sdd1", "sdd", "TWO", false}}
	for label, want := range map[string]string{"DATA": "/dev/sda1", "STICK": "FAT", "TWO": "both labelled", "NONE": "no disk has"} {
		device, err := chooseLabelled(label, list)
		if got := device; err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%s: %q %v, want %s", label, device, err, want)
		}
	}
	xfs := make([]byte, 2048)
	copy(xfs, "XFSB")
	copy(xfs[108:], "DATA")
	if label, fat := volumeLabel(xfs); label != "DATA" || fat {
		t.Errorf("XFS: %q", label)
	}
	if gone, err := BlockGone(0, 55); gone || err != nil {
		t.Errorf("a file system in memory: %v %v", gone, err)
	}
	if gone, err := BlockGone(4000, 1); !gone || err != nil {
		t.Errorf("a disk that was never there: %v %v", gone, err)
	}
}
