package libct

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountsFor gives the default file systems and then the container's own, parents before children. A mount of the
// container's replaces a default one at the same place.
func mountsFor(p runtime.Pod, c runtime.Container, podDir string, host hostFacts) ([]*configs.Mount, int, error) {
	own, propagation, err := ownMounts(p, c.Mounts, host)
	if err != nil {
		return nil, 0, err
	}
	taken := map[string]bool{}
	for _, m := range own {
		taken[m.Destination] = true
	}
	var all []*configs.Mount
	for _, m := range defaultMounts(p, c, podDir, host) {
		if !taken[m.Destination] {
			all = append(all, m)
		}
	}
	return append(all, own...), propagation, nil
}

func defaultMounts(p runtime.Pod, c runtime.Container, podDir string, host hostFacts) []*configs.Mount {
	ro := unix.MS_RDONLY
	if c.Privileged {
		ro = 0
	}
	shm := path.Join(podDir, "shm")
	if p.HostIPC {
		shm = "/dev/shm"
	}
	m := []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: quiet},
		{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_STRICTATIME,
			Data: "mode=755,size=64k"},
		{Source: "devpts", Destination: "/dev/pts", Device: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Data: "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{Source: shm, Destination: "/dev/shm", Device: "bind", Flags: unix.MS_BIND | quiet},
		{Source: "sysfs", Destination: "/sys", Device: "sysfs", Flags: quiet | ro},
		{Source: "cgroup", Destination: "/sys/fs/cgroup", Device: "cgroup", Flags: quiet | unix.MS_RELATIME | ro},
	}
	if host.mqueue {
		m = append(m, &configs.Mount{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: quiet})
	}
	return m
}

// ownMounts compiles the mounts a container asks for; the second result is the propagation its root needs.
func ownMounts(p runtime.Pod, list []runtime.Mount, host hostFacts) ([]*configs.Mount, int, error) {
	list = slices.Clone(list)
	sort.SliceStable(list, func(i, j int) bool { return depth(list[i].Target) < depth(list[j].Target) })
	var out []*configs.Mount
	root := 0
	for _, m := range list {
		cm, prop, err := ownMount(m, host)
		if err != nil {
			return nil, 0, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if m.Mapped && p.Users != nil && cm.Device == "bind" {
			cm.IDMapping = &configs.MountIDMapping{UIDMappings: idMappings(p), GIDMappings: idMappings(p), Recursive: m.Recursive}
		}
		switch {
		case prop&unix.MS_SHARED != 0:
			root = unix.MS_SHARED | unix.MS_REC
		case prop&unix.MS_SLAVE != 0 && root == 0:
			root = unix.MS_SLAVE | unix.MS_REC
		}
		out = append(out, cm)
	}
	return out, root, nil
}

func depth(p string) int { return strings.Count(path.Clean(p), "/") }

func ownMount(m runtime.Mount, host hostFacts) (*configs.Mount, int, error) {
	if !path.IsAbs(m.Target) || strings.ContainsRune(m.Target, 0) {
		return nil, 0, fmt.Errorf("the target is not an absolute path")
	}
	target := path.Clean(m.Target)
	if target == "/" {
		return nil, 0, fmt.Errorf("a container's root cannot be mounted over")
	}
	cm := &configs.Mount{Source: m.Source, Destination: target, Device: "bind", Flags: unix.MS_BIND}
	switch m.Type {
	case "", "bind":
		if !path.IsAbs(m.Source) {
			return nil, 0, fmt.Errorf("the source %q is not an absolute path", m.Source)
		}
		if m.Recursive {
			cm.Flags |= unix.MS_REC
		}
	case "tmpfs":
		cm.Device, cm.Source, cm.Flags = "tmpfs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV
	default:
		return nil, 0, fmt.Errorf("type %q is neither bind nor tmpfs", m.Type)
	}
	if m.ReadOnly {
		cm.Flags |= unix.MS_RDONLY
		if m.ReadOnlyBelow && !host.recReadOnly {
			return nil, 0, fmt.Errorf("read-only below too needs Linux 5.12 (mount_setattr)")
		}
		if m.ReadOnlyBelow && cm.Device == "bind" {
			cm.RecAttr = &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		}
	}
	if err := mountOptions(cm, m.Options); err != nil {
		return nil, 0, err
	}
	prop := 0
	switch m.Propagation {
	case "":
		prop = unix.MS_PRIVATE | unix.MS_REC
	case "rslave":
		prop = unix.MS_SLAVE | unix.MS_REC
	case "rshared":
		prop = unix.MS_SHARED | unix.MS_REC
	default:
		return nil, 0, fmt.Errorf("propagation %q is not known", m.Propagation)
	}
	cm.PropagationFlags = []int{prop}
	return cm, prop, nil
}

// mountFlags are the options that are the same for every file system.
var mountFlags = map[string]struct {
	flag  int
	clear bool
}{
	"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true},
	"nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
	"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true},
	"noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
	"noatime": {unix.MS_NOATIME, false}, "relatime": {unix.MS_RELATIME, false},
	"nodiratime": {unix.MS_NODIRATIME, false}, "sync": {unix.MS_SYNCHRONOUS, false},
}

func mountOptions(m *configs.Mount, options []string) error {
	var data []string
	for _, o := range options {
		f, known := mountFlags[o]
		switch {
		case known && f.clear:
			m.Flags &^= f.flag
			m.ClearedFlags |= f.flag
		case known:
			m.Flags |= f.flag
			m.ClearedFlags &^= f.flag
		case m.Device == "bind":
			return fmt.Errorf("option %q is not for a bind mount", o)
		default:
			data = append(data, o)
		}
	}
	m.Data = strings.Join(data, ",")
	return nil
}
