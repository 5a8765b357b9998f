package runtimetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/runtime"
	"ledge/runtime/keeper"
	"ledge/runtime/runtimetest"
)

// benchKeeper is a keeper process for a benchmark.
func benchKeeper(b *testing.B) *keeperProc {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	k := &keeperProc{dir: b.TempDir(), root: cgroupRoot() + "b"}
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	k.client = keeper.New(keeper.ClientConfig{RunDir: k.dir, Command: []string{exe}, Env: k.env()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.client.Run(ctx) }()
	if _, err := k.client.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cancel()
		<-done
		if err := k.client.Reset(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return k
}

func benchRootfs(b *testing.B) string {
	dir := b.TempDir()
	if err := os.Link(testprog, filepath.Join(dir, runtimetest.Program)); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkStart is one container from Start to the news of its exit, through the socket; the program does nothing.
// "running-ms" is the part until Start has answered.
func BenchmarkStart(b *testing.B) {
	k := benchKeeper(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan string, 16)
	go func() {
		_ = k.client.Watch(ctx, func(st runtime.Status) {
			if st.Phase == runtime.Exited {
				ended <- st.ID
			}
		})
	}()
	p := runtimetest.NewPod()
	if _, err := k.client.EnsurePod(ctx, p); err != nil {
		b.Fatal(err)
	}
	root := benchRootfs(b)
	var running time.Duration
	b.ResetTimer()
	for b.Loop() {
		c := runtime.Container{ID: runtimetest.Unique("b"), PodUID: p.UID, Rootfs: root, Args: []string{runtimetest.Program, "exit", "0"},
			Capabilities: usualCaps}
		began := time.Now()
		if _, err := k.client.Start(ctx, c); err != nil {
			b.Fatal(err)
		}
		running += time.Since(began)
		if id := <-ended; id != c.ID {
			b.Fatalf("told of %s", id)
		}
		b.StopTimer()
		if err := k.client.Remove(ctx, c.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(running.Microseconds())/1000/float64(b.N), "running-ms")
}

// BenchmarkExec is one command in a running container, through the socket; the program does nothing.
func BenchmarkExec(b *testing.B) {
	k := benchKeeper(b)
	p := runtimetest.NewPod()
	if _, err := k.client.EnsurePod(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	c := runtime.Container{ID: runtimetest.Unique("b"), PodUID: p.UID, Rootfs: benchRootfs(b), Args: []string{runtimetest.Program, "ignore"},
		Capabilities: usualCaps}
	if _, err := k.client.Start(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		x, err := k.client.Exec(b.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "exit", "0"}})
		if err != nil || x.Code != 0 {
			b.Fatal(x, err)
		}
	}
}

// BenchmarkPod is making and removing a pod without containers.
func BenchmarkPod(b *testing.B) {
	k := benchKeeper(b)
	for b.Loop() {
		p := runtimetest.NewPod()
		if _, err := k.client.EnsurePod(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		if err := k.client.RemovePod(b.Context(), p.UID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory is not about time: the keeper's memory with no pod and with 20 that idle.
func BenchmarkMemory(b *testing.B) {
	k := benchKeeper(b)
	for b.Loop() {
		pid := benchKeeperPid(b, k)
		before := pss(b, pid)
		for range 20 {
			p := runtimetest.NewPod()
			if _, err := k.client.EnsurePod(b.Context(), p); err != nil {
				b.Fatal(err)
			}
			if _, err := k.client.Start(b.Context(), runtime.Container{ID: runtimetest.Unique("b"), PodUID: p.UID,
				Rootfs: benchRootfs(b), Args: []string{runtimetest.Program, "ignore"}, LogPath: filepath.Join(b.TempDir(), "log")}); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		after := pss(b, pid)
		b.ReportMetric(float64(before["Pss"]), "idle-pss-kB")
		b.ReportMetric(float64(before["Pss_Anon"]), "idle-anon-kB")
		b.ReportMetric(float64(after["Pss"]), "20pods-pss-kB")
		b.ReportMetric(float64(after["Pss_Anon"]), "20pods-anon-kB")
	}
}

func benchKeeperPid(b *testing.B, k *keeperProc) int {
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range procs {
		env, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(env), "LEDGE_TEST_RUNDIR="+k.dir+"\x00") {
			var pid int
			_, _ = fmt.Sscanf(p, "/proc/%d/", &pid)
			return pid
		}
	}
	b.Fatal("no keeper")
	return 0
}

func pss(b *testing.B, pid int) map[string]int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		key, val, _ := strings.Cut(line, ":")
		var n int
		if _, err := fmt.Sscan(val, &n); err == nil {
			out[key] = n
		}
	}
	return out
}
