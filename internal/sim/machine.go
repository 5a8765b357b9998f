package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/host"
	"ledge/node/machine"
	machinefake "ledge/node/machine/fake"
)

// Machine is the board's hardware as the agent reads it, and its disk.
type Machine struct {
	disk string
	size int64
	root string     // what host reads: /proc and the like
	host *host.Host // of root

	mu     sync.Mutex
	sample machine.Sample
	fail   error
}

func newMachine(disk string, size int64) *Machine {
	sample := machinefake.Board("sim")
	sample.MachineID, sample.SystemUUID, sample.OSImage = "b0a4d", "5e41a1", "Simulated"
	return &Machine{disk: disk, size: size, sample: sample}
}

// look is what the hardware shows.
func (m *Machine) look() (machine.Sample, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sample, m.fail
}

// keys is a directory without power keys.
func (m *Machine) keys() string { return filepath.Join(m.root, "dev/input") }

// show makes the files in which a brain reads what the machine is.
func (m *Machine) show(root string) error {
	m.root = root
	files := map[string]string{"proc/sys/kernel/osrelease": m.sample.KernelVersion + "\n", "proc/net/route": "Iface\tDestination\n",
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n", "etc/resolv.conf": "nameserver 192.0.2.1\n"}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup", "user"} {
		files["proc/self/ns/"+ns] = ""
	}
	for name, text := range files {
		if err := m.say(name, text); err != nil {
			return err
		}
	}
	at := func(dir string) string { return filepath.Join(root, dir) }
	m.host = host.New(host.Config{Proc: at("proc"), Sys: at("sys"), Etc: at("etc"), Run: at("run"), Root: root,
		Interfaces: func() ([]host.Interface, error) {
			return []host.Interface{{Name: "eth0", Up: true, Addresses: []netip.Prefix{netip.PrefixFrom(m.sample.Addresses[0], 24)}}}, nil
		},
		ClockSynced:    func() (bool, error) { return true, nil },
		OverlayCapable: func(string) error { return nil }})
	return m.booted(m.sample.BootID)
}

// say has a file of the machine say something.
func (m *Machine) say(name, text string) error {
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// booted has the machine begin another boot.
func (m *Machine) booted(id string) error {
	m.Change(func(s *machine.Sample) { s.BootID = id })
	return m.say("proc/sys/kernel/random/boot_id", id+"\n")
}

// Change turns the hardware into something else.
func (m *Machine) Change(fn func(*machine.Sample)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn(&m.sample)
}

// mount gives the board a disk of its own, small and in memory; without root it is a directory, and FillDisk does
// nothing.
func (m *Machine) mount() (unmount func(), err error) {
	if err := os.MkdirAll(m.disk, 0o700); err != nil {
		return nil, err
	}
	if os.Getuid() != 0 {
		return func() {}, nil
	}
	if err := unix.Mount("tmpfs", m.disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", m.size)); err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	return func() {
		if err := unix.Unmount(m.disk, unix.MNT_DETACH); err != nil {
			panic("sim: cannot unmount " + m.disk + ": " + err.Error())
		}
	}, nil
}

func (m *Machine) ballast() string { return filepath.Join(m.disk, "ballast") }

// fill writes until the disk takes no more. False: this disk cannot be filled.
func (m *Machine) fill() (bool, error) {
	if os.Getuid() != 0 {
		return false, nil
	}
	f, err := os.Create(m.ballast())
	if err != nil {
		return false, err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return false, err
		}
	}
	m.Change(func(s *machine.Sample) { s.NodeFS.Available, s.ImageFS.Available = 0, 0 })
	return true, nil
}

// full says whether the disk is.
func (m *Machine) full() bool {
	_, err := os.Stat(m.ballast())
	return err == nil
}

// empty makes room again; a disk that has room is left alone.
func (m *Machine) empty() error {
	m.Change(func(s *machine.Sample) { s.NodeFS.Available, s.ImageFS.Available = 20<<30, 20<<30 })
	if err := os.Remove(m.ballast()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
