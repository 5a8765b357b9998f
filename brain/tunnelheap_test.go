package brain

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/internal/testrun"
	"ledge/pki"
)

// lie is how a stolen board answers a call. $ID is the call's, $UP the protocol that is asked for.
type lie struct {
	call   string // what answers the call; empty: an honest upgrade, on whose connection the rest is said
	behind int    // requests that are answered well first, as by a board in front of a bad pod
	text   string
	more   string // for as long as anybody reads it
}

// elsewhere is what nothing is asked of: all that these tests ask for is on other boards.
type elsewhere struct {
	nothing
	api.Streams
	api.Execer
	api.Forwarder
}

func (elsewhere) NodeMetrics(context.Context) []*api.NodeMetrics { return nil }
func (elsewhere) PodMetrics(context.Context) []*api.PodMetrics   { return nil }

// thieves are stolen boards that have joined by a token and wait for calls.
type thieves struct {
	*joined
	lie      atomic.Pointer[lie]
	answered atomic.Int32 // calls
	lying    sync.WaitGroup
}

func newThieves(t *testing.T, boards int) *thieves {
	t.Helper()
	th := &thieves{}
	th.joined = newJoinedTo(t, time.Now(), func(c *httpd.Config) {
		c.DialBoard = func(ctx context.Context, node string) (net.Conn, error) { return th.p.boards.Dial(ctx, node) }
		c.Node, c.Metrics, c.Streams, c.Exec, c.Forward, c.MaxSessions = "plane", elsewhere{}, elsewhere{}, elsewhere{}, elsewhere{}, 2*boards
	})
	token, err := th.p.joins.Create(pki.TokenTerms{TTL: time.Hour, Uses: boards})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); th.lying.Wait() })
	for i := range boards {
		name := fmt.Sprint("b", i)
		identity, err := pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(t.TempDir(), name), Node: name})
		must(t, err)
		must(t, askCertificate(ctx, identity, th.urls, token.CA, token.Proof(), nil))
		servers, err := rest.NewServers(th.urls, identity.Client(), nil)
		must(t, err)
		th.stolen(name)
		th.lying.Go(func() { th.wait(ctx, servers) })
		testrun.Until(t, 20*time.Second, name+" waits for calls", func() bool { return th.p.boards.waiterOf(name) != nil })
	}
	return th
}

// stolen writes a board's Node, which has no port of its own, and a pod that runs there.
func (th *thieves) stolen(name string) {
	th.t.Helper()
	ctx := th.t.Context()
	n, err := api.Create(ctx, th.p.client, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	must(th.t, err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = api.UpdateStatus(ctx, th.p.client, api.Nodes, n)
	must(th.t, err)
	p, err := api.Create(ctx, th.p.client, api.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + name},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}}})
	must(th.t, err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7", ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	_, err = api.UpdateStatus(ctx, th.p.client, api.Pods, p)
	must(th.t, err)
}

// wait hears calls, as an honest board does, and lies.
func (th *thieves) wait(ctx context.Context, servers *rest.Servers) {
	client := &http.Client{Transport: servers.Transport()}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, servers.URL()+httpd.TunnelPath, nil)
	if err != nil {
		th.t.Error(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		th.t.Error(err)
		return
	}
	defer resp.Body.Close()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		id := in.Text()
		th.lying.Go(func() {
			conn, err := servers.Connect(ctx)
			if err != nil {
				return // the test is over
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			th.answered.Add(1)
			th.lie.Load().tell(ctx, conn, id)
		})
	}
}

// tell lies until nobody listens any more.
func (l *lie) tell(ctx context.Context, conn net.Conn, id string) {
	up, out := "", io.Writer(conn)
	if l.call == "" {
		line, err := httpd.Upgrade(ctx, conn, httpd.TunnelPath+"?call="+id)
		if err != nil {
			return
		}
		in := bufio.NewReader(line)
		for left := l.behind; ; left-- {
			asked, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if up = asked.Header.Get("Upgrade"); left == 0 {
				break
			}
			fmt.Fprintf(line, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", up)
		}
		out = line
		go io.Copy(io.Discard, in)
	} else {
		go io.Copy(io.Discard, conn)
	}
	_, err := io.WriteString(out, strings.NewReplacer("$ID", id, "$UP", up).Replace(l.call+l.text))
	for err == nil && l.more != "" {
		_, err = io.WriteString(out, l.more)
	}
	if err == nil {
		time.Sleep(100 * time.Millisecond) // what was said is to be read
	}
}

// askAll asks for something of each board at once, as an administrator does, reads some of it and leaves. read is what came.
func (th *thieves) askAll(ctx context.Context, client *http.Client, boards int, path, up string) (read int64) {
	var all sync.WaitGroup
	var sum atomic.Int64
	for i := range boards {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, th.urls[0]+strings.ReplaceAll(path, "$I", fmt.Sprint(i)), nil)
			if err != nil {
				th.t.Error(err)
				return
			}
			if up != "" {
				req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {up}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
					"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
			}
			resp, err := client.Do(req)
			if err != nil {
				return // it was cut
			}
			defer resp.Body.Close()
			n, _ := io.Copy(io.Discard, io.LimitReader(resp.Body, enough)) // it may be cut
			sum.Add(n)
		})
	}
	all.Wait()
	return sum.Load()
}

