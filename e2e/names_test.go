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

	address := strings.Fields(strings.SplitN(b.must("get", "service", "kubernetes"), "\n", 2)[1])[2]
	t.Run("resolvers", func(t *testing.T) { allResolvers(t, pid, address) })

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
	out, err := underPod(t, pid, "getent -s dns ahosts "+name)
	if code, ended := err.(*exec.ExitError); err != nil && (!ended || code.ExitCode() != 2) { // 2: no such name
		t.Errorf("ask for %s: %v", name, err)
	}
	return out
}

// underPod runs a program of the machine in the pod's network, with the pod's resolv.conf.
func underPod(t *testing.T, pid int, line string) (string, error) {
	conf := filepath.Join(t.TempDir(), "resolv.conf") // what stands in another mount namespace cannot be bound
	must(t, os.WriteFile(conf, []byte(inside(pid, "/etc/resolv.conf")), 0o600))
	script := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s", conf, line)
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pid), "-n", "unshare", "-m", "sh", "-c", script)
	out, err := cmd.Output()
	return string(out), err
}

// askAsGo has this program, started by a test, ask for a name as every program in Go does.
func askAsGo(name string) int {
	addrs, err := net.LookupHost(name)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(strings.Join(addrs, "\n"))
	return 0
}

// inC asks as every program in C does; linked with musl it is how Alpine's ask.
const inC = `#include <netdb.h>
#include <stdio.h>
int main(int n, char **arg) {
	struct addrinfo *all, *a, hints = {.ai_socktype = SOCK_STREAM};
	char text[256];
	int err = getaddrinfo(arg[1], 0, &hints, &all);
	if (err) { puts(gai_strerror(err)); return 1; }
	for (a = all; a; a = a->ai_next)
		if (!getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST)) puts(text);
}
`

// allResolvers: whatever a pod asks with, it gets the names of the cluster by its search list, those of elsewhere, and no others.
func allResolvers(t *testing.T, pid int, api string) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ask.c"), []byte(inC), 0o600))
	musl := filepath.Join(dir, "ask")
	for _, r := range []struct{ program, pkg, ask string }{
		{"getent", "libc-bin", "getent ahosts %s"}, // glibc
		{"go", "", "env LEDGE_TEST_ASK=%s " + os.Args[0]},
		{"musl-gcc", "musl-tools", musl + " %s"},
		{"busybox", "busybox-static", "busybox nslookup %s"},
		{"dig", "bind9-dnsutils", "dig +search +short %s"},
	} {
		t.Run(r.program, func(t *testing.T) {
			if _, err := exec.LookPath(r.program); err != nil && r.pkg != "" {
				t.Skipf("%s is not installed: scripts/setup.sh images", r.pkg)
			}
			if r.program == "musl-gcc" {
				must(t, exec.Command("musl-gcc", "-static", "-o", musl, filepath.Join(dir, "ask.c")).Run())
			}
			for _, c := range []struct{ name, want string }{
				{"kubernetes", api}, {"kubernetes.default", api}, {"kubernetes.default.svc.cluster.local.", api}, {"www.example.com", "192.0.2.53"},
				{"www.example.com.", "192.0.2.53"}, {"nothing.example.com", ""}, {"nothing", ""},
			} {
				if r.program == "busybox" && c.name == "kubernetes.default" {
					continue // its nslookup asks for a name with a dot as it is
				}
				out, err := underPod(t, pid, fmt.Sprintf(r.ask, c.name))
				if r.program == "busybox" {
					err = nil // it fails where one name of the search list is none
				}
				switch found := strings.Contains(out, api) || strings.Contains(out, "192.0.2.53"); {
				case c.want == "" && found:
					t.Errorf("%s: there is none, and it says %q", c.name, out)
				case c.want != "" && (err != nil || !strings.Contains(out, c.want)):
					t.Errorf("%s: %v %q, want %s", c.name, err, out, c.want)
				}
			}
		})
	}
	t.Run("records", func(t *testing.T) {
		if _, err := exec.LookPath("dig"); err != nil {
			t.Skip("bind9-dnsutils is not installed: scripts/setup.sh images")
		}
		for _, c := range []struct{ question, want string }{
			{"+tcp +short kubernetes.default.svc.cluster.local", api + "\n"},
			{"+bufsize=512 +short kubernetes.default.svc.cluster.local", api + "\n"},
			{"+noedns +short kubernetes.default.svc.cluster.local", api + "\n"},
			{"+short SRV _https._tcp.kubernetes.default.svc.cluster.local", " 443 kubernetes.default.svc.cluster.local.\n"},
			{"+short -x " + api, "kubernetes.default.svc.cluster.local.\n"},
			{"+short TXT dns-version.cluster.local", "\"1.1.0\"\n"},
			{"AAAA kubernetes.default.svc.cluster.local", "status: NOERROR"},
			{"nothing.default.svc.cluster.local", "status: NXDOMAIN"},
			{"nothing.default.svc.cluster.local", "SOA"},
			{"www.example.com", "status: NOERROR"},
			{"nothing.example.com", "status: NXDOMAIN"},
		} {
			out, err := underPod(t, pid, "dig "+c.question)
			if err != nil || !strings.Contains(out, c.want) || strings.Contains(out, "not available") {
				t.Errorf("dig %s: %v %s, want %q", c.question, err, out, c.want)
			}
		}
	})
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
