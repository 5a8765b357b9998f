package shutdown

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/internal/testrun"
)

// upsd is a real server of Network UPS Tools with a UPS made of a file, on loopback.
type upsd struct {
	t    *testing.T
	dir  string
	port string
}

const nutPrograms = "/lib/nut"

func newUPSD(t *testing.T, state string) *upsd {
	if testing.Short() {
		t.Skip("runs a UPS daemon: a quarter of a minute")
	}
	testrun.OnHost(t)
	if _, err := os.Stat(nutPrograms + "/dummy-ups"); err != nil {
		t.Skip("no nut-server here: scripts/setup.sh vm installs it")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: the programs of nut-server change users")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	u := &upsd{t: t, dir: t.TempDir(), port: port}
	u.set(state)
	for name, text := range map[string]string{
		"ups.conf":   "[dummy]\ndriver = dummy-ups\nport = " + u.dir + "/state.dev\nmode = dummy-once\n",
		"upsd.conf":  "LISTEN 127.0.0.1 " + port + "\n",
		"upsd.users": "[board]\npassword = secret\nupsmon slave\n",
	} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("dummy-ups", "-a", "dummy", "-D", "-u", "root")
	u.until("the driver's socket", func() bool { _, err := os.Stat(u.dir + "/dummy-ups-dummy"); return err == nil })
	u.run("upsd", "-D", "-u", "root")
	return u
}

// set changes what the UPS says. The driver reads the file again when it is newer.
func (u *upsd) set(state string) {
	u.t.Helper()
	tmp := u.dir + "/state.new"
	if err := os.WriteFile(tmp, []byte(state+"\n"), 0o644); err != nil {
		u.t.Fatal(err)
	}
	if err := os.Rename(tmp, u.dir+"/state.dev"); err != nil {
		u.t.Fatal(err)
	}
}

func (u *upsd) run(program string, args ...string) {
	u.t.Helper()
	cmd := exec.Command(filepath.Join(nutPrograms, program), args...)
	cmd.Env = append(os.Environ(), "NUT_CONFPATH="+u.dir, "NUT_STATEPATH="+u.dir, "NUT_ALTPIDPATH="+u.dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if u.t.Failed() {
			u.t.Logf("%s: %s", program, out.String())
		}
	})
}

func (u *upsd) until(what string, f func() bool) {
	u.t.Helper()
	testrun.Until(u.t, 30*time.Second, what, f)
}

func (u *upsd) nut() *NUT {
	n, err := ParseUPS("dummy@127.0.0.1:" + u.port)
	if err != nil {
		u.t.Fatal(err)
	}
	return &n
}

// TestNUT speaks with the real upsd: on mains, on battery, low, ordered down, and gone.
func TestNUT(t *testing.T) {
	u := newUPSD(t, "ups.status: OL CHRG\nbattery.charge: 95\nbattery.runtime: 1200")
	n := u.nut()
	defer n.hangUp()
	says := func(want Supply) {
		t.Helper()
		var got Supply
		var err error
		defer func() {
			if t.Failed() {
				t.Logf("last: %+v %v", got, err)
			}
		}()
		u.until(fmt.Sprintf("%+v", want), func() bool { got, err = n.Read(t.Context()); return err == nil && got == want })
	}
	says(Supply{Charge: 95, Runtime: 20 * time.Minute})
	u.set("ups.status: OB DISCHRG\nbattery.charge: 60\nbattery.runtime: 90.5")
	says(Supply{OnBattery: true, Charge: 60, Runtime: 90500 * time.Millisecond})
	u.set("ups.status: OB LB\nbattery.charge: 9\nbattery.runtime: 0")
	says(Supply{OnBattery: true, Low: true, Charge: 9})
	u.set("ups.status: FSD OB LB\nbattery.charge: 5\nbattery.runtime: 0")
	says(Supply{OnBattery: true, Low: true, Forced: true, Charge: 5})

	n.UPS = "other"
	if _, err := n.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "UNKNOWN-UPS") {
		t.Errorf("a UPS that is not there: %v", err)
	}
	n.UPS = "dummy"
	n.User, n.Password = "board", "wrong"
	if _, err := n.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ACCESS-DENIED") {
		t.Errorf("a wrong password: %v", err)
	}
	n.Password = "secret"
	if _, err := n.Read(t.Context()); err != nil { // connects anew and logs in
		t.Errorf("logged in: %v", err)
	}
	if answer, err := n.ask("GET NUMLOGINS dummy"); err != nil || answer != "NUMLOGINS dummy 1" {
		t.Errorf("the machine in charge does not see this board: %q %v", answer, err)
	}
	nobody := NUT{Address: "127.0.0.1:1", UPS: "dummy"}
	if _, err := nobody.Read(t.Context()); err == nil {
		t.Error("nobody listens there")
	}
}

// TestNUTRunsOut goes the whole way from a real upsd to the pods: on battery with time enough nothing happens; low with a
// short runtime the pods stop in what is left of it, the highest priority keeping its time; with the mains the node opens.
func TestNUTRunsOut(t *testing.T) {
	u := newUPSD(t, "ups.status: OB DISCHRG\nbattery.charge: 80\nbattery.runtime: 1200")
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	off := make(chan struct{}, 1)
	n := &pretend{diary: &diary{f: f}, left: map[string]*corev1.Pod{"low": pod("low", 0, 30), "high": pod("high", criticalPriority, 30)}}
	m, err := NewManager(ManagerConfig{Node: n, NodeName: "n", Sources: []Source{
		&Watch{Name: "ups", Supply: u.nut(), Total: Default.Total(), Off: func() { off <- struct{}{} }}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	log := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	u.until("the UPS is heard", func() bool { return slices.Equal(m.Live(), []string{"ups"}) })
	if got := log(); got != "" {
		t.Fatalf("with 20 minutes left: %s", got)
	}
	u.set("ups.status: OB DISCHRG LB\nbattery.charge: 12\nbattery.runtime: 34")
	u.until("the pods are stopped", func() bool { return len(off) == 1 })
	for _, line := range []string{"close \"node is shutting down\"\n", "stop low 0s\n", "stop high 4s\n", "stopped high\n", "flush\n"} {
		if !strings.Contains(log(), line) {
			t.Errorf("no %q in %s", line, log())
		}
	}
	u.set("ups.status: OL CHRG\nbattery.charge: 13\nbattery.runtime: 40")
	u.until("the node is open again", func() bool { return strings.HasSuffix(log(), "close \"\"\n") })
}

func TestParseUPS(t *testing.T) {
	for text, want := range map[string]NUT{
		"ups@10.0.0.1":      {UPS: "ups", Address: "10.0.0.1:3493"},
		"ups@nas.lan:1234":  {UPS: "ups", Address: "nas.lan:1234"},
		"ups":               {UPS: "ups", Address: "localhost:3493"},
		"ups@[fe80::1]:700": {UPS: "ups", Address: "[fe80::1]:700"},
	} {
		if got, err := ParseUPS(text); err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@host", "ups@", "a b@host", "a\n@host"} {
		if got, err := ParseUPS(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}
