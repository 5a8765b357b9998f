package httpd_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
)

var plane = api.User{Name: "plane"}

// none can run nothing: what must be run elsewhere.
type none struct{}

var errHere = errors.New("this was asked of the wrong board")

func (none) Exec(context.Context, string, string, api.Exec) (int, error) { return 0, errHere }
func (none) Attach(context.Context, string, string, api.Attach) error    { return errHere }
func (none) Logs(context.Context, string, string, api.LogOptions) (io.ReadCloser, error) {
	return nil, errHere
}

// otherBoard is measured too, and says more than is its to say.
type otherBoard struct{ measuredBoard }

func (otherBoard) Node() string { return "b" }

func (otherBoard) NodeMetrics(context.Context) []*api.NodeMetrics {
	of := func(name string) *api.NodeMetrics {
		return &api.NodeMetrics{ObjectMeta: metav1.ObjectMeta{Name: name}, Usage: usage("1", "1Gi")}
	}
	return []*api.NodeMetrics{of("b"), of("a"), nil}
}

func (otherBoard) PodMetrics(context.Context) []*api.PodMetrics {
	of := func(name string) *api.PodMetrics {
		return &api.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Containers: []api.ContainerMetrics{{Name: "c", Usage: usage("7m", "7Mi")}}}
	}
	return []*api.PodMetrics{of("web"), of("stranger"), of("none"), nil}
}

// board serves the port of board b until the test ends.
func (f *fixture) board(c httpd.Config) (dial func(context.Context, string) (net.Conn, error)) {
	f.t.Helper()
	c.Client, c.Metrics = f.store, otherBoard{}
	h, err := httpd.NewDoor(c, plane.Name)
	if err != nil {
		f.t.Fatal(err)
	}
	l, pipe := httpd.Pipe(plane)
	run(f.t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}})
	return func(ctx context.Context, node string) (net.Conn, error) {
		if node == "d" {
			return nil, context.DeadlineExceeded
		}
		if node != "b" {
			return nil, fmt.Errorf("nobody is at %s", node)
		}
		return pipe(ctx)
	}
}

// elsewhere is a control plane whose running pods are on another board.
func elsewhere(t *testing.T, c, board httpd.Config) *fixture {
	t.Helper()
	var dial func(context.Context, string) (net.Conn, error)
	c.Node = "a"
	c.DialBoard = func(ctx context.Context, node string) (net.Conn, error) { return dial(ctx, node) }
	f := serve(t, c)
	f.node = "b"
	dial = f.board(board)
	return f
}

// N-11.43: the options of a log reach the board of the pod, and what comes of it comes back, errors too.
func TestLogsElsewhere(t *testing.T) {
	l := &logs{text: plain("one\ntwo\n")}
	f := elsewhere(t, httpd.Config{Streams: none{}}, httpd.Config{Streams: l})
	f.withRunningPod("web")
	path := podsPath + "/web/log"
	if a := f.must(200, "GET", path+"?timestamps=true&tailLines=3&sinceTime=2026-11-20T12:00:00Z&previous=1", ""); a.body != "one\ntwo\n" ||
		a.head.Get("Content-Type") != "text/plain" {
		t.Errorf("%q %v", a.body, a.head)
	}
	if want := "default/web/c follow=false previous=true timestamps=true tail=3 limit=- since=2026-11-20T12:00:00Z"; l.asked != want {
		t.Errorf("asked for %s, want %s", l.asked, want)
	}
	if a := f.do(admin, "GET", path+"?tailLines=x", ""); a.code != 400 {
		t.Errorf("a bad option: %d %s", a.code, a.body)
	}
	if a := f.do(admin, "GET", path+"?container=x", ""); a.code != 400 ||
		!strings.Contains(a.status(t).Message, "container x is not valid for pod web") {
		t.Errorf("no such container: %d %s", a.code, a.body)
	}
	l.text = func(context.Context) (io.ReadCloser, error) { return nil, api.NewInternal("the card is gone") }
	if a := f.do(admin, "GET", path, ""); a.code != 500 || !strings.Contains(a.status(t).Message, "the card is gone") {
		t.Errorf("an error of the board: %d %s", a.code, a.body)
	}
	// A followed log comes as it is written, beginning with its head.
	r, w := io.Pipe()
	ended := make(chan struct{})
	l.text = func(ctx context.Context) (io.ReadCloser, error) {
		context.AfterFunc(ctx, func() { r.CloseWithError(ctx.Err()); close(ended) })
		return r, nil
	}
	resp, err := f.send(admin, "GET", path+"?follow=1", "")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(resp.Body)
	for _, line := range []string{"now\n", "later\n"} {
		io.WriteString(w, line)
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Errorf("%q %v", got, err)
		}
	}
	resp.Body.Close()
	<-ended // the board hears that nobody reads any more
}

