package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/internal/nspawn"
	"ledge/internal/testrun"
)

// probeEnv makes the test binary play ledge as a service inside the container.
const probeEnv = "LEDGE_SHUTDOWN_PROBE"

func TestMain(m *testing.M) {
	if path := os.Getenv(probeEnv); path != "" {
		probe(path)
		return
	}
	os.Exit(m.Run())
}

// diary is the log the container leaves behind.
type diary struct {
	mu sync.Mutex
	f  *os.File
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.f, format+"\n", args...)
	_ = d.f.Sync()
}

// pretend is a node with two pods that take a moment to stop.
type pretend struct {
	*diary
	mu   sync.Mutex
	left map[string]*corev1.Pod
}

func (p *pretend) Close(message string) { p.write("close %q", message) }

func (p *pretend) Pods() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*corev1.Pod
	for _, q := range p.left {
		out = append(out, q)
	}
	return out
}

func (p *pretend) StopPod(ctx context.Context, uid types.UID, grace time.Duration) error {
	p.write("stop %s %s", uid, grace)
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, string(uid))
	p.write("stopped %s", uid)
	return nil
}

func (p *pretend) Clear() { p.write("clear") }

func (p *pretend) Flush(context.Context) error { p.write("flush"); return nil }

func probe(path string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		slog.Error("probe", "err", err)
		os.Exit(1)
	}
	d := &diary{f: f}
	end := func(word string) func() { return func() { d.write("%s", word); os.Exit(0) } }
	l := &Logind{Want: Default.Total()}
	m, err := NewManager(ManagerConfig{Node: &pretend{diary: d,
		left: map[string]*corev1.Pod{"low": pod("low", 0, 30), "high": pod("high", criticalPriority, 30)}},
		NodeName: "n", Sources: []Source{l, &Signals{Detach: end("detach"), Exit: end("exit")}}})
	if err != nil {
		d.write("failed %v", err)
		os.Exit(1)
	}
	go func() {
		for !l.Status().Held {
			time.Sleep(10 * time.Millisecond)
		}
		d.write("held %s", l.Status().Granted)
	}()
	if err := m.Run(context.Background()); err != nil {
		d.write("failed %v", err)
	}
}

const (
	driverUnit = `[Unit]
After=probe.service
[Service]
Type=oneshot
ExecStart=/bin/sh /out/driver.sh
`
	probeUnit = `[Unit]
After=dbus.socket systemd-logind.service
[Service]
Environment=` + probeEnv + `=/out/log
ExecStart=/out/probe
KillMode=process
TimeoutStopSec=20
`
	targetUnit = `[Unit]
Requires=basic.target dbus.socket systemd-logind.service
Wants=probe.service driver.service
After=basic.target
`
)

