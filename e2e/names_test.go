package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ledge/internal/testrun"
)

// TestNames: a pod asks its board for names. The C library gets those of the cluster and those of elsewhere, the latter with one
// question for each family though its search list has three names before; a question that is asked while the brain is dead is answered
// by the next one.
func TestNames(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	elsewhere := fmt.Sprintf("127.%d.%d.53", 1+os.Getpid()%200, boards.Load())
	asked := resolverAt(t, elsewhere)
	conf := filepath.Join(filepath.Dir(b.config), "resolv.conf")
	must(t, os.WriteFile(conf, fmt.Appendf(nil, "nameserver %s\n", elsewhere), 0o600))
	must(t, os.WriteFile(b.config, fmt.Appendf(nil, "%sresolvConf: %s\n", boardConfig, conf), 0o600))
	b.serve()
	b.apply(webPod)
	pid := b.running("web")
	ip := b.pod("web").Status.PodIP
	gateway := ip[:strings.LastIndexByte(ip, '.')] + ".1"
	want := "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + gateway + "\noptions ndots:5\n"
	if got := inside(pid, "/etc/resolv.conf"); got != want {
		t.Fatalf("resolv.conf %q, want %q", got, want)
	}

	b.eventually("the name of the API", func() error {
		addr, _, ok := strings.Cut(asPod(t, pid, "kubernetes.default"), " ")
		if !ok {
			return errors.New("there is none")
		}
		return contains(b.ledge("get", "service", "kubernetes"), " "+addr+" ")
	})
	before := datagrams(t, pid)
	if got := asPod(t, pid, "www.example.com"); !strings.HasPrefix(got, "192.0.2.53 ") {
		t.Errorf("www.example.com: %q", got)
	}
	if n := datagrams(t, pid) - before; n != 2 {
		t.Errorf("the pod asked %d times for www.example.com, want 2: A and AAAA", n)
	}
	if got := asPod(t, pid, "nothing.example.com"); got != "" {
		t.Errorf("nothing.example.com: %q", got)
	}
	if n := asked(); n != 4 {
		t.Errorf("the board asked its resolver %d times, want 4", n)
	}

	_ = b.signal(syscall.SIGKILL)
	answer := make(chan string, 1)
	sent := datagrams(t, pid)
	go func() { answer <- asPod(t, pid, "www.example.com") }()
	for datagrams(t, pid) == sent {
		time.Sleep(10 * time.Millisecond)
	}
	b.serve()
	if got := <-answer; !strings.HasPrefix(got, "192.0.2.53 ") {
		t.Errorf("asked while the brain was dead: %q", got)
	}
	if got := inside(pid, "/etc/resolv.conf"); got != want {
		t.Errorf("after a restart resolv.conf is %q", got)
	}
	b.must("delete", "pod", "web")
}

// asPod is what a C library says to a program in the pod's network, with the pod's resolv.conf.
func asPod(t *testing.T, pid int, name string) string {
	conf := filepath.Join(t.TempDir(), "resolv.conf") // what stands in another mount namespace cannot be bound
	must(t, os.WriteFile(conf, []byte(inside(pid, "/etc/resolv.conf")), 0o600))
	script := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec getent -s dns ahosts %s", conf, name)
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(30*time.Second))
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pid), "-n", "unshare", "-m", "sh", "-c", script).Output()
	if code, ended := err.(*exec.ExitError); err != nil && (!ended || code.ExitCode() != 2) { // 2: no such name
		t.Errorf("ask for %s: %v", name, err)
	}
	return string(out)
}

// datagrams counts what the pod has sent over UDP.
func datagrams(t *testing.T, pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", pid))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "Udp:" && f[4] != "OutDatagrams" {
			n, err := strconv.Atoi(f[4])
			must(t, err)
			return n
		}
	}
	t.Fatal("the kernel counts no datagrams")
	return 0
}

// resolverAt knows www.example.com, and counts.
func resolverAt(t *testing.T, ip string) (asked func() int) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip), Port: 53})
	must(t, err)
	var mu sync.Mutex
	var done sync.WaitGroup
	n := 0
	t.Cleanup(func() { _ = conn.Close(); done.Wait() })
	done.Go(func() {
		buf := make([]byte, 2048)
		for {
			size, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			var m dnsmessage.Message
			if err := m.Unpack(buf[:size]); err != nil || len(m.Questions) != 1 {
				t.Errorf("the board asked %x: %v", buf[:size], err)
				return
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			switch q := m.Questions[0]; {
			case q.Name.String() != "www.example.com.":
				m.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 300}
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 53}}}}
			}
			out, err := m.Pack()
			if err != nil {
				t.Error(err)
			}
			_, _ = conn.WriteToUDPAddrPort(out, from)
		}
	})
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}
