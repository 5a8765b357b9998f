package libct

import (
	"embed"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"ledge/runtime"
)

var update = flag.Bool("update", false, "write the golden files anew")

//go:embed testdata
var golden embed.FS

// TestGolden: all that libcontainer is told of an ordinary and of a privileged container, so that a change of any of it is
// seen by who reads the change. Left out: the system calls of the filter (TestSeccomp...), and the host's own devices.
func TestGolden(t *testing.T) {
	adj := 937
	pod := runtime.Pod{UID: "u", Name: "web", Namespace: "default", Hostname: "web-0", Cgroup: "kubepods/burstable/podu"}
	c := runtime.Container{Name: "app", Rootfs: "/roots/c1", Args: []string{"/app"}, User: runtime.User{UID: 1000, GID: 1000},
		NoNewPrivs: true, ReadonlyRootfs: true,
		Capabilities: []string{"CAP_CHOWN", "CAP_NET_BIND_SERVICE"}, Rlimits: []runtime.Rlimit{{Type: "RLIMIT_CORE"}},
		Mounts: []runtime.Mount{{Source: "/vol/a", Target: "/data"}, {Source: "/vol/b", Target: "/conf", ReadOnly: true},
			{Type: "tmpfs", Target: "/tmp", Options: []string{"size=1m"}}},
		Resources: runtime.Resources{CPUShares: 102, CPUQuotaUS: 50000, CPUPeriodUS: 100000, MemoryBytes: 64 << 20, PidsLimit: 100,
			OOMScoreAdj: &adj}}
	mighty := c
	mighty.Privileged, mighty.NoNewPrivs, mighty.ReadonlyRootfs, mighty.Capabilities = true, false, false, []string{"ALL"}
	for name, in := range map[string]struct {
		unified bool
		c       runtime.Container
	}{"ordinary-v2": {true, c}, "ordinary-v1": {false, c}, "privileged-v2": {true, mighty}} {
		cfg := compile(t, testRunner(in.unified), pod, in.c)
		if in.c.Privileged == (cfg.Seccomp != nil) {
			t.Errorf("%s: seccomp %v", name, cfg.Seccomp)
		}
		if cfg.Seccomp != nil {
			cfg.Seccomp.Syscalls = nil
		}
		if in.c.Privileged {
			if len(cfg.Devices) == 0 {
				t.Errorf("%s: no devices", name)
			}
			cfg.Devices = nil
		}
		got, err := json.MarshalIndent(cfg, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		file := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want, err := golden.ReadFile(file); err != nil || string(want) != string(got) {
			t.Errorf("%v; go test -update writes it anew. %s is now:\n%s", err, file, got)
		}
	}
}
