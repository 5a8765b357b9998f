package mdns

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// avahiScript starts Debian's avahi-daemon in the namespaces that it is in, on a bus of its own, and waits for lines to run.
const avahiScript = `set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/dbus /run/avahi-daemon
cat >/run/bus.conf <<END
<busconfig><type>system</type><listen>unix:path=$1</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>
END
dbus-daemon --nofork --config-file=/run/bus.conf & bus=$!
trap 'kill $avahi $bus' EXIT
until [ -S "$1" ]; do sleep 0.02; done
printf '[server]\nhost-name=laptop\nallow-interfaces=eth0\n[publish]\npublish-workstation=no\n' >/run/avahi.conf
avahi-daemon --no-drop-root --no-chroot --no-rlimits -f /run/avahi.conf 2>/run/log & avahi=$!
until grep -q "startup complete" /run/log; do sleep 0.02; done
sh -c "$2"
`

func (c *cable) avahi(bus, command string) string {
	c.t.Helper()
	cmd := exec.Command("nsenter", "--net="+c.ends[1], "unshare", "-m", "sh", "-c", avahiScript, "sh", bus, command)
	cmd.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+bus)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

func needAvahi(t *testing.T) {
	t.Helper()
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("a long run")
	}
	if _, err := exec.LookPath("avahi-daemon"); err != nil {
		t.Skip("needs avahi-daemon and avahi-utils")
	}
}

// TestAvahiFinds: what many machines use to look for names finds a board, its service and a name of a Service.
func TestAvahiFinds(t *testing.T) {
	needAvahi(t)
	c := newCable(t)
	one := c.serve(0)
	testrun.Until(t, 20*time.Second, "it has a name", func() bool { return one.names() != "" })
	said := c.avahi(filepath.Join(t.TempDir(), "bus"), "avahi-resolve -4 -n shed.local; avahi-resolve -6 -n shed.local; avahi-browse -rtp _ledge._tcp")
	for _, want := range []string{"shed.local\t192.0.2.1\n", "shed.local\t2001:db8::1\n",
		`=;eth0;IPv4;shed;_ledge._tcp;local;shed.local;192.0.2.1;6443;"state=Ready" "version=v0"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// TestBesideAvahi: where avahi-daemon has the port it announces the board, and further names; a name that another has is followed by the
// next, and with us it ends.
func TestBesideAvahi(t *testing.T) {
	needAvahi(t)
	c := newCable(t)
	other := c.serve(0)
	other.mu.Lock()
	other.wanted.Label = "web"
	other.mu.Unlock()
	other.changed <- struct{}{}
	testrun.Until(t, 20*time.Second, "another has the name", func() bool { return other.names() == "web" })
	bus := filepath.Join(t.TempDir(), "bus")
	stop := filepath.Join(t.TempDir(), "stop")
	done := make(chan string)
	t.Cleanup(func() {
		_ = os.WriteFile(stop, nil, 0o600)
		<-done
	})
	go func() { done <- c.avahi(bus, "while [ ! -e "+stop+" ]; do sleep 0.02; done") }()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+bus)
	want := served{wanted: Wanted{Port: 6443, Version: "v9", State: "Ready", Aliases: []Alias{{"web", c.addresses(1)}, {"two", c.addresses(1)}}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for {
			err := Beside(ctx, Avahi, Config{Wanted: func() Wanted { return want.wanted }, Changed: make(chan struct{}),
				Told: func(l []string) { want.mu.Lock(); defer want.mu.Unlock(); want.labels = l }})
			if err == nil || !strings.Contains(err.Error(), "ask ") && !strings.Contains(err.Error(), "not provided") {
				ended <- err
				return
			}
			time.Sleep(20 * time.Millisecond) // it is not there yet
		}
	}()
	testrun.Until(t, 20*time.Second, "the name that is taken is followed by the next", func() bool { return want.names() == "laptop web-2 two" })
	testrun.Until(t, 20*time.Second, "the board is found", func() bool {
		return strings.Contains(strings.Join(c.find(0), "\n"), "laptop.local [192.0.2.2 2001:db8::2] 6443 v9 Ready")
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	testrun.Until(t, 20*time.Second, "it is found no more", func() bool { return !strings.Contains(strings.Join(c.find(0), "\n"), "laptop") })
}
