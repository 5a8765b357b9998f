package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// disk describes, from sysfs, the device that is to be written.
type disk struct {
	path, name, model string
	size              int64
	partitionOf       string // the disk, if it is only a part of one
	removable         bool
	readOnly          bool
	mounted           []string // where, the innermost first
	used              []string // by what else: swap, a device mapper, a raid
}

// look reads a block device's description from sys, where sysfs is mounted.
func look(sys, path string) (disk, error) {
	d := disk{path: path}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return d, fmt.Errorf("%s is not a disk; lsblk lists them", path)
	}
	number := func(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "dev/block", number(st.Rdev)))
	if err != nil {
		return d, fmt.Errorf("what the kernel knows of %s: %w", path, err)
	}
	d.name = filepath.Base(dir)
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		d.partitionOf = "/dev/" + filepath.Base(filepath.Dir(dir))
		return d, nil
	}
	sectors, err := strconv.ParseInt(word(dir, "size"), 10, 64)
	if err != nil {
		return d, fmt.Errorf("size of %s: %w", path, err)
	}
	d.size = sectors * 512
	d.model = strings.TrimSpace(word(dir, "device/vendor") + " " + word(dir, "device/model") + word(dir, "device/name"))
	d.readOnly = word(dir, "ro") == "1"
	// A reader inside a laptop says that it is fixed; the card in it is not. An eMMC is soldered.
	d.removable = word(dir, "removable") == "1" || word(dir, "device/type") == "SD" || strings.Contains(dir, "/usb")
	parts, err := partitions(dir)
	if err != nil {
		return d, fmt.Errorf("partitions of %s: %w", path, err)
	}
	return d, d.uses(parts)
}

// partitions are the disk's directory in sysfs and those of its partitions.
func partitions(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*", "partition"))
	for i, p := range found {
		found[i] = filepath.Dir(p)
	}
	return append([]string{dir}, found...), err
}

// uses notes the mounts, swaps and devices that use the disk or a part of it.
func (d *disk) uses(dirs []string) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer mounts.Close()
	var numbers, names []string
	for _, dir := range dirs {
		numbers = append(numbers, word(dir, "dev"))
		names = append(names, "/dev/"+filepath.Base(dir))
		holders, err := os.ReadDir(filepath.Join(dir, "holders"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, h := range holders {
			d.used = append(d.used, "/dev/"+h.Name())
		}
	}
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// Some file systems have numbers of their own (btrfs): there the name of the device tells.
		f := strings.Fields(lines.Text())
		source := slices.Index(f, "-") + 2
		if len(f) > 4 && (slices.Contains(numbers, f[2]) || source > 1 && source < len(f) && slices.Contains(names, f[source])) {
			d.mounted = slices.Insert(d.mounted, 0, unescape(f[4]))
		}
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(swaps)) {
		if f := strings.Fields(line); len(f) > 0 && slices.Contains(names, f[0]) {
			d.used = append(d.used, "swap on "+f[0])
		}
	}
	return err
}

// unescape undoes the octal of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func word(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// refuse says why an image of size bytes is not written there.
func (d disk) refuse(o options, size int64) error {
	switch {
	case d.partitionOf != "":
		return fmt.Errorf("%s is a partition; the image is of a whole disk: %s", d.path, d.partitionOf)
	case d.size == 0:
		return fmt.Errorf("%s has no card in it", d.path)
	case d.readOnly:
		return fmt.Errorf("%s can only be read: slide the card's lock", d.path)
	case size > d.size:
		return fmt.Errorf("%s has %s, the image needs %s", d.path, inWords(d.size), inWords(size))
	case len(d.used) > 0:
		return fmt.Errorf("%s is in use: %s", d.path, strings.Join(d.used, ", "))
	case !d.removable && !o.fixed:
		return fmt.Errorf("%s (%s) is not removable: is it a disk of this computer? -fixed writes to it all the same", d.path, d)
	case slices.Contains(d.mounted, "/"):
		return fmt.Errorf("%s holds the system that runs here", d.path)
	case len(d.mounted) > 0 && !o.unmount:
		return fmt.Errorf("%s is mounted on %s; -unmount unmounts it first", d.path, strings.Join(d.mounted, ", "))
	}
	return nil
}

func (d disk) String() string {
	if d.model == "" {
		return inWords(d.size)
	}
	return d.model + ", " + inWords(d.size)
}

// inWords is a size as it is printed on cards.
func inWords(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.0f GB", float64(n)/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
