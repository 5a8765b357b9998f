package shutdown

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"

	"github.com/godbus/dbus/v5"
)

// bus starts a message bus of its own and points the system bus address at it.
func bus(t *testing.T) (address string, stop func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	address = "unix:path=" + socket
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	return address, busAt(t, socket)
}

func busAt(t *testing.T, socket string) (stop func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a message bus, and waits as logind does")
	}
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon (Debian package dbus)")
	}
	conf := socket + ".conf"
	if err := os.WriteFile(conf, []byte(`<busconfig><listen>unix:path=`+socket+`</listen><auth>EXTERNAL</auth>
		<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "--config-file="+conf, "--nofork", "--print-address=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(stop)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens
		t.Fatal(err)
	}
	return stop
}

// login1 plays logind and the one call of systemd's that is used.
type login1 struct {
	conn   *dbus.Conn
	dropIn string
	obeys  bool // a SIGHUP makes it read its drop-in

	mu     sync.Mutex
	delay  uint64
	locks  []*os.File // our ends of the locks handed out
	asked  [][4]string
	killed int
	goes   bool // the machine goes down already
	off    []string
}

// PowerOff and Reboot are refused while either goes on, as by logind.
func (l *login1) PowerOff(bool) *dbus.Error { return l.goDown("PowerOff") }
func (l *login1) Reboot(bool) *dbus.Error   { return l.goDown("Reboot") }

func (l *login1) goDown(how string) *dbus.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = append(l.off, how)
	if l.goes {
		return dbus.NewError(inProgress, []any{"There's already a shutdown or sleep operation in progress"})
	}
	l.goes = true
	return nil
}

func (l *login1) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, r)
	l.asked = append(l.asked, [4]string{what, who, why, mode})
	fd := dbus.UnixFD(w.Fd())
	time.AfterFunc(time.Second, func() { _ = w.Close() }) // the message has been sent by then
	return fd, nil
}

func (l *login1) Get(_, property string) (dbus.Variant, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if property != "InhibitDelayMaxUSec" {
		return dbus.Variant{}, dbus.MakeFailedError(errors.New(property))
	}
	return dbus.MakeVariant(l.delay), nil
}

func (l *login1) KillUnit(unit, who string, signal int32) *dbus.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unit == "systemd-logind.service" && who == "all" && signal == 1 {
		l.killed++
	}
	if data, err := os.ReadFile(l.dropIn); err == nil && l.obeys {
		if sec, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(data), "[Login]\nInhibitDelayMaxSec="))); err == nil {
			l.delay = uint64(sec) * 1e6
		}
	}
	return nil
}

// calls is what was asked of Inhibit so far.
func (l *login1) calls() [][4]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// held says how many of the locks handed out are still held.
func (l *login1) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.locks {
		_ = r.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

func (l *login1) prepare(t *testing.T, body ...any) {
	t.Helper()
	if err := l.conn.Emit(login1Path, login1Iface+".PrepareForShutdown", body...); err != nil {
		t.Fatal(err)
	}
}

func playLogind(t *testing.T, address, dropIn string, delay time.Duration) *login1 {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &login1{conn: conn, dropIn: dropIn, obeys: true, delay: uint64(delay / time.Microsecond)}
	for _, export := range []error{
		conn.Export(l, login1Path, login1Iface),
		conn.Export(l, login1Path, "org.freedesktop.DBus.Properties"),
		conn.Export(l, systemdPath, systemdName+".Manager"),
	} {
		if export != nil {
			t.Fatal(export)
		}
	}
	for _, name := range []string{systemdName, login1Name} {
		if _, err := conn.RequestName(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// following runs a Logind and collects what it tells.
func following(t *testing.T, l *Logind) (events chan Event, stop func()) {
	t.Helper()
	events = make(chan Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(e Event) { events <- e }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return events, stop
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testrun.Until(t, 10*time.Second, what, ok)
}

func next(t *testing.T, events chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(5 * time.Second):
		t.Fatal("no event")
		return Event{}
	}
}

// TestLogind: the delay is raised, the lock taken and let go when the pods have stopped (N-5.11, N-5.12, N-5.13,
// N-5.15, N-5.16, N-5.17).
func TestLogind(t *testing.T) {
	address, _ := bus(t)
	dropIn := filepath.Join(t.TempDir(), "logind.conf.d", "99-ledge.conf")
	fake := playLogind(t, address, dropIn, 5*time.Second)
	if d, err := AskLogind(t.Context()); err != nil || d != 5*time.Second {
		t.Errorf("as it is set up: %s %v", d, err)
	}
	l := &Logind{Want: 30 * time.Second, DropIn: dropIn}
	events, stop := following(t, l)
	until(t, "the lock", func() bool { return l.Status().Held })
	if s := l.Status(); s.Granted != 30*time.Second+Tail || s.Err != nil {
		t.Errorf("status %+v", s)
	}
	if got := fake.calls()[0]; got[0] != "shutdown" || got[1] != "ledge" || got[2] == "" || got[3] != "delay" { // N-5.15
		t.Errorf("asked for %q", got)
	}
	if data, err := os.ReadFile(dropIn); err != nil || string(data) != "[Login]\nInhibitDelayMaxSec=39\n" { // N-5.12, and Tail
		t.Errorf("drop-in %q, %v", data, err)
	}
	info, err := os.Stat(dropIn)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("drop-in %v, %v", info, err) // N-5.42
	}
	fake.prepare(t, "nonsense") // N-5.16
	fake.prepare(t)
	fake.prepare(t, true)
	e := next(t, events)
	if e.Kind != Down || e.Source != "logind" || e.Budget != 0 {
		t.Errorf("event %+v", e)
	}
	time.Sleep(1100 * time.Millisecond) // the fake's own copy of the lock is closed
	if fake.held() != 1 {
		t.Error("let go before the pods have stopped")
	}
	e.Done()
	until(t, "the lock to go", func() bool { return fake.held() == 0 })
	fake.prepare(t, false) // N-5.18
	if e := next(t, events); e.Kind != Cancelled {
		t.Errorf("event %+v", e)
	}
	until(t, "a new lock", func() bool { return l.Status().Held && len(fake.calls()) == 2 })
	stop()
	time.Sleep(1100 * time.Millisecond)
	if fake.held() != 0 || l.Status().Held {
		t.Error("the lock outlives Run")
	}
}

// TestOffByLogind: who comes second finds the machine going down, which is what was wanted.
func TestOffByLogind(t *testing.T) {
	address, _ := bus(t)
	if err := ByLogind.Off(t.Context(), false); err == nil {
		t.Error("there is no logind")
	}
	fake := playLogind(t, address, "", time.Minute)
	for _, reboot := range []bool{true, false} {
		if err := ByLogind.Off(t.Context(), reboot); err != nil {
			t.Error(err)
		}
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if want := []string{"Reboot", "PowerOff"}; !slices.Equal(fake.off, want) {
		t.Errorf("asked for %q, want %q", fake.off, want)
	}
}

// TestLogindShort: less than wanted shrinks the plan instead of failing (N-5.13, N-5.14).
func TestLogindShort(t *testing.T) {
	address, _ := bus(t)
	fake := playLogind(t, address, filepath.Join(t.TempDir(), "x"), 5*time.Second)
	fake.mu.Lock()
	fake.obeys = false // a later drop-in wins (N-5.44)
	fake.mu.Unlock()
	l := &Logind{Want: 30 * time.Second, DropIn: fake.dropIn}
	events, _ := following(t, l)
	until(t, "the lock", func() bool { return l.Status().Held })
	fake.prepare(t, true)
	if e := next(t, events); e.Budget != 5*time.Second {
		t.Errorf("event %+v", e)
	}
	if d, short := l.Granted(); !short || d != 5*time.Second {
		t.Errorf("granted %s, %v", d, short)
	}
}

// TestLogindStrict: as a kubelet has it, less than wanted holds up nothing, and is tried again (N-5.13, N-5.14, N-5.21).
func TestLogindStrict(t *testing.T) {
	address, _ := bus(t)
	fake := playLogind(t, address, filepath.Join(t.TempDir(), "x"), 5*time.Second)
	fake.mu.Lock()
	fake.obeys = false
	fake.mu.Unlock()
	l := &Logind{Want: 30 * time.Second, DropIn: fake.dropIn, Strict: true}
	following(t, l)
	until(t, "the failure to show", func() bool { return l.Status().Err != nil })
	const want = "node shutdown manager was timed out after 5 attempts waiting for logind InhibitDelayMaxSec to update to 30s (ShutdownGracePeriod), current value is 5s"
	if s := l.Status(); s.Held || s.Err.Error() != want || len(fake.calls()) != 0 {
		t.Errorf("%+v, asked %q", s, fake.calls())
	}
	fake.mu.Lock()
	fake.obeys = true
	fake.mu.Unlock()
	until(t, "the lock", func() bool { return l.Status().Held })
	if s := l.Status(); s.Granted != 30*time.Second+Tail || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// TestLogindSpoofed: only logind's own word counts.
func TestLogindSpoofed(t *testing.T) {
	address, _ := bus(t)
	playLogind(t, address, "", time.Minute)
	l := &Logind{Want: 30 * time.Second}
	events, _ := following(t, l)
	until(t, "the lock", func() bool { return l.Status().Held })
	stranger, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	if err := stranger.Emit(login1Path, login1Iface+".PrepareForShutdown", true); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events:
		t.Errorf("believed a stranger: %+v", e)
	case <-time.After(300 * time.Millisecond):
	}
}

// TestLogindLate: no bus at first, then no logind, then both; and a logind and a bus that are replaced (N-5.20, N-5.21). A
// lock that is held stays so meanwhile.
func TestLogindLate(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "nobody"))
	l := &Logind{Want: 30 * time.Second}
	events, _ := following(t, l)
	until(t, "the failure to show", func() bool { return l.Status().Err != nil })
	address, stop := bus(t)
	time.Sleep(100 * time.Millisecond)
	fake := playLogind(t, address, "", time.Minute)
	until(t, "the lock", func() bool { return l.Status().Held })
	if l.Status().Err != nil {
		t.Errorf("status %+v", l.Status())
	}
	_ = fake.conn.Close()
	until(t, "the loss to show", func() bool { return l.Status().Err != nil })
	again := playLogind(t, address, "", time.Minute)
	until(t, "a new lock", func() bool { return len(again.calls()) == 1 })
	again.prepare(t, true)
	if e := next(t, events); e.Kind != Down {
		t.Errorf("event %+v", e)
	}
	stop()
	until(t, "the loss of the bus to show", func() bool { return l.Status().Err != nil })
	if again.held() != 1 {
		t.Errorf("%d locks are held without a bus", again.held())
	}
	busAt(t, strings.TrimPrefix(address, "unix:path="))
	third := playLogind(t, address, "", time.Minute)
	until(t, "a lock of the new bus", func() bool { s := l.Status(); return len(third.calls()) == 1 && s.Held && s.Err == nil })
	until(t, "the old lock to be let go", func() bool { return again.held() == 0 })
	third.prepare(t, true)
	if e := next(t, events); e.Kind != Down {
		t.Errorf("event %+v", e)
	}
}

// TestRetryWait: N-5.20, N-5.21.
func TestRetryWait(t *testing.T) {
	for _, tt := range []struct {
		worked bool
		trying time.Duration
		want   time.Duration
	}{{false, 0, time.Second}, {false, 59 * time.Second, time.Second}, {false, time.Minute, time.Minute}, {true, time.Hour, time.Second}} {
		if got := retryWait(tt.worked, tt.trying); got != tt.want {
			t.Errorf("%v %s: %s, want %s", tt.worked, tt.trying, got, tt.want)
		}
	}
}

// TestLogindNotWanted: N-5.1.
func TestLogindNotWanted(t *testing.T) {
	address, _ := bus(t)
	fake := playLogind(t, address, "", time.Minute)
	l := &Logind{}
	following(t, l)
	time.Sleep(200 * time.Millisecond)
	if len(fake.calls()) != 0 {
		t.Error("an inhibitor though no grace is configured")
	}
}