// A board that does not answer, or says that it can do no more, is told to who asked; one whose stream is cut cuts it.
func TestBoardsThatFail(t *testing.T) {
	l := &logs{text: plain("x\n")}
	f := elsewhere(t, httpd.Config{Streams: none{}, Exec: none{}, Forward: ports{}}, httpd.Config{Streams: l, Exec: none{}, Forward: ports{}})
	f.node = "c"
	f.withRunningPod("lost")
	v5 := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key",
		"dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol", "v5.channel.k8s.io"}
	forward := append(v5[:8:8], "Sec-WebSocket-Protocol", "SPDY/3.1+portforward.k8s.io")
	for path, head := range map[string][]string{"/lost/log": nil, "/lost/exec?command=true&stdout=1": v5, "/lost/attach?stdout=1": v5,
		"/lost/portforward": forward} {
		a := f.do(admin, "GET", podsPath+path, "", head...)
		if s := a.status(t); a.code != 503 || s.Message != "board c does not answer: nobody is at c" {
			t.Errorf("%s: %d %q", path, a.code, s.Message)
		}
	}
	f.node = "d"
	f.withRunningPod("slow")
	if a := f.do(admin, "GET", podsPath+"/slow/log", ""); a.code != 503 ||
		a.status(t).Message != "board d does not answer: context deadline exceeded" {
		t.Errorf("a board that takes too long: %d %s", a.code, a.body)
	}
	f.node = "b"
	f.withRunningPod("web")
	r, w := io.Pipe()
	l.text = func(context.Context) (io.ReadCloser, error) { return r, nil }
	resp, err := f.send(admin, "GET", podsPath+"/web/log?follow=1", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.CloseWithError(errors.New("the board broke"))
	if data, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a log that was cut looks whole: %q", data)
	}
}

// What a board shows of itself is reached through its Node; what acts is not.
func TestNodeProxyElsewhere(t *testing.T) {
	c := &commands{dir: t.TempDir()}
	f := elsewhere(t, httpd.Config{Metrics: measuredBoard{}}, httpd.Config{Exec: c, Streams: &logs{text: plain("x")}, Forward: ports{}})
	f.withRunningPod("web")
	f.withNodes()
	if a := f.must(200, "GET", "/api/v1/nodes/b/proxy/metrics/resource", ""); a.body != "page of /metrics/resource" ||
		a.head.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%q %v", a.body, a.head)
	}
	for _, path := range []string{"containerLogs/default/web/c", "exec/default/web/c?command=true&output=1", "portForward/default/web",
		"podAddress/default/web/80",
		"ledge/measured", "metrics/../exec", "pods", ""} {
		if a := f.do(admin, "GET", "/api/v1/nodes/b/proxy/"+path, ""); a.code != 404 {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if a := f.do(admin, "GET", "/api/v1/nodes/none/proxy/metrics", ""); a.code != 404 {
		t.Errorf("no such node: %d", a.code)
	}
	if a := f.do(bob, "GET", "/api/v1/nodes/b/proxy/metrics", ""); a.code != 403 {
		t.Errorf("bob: %d", a.code)
	}
	if c.running.Load() != 0 {
		t.Error("a command was run")
	}
}

// withNodes makes the Nodes a and b, both ready, and c, which is not.
func (f *fixture) withNodes() {
	f.t.Helper()
	for name, is := range map[string]corev1.ConditionStatus{"a": corev1.ConditionTrue, "b": corev1.ConditionTrue,
		"c": corev1.ConditionUnknown} {
		n, err := api.Create(f.t.Context(), f.store, api.Nodes,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"label": name}}})
		if err != nil {
			f.t.Fatal(err)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
		if _, err := api.UpdateStatus(f.t.Context(), f.store, api.Nodes, n); err != nil {
			f.t.Fatal(err)
		}
	}
}