// leaveLater leaves when all boards have had some time for their lies.
func (th *thieves) leaveLater(ctx context.Context, boards int, leave func()) {
	for int(th.answered.Load()) < boards && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	leave()
}

const (
	enough = 256 << 10 // is read of what has no end

	fine     = "HTTP/1.1 200 OK\r\n"
	switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: $UP\r\n"
	answers  = "GET " + httpd.TunnelPath + "?call=$ID HTTP/1.1\r\nHost: ledge\r\n"
	calledUp = answers + "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

	aPod = "/api/v1/namespaces/default/pods/on-b$I"
	aTop = "/apis/metrics.k8s.io/v1beta1/pods"
)

// TestBadBoardsInTheTunnelCostLittleMemory: sixteen stolen boards behind a router answer what is asked of them through the tunnel, and the
// calls themselves, as widely as they can. The heap grows by less than 32 MB, although it is that of boards and
// administrator too.
func TestBadBoardsInTheTunnelCostLittleMemory(t *testing.T) {
	testrun.OnHost(t) // an emulated processor takes six minutes, and finds the same
	const boards, most = 16, 32 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	th := newThieves(t, boards)
	cert, err := th.p.ca.Client("admin", []string{api.AdminGroup})
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: th.p.ca.Pool(),
		ServerName: pki.ServerIdentity, Certificates: []tls.Certificate{cert}}}}
	bytes, objects := strings.Repeat("x", 16<<10), strings.Repeat("{},", 5000)
	headers := strings.Repeat("X-A: "+strings.Repeat("b", 100)+"\r\n", 100)
	for _, tc := range []struct {
		name, path, up string
		lie            lie
		passes         bool // something of it is shown
	}{
		{"exec, bytes without end", aPod + "/exec?command=id&stdout=1", "websocket", lie{text: switches + "\r\n", more: bytes}, true},
		{"exec, headers without end", aPod + "/exec?command=id&stdout=1", "websocket", lie{text: switches, more: headers}, false},
		{"attach, bytes without end", aPod + "/attach?stdout=1", "SPDY/3.1", lie{text: switches + "\r\n", more: bytes}, true},
		{"port-forward, bytes without end", aPod + "/portforward?ports=80", "SPDY/3.1", lie{text: switches + "\r\n", more: bytes}, true},
		{"log, a body without end", aPod + "/log", "", lie{text: fine + "\r\n", more: bytes}, true},
		{"log, followed, a body without end", aPod + "/log?follow=1", "", lie{text: fine + "\r\n", more: bytes}, true},
		{"log, headers without end", aPod + "/log", "", lie{text: fine, more: headers}, false},
		{"log, 1xx without end", aPod + "/log", "", lie{more: "HTTP/1.1 103 Early\r\n" + headers + "\r\n"}, false},
		{"log, an error without end", aPod + "/log", "", lie{text: "HTTP/1.1 500 No\r\n\r\n" + `{"details":{"causes":[`, more: objects}, false},
		{"top, empty pods without end", aTop, "", lie{text: fine + "\r\n" + `{"pods":[`, more: objects}, false},
		{"board's page, a body without end", "/api/v1/nodes/b$I/proxy/stats/summary", "", lie{text: fine + "\r\n", more: bytes}, true},
		{"way to a pod, headers without end", aPod + ":80/proxy/x", "", lie{text: fine, more: headers}, false},
		{"pod, headers without end", aPod + ":80/proxy/x", "", lie{behind: 1, text: fine, more: headers}, false},
		{"pod, a body without end", aPod + ":80/proxy/x", "", lie{behind: 1, text: fine + "\r\n", more: bytes}, true},
		{"call, answered by headers without end", aPod + "/log", "", lie{call: answers, more: headers}, false},
		{"call, answered by a line without end", aPod + "/log", "", lie{call: "GET " + httpd.TunnelPath + "?call=", more: bytes}, false},
		{"call, answered by a body without end", aPod + "/log", "", lie{call: answers + "Content-Length: 99999999999\r\n\r\n", more: bytes}, false},
		{"call, bytes before they are asked for", aPod + "/log", "", lie{call: calledUp, more: bytes}, false},
		{"call, answered again and again", aPod + "/log", "", lie{call: calledUp, more: strings.ReplaceAll(calledUp, "$ID", "none")}, false},
	} {
		th.lie.Store(&tc.lie)
		th.answered.Store(0)
		asked, begun, read := boards, time.Now(), int64(0)
		if tc.path == aTop {
			asked = 1 // which asks all of them
		}
		ctx, leave := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
		if tc.lie.call != "" { // who asks has nothing to wait for
			go th.leaveLater(ctx, boards, leave)
		}
		grown := testrun.HeapGrowth(func() { read = th.askAll(ctx, client, asked, tc.path, tc.up) })
		leave()
		t.Logf("%-40s %5.1f MB, %d calls, %d bytes shown, %s", tc.name, float64(grown)/(1<<20), th.answered.Load(), read,
			time.Since(begun).Round(time.Millisecond))
		if grown > most {
			t.Errorf("%s: %d boards make the heap grow by %d bytes", tc.name, boards, grown)
		}
		if n := int(th.answered.Load()); n < boards && tc.path != aTop || n == 0 { // that waits three seconds, however slow a machine is
			t.Errorf("%s: %d of %d boards were called", tc.name, n, boards)
		}
		if all := read == boards*enough; all != tc.passes {
			t.Errorf("%s: %d bytes were shown", tc.name, read)
		}
	}
}