// boot runs a small machine with two units until it has powered itself off, and gives what it wrote down.
func boot(t *testing.T, driver string) (diary []string, out string) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine")
	}
	testrun.OnHost(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, _ = nspawn.Machine{Name: "ledge-shutdown", Target: "test.target", Programs: map[string]string{"probe": self},
		Out: map[string]string{"driver.sh": driver},
		Files: map[string]string{
			"etc/systemd/system/probe.service":  probeUnit,
			"etc/systemd/system/driver.service": driverUnit,
			"etc/systemd/system/test.target":    targetUnit,
		}}.Boot(t)
	data, _ := os.ReadFile(filepath.Join(out, "log"))
	if t.Failed() || testing.Verbose() {
		t.Logf("%s", data)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n"), out
}

const (
	driverBegin = `wait_for() { for i in $(seq 200); do [ "$(grep -c "$1" /out/log 2>/dev/null)" -ge "$2" ] && return; sleep 0.05; done; echo "no $1" >> /out/log; systemctl poweroff -f; }
`
	inhibitors = `systemd-inhibit --list --no-legend --no-pager`
)

// TestPowerOffThroughLogind: the whole way under real systemd. A restart of the service leaves the pods alone, a restart
// of logind does not lose the lock, a power-off waits for the pods in order, and the SIGTERM that follows ends ledge at
// once (N-5.11 to N-5.17, N-5.20, N-5.42).
func TestPowerOffThroughLogind(t *testing.T) {
	log, out := boot(t, driverBegin+`
wait_for held 1
systemctl restart probe
wait_for held 2
`+inhibitors+` > /out/before
systemctl restart systemd-logind
sleep 2.5
`+inhibitors+` > /out/after
stat -c %a /run/systemd/logind.conf.d/99-ledge.conf > /out/mode
systemctl poweroff
`)
	want := []string{"held 39s", "detach", "held 39s", `close "node is shutting down"`, "stop low 20s", "stopped low", "flush",
		"stop high 10s", "stopped high", "flush",
		"clear", `close "node is shutting down"`, "flush", "clear", "exit"}
	if !slices.Equal(log, want) {
		t.Errorf("got  %q\nwant %q", log, want)
	}
	for _, file := range []string{"before", "after"} {
		if data, err := os.ReadFile(filepath.Join(out, file)); err != nil || strings.Count(string(data), "ledge") != 1 ||
			!strings.Contains(string(data), "delay") {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(out, "mode")); err != nil || string(data) != "644\n" {
		t.Errorf("mode of the drop-in: %q, %v", data, err)
	}
}

// TestPowerOffAroundLogind: inhibitors bypassed, by a job for the target as shutdown -h now made it on older systemd, or
// because logind is not there when somebody says shutdown -h now (N-5.38): SIGTERM still stops the pods in order, because
// the machine is going down.
func TestPowerOffAroundLogind(t *testing.T) {
	for name, down := range map[string]string{
		"by the target":  "systemctl start --no-block poweroff.target",
		"without logind": "systemctl mask --quiet --runtime --now systemd-logind; shutdown -h now",
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := boot(t, driverBegin+"wait_for held 1\n"+down+"\n")
			want := []string{"held 39s", `close "node is shutting down"`, "stop low 20s", "stopped low", "flush", "stop high 10s", "stopped high",
				"flush", "clear", "exit"}
			if !slices.Equal(log, want) {
				t.Errorf("got  %q\nwant %q", log, want)
			}
		})
	}
}

// TestRebootThroughLogind: a reboot is waited for like a power-off, and the machine that comes back holds the lock again.
// A shutdown in a minute that is taken back in time stops nothing (N-5.14, N-5.15).
func TestRebootThroughLogind(t *testing.T) {
	log, _ := boot(t, driverBegin+`
if [ -e /out/again ]; then
	wait_for held 2
	exec systemctl poweroff
fi
wait_for held 1
shutdown +1 && sleep 1 && shutdown -c && sleep 0.5 && echo "taken back" >> /out/log
touch /out/again
systemctl reboot
`)
	down := []string{`close "node is shutting down"`, "stop low 20s", "stopped low", "flush", "stop high 10s", "stopped high", "flush",
		"clear", `close "node is shutting down"`, "flush", "clear", "exit"}
	want := slices.Concat([]string{"held 39s", "taken back"}, down, []string{"held 39s"}, down)
	if !slices.Equal(log, want) {
		t.Errorf("got  %q\nwant %q", log, want)
	}
}

// TestDelayForcedLow: a later file in logind.conf.d wins over ledge's, before the lock is taken or after. The plan keeps to
// what is granted then, and the highest priority keeps its time (N-5.13).
func TestDelayForcedLow(t *testing.T) {
	const low = "mkdir -p /etc/systemd/logind.conf.d; printf '[Login]\nInhibitDelayMaxSec=4\n' > /etc/systemd/logind.conf.d/zz-late.conf\n" +
		"systemctl kill -s HUP systemd-logind\n"
	for name, c := range map[string]struct{ driver, held string }{
		"before": {"wait_for held 1; systemctl stop probe; " + low + "systemctl start probe; wait_for held 2; systemctl poweroff", "held 4s"},
		"after":  {"wait_for held 1; " + low + "sleep 0.5; systemctl poweroff", "held 39s"},
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := boot(t, driverBegin+c.driver)
			// Nothing is left for the lower one, so both get their signal at once.
			for _, line := range []string{c.held, "stop low 0s", "stop high 4s", "stopped high"} {
				if !slices.Contains(log, line) {
					t.Errorf("no %q in %q", line, log)
				}
			}
		})
	}
}
