package main

import (
	"errors"
	"path/filepath"

	"ledge/host"
	"ledge/node"
)

// sampler shows the agent the machine.
type sampler struct {
	host    *host.Host
	dataDir string
	bridge  string
	// workingSet: memory in use is what Kubernetes calls so.
	workingSet bool
}

var _ node.Glancer = (*sampler)(nil)

func (b *board) sampler(machine *host.Host) *sampler {
	return &sampler{host: machine, dataDir: b.dataDir, bridge: b.bridge, workingSet: b.status.WorkingSet}
}

// MemoryAvailable implements node.Glancer.
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

// Sample implements node.Board.
func (s *sampler) Sample() (node.Sample, error) {
	info, err := s.host.Info()
	if err != nil {
		return node.Sample{}, err
	}
	out := node.Sample{Hostname: info.Hostname, MachineID: info.MachineID, SystemUUID: info.SystemUUID, BootID: info.BootID,
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, OS: info.OS, Arch: info.Arch, CPUs: int64(info.CPUs), HugePages: s.host.HugePages()}
	images := filepath.Join(s.dataDir, "images") // and writable layers
	out.ImageDisk = host.Apart(s.dataDir, images)
	mem, noMemory := s.host.Memory()
	out.MemoryTotal, out.SwapTotal = mem.Total, mem.SwapTotal
	var errs [5]error // each by itself: what can be read is not lost for what cannot
	out.MemoryAvailable, out.MemoryMapped, _, errs[0] = s.MemoryAvailable()
	out.MemoryUnknown = errs[0] != nil
	out.NodeFS, errs[1] = s.filesystem(s.dataDir) // objects, volumes and logs
	out.ImageFS, errs[2] = s.filesystem(images)
	out.PIDMax, out.PIDUsed, errs[3] = s.host.PIDs()
	out.Addresses, errs[4] = host.Addresses(s.bridge)
	out.Unread = errors.Join(append(errs[:], noMemory)...)
	return out, nil
}

func (s *sampler) filesystem(dir string) (node.Filesystem, error) {
	disk, err := s.host.Filesystem(dir)
	return node.Filesystem{Capacity: disk.Capacity, Available: disk.Available, Inodes: disk.Inodes, InodesFree: disk.InodesFree}, err
}
