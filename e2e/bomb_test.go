package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// answers asks the API again and again until stop is called, which tells how often it has answered and how long that took at
// the most. That it says no is an answer too: this client is nobody.
func (b *testBoard) answers() (stop func() (n int, longest time.Duration)) {
	b.t.Helper()
	client := &http.Client{Timeout: testrun.Patience(30 * time.Second),
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	end, done := make(chan struct{}), make(chan error, 1)
	var n int
	var longest time.Duration
	go func() {
		for {
			select {
			case <-end:
				done <- nil
				return
			case <-time.After(50 * time.Millisecond):
			}
			begun := time.Now()
			resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", b.port))
			if err != nil {
				done <- err
				return
			}
			_ = resp.Body.Close()
			n, longest = n+1, max(longest, time.Since(begun))
		}
	}()
	return func() (int, time.Duration) {
		b.t.Helper()
		close(end)
		if err := <-done; err != nil {
			b.t.Errorf("the API does not answer: %v", err)
		}
		client.CloseIdleConnections()
		return n, longest.Round(time.Millisecond)
	}
}

// TestForkBomb: on one CPU, a pod that starts processes without end has no more than it may; the API answers, other pods start and
// run, and the bomb can be removed.
func TestForkBomb(t *testing.T) {
	onHost(t)
	const most = 400
	b := newBoard(t)
	b.configure(fmt.Sprintf("podPidsLimit: %d\n", most))
	b.serve()
	if out, err := exec.Command("taskset", "-apc", "0", strconv.Itoa(b.cmd.Process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("taskset", "-apc", "0", strconv.Itoa(b.keeperPID())).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.importRough()
	b.apply(roughPod("innocent", `"run"`, ""))
	b.running("innocent")
	bomb := roughPod("bomb", `"bomb"`, "")
	b.apply(bomb)
	tasks := func() int64 {
		for _, dir := range []string{"/sys/fs/cgroup/pids/", "/sys/fs/cgroup/"} {
			text, err := os.ReadFile(dir + b.name + "/kubepods/besteffort/pod" + string(b.pod("bomb").UID) + "/pids.current")
			if n, perr := strconv.ParseInt(string(text[:max(0, len(text)-1)]), 10, 64); err == nil && perr == nil {
				return n
			}
		}
		return 0
	}
	b.eventually("the bomb has all that it may have", func() error {
		if n := tasks(); n < most*9/10 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	stop := b.answers()
	begun := time.Now()
	b.apply(roughPod("late", `"run"`, ""))
	b.eventually("another pod starts", func() error { return contains(b.ledge("get", "pod", "late"), " Running ") })
	started := time.Since(begun).Round(time.Millisecond)
	if n := tasks(); n > most {
		t.Errorf("the bomb has %d of %d processes", n, most)
	}
	begun = time.Now()
	b.must("delete", "pod", "bomb")
	b.eventually("the bomb is gone", func() error {
		if pids := b.processes("/kubepods/"); len(pids) != 2 {
			return fmt.Errorf("there are still %d processes", len(pids))
		}
		return nil
	})
	n, longest := stop()
	t.Logf("beside %d processes on one CPU: another pod ran after %v, the bomb was removed in %v, %d answers, the slowest in %v", most,
		started,
		time.Since(begun).Round(time.Millisecond), n, longest)
	b.unhurt("innocent", "late")
}