// kubectl top knows all boards; each speaks for itself and for its own pods only.
func TestMetricsOfAllBoards(t *testing.T) {
	f := elsewhere(t, httpd.Config{Metrics: measuredBoard{}}, httpd.Config{})
	f.withRunningPod("web")
	f.node = "c"
	f.withRunningPod("stranger")
	f.withNodes()
	for path, want := range map[string]string{
		"nodes":                            "a=250m b=1",
		"nodes?labelSelector=label%3Db":    "b=1",
		"namespaces/default/pods":          "web=7m",
		"pods?labelSelector=app%3Dweb":     "one=5m web=7m", // its label is the API's
		"namespaces/default/pods/stranger": "404",
	} {
		var list struct {
			Items []struct {
				Metadata   metav1.ObjectMeta
				Usage      corev1.ResourceList
				Containers []api.ContainerMetrics
			}
		}
		a := f.do(admin, "GET", "/apis/metrics.k8s.io/v1beta1/"+path, "")
		if a.code != 200 {
			if fmt.Sprint(a.code) != want {
				t.Errorf("%s: %d %s", path, a.code, a.body)
			}
			continue
		}
		a.into(t, &list)
		var got []string
		for _, m := range list.Items {
			used := m.Usage
			if len(m.Containers) > 0 {
				used = m.Containers[0].Usage
			}
			got = append(got, m.Metadata.Name+"="+used.Cpu().String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", path, s, want)
		}
	}
}

// A pod of another board is proxied through that board: its address may mean nothing here. A kubelet has no door for that; then
// it is tried from here.
func TestPodProxyElsewhere(t *testing.T) {
	hello := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.URL.Path) }
	f, n := proxied(t, httpd.Config{}, hello, false)
	front := elsewhereOf(f, n)
	f.onBoard("far", "10.1.0.7", "b")
	if code, body, err := get(front, "http://x"+podsPath+"/far:8080/proxy/a/b"); code != 200 || body != "hello /a/b" || err != nil {
		t.Errorf("%d %q %v", code, body, err)
	}
	if n.dialed.Load() != "10.1.0.7:8080" {
		t.Errorf("dialed %v", n.dialed.Load())
	}
	f.onBoard("inner", "127.0.0.1", "b")
	if code, body, _ := get(front, "http://x"+podsPath+"/inner:8080/proxy/"); code != 400 || !strings.Contains(body, "address not allowed") {
		t.Errorf("a loopback address: %d %s", code, body)
	}
	if code, body, _ := get(front, "http://x"+podsPath+"/far:9/proxy/"); code != 503 || !strings.Contains(body, "connection refused") {
		t.Errorf("a closed port: %d %s", code, body)
	}
}

// elsewhereOf is a control plane that has no way to pods, in front of a board that has.
func elsewhereOf(f *fixture, n *podNet) *http.Client {
	f.t.Helper()
	h, err := httpd.New(httpd.Config{Client: f.store, Node: "a", DialBoard: f.board(httpd.Config{DialPod: n.dial}),
		DialPod: func(context.Context, string, string) (net.Conn, error) { return nil, errHere }})
	if err != nil {
		f.t.Fatal(err)
	}
	l, dial := httpd.Pipe(admin)
	run(f.t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}})
	tr := &http.Transport{DialContext: dialer(dial)}
	f.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// onBoard is podAt on a node.
