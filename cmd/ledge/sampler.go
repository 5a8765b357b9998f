package main

import (
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

// MemoryAvailable implements node.Glancer.
func (s *sampler) MemoryAvailable() (available, mapped, total int64, err error) {
	available, mapped, total, err = s.host.MemoryAvailable()
	if err != nil || !s.workingSet {
		return available, mapped, total, err
	}
	used, err := s.host.WorkingSet()
	return total - used, 0, total, err // of mapped pages it has those that are in use
}

// Sample implements node.Board.
func (s *sampler) Sample() (node.Sample, error) {
	info, err := s.host.Info()
	if err != nil {
		return node.Sample{}, err
	}
	mem, err := s.host.Memory()
	if err != nil {
		return node.Sample{}, err
	}
	available, mapped, _, err := s.MemoryAvailable()
	if err != nil {
		return node.Sample{}, err
	}
	fs, err := s.filesystem(s.dataDir) // objects, volumes and logs
	if err != nil {
		return node.Sample{}, err
	}
	images := filepath.Join(s.dataDir, "images") // and writable layers
	imageFS, err := s.filesystem(images)
	if err != nil {
		return node.Sample{}, err
	}
	most, used, err := s.host.PIDs()
	if err != nil {
		return node.Sample{}, err
	}
	addrs, err := host.Addresses(s.bridge)
	if err != nil {
		return node.Sample{}, err
	}
	return node.Sample{Hostname: info.Hostname, MachineID: info.MachineID, SystemUUID: info.SystemUUID, BootID: info.BootID,
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, OS: info.OS, Arch: info.Arch, CPUs: int64(info.CPUs),
		MemoryTotal: mem.Total, MemoryAvailable: available, MemoryMapped: mapped, SwapTotal: mem.SwapTotal, NodeFS: fs, ImageFS: imageFS, ImageDisk: host.Apart(s.dataDir, images),
		PIDMax: most, PIDUsed: used, Addresses: addrs, HugePages: s.host.HugePages()}, nil
}

func (s *sampler) filesystem(dir string) (node.Filesystem, error) {
	disk, err := s.host.Filesystem(dir)
	return node.Filesystem{Capacity: disk.Capacity, Available: disk.Available, Inodes: disk.Inodes, InodesFree: disk.InodesFree}, err
}
