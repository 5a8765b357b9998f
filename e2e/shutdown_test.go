package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/api/board"
	"ledge/cli"
	"ledge/shutdown"
	"ledge/storage"
)

const graded = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: low}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: c, image: ledge.local/self, args: ["sleep", "1h"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: high}
spec:
  priorityClassName: important
  terminationGracePeriodSeconds: 20
  containers: [{name: c, image: ledge.local/self, args: ["sleep", "1h"]}]
`

// TestShutdownAsked: a plan that stops nothing, a wait that is taken back, a shutdown in order, and the way back
// (N-5.8, N-5.10, N-5.18, N-5.22, N-5.34).
func TestShutdownAsked(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	must(t, os.WriteFile(b.config, []byte("shutdownGracePeriodByPodPriority:\n- {priority: 0, shutdownGracePeriodSeconds: 10}\n"+
		"- {priority: 1000, shutdownGracePeriodSeconds: 30}\n"+anyMachine), 0o600))
	b.serve()
	b.apply(graded)
	b.running("low")
	b.running("high")

	plan := b.must("shutdown", "--plan")
	for _, line := range []string{"1 default/low 0 0s 5s #####.....", "2 default/high 1000 10s 20s ####################.........."} {
		if !strings.Contains(strings.Join(strings.Fields(plan), " "), line) {
			t.Errorf("no line %q in\n%s", line, plan)
		}
	}
	b.must("shutdown", "--in", "1h", "--reboot")
	if out := b.must("shutdown", "--plan"); !strings.Contains(out, "asked for and begins in") {
		t.Error(out)
	}
	b.must("shutdown", "--cancel")
	b.eventually("the request is gone", func() error {
		if out := b.ledge("shutdown", "--plan"); strings.Contains(out, "begins in") {
			return errors.New(out)
		}
		return nil
	})
	b.running("low")

	b.must("shutdown", "--now")
	b.eventually("the pods are stopped", func() error { return contains(b.ledge("shutdown", "--plan"), "have been stopped (request)") })
	if left := b.processes("/kubepods/"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	for _, pod := range []string{"low", "high"} {
		if out := b.must("get", "pod", pod); !strings.Contains(out, "Terminated") {
			t.Error(out)
		}
	}
	if out := b.must("get", "node", b.name, "-o", "yaml"); !strings.Contains(out, "node is shutting down") {
		t.Error(out)
	}
	record, err := shutdown.LoadRecord(b.data + "/" + shutdown.RecordName)
	if err != nil || record.Begun.IsZero() || record.Unfinished() || time.Since(record.Begun) > 10*time.Minute {
		t.Errorf("record %+v %v", record, err)
	}
	b.must("shutdown", "--cancel")
	b.eventually("the node is Ready again", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
	b.running("low") // a shutdown that does not happen costs no pod (architecture: Bare pods come back)
	b.running("high")
	b.apply(webPod)
	b.running("web")

	// One that is carried out gives them back to the next start, in the same boot too.
	b.must("shutdown", "--now")
	b.eventually("the pods are stopped", func() error { return contains(b.ledge("shutdown", "--plan"), "have been stopped (request)") })
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	b.serve()
	b.running("low")
	b.running("web")
	for _, bad := range [][]string{{"shutdown"}, {"shutdown", "--now", "--cancel"}, {"shutdown", "--plan", "--reboot"}} {
		if out, err := b.try(bad...); err == nil {
			t.Errorf("%v was accepted: %s", bad, out)
		}
	}
}

// TestBrainDiesInShutdown: a shutdown that has begun goes on when the process that was told of it is killed; one that has been
// taken back does not begin again.
func TestBrainDiesInShutdown(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	must(t, os.WriteFile(b.config, []byte("shutdownGracePeriod: 60s\n"+anyMachine), 0o600))
	b.serve()
	b.importRough()
	// What is never restarted does not come back either, once a shutdown has stopped it.
	b.apply(strings.NewReplacer("PeriodSeconds: 2", "PeriodSeconds: 10", "Policy: Never",
		"Policy: Always").Replace(roughPod("deaf", `"ignore"`, "")))
	b.running("deaf")
	b.must("shutdown", "--now", "--reboot")
	b.eventually("the shutdown runs", func() error { return contains(b.ledge("shutdown", "--plan"), "A shutdown is running (request)") })
	_ = b.signal(syscall.SIGKILL) // its verdict is the kill
	if len(b.processes("/kubepods/")) == 0 {
		t.Fatal("the pod has ended: this test shows nothing")
	}
	b.start()
	b.eventually("the pods are stopped", func() error { return contains(b.ledge("shutdown", "--plan"), "have been stopped (request)") })
	if left := b.processes("/kubepods/"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	record, err := shutdown.LoadRecord(filepath.Join(b.data, shutdown.RecordName))
	if err != nil || record.Unfinished() || record.Tries != 1 || record.After != shutdown.ThenReboot {
		t.Errorf("record %+v %v", record, err)
	}
	b.must("shutdown", "--cancel")
	b.running("deaf") // again
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.running("deaf") // still
	if out := b.must("shutdown", "--plan"); strings.Contains(out, "is running") || strings.Contains(out, "have been stopped") {
		t.Error(out)
	}
}

func TestPlanChart(t *testing.T) {
	var r board.Shutdown
	if err := json.Unmarshal([]byte(`{"lock":{"held":true,"grantedSeconds":5,"wantedSeconds":30},"plan":{"totalSeconds":5,"wantedSeconds":30,"stages":[
		{"priority":0,"seconds":0,"pods":[{"pod":"default/a","priority":0,"seconds":0}]},
		{"priority":2000000000,"seconds":5,"pods":[{"pod":"kube-system/b","priority":2000000000,"seconds":2.5}]}]}}`), &r); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := cli.PrintShutdown(&out, &r, time.Now()); err != nil {
		t.Fatal(err)
	}
	const want = `STAGE   POD             PRIORITY     FROM   AT MOST   0s                                    5s
