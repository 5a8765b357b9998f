// Package fake is a machine that is played: what it shows follows from one function, and its kernel does what it is told to.
package fake

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"

	"ledge/node/machine"
)

// Machine is a played node.Machine. It must have See; each other function may be nil, and then it cannot do that.
type Machine struct {
	// See is a look at everything. All that is smaller is a part of it.
	See func() (machine.Sample, error)
	// Before is called before each look at disks: at all of the machine, or only at its room. It may take its time.
	Before func(all bool)
	// Mute: what is available of memory cannot be told between two looks.
	Mute bool
	// Waits has what tasks have to wait for; nil: the kernel does not tell. Kills are processes that the kernel has to kill.
	Waits <-chan string
	Kills <-chan Victim
	// Take gives memory of a cgroup back.
	Take func(ctx context.Context, cgroup string, bytes int64) (int64, error)
}

// Victim is a process that the kernel kills.
type Victim struct {
	Name string
	PID  int
}

// Of is a machine that is always the same.
func Of(s machine.Sample) Machine {
	return Machine{See: func() (machine.Sample, error) { return s, nil }}
}

// Board is a look at a small board that is short of nothing.
func Board(name string) machine.Sample {
	disk := machine.Filesystem{Capacity: 32 << 30, Available: 20 << 30, Inodes: 1 << 20, InodesFree: 1 << 19}
	return machine.Sample{Hostname: name, MachineID: name, SystemUUID: name, BootID: "boot-1", KernelVersion: "6.12.0", OSImage: "Played",
		OS: "linux", Arch: "arm64", CPUs: 4, MemoryTotal: 4 << 30, MemoryAvailable: 3 << 30, NodeFS: disk, ImageFS: disk, PIDMax: 32768,
		PIDUsed: 200, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 10})}}
}

// Sample implements node.Machine.
func (m Machine) Sample() (machine.Sample, error) {
	m.before(true)
	return m.See()
}

// Left implements evict.Machine.
func (m Machine) Left() machine.Sample {
	s, err := m.Sample()
	s.Unread = errors.Join(s.Unread, err)
	return s
}

// Room implements evict.Machine.
func (m Machine) Room() machine.Sample {
	m.before(false)
	s, _ := m.See()
	return machine.Sample{NodeFS: s.NodeFS, ImageFS: s.ImageFS, ImageDisk: s.ImageDisk, PIDMax: s.PIDMax, PIDUsed: s.PIDUsed}
}

func (m Machine) before(all bool) {
	if m.Before != nil {
		m.Before(all)
	}
}

// MemoryAvailable implements evict.Machine.
func (m Machine) MemoryAvailable() (available, mapped, total int64, err error) {
	if m.Mute {
		return 0, 0, 0, errors.New("this machine tells nothing between two looks")
	}
	s, err := m.See()
	if s.MemoryUnknown {
		err = errors.Join(err, errors.New("what is available cannot be read"))
	}
	return s.MemoryAvailable, s.MemoryMapped, s.MemoryTotal, err
}

// Stalled implements evict.Machine.
func (m Machine) Stalled(ctx context.Context, fn func(resource string)) error {
	if m.Waits == nil {
		return errors.New("this kernel does not tell")
	}
	return each(ctx, m.Waits, fn)
}

// OOMs implements evict.Machine.
func (m Machine) OOMs(ctx context.Context, fn func(name string, pid int)) error {
	return each(ctx, m.Kills, func(v Victim) { fn(v.Name, v.PID) })
}

func each[T any](ctx context.Context, from <-chan T, fn func(T)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case v := <-from:
			fn(v)
		}
	}
}

// Reclaim implements evict.Machine.
func (m Machine) Reclaim(ctx context.Context, cgroup string, bytes int64) (int64, error) {
	if m.Take == nil {
		return 0, fs.ErrNotExist
	}
	return m.Take(ctx, cgroup, bytes)
}

// Dial implements node.Machine.
func (Machine) Dial(context.Context, string, uint16) (net.Conn, error) {
	return nil, errors.New("a played machine has no network namespaces")
}
