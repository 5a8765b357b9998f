package runtimetest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ledge/internal/testrun"
	"ledge/runtime/keeper"
	"ledge/runtime/runtimetest"
)

// TestDelegated: a keeper that systemd gives a cgroup of its own (Delegate=yes) settles there: itself in a leaf, its pods
// beside it, with every limit.
func TestDelegated(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd")
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("needs cgroup v2")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, unit := t.TempDir(), "ledge-test-"+testrun.Mark()+".service"
	cmd := exec.Command("systemd-run", "--quiet", "--collect", "--wait", "--pipe", "--unit="+unit, "--property=Delegate=yes",
		"--setenv=LEDGE_TEST_ROLE=keeper", "--setenv=LEDGE_TEST_RUNDIR="+dir, exe)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := keeper.New(keeper.ClientConfig{RunDir: dir, Log: testLog(t)})
	t.Cleanup(func() {
		if err := client.Reset(context.Background()); err != nil {
			t.Errorf("Reset: %v", err)
			_ = exec.Command("systemctl", "kill", "--signal=KILL", unit).Run() // so that Wait ends
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", unit, err)
		}
	})
	root := "/system.slice/" + unit
	if info := waitReady(t, client); info.CgroupRoot != root {
		t.Fatalf("the cgroup root is %s, want %s", info.CgroupRoot, root)
	}
	own, err := os.ReadFile("/proc/" + strconv.Itoa(keeperPid(t, dir)) + "/cgroup")
	if err != nil || strings.TrimSpace(string(own)) != "0::"+root+"/keeper" {
		t.Errorf("the keeper is in %s %v", own, err)
	}
	s := runtimetest.Setup{Engine: client, Rootfs: rootfs, Left: func(t *testing.T) { left(t, client, root, dir) }}
	p := s.Pod(t)
	c := s.NewContainer(t, p, "ignore")
	c.Resources.MemoryBytes, c.Resources.PidsLimit, c.Resources.CPUShares = 64<<20, 100, 512
	s.Start(t, c)
	for file, want := range map[string]string{"memory.max": "67108864", "pids.max": "100", "cpu.weight": "20"} {
		have, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", root, p.Cgroup, c.ID, file))
		if err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("%s: %q %v, want %s", file, have, err, want)
		}
	}
}
