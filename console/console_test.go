package console

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

func ready(is corev1.ConditionStatus, more ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "shed"}, Status: corev1.NodeStatus{Conditions: append(more,
		corev1.NodeCondition{Type: corev1.NodeReady, Status: is, Message: "the engine does not answer"})}}
}

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}},
		Spec: corev1.PodSpec{NodeName: "shed"}, Status: corev1.PodStatus{Phase: phase}}
}

func TestLines(t *testing.T) {
	pulls := pod("api", corev1.PodPending)
	pulls.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such\x1b[2J host\nevil"}}}}
	line := strings.Repeat("-", 79)
	for _, c := range []struct {
		name string
		f    Facts
		want []string
	}{
		{"well", Facts{Name: "shed", Version: "v1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fd00::7")},
			Names: []string{"shed.local"}, API: "https://192.0.2.7:6443", Page: "https://shed.local", Node: ready(corev1.ConditionTrue),
			Pods: []*corev1.Pod{pod("web", corev1.PodRunning), pod("db", corev1.PodRunning)}},
			[]string{"ledge v1  shed", line, "Address     192.0.2.7  fd00::7", "Name        shed.local", "kubectl     https://192.0.2.7:6443",
				"Page        https://shed.local", "Node        ready", "Pods        2 run"}},
		{"it starts", Facts{Name: "shed", Version: "v1"}, []string{"ledge v1  shed", line,
			"Address     none: is the cable in, or the wireless network in reach?", "kubectl     on the board alone: it listens on loopback",
			"Node        starts", "Pods        0 run"}},
		{"much is wrong", Facts{Name: "shed", Version: "v1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Plane: "https://192.0.2.1:6443",
			Node: ready(corev1.ConditionFalse, corev1.NodeCondition{Type: "LowVoltage", Status: corev1.ConditionTrue, Message: "the supply sags"}),
			Pods: []*corev1.Pod{pulls, pod("job", corev1.PodFailed)}, Mistakes: []string{"ledge.yaml:3: wifi: no radio"}, Power: "goes down now"},
			[]string{"ledge v1  shed", line, "Address     192.0.2.7", "Joined      https://192.0.2.1:6443", "Power       goes down now", "Node        not ready",
				"Pods        0 run, 1 wait, 1 failed", "Wrong       api: its image cannot be pulled: no such?[2J host evil", "            job: failed",
				"            this board: LowVoltage: the supply sags", "            and 2 more; 'kubectl describe' or the board's page tells them"}},
	} {
		if got := Lines(c.f, now); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// Whatever a pod, a name or a mistake says: few lines, none too long, and nothing that steers a terminal.
func FuzzLines(f *testing.F) {
	f.Add("a\x1b]0;x\x07\u202e\xff", 300)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(0, min(n, 300))
		facts := Facts{Name: text, Version: text, API: text, Page: text, Power: text, Node: ready(corev1.ConditionFalse,
			corev1.NodeCondition{Type: corev1.NodeConditionType(text), Status: corev1.ConditionTrue, Message: text})}
		for range n {
			p := pod(text, corev1.PodFailed)
			p.Status.Message, p.Status.Reason = text, text
			facts.Pods, facts.Mistakes, facts.Names = append(facts.Pods, p), append(facts.Mistakes, text), append(facts.Names, text)
			facts.Addresses = append(facts.Addresses, netip.IPv6LinkLocalAllNodes())
		}
		lines := Lines(facts, now)
		if len(lines) > 13 {
			t.Errorf("%d lines", len(lines))
		}
		for _, l := range lines {
			if len(l) > 79 || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q", l)
			}
		}
	})
}

