package e2e

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// serviceManager plays systemd: it hears what the brain says of itself.
type serviceManager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &serviceManager{t: t, conn: conn}
}

// next waits for a word; "" when none comes within d.
func (m *serviceManager) next(d time.Duration) string {
	m.t.Helper()
	buf := make([]byte, 256)
	if err := m.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

func (m *serviceManager) hears(word string) {
	m.t.Helper()
	if got := m.next(testrun.Patience(30 * time.Second)); got != word {
		m.t.Fatalf("the brain says %q, want %q", got, word)
	}
}

// TestWatchdog: the brain says that it is alive until the keeper hangs, again when that goes on, how long it takes
// to stop the pods, and that it stops.
func TestWatchdog(t *testing.T) {
	onHost(t)
	m := newServiceManager(t)
	t.Setenv("WATCHDOG_USEC", "2000000")
	b := newBoard(t)
	b.serve("--on-term=drain")
	for _, word := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		m.hears(word)
	}
	keeper := b.keeperPID()
	must(t, syscall.Kill(keeper, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(keeper, syscall.SIGCONT) }() // it may be gone
	b.eventually("the brain finds the keeper hung", func() error {
		log, err := os.ReadFile(b.log.Name())
		return errors.Join(err, contains(string(log), `awaited="[the keeper]"`))
	})
	for m.next(time.Millisecond) != "" { // said before
	}
	if word := m.next(4 * time.Second); word != "" {
		t.Errorf("with the keeper hung the brain says %q", word)
	}
	must(t, syscall.Kill(keeper, syscall.SIGCONT))
	m.hears("WATCHDOG=1")
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	var last string
	extended := false
	for word := m.next(time.Second); word != ""; word = m.next(time.Millisecond) {
		last, extended = word, extended || word == "EXTEND_TIMEOUT_USEC=45000000"
	}
	if !extended { // 30 s for the pods, as configured, and 15 s for the brain
		t.Error("systemd is not asked for the time that a shutdown takes")
	}
	if !strings.HasPrefix(last, "STOPPING=1") {
		t.Errorf("its last word is %q", last)
	}
}
