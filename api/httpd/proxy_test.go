package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/httpd"
)

// podNet leads every address of a pod to one server, and remembers the last.
type podNet struct {
	*httptest.Server
	dialed atomic.Value
}

func (n *podNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.dialed.Store(address)
	if strings.HasSuffix(address, ":9") {
		return nil, errors.New("connection refused")
	}
	return (&net.Dialer{}).DialContext(ctx, network, n.Listener.Addr().String())
}

// proxied is a server with a pod "web" that has an address and named ports.
func proxied(t *testing.T, c httpd.Config, pod http.HandlerFunc, secure bool) (*fixture, *podNet) {
	t.Helper()
	n := &podNet{Server: httptest.NewUnstartedServer(pod)}
	n.dialed.Store("")
	if secure {
		n.StartTLS()
	} else {
		n.Start()
	}
	t.Cleanup(n.Close)
	c.DialPod = n.dial
	f := serve(t, c)
	f.podAt("web", "10.0.0.7", corev1.ContainerPort{Name: "metrics", ContainerPort: 9100}, corev1.ContainerPort{ContainerPort: 8080})
	f.podAt("plain", "fd00::7")
	f.podAt("bad", "127.0.0.1")
	f.podAt("early", "")
	return f, n
}

func (f *fixture) podAt(name, ip string, ports ...corev1.ContainerPort) {
	f.t.Helper()
	f.addressed(name, ip, corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self", Ports: ports}}})
}

// addressed makes a pod that has this address.
func (f *fixture) addressed(name, ip string, spec corev1.PodSpec) {
	f.t.Helper()
	p := &corev1.Pod{Spec: spec}
	p.Namespace, p.Name = "default", name
	made, err := api.Create(f.t.Context(), f.store, api.Pods, p)
	if err != nil {
		f.t.Fatal(err)
	}
	made.Status.PodIP = ip
	if _, err := api.UpdateStatus(f.t.Context(), f.store, api.Pods, made); err != nil {
		f.t.Fatal(err)
	}
}

// Which address a name leads to, and which lead nowhere.
func TestPodProxyAddress(t *testing.T) {
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }
	f, n := proxied(t, httpd.Config{}, hello, false)
	for name, want := range map[string]string{"web": "10.0.0.7:9100", "web:8080": "10.0.0.7:8080", "web:metrics": "10.0.0.7:9100",
		"http:web:81": "10.0.0.7:81",
		":web:82":     "10.0.0.7:82", "plain": "[fd00::7]:80", "plain:8080": "[fd00::7]:8080"} {
		if a := f.must(200, "GET", podsPath+"/"+name+"/proxy/", ""); a.body != "hello" || n.dialed.Load() != want {
			t.Errorf("%s: %s, %q", name, n.dialed.Load(), a.body)
		}
	}
	for name, want := range map[string]int{"none:80": 404, "bad:80": 400, "early:80": 503, "web:9": 503, "web:0": 400, "web:70000": 400,
		"web:nosuch": 400,
		"ftp:web:21": 400, "a:b:c:d": 400, "https:web:81": 503} { // which speaks no TLS
		if got := f.must(want, "GET", podsPath+"/"+name+"/proxy/", "").status(t); got.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	for _, u := range []api.User{nodeA, bob} {
		if got := f.do(u, "GET", podsPath+"/web/proxy/", ""); got.code != 403 {
			t.Errorf("%s: %d", u.Name, got.code)
		}
	}
	secure, n := proxied(t, httpd.Config{}, hello, true)
	if a := secure.must(200, "GET", podsPath+"/https:plain:/proxy/", ""); a.body != "hello" || n.dialed.Load() != "[fd00::7]:443" {
		t.Errorf("https: %s, %q", n.dialed.Load(), a.body)
	}
}

// A request arrives at the pod as it was sent, without what was meant for the API, and its answer comes back.
func TestPodProxyPasses(t *testing.T) {
	f, _ := proxied(t, httpd.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch to := r.URL.Query().Get("to"); {
		case to != "":
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		default:
			w.Header().Set("X-Pod", "yes")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s %s %q %s %q", r.Method, r.Host, r.RequestURI, body, r.Header.Get("X-Forwarded-Uri"), r.Header.Get("Authorization"))
		}
	}, false)
	const base = podsPath + "/web:8080/proxy"
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/", "", `GET 10.0.0.7:8080 / "" ` + base + `/ ""`},
		{"POST", "", "data", `POST 10.0.0.7:8080 / "data" ` + base + ` ""`},
		{"PUT", "/a%2Fb//c?x=1&y=%20", "data", `PUT 10.0.0.7:8080 /a%2Fb//c?x=1&y=%20 "data" ` + base + `/a%2Fb//c ""`},
		{"PATCH", "/one/two/three/four/", "", `PATCH 10.0.0.7:8080 /one/two/three/four/ "" ` + base + `/one/two/three/four/ ""`},
		{"DELETE", "/x", strings.Repeat("x", 9), `DELETE 10.0.0.7:8080 /x "xxxxxxxxx" ` + base + `/x ""`},
		{"OPTIONS", "/x", "", `OPTIONS 10.0.0.7:8080 /x "" ` + base + `/x ""`},
		{"HEAD", "/x", "", ""},
	} {
		a := f.must(http.StatusTeapot, tc.method, base+tc.path, tc.body, "Authorization", "Bearer secret")
		if a.body != tc.want || a.head.Get("X-Pod") != "yes" {
			t.Errorf("%s %s:\n%s, want\n%s", tc.method, tc.path, a.body, tc.want)
		}
	}
	// Redirects of the pod to itself, and the one to its root, stay with this server.
	f.as[admin.Name].CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if a := f.must(301, "GET", base+"?q=1", ""); a.head.Get("Location") != base+"/?q=1" {
		t.Errorf("to the root: %s", a.head.Get("Location"))
	}
	for to, want := range map[string]string{"/in?a=b": base + "/in?a=b", "http://10.0.0.7:8080/in%20": base + "/in%20", "next": base + "/next",
		base + "/already": base + "/already", "../../../../secrets": base + "/secrets",
		base + "/../../x": base + "/api/v1/namespaces/default/pods/x",
		"?q#f":            base + "/x?q#f", "//ledge/in": base + "/in", "https://ledge/in": base + "/in", ".": base + "/",
		`/a\b`: base + "/a%5Cb"} {
		if a := f.must(302, "GET", base+"/x?to="+url.QueryEscape(to), ""); a.head.Get("Location") != want {
			t.Errorf("redirect to %s: %s, want %s", to, a.head.Get("Location"), want)
		}
	}
	for _, to := range []string{"//other.example/", "https://other.example/x", "http://10.0.0.7/another/port", "https://10.0.0.7/",
		"/%2e%2e/%2E./secrets",
		`/..\..\secrets`, `/%5c..%5c`, "javascript:alert(1)", "data:text/html,x", "http://a@10.0.0.7:8080/", "http:next", "://", "%"} {
		if a := f.do(admin, "GET", base+"/x?to="+url.QueryEscape(to), ""); a.code != 502 || a.head.Get("Location") != "" ||
			!strings.Contains(a.body, "redirect") {
			t.Errorf("redirect to %s: %d %q %s", to, a.code, a.head.Get("Location"), a.body)
		}
	}
	if a := f.do(admin, "GET", base+"//other.example/x?to=next", ""); a.head.Get("Location") != base+"//other.example/next" {
		t.Errorf("a path that looks like a host: %s", a.head.Get("Location"))
	}
}

