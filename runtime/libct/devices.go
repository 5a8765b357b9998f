package libct

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

func charDevice(path string, major, minor int64) *devices.Device {
	return &devices.Device{Path: path, FileMode: 0o666, Rule: devices.Rule{
		Type: devices.CharDevice, Major: major, Minor: minor, Permissions: "rwm", Allow: true}}
}

// defaultDevices is what every container has in /dev.
func defaultDevices() []*devices.Device {
	return []*devices.Device{
		charDevice("/dev/null", 1, 3),
		charDevice("/dev/zero", 1, 5),
		charDevice("/dev/full", 1, 7),
		charDevice("/dev/random", 1, 8),
		charDevice("/dev/urandom", 1, 9),
		charDevice("/dev/tty", 5, 0),
	}
}

// defaultRules is what the device cgroup lets a container do; everything else is refused.
func defaultRules() []*devices.Rule {
	rules := []*devices.Rule{
		// CAP_MKNOD is in the usual set, so making a node is allowed; opening it is not.
		{Type: devices.CharDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "m", Allow: true},
		{Type: devices.BlockDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "m", Allow: true},
		// Not 5:1, which is the board's own console: a container's /dev/console is one of its pts, mounted there.
		{Type: devices.CharDevice, Major: 5, Minor: 2, Permissions: "rwm", Allow: true},                  // ptmx
		{Type: devices.CharDevice, Major: 136, Minor: devices.Wildcard, Permissions: "rwm", Allow: true}, // pts
	}
	for _, d := range defaultDevices() {
		rules = append(rules, &d.Rule)
	}
	return rules
}

// ownNodes are a container's own besides its devices.
var ownNodes = []string{"/dev/ptmx", "/dev/console", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/core"}

// mostDevices is more than a board has.
const mostDevices = 256

// givenDevices are the nodes and rules of what a container was given. Everybody in it may open a node, whatever group it has on the board:
// nobody else sees it there.
func givenDevices(p runtime.Pod, c runtime.Container) (nodes []*devices.Device, rules []*devices.Rule, err error) {
	list := slices.Concat(c.Devices, c.Blocks)
	switch {
	case len(list) > mostDevices:
		return nil, nil, fmt.Errorf("%d devices are more than %d", len(list), mostDevices)
	case len(list) > 0 && p.Users != nil:
		return nil, nil, errors.New("a pod with users of its own cannot have devices: the kernel lets nobody make a node there")
	}
	for i, d := range list {
		rule := devices.Rule{Type: devices.CharDevice, Major: int64(d.Major), Minor: int64(d.Minor), Permissions: "rw", Allow: true}
		if i >= len(c.Devices) {
			rule.Type = devices.BlockDevice
		}
		mode := os.FileMode(0o666)
		if d.ReadOnly {
			rule.Permissions, mode = "r", 0o444
		}
		rules = append(rules, &rule)
		if d.Path == "" {
			continue
		}
		if !strings.HasPrefix(d.Path, "/dev/") || filepath.Clean(d.Path) != d.Path {
			return nil, nil, fmt.Errorf("device %q: its node is to be below /dev", d.Path)
		}
		there := func(o *devices.Device) bool { return o.Path == d.Path }
		if i := slices.IndexFunc(nodes, there); i >= 0 &&
			(nodes[i].Type != rule.Type || nodes[i].Major != rule.Major || nodes[i].Minor != rule.Minor) ||
			slices.ContainsFunc(defaultDevices(), there) || slices.Contains(ownNodes, d.Path) {
			return nil, nil, fmt.Errorf("device %d:%d: something else is at %s in every container, or was given there", d.Major, d.Minor, d.Path)
		} else if i >= 0 {
			continue
		}
		nodes = append(nodes, &devices.Device{Path: d.Path, FileMode: mode, Rule: rule})
	}
	return nodes, rules, nil
}

func allRules() []*devices.Rule {
	return []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard,
		Permissions: "rwm", Allow: true}}
}

// hostDevices is every device node below root (/dev), for a privileged container.
func hostDevices(root string) ([]*devices.Device, error) {
	var found []*devices.Device
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			// Nodes come and go while we look.
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if e.IsDir() {
			switch rel {
			case "pts", "shm", "fd", "mqueue", "hugepages":
				return fs.SkipDir // the container has its own
			}
			return nil
		}
		if rel == "console" || e.Type()&os.ModeDevice == 0 {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return nil
		}
		d := &devices.Device{Path: filepath.Join("/dev", rel), FileMode: os.FileMode(st.Mode & 0o777), Uid: st.Uid, Gid: st.Gid,
			Rule: devices.Rule{Type: devices.BlockDevice, Major: int64(unix.Major(uint64(st.Rdev))),
				Minor: int64(unix.Minor(uint64(st.Rdev))), Permissions: "rwm", Allow: true}}
		if st.Mode&unix.S_IFMT == unix.S_IFCHR {
			d.Type = devices.CharDevice
		}
		found = append(found, d)
		return nil
	})
	return found, err
}
