// Package machine is what a look at the hardware and the kernel of a board shows. Who looks says what of it is asked for (node.Machine);
// package fake plays one.
package machine

import (
	"net/netip"
	"time"

	"ledge/node/pressure"
)

// Sample is the machine at one moment. What could not be read has no capacity.
type Sample struct {
	Hostname        string
	MachineID       string
	SystemUUID      string
	BootID          string
	KernelVersion   string
	OSImage         string
	OS, Arch        string
	CPUs            int64
	MemoryTotal     int64
	MemoryAvailable int64
	MemoryMapped    int64 // part of what is available: file pages that processes have mapped
	MemoryUnknown   bool  // what is available could not be read, whether the total could or not
	SwapTotal       int64
	SwapOnDisk      bool // some of it is not compressed memory
	NodeFS, ImageFS Filesystem
	ImageDisk       bool // images have a disk of their own
	PIDMax, PIDUsed int64
	Addresses       []netip.Addr // usable ones, the default route's first
	HugePages       map[string]int64
	Unread          error // why something could not be read; nil: all could
}

// Filesystem is the room on one file system.
type Filesystem struct{ Capacity, Available, Inodes, InodesFree int64 }

// Since fills in, from what was known before, the capacities that could not be read: a Node has not less because a file cannot be.
func (s Sample) Since(before Sample) (Sample, error) {
	if s.Unread == nil {
		return s, nil
	}
	if s.MemoryTotal == 0 {
		s.MemoryTotal, s.SwapTotal, s.SwapOnDisk = before.MemoryTotal, before.SwapTotal, before.SwapOnDisk
	}
	if s.NodeFS.Capacity == 0 {
		s.NodeFS.Capacity = before.NodeFS.Capacity
	}
	if s.PIDMax == 0 {
		s.PIDMax = before.PIDMax
	}
	if s.MemoryTotal == 0 || s.NodeFS.Capacity == 0 {
		return s, s.Unread // there is no Node without
	}
	return s, nil
}

// Readings turns a sample into signals. One that could not be read is not there: it decides nothing (N-6.7).
func (s Sample) Readings(p pressure.Policy, now time.Time) pressure.Readings {
	out := pressure.Readings{}
	put := func(sig pressure.Signal, avail, total int64) {
		if total > 0 {
			out[sig] = pressure.Reading{Available: avail, Capacity: total, At: now}
		}
	}
	if !s.MemoryUnknown {
		put(pressure.MemoryAvailable, p.Spare(s.MemoryAvailable, s.MemoryMapped, s.MemoryTotal), s.MemoryTotal)
	}
	put(pressure.NodeFSAvailable, s.NodeFS.Available, s.NodeFS.Capacity)
	put(pressure.NodeFSInodesFree, s.NodeFS.InodesFree, s.NodeFS.Inodes)
	containers := s.NodeFS
	if s.Layout() == pressure.ImageDisk {
		containers = s.ImageFS
	}
	put(pressure.ContainerFSAvailable, containers.Available, containers.Capacity)
	put(pressure.ContainerFSInodesFree, containers.InodesFree, containers.Inodes)
	put(pressure.ImageFSAvailable, s.ImageFS.Available, s.ImageFS.Capacity)
	put(pressure.ImageFSInodesFree, s.ImageFS.InodesFree, s.ImageFS.Inodes)
	put(pressure.PIDAvailable, s.PIDMax-s.PIDUsed, s.PIDMax)
	return out
}

// Layout is how disks are shared out.
func (s Sample) Layout() pressure.Layout {
	if s.ImageDisk {
		return pressure.ImageDisk
	}
	return pressure.OneDisk
}
