package brain

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"ledge/config"
	"ledge/host"
	"ledge/node/machine"
)

// toldMachine is a machine of these files, and a data directory below it.
func toldMachine(t *testing.T, files map[string]string) (h *host.Host, dataDir string) {
	t.Helper()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "data/images"), 0o755))
	for name, text := range files {
		path := filepath.Join(root, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)))
	}
	return host.New(host.Config{Proc: root + "/proc", Sys: root + "/sys", Etc: root + "/etc", Run: root + "/run", Root: root}), root + "/data"
}

// wholeMachine is one that says all there is to say.
func wholeMachine() map[string]string {
	return map[string]string{
		"proc/meminfo":                "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nActive(file): 90 kB\nInactive(file): 80 kB\nMapped: 30 kB\n",
		"proc/loadavg":                "0.1 0.2 0.3 2/431 999\n",
		"proc/sys/kernel/hostname":    "board\n",
		"proc/sys/kernel/pid_max":     "9000\n",
		"proc/sys/kernel/threads-max": "9000\n",
		"sys/fs/cgroup/memory.stat":   "anon 512000\nfile 204800\ninactive_file 102400\n",
	}
}

// sampled are the settings of a file at work on a machine.
func sampled(t *testing.T, file string, h *host.Host, dataDir string) *sampler {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte("failSwapOn: false\n"+file), 0o600))
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	o := config.ServeFlags(f)
	must(t, f.Parse([]string{"--config", path, "--config-dir", ""}))
	s, err := o.Resolve(f)
	must(t, err)
	s.DataDir = dataDir
	return MachineOf(h, s).(*sampler)
}

// TestMemorySignal: the switch decides what is read, at looks and at the glances between them.
func TestMemorySignal(t *testing.T) { // N-6.1 to N-6.5, docs/decisions/0025
	h, dir := toldMachine(t, wholeMachine())
	for file, want := range map[string][2]int64{ // available, and mapped of that
		"":                                     {600 << 10, 30 << 10},
		"evictionMemorySignal: MemAvailable\n": {600 << 10, 30 << 10},
		"evictionMemorySignal: WorkingSet\n":   {400 << 10, 0},
	} {
		s := sampled(t, file, h, dir)
		available, mapped, total, err := s.MemoryAvailable()
		if err != nil || available != want[0] || mapped != want[1] || total != 1000<<10 {
			t.Errorf("%q: a glance has %d of %d, %d mapped, %v", file, available, total, mapped, err)
		}
		if got, err := s.Sample(); err != nil || got.Unread != nil || got.MemoryUnknown || got.MemoryAvailable != want[0] ||
			got.MemoryMapped != want[1] {
			t.Errorf("%q: a look has %+v, %v", file, got, err)
		}
	}
}

// TestSwapOnDisk: zram is swap, and no disk.
func TestSwapOnDisk(t *testing.T) { // N-8.14
	const head, zram, file = "Filename Type Size Used Priority\n", "/dev/zram0 partition 2048 0 100\n", "/var/swap file 1024 0 -2\n"
	for swaps, want := range map[string]bool{"": false, head: false, head + zram: false, head + zram + file: true, head + file: true} {
		files := wholeMachine()
		files["proc/swaps"] = swaps
		if swaps != "" && swaps != head {
			files["proc/meminfo"] += "SwapTotal: 50 kB\nSwapFree: 40 kB\n"
		}
		h, dir := toldMachine(t, files)
		if s, err := sampled(t, "", h, dir).Sample(); err != nil || s.SwapOnDisk != want {
			t.Errorf("%q: %v, %v", swaps, s.SwapOnDisk, err)
		}
	}
}

// TestSampleInParts: what cannot be read takes nothing else with it.
func TestSampleInParts(t *testing.T) { // N-6.7
	type parts struct{ memory, total, pids, nodefs, imagefs bool }
	for name, c := range map[string]struct {
		file    string
		without string
		want    parts
	}{
		"everything":                  {"", "", parts{true, true, true, true, true}},
		"no memory of cgroups":        {"evictionMemorySignal: WorkingSet\n", "sys/fs/cgroup/memory.stat", parts{false, true, true, true, true}},
		"which is nothing to others":  {"", "sys/fs/cgroup/memory.stat", parts{true, true, true, true, true}},
		"no memory":                   {"", "proc/meminfo", parts{false, false, true, true, true}},
		"no processes":                {"", "proc/sys/kernel/pid_max", parts{true, true, false, true, true}},
		"no file system for images":   {"", "data/images", parts{true, true, true, true, false}},
		"no file system for anything": {"", "data", parts{true, true, true, false, false}},
	} {
		h, dir := toldMachine(t, wholeMachine())
		if c.without != "" {
			must(t, os.RemoveAll(filepath.Join(filepath.Dir(dir), c.without)))
		}
		s, err := sampled(t, c.file, h, dir).Sample()
		got := parts{!s.MemoryUnknown && s.MemoryAvailable > 0, s.MemoryTotal > 0, s.PIDMax == 9000 && s.PIDUsed == 431,
			s.NodeFS != (machine.Filesystem{}), s.ImageFS != (machine.Filesystem{})}
		if err != nil || got != c.want || s.Hostname != "board" {
			t.Errorf("%s: read %+v, want %+v, %v", name, got, c.want, err)
		}
		if all := c.want == (parts{true, true, true, true, true}); (s.Unread == nil) != all {
			t.Errorf("%s: says %v", name, s.Unread)
		}
	}
}