// TestLogin: the login shows it, is told when it changes and not else, and shows nothing any more when the node has ended.
func TestLogin(t *testing.T) {
	run := t.TempDir()
	reload := filepath.Join(run, "agetty.reload") // a login waits
	if err := os.WriteFile(reload, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(run, "issue.d", "ledge.issue")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var name atomic.Value
		name.Store(`sh\ed`)
		done := make(chan error)
		go func() {
			done <- Run(ctx, Config{Run: run, Facts: func(context.Context) Facts { return Facts{Name: name.Load().(string), Version: "v1"} }})
		}()
		told := func() bool { // since the last time
			info, err := os.Stat(reload)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(reload, now, now); err != nil {
				t.Fatal(err)
			}
			return !info.ModTime().Equal(now)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(text), `ledge v1  sh\\ed`+"\n---") || !told() {
			t.Errorf("%v %q", err, text)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if told() {
			t.Error("the login was told again that nothing changed")
		}
		name.Store("barn")
		time.Sleep(2 * every)
		synctest.Wait()
		if text, _ := os.ReadFile(file); !strings.Contains(string(text), "barn") || !told() {
			t.Errorf("%q", text)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) || !told() {
			t.Error(err)
		}
	})
	if err := Remove(run); err != nil {
		t.Error(err)
	}
}

// TestScreen: a screen is drawn anew from its first corner.
func TestScreen(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := w.SetWriteDeadline(time.Time{}); err != nil {
		t.Skip("pipes have no deadlines here:", err)
	}
	s := &screen{w}
	if err := s.show([]string{"one", "two"}); err != nil {
		t.Fatal(err)
	}
	s.close()
	buf := make([]byte, 100)
	n, _ := r.Read(buf)
	if got := string(buf[:n]); got != "\x1b[?25l\x1b[2J\x1b[Hone\r\ntwo\r\n" {
		t.Errorf("%q", got)
	}
	if _, err := openScreen(t.TempDir()); !absent(err) {
		t.Errorf("a machine without a screen: %v", err)
	}
}

// TestStopped: a screen that somebody has stopped holds up nobody, and shows what is new when it goes on.
func TestStopped(t *testing.T) {
	ours, theirs := pty(t)
	stop := func(how int) {
		raw, err := theirs.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TCXONC, how) })
		if err != nil {
			t.Fatal(err)
		}
	}
	stop(unix.TCOOFF)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() {
		follow(ctx, func(context.Context) Facts { return Facts{Name: "shed", Version: "v1"} }, &shown{}, []sink{&screen{theirs}})
		close(done)
	}()
	time.Sleep(100 * time.Millisecond)
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a screen that was stopped holds up its node")
	}
	stop(unix.TCOON)
	if err := (&screen{theirs}).show([]string{"two"}); err != nil {
		t.Error(err)
	}
	ours.Close()
}

// TestSerial: of the kernel's consoles the serial ones are answered.
func TestSerial(t *testing.T) {
	sys := t.TempDir()
	if got := serialLines(sys); got != nil {
		t.Error(got)
	}
	dir := filepath.Join(sys, "class", "tty", "console")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "active"), []byte("tty0 tty1 ttyS0 ttyAMA0 ../evil hvc0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(serialLines(sys), " "); got != "ttyS0 ttyAMA0" {
		t.Error(got)
	}
}

// TestEnter: Enter on a serial line is answered with what was said last; noise is not, and a flood is answered now and then.
func TestEnter(t *testing.T) {
	ours, theirs := pty(t)
	last := &shown{}
	last.set([]string{"ledge v1  shed", "Node        ready"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- answer(ctx, theirs, last, 300*time.Millisecond) }()
	if _, err := ours.WriteString("noise\x04\x13"); err != nil { // also what ends an input, or stops an output
		t.Fatal(err)
	}
	if err := ours.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := ours.Read(buf)
		if err != nil {
			break
		}
		if strings.Contains(string(buf[:n]), "ledge") {
			t.Errorf("noise was answered: %q", buf[:n])
		}
	}
	if _, err := ours.WriteString("\r\r\r\r\r"); err != nil {
		t.Fatal(err)
	}
	text := ""
	hear := func(limit time.Duration, enough func() bool) {
		if err := ours.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		for !enough() {
			n, err := ours.Read(buf)
			if err != nil {
				return
			}
			text += string(buf[:n])
		}
	}
	hear(10*time.Second, func() bool { return strings.Contains(text, "Node") })
	hear(time.Second, func() bool { return false }) // Enters that came together are one
	if strings.Count(text, "ledge v1  shed\r\n") != 1 || !strings.Contains(text, "Node        ready") {
		t.Errorf("%q", text)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