1       default/a       0            0s     0s        #
2       kube-system/b   2000000000   0s     2.5s      ####################....................
There is less time than the configuration wants (30s): the lowest priorities are cut.
logind holds up a shutdown for 5s only, 30s are wanted: look for InhibitDelayMaxSec in /etc/systemd/logind.conf.d.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestBatteryRunsOut: a board whose battery is nearly empty stops its pods, and goes on when the mains are back (N-5.22);
// a supply that sags and what hears of shutdowns are on its Node, the times of the shutdown among its metrics (N-5.33).
func TestBatteryRunsOut(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	bat := filepath.Join(t.TempDir(), "BAT0")
	must(t, os.Mkdir(bat, 0o755))
	says := func(status, capacity string) {
		for name, text := range map[string]string{"type": "Battery", "present": "1", "capacity": capacity, "status": status} {
			must(t, os.WriteFile(filepath.Join(bat, name), []byte(text+"\n"), 0o644))
		}
	}
	says("Charging", "80")
	alarm := filepath.Join(t.TempDir(), "hwmon0", "in0_lcrit_alarm")
	must(t, os.Mkdir(filepath.Dir(alarm), 0o755))
	must(t, os.WriteFile(alarm, []byte("1\n"), 0o644))
	b.configure("power: {supplies: " + filepath.Dir(bat) + ", batteryLow: 15, sensors: " + filepath.Dir(filepath.Dir(alarm)) + "}\n")
	b.serve()
	b.apply(webPod)
	b.running("web")
	b.eventually("the weak supply is told", func() error { return contains(b.ledge("get", "events"), "LowVoltage") })
	b.eventually("the Node tells", func() error {
		out := b.ledge("get", "node", b.name, "-o", "json")
		return errors.Join(contains(out, "SupplySags"), contains(out, "heard of from: signals, requests, battery"))
	})
	if out := b.ledge("doctor", "--data-dir", b.data); !strings.Contains(out, "orderly shutdown") {
		t.Error(out)
	}
	const begun, ended = "kubelet_graceful_shutdown_start_time_seconds ", "kubelet_graceful_shutdown_end_time_seconds "
	if out := b.page("/metrics"); !strings.Contains(out, begun+"0\n") || !strings.Contains(out, ended+"0\n") {
		t.Error(out)
	}
	says("Discharging", "15")
	b.eventually("the pods are stopped", func() error { return contains(b.ledge("shutdown", "--plan"), "have been stopped (battery)") })
	if left := b.processes("/kubepods/"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if out := b.page("/metrics"); !strings.Contains(out, begun+"1") && !strings.Contains(out, begun+"2") ||
		strings.Contains(out, ended+"0\n") {
		t.Error(out)
	}
	says("Charging", "16")
	b.eventually("the node is Ready again", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
}

// page is what the node serves at a path.
func (b *testBoard) page(path string) string {
	b.t.Helper()
	resp, err := (&cli.Command{RunDir: b.runDir}).Raw(b.t.Context(), "GET", path, nil, "", nil)
	must(b.t, err)
	data, err := io.ReadAll(resp.Body)
	must(b.t, errors.Join(err, resp.Body.Close()))
	return string(data)
}

// TestPowerCut: after a boot that nobody ended in order the node says so (N-4.11, N-5.35); after any other start it does not.
func TestPowerCut(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	told := func() string { return b.must("get", "events") }
	b.serve()
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	if out := told(); strings.Contains(out, "UncleanShutdown") {
		t.Errorf("the process was killed, the machine ran on: %s", out)
	}
	_ = b.signal(syscall.SIGKILL)
	b.asIfRebooted()
	b.serve()
	b.eventually("the node tells", func() error { return contains(told(), "UncleanShutdown") })
}

// asIfRebooted writes another boot id into the store of a killed board, and leaves it as little closed as it was.
func (b *testBoard) asIfRebooted() {
	b.t.Helper()
	dir, aside := filepath.Join(b.data, "store"), filepath.Join(b.t.TempDir(), "store")
	must(b.t, exec.Command("cp", "-a", dir, aside).Run())
	s, err := storage.Open(b.t.Context(), storage.Config{Dir: aside, Check: storage.CheckChild(ledgeBin(b.t), "check-db")})
	must(b.t, err)
	must(b.t, s.Table("settings").Put("bootID", []byte("an earlier boot")))
	must(b.t, os.RemoveAll(dir))
	must(b.t, exec.Command("cp", "-a", aside, dir).Run())
	must(b.t, s.Close())
}