func (f *fixture) onBoard(name, ip, node string) {
	f.t.Helper()
	f.addressed(name, ip, corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}})
}

// A board's port answers its control plane alone, and only what it has.
func TestDoor(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.withRunningPod("web")
	c := httpd.Config{Client: f.store, Metrics: otherBoard{}, Streams: &logs{text: plain("x")}, Exec: none{}, Forward: ports{}}
	h, err := httpd.NewDoor(c, plane.Name)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httpd.Server{Handler: h}
	as := map[string]*http.Client{}
	for _, u := range []api.User{plane, admin, nodeA} {
		l, dial := httpd.Pipe(u)
		srv.Listeners = append(srv.Listeners, l)
		tr := &http.Transport{DialContext: dialer(dial)}
		t.Cleanup(tr.CloseIdleConnections)
		as[u.Name] = &http.Client{Transport: tr}
	}
	run(t, srv)
	for path, want := range map[string]int{"/containerLogs/default/web/c": 200, "/healthz": 404, "/metrics": 200, "/stats/summary": 200,
		"/ledge/measured":            200,
		"/containerLogs/default/web": 404, "/containerLogs/default/web/c/d": 404, "/exec/default/web/c": 400, "/attach/default/web/c": 400,
		"/portForward/default/web": 400, "/portForward/default/web/c": 404, "/podAddress/default/web/80": 400, "/": 404,
		"/run/default/web/c": 404, "/pods": 404,
		"/containerLogs/default/..%2fweb/c": 404} {
		for name, client := range as {
			code, body, err := get(client, "http://x"+path)
			if err != nil {
				t.Fatal(err)
			}
			if is := want; name != plane.Name {
				if code != 403 || !strings.Contains(body, "its control plane's alone") {
					t.Errorf("%s as %s: %d %s", path, name, code, body)
				}
			} else if code != is {
				t.Errorf("%s: %d %s, want %d", path, code, body, is)
			}
		}
	}
	for _, conf := range []httpd.Config{{Client: f.store}, {Metrics: otherBoard{}}} {
		if _, err := httpd.NewDoor(conf, plane.Name); err == nil {
			t.Errorf("a door that leads nowhere: %+v", conf)
		}
	}
}

// rights are the subresources that each user may use.
type rights map[string]string

func (r rights) May(u api.User, _ string, subresources ...string) (string, error) {
	for _, sub := range subresources {
		if slices.Contains(strings.Fields(r[u.Name]), sub) {
			return sub, nil
		}
	}
	return "", errors.New("no")
}

// TestRankAtTheDoor: who may use all of a board has an administrator's place at its port for that; who is let in by less, or not at all,
// has none.
func TestRankAtTheDoor(t *testing.T) {
	f := serve(t, httpd.Config{})
	door, err := httpd.NewKubeDoor(httpd.Config{Client: f.store, Metrics: otherBoard{}, Known: func([]*x509.Certificate) error { return nil },
		Authenticate: func(string, ...string) (api.User, error) { return api.User{}, nil }}, rights{"all": "proxy", "reader": "pods metrics"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who, path string
		in, admin bool
	}{
		{"all", "/pods", true, true},
		{"all", "/exec/default/web/main", true, true},
		{"all", "/metrics", false, false},
		{"reader", "/pods", true, false},
		{"reader", "/metrics", true, false},
		{"reader", "/exec/default/web/main", false, false},
		{"nobody", "/containerLogs/default/web/main", false, false},
	} {
		admin, err := httpd.RanksAsAdministrator(door, api.User{Name: c.who}, "GET", c.path)
		if (err == nil) != c.in || admin != c.admin {
			t.Errorf("%s %s: an administrator's place %t, %v", c.who, c.path, admin, err)
		}
	}
}
