package main

import (
	"ledge/host"
	"ledge/node"
)

// sampler shows the agent the machine.
type sampler struct {
	host    *host.Host
	dataDir string
	bridge  string
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
	disk, err := s.host.Filesystem(s.dataDir) // objects, images, volumes and logs are all on this one
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
	fs := node.Filesystem{Capacity: disk.Capacity, Available: disk.Available, Inodes: disk.Inodes, InodesFree: disk.InodesFree}
	return node.Sample{Hostname: info.Hostname, MachineID: info.MachineID, SystemUUID: info.SystemUUID, BootID: info.BootID,
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, OS: info.OS, Arch: info.Arch, CPUs: int64(info.CPUs),
		MemoryTotal: mem.Total, MemoryAvailable: mem.Available, SwapTotal: mem.SwapTotal, NodeFS: fs, ImageFS: fs,
		PIDMax: most, PIDUsed: used, Addresses: addrs, HugePages: s.host.HugePages()}, nil
}
