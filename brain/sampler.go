package brain

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"

	"ledge/config"
	"ledge/host"
	"ledge/network/netns"
	"ledge/node"
	"ledge/node/machine"
)

// sampler shows the agent the machine.
type sampler struct {
	host    *host.Host
	dataDir string
	bridge  string
	// workingSet: memory in use is what Kubernetes calls so.
	workingSet bool
}

// MachineOf is the machine that h reads, as the agent of a board with these settings measures it.
func MachineOf(h *host.Host, s config.Settings) node.Machine {
	return &sampler{host: h, dataDir: s.DataDir, bridge: s.Bridge, workingSet: s.Status.WorkingSet}
}

// Stalled implements node.Machine.
func (s *sampler) Stalled(ctx context.Context, fn func(resource string)) error {
	return s.host.WatchStalls(ctx, []string{"memory", "io", "cpu"}, fn)
}

// OOMs implements node.Machine.
func (s *sampler) OOMs(ctx context.Context, fn func(name string, pid int)) error {
	return s.host.WatchOOM(ctx, func(v host.Victim) { fn(v.Name, v.PID) })
}

// Reclaim implements node.Machine.
func (s *sampler) Reclaim(ctx context.Context, cgroup string, bytes int64) (int64, error) {
	return s.host.Reclaim(ctx, cgroup, bytes)
}

// Dial implements node.Machine.
func (s *sampler) Dial(ctx context.Context, path string, port uint16) (net.Conn, error) {
	return netns.Dial(ctx, path, port)
}

// MemoryAvailable implements node.Machine.
func (s *sampler) MemoryAvailable() (available, mapped, total int64, err error) {
	available, mapped, total, err = s.host.MemoryAvailable()
	if err != nil || !s.workingSet {
		return available, mapped, total, err
	}
	used, err := s.host.WorkingSet()
	if err != nil {
		return 0, 0, 0, err
	}
	return max(0, total-used), 0, total, nil // of mapped pages it has those that are in use
}

// Sample implements node.Machine.
func (s *sampler) Sample() (machine.Sample, error) {
	info, err := s.host.Info()
	if err != nil {
		return machine.Sample{}, err
	}
	out := s.Left()
	out.Hostname, out.MachineID, out.SystemUUID, out.BootID = info.Hostname, info.MachineID, info.SystemUUID, info.BootID
	out.KernelVersion, out.OSImage, out.OS, out.Arch = info.KernelVersion, info.OSImage, info.OS, info.Arch
	out.CPUs, out.HugePages = int64(info.CPUs), s.host.HugePages()
	if out.SwapTotal > 0 {
		swaps, err := s.host.Swaps()
		out.SwapOnDisk = err != nil || slices.ContainsFunc(swaps, func(w host.Swap) bool { return !w.InMemory() })
	}
	not := []string{s.bridge}
	if s.bridge == config.PluginNetwork { // what plugins make has names that nobody here knows
		not = host.Inside(s.host)
	}
	out.Addresses, err = s.host.Addresses(not...)
	out.Unread = errors.Join(out.Unread, err)
	return out, nil
}

// Left implements node.Machine.
func (s *sampler) Left() machine.Sample {
	out, noRoom := s.room()
	mem, noMemory := s.host.Memory()
	out.MemoryTotal, out.SwapTotal = mem.Total, mem.SwapTotal
	var noAvailable error
	out.MemoryAvailable, out.MemoryMapped, _, noAvailable = s.MemoryAvailable()
	out.MemoryUnknown = noAvailable != nil
	out.Unread = errors.Join(noRoom, noMemory, noAvailable)
	return out
}

// Room implements node.Machine.
func (s *sampler) Room() machine.Sample {
	out, _ := s.room() // a look at everything tells why
	return out
}

// room reads disks and processes, each by itself: what can be read is not lost for what cannot.
func (s *sampler) room() (out machine.Sample, _ error) {
	var errs [3]error
	images := filepath.Join(s.dataDir, "images") // and writable layers
	out.ImageDisk = host.Apart(s.dataDir, images)
	out.NodeFS, errs[0] = s.filesystem(s.dataDir) // objects, volumes and logs
	out.ImageFS, errs[1] = s.filesystem(images)
	out.PIDMax, out.PIDUsed, errs[2] = s.host.PIDs()
	return out, errors.Join(errs[:]...)
}

func (s *sampler) filesystem(dir string) (machine.Filesystem, error) {
	disk, err := s.host.Filesystem(dir)
	return machine.Filesystem{Capacity: disk.Capacity, Available: disk.Available, Inodes: disk.Inodes, InodesFree: disk.InodesFree}, err
}