// A connection that is upgraded goes through to the pod, until either side or the server ends. A web page of
// somewhere else gets none.
func TestPodProxyUpgrade(t *testing.T) {
	f, _ := proxied(t, httpd.Config{MaxSessions: 1}, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		io.Copy(conn, rw) // says what it hears
	}, false)
	page := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key",
		"MDEyMzQ1Njc4OWFiY2RlZg==", "Origin", "https://elsewhere.example"}
	f.must(400, "GET", podsPath+"/web/proxy/", "", page...)
	conn, err := f.dial[admin.Name](t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s/web/proxy/ HTTP/1.1\r\nHost: ledge\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", podsPath)
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%v %+v", err, answer)
	}
	for range 3 {
		go io.WriteString(conn, "ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "ping" {
			t.Fatalf("%v %q", err, buf)
		}
	}
	f.must(429, "GET", podsPath+"/web/proxy/", "") // it holds the one place
	f.stop()
	if _, err := in.ReadByte(); err == nil {
		t.Error("it goes on without its server")
	}
}

// TestServiceProxy: a service leads to one of its pods, by the port's number, its name, or without a word about it; never to an address
// that is no pod's.
func TestServiceProxy(t *testing.T) {
	f, n := proxied(t, httpd.Config{}, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "pod says ", r.URL.Path) }, false)
	f.must(201, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"web"},"spec":{"ports":[
		{"name":"http","port":80,"targetPort":8080},{"name":"metrics","port":81,"targetPort":9100}]}}`)
	const path = "/api/v1/namespaces/default/services/"
	if s := f.must(503, "GET", path+"web/proxy/x", "").status(t); !strings.Contains(s.Message, `no endpoints available for service "web"`) {
		t.Error(s.Message)
	}
	slice := func(name, endpoint string) {
		t.Helper()
		f.must(201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"`+name+`",
			"labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","endpoints":[`+endpoint+`],
			"ports":[{"name":"http","port":8080},{"name":"metrics","port":9100}]}`)
	}
	slice("stranger", `{"addresses":["192.0.2.1"]},{"addresses":["192.0.2.2"],"targetRef":{"kind":"Pod","namespace":"kube-system","name":"web"}},
		{"addresses":["10.0.0.8"],"conditions":{"ready":false},"targetRef":{"kind":"Pod","namespace":"default","name":"web"}}`)
	f.must(503, "GET", path+"web/proxy/x", "")
	slice("pods", `{"addresses":["10.0.0.7"],"targetRef":{"kind":"Pod","namespace":"default","name":"web"}}`)
	for name, want := range map[string]string{"web": "10.0.0.7:8080", "web:80": "10.0.0.7:8080", "web:metrics": "10.0.0.7:9100",
		"http:web:81": "10.0.0.7:9100"} {
		if got := f.must(200, "GET", path+name+"/proxy/any/thing", "").body; got != "pod says /any/thing" || n.dialed.Load() != want {
			t.Errorf("%s: %q of %v", name, got, n.dialed.Load())
		}
	}
	f.must(503, "GET", path+"web:82/proxy/x", "")
	f.must(404, "GET", path+"none/proxy/x", "")
}

// TestDeprecatedKind: who works with Endpoints is told of slices.
func TestDeprecatedKind(t *testing.T) {
	f := serve(t, httpd.Config{})
	for _, path := range []string{"/api/v1/endpoints", "/api/v1/namespaces/default/endpoints/kubernetes"} {
		if w := f.must(200, "GET", path, "").head.Get("Warning"); !strings.Contains(w, "use discovery.k8s.io/v1 EndpointSlice") {
			t.Errorf("%s: %q", path, w)
		}
	}
}
