package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/internal/testrun"
	"ledge/node/grpc"
	"ledge/runtime"
)

// execer runs commands as a function says.
type execer func(ctx context.Context, x runtime.Exec) (runtime.Exit, error)

func (e execer) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) { return e(ctx, x) }

// TestExecProbe: the exit code decides; output is kept to 10 KiB however much there is (kubernetes#70890).
func TestExecProbe(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  execer
		want Outcome
	}{
		{"passes", func(_ context.Context, x runtime.Exec) (runtime.Exit, error) {
			fmt.Fprint(x.Stdout, x.Container, x.Args)
			return runtime.Exit{}, nil
		}, Outcome{Result: Success, Output: "id[a b]"}},
		{"fails", func(_ context.Context, x runtime.Exec) (runtime.Exit, error) {
			fmt.Fprint(x.Stdout, "out ")
			fmt.Fprint(x.Stderr, "err\xff")
			return runtime.Exit{Code: 3}, nil
		}, Outcome{Result: Failure, Output: "out err�"}},
		{"endless", func(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
			for range 1000 {
				if n, err := x.Stdout.Write(make([]byte, 4096)); n != 4096 || err != nil {
					return runtime.Exit{}, errors.New("the writer had enough")
				}
			}
			return runtime.Exit{Code: 1}, nil
		}, Outcome{Result: Failure, Output: string(make([]byte, 10<<10))}},
		{"too late", func(ctx context.Context, _ runtime.Exec) (runtime.Exit, error) {
			<-ctx.Done()
			return runtime.Exit{}, fmt.Errorf("exec: %w", ctx.Err())
		}, Outcome{Result: Failure, Output: `command timed out: "a b" timed out after 1s`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &corev1.Probe{TimeoutSeconds: 1}
			spec.Exec = &corev1.ExecAction{Command: []string{"a", "b"}}
			if got := New(tc.run, "1").ask(t.Context(), spec, &corev1.Container{}, "id", ""); got != tc.want {
				t.Errorf("%.80q, want %.80q", fmt.Sprint(got), fmt.Sprint(tc.want))
			}
		})
	}
	n := 0
	broken := execer(func(context.Context, runtime.Exec) (runtime.Exit, error) {
		n++
		return runtime.Exit{}, runtime.ErrUnavailable
	})
	spec := &corev1.Probe{}
	spec.Exec = &corev1.ExecAction{}
	if got := New(broken, "1").ask(t.Context(), spec, &corev1.Container{}, "id", ""); !errors.Is(got.Err, runtime.ErrUnavailable) || n != 3 {
		t.Errorf("%+v after %d tries; 3 and an error that says nothing about the container (N-7.33)", got, n)
	}
}

// listening gives a container that has the server's port by name, and its address.
func listening(t testing.TB, rawURL string) (ip string, c *corev1.Container) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
}

func httpProbe(path string, edit ...func(*corev1.HTTPGetAction)) *corev1.Probe {
	h := &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), Scheme: corev1.URISchemeHTTP}
	for _, e := range edit {
		e(h)
	}
	return &corev1.Probe{TimeoutSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: h}}
}

func webServer(seen chan<- *http.Request) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/code/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		w.WriteHeader(n)
		fmt.Fprint(w, "body")
	})
	mux.HandleFunc("/see", func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	return mux
}

// TestHTTPProbe: 200 to 399 pass, redirects stay within the host, certificates are not verified (N-7.33).
func TestHTTPProbe(t *testing.T) {
	plain, secure := httptest.NewServer(webServer(nil)), httptest.NewTLSServer(webServer(nil))
	defer plain.Close()
	defer secure.Close()
	for _, tc := range []struct {
		path   string
		secure bool
		want   Result
		says   string
	}{
		{path: "/code/200", want: Success, says: "body"},
		{path: "/code/200", secure: true, want: Success, says: "body"},
		{path: "/code/204", want: Success},
		{path: "/code/400", want: Failure, says: "HTTP probe failed with statuscode: 400"},
		{path: "/code/503", want: Failure, says: "HTTP probe failed with statuscode: 503"},
		{path: "/slow", want: Failure, says: "context deadline exceeded"},
		{path: "/big", want: Success, says: strings.Repeat("x", 10<<10)},
		{path: "/to?url=/code/200", want: Success, says: "body"},
		{path: "/to?url=/code/500", want: Failure, says: "HTTP probe failed with statuscode: 500"},
		{path: "/to?url=http://192.0.2.1/", want: Success, says: "Probe terminated redirects, Response body: "},
		{path: "/round", want: Failure, says: "stopped after 10 redirects"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			server, scheme := plain, corev1.URISchemeHTTP
			if tc.secure {
				server, scheme = secure, corev1.URISchemeHTTPS
			}
			ip, c := listening(t, server.URL)
			spec := httpProbe(tc.path, func(h *corev1.HTTPGetAction) { h.Scheme = scheme })
			got := New(nil, "1").ask(t.Context(), spec, c, "", ip)
			if got.Err != nil || got.Result != tc.want || !strings.Contains(got.Output, tc.says) || len(got.Output) > 11<<10 {
				t.Errorf("%.300v", got)
			}
			if got.Warning != strings.Contains(tc.path, "192.0.2.1") {
				t.Errorf("warning: %v", got.Warning)
			}
		})
	}
	ip, c := listening(t, plain.URL)
	plain.Close()
	if got := New(nil, "1").ask(t.Context(), httpProbe("/"), c, "", ip); got.Result != Failure ||
		!strings.Contains(got.Output, "connection refused") {
		t.Errorf("nobody listens: %+v", got)
	}
	if got := New(nil, "1").ask(t.Context(), httpProbe("/"), &corev1.Container{Name: "c"}, "", ip); got.Err == nil {
		t.Errorf("a port that is not there: %+v", got)
	}
}

func TestHTTPProbeHeaders(t *testing.T) {
	seen := make(chan *http.Request, 1)
	server := httptest.NewServer(webServer(seen))
	defer server.Close()
	ip, c := listening(t, server.URL)
	ask := func(headers ...corev1.HTTPHeader) *http.Request {
		t.Helper()
		spec := httpProbe("/see?a=b", func(h *corev1.HTTPGetAction) { h.HTTPHeaders, h.Host = headers, ip })
		if got := New(nil, "1.36").ask(t.Context(), spec, c, "", "192.0.2.9"); got.Result != Success {
			t.Fatalf("%+v", got)
		}
		return <-seen
	}
	r := ask()
	if r.UserAgent() != "kube-probe/1.36" || r.Header.Get("Accept") != "*/*" || r.URL.RawQuery != "a=b" || len(r.Header) != 3 {
		t.Errorf("%v %v", r.URL, r.Header)
	}
	r = ask(corev1.HTTPHeader{Name: "Host", Value: "x.example"}, corev1.HTTPHeader{Name: "X", Value: "1"},
		corev1.HTTPHeader{Name: "X", Value: "2"},
		corev1.HTTPHeader{Name: "User-Agent", Value: ""}, corev1.HTTPHeader{Name: "Accept", Value: ""})
	_, agent := r.Header["User-Agent"]
	_, accept := r.Header["Accept"]
	if r.Host != "x.example" || len(r.Header["X"]) != 2 || agent || accept {
		t.Errorf("%v %v", r.Host, r.Header)
	}
}

func TestTCPProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ip, c := listening(t, "http://"+l.Addr().String())
	spec := &corev1.Probe{}
	spec.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromString("web")}
	if got := New(nil, "1").ask(t.Context(), spec, c, "", ip); got.Result != Success {
		t.Errorf("somebody listens: %+v", got)
	}
	l.Close()
	if got := New(nil, "1").ask(t.Context(), spec, c, "", ip); got.Result != Failure ||
		!strings.Contains(got.Output, "connect: connection refused") {
		t.Errorf("nobody listens: %+v", got)
	}
}

// healthServer speaks the health protocol of gRPC, by the number asked for as service.
func healthServer(t testing.TB) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != healthCheck || r.Method != http.MethodPost || r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" ||
			r.Header.Get("Content-Type") != "application/grpc" || len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
			t.Errorf("not a call: %v %v %v %q %v", r.Method, r.URL, r.Header, body, err)
		}
		service := ""
		if len(body) > 7 {
			service = string(body[7:])
		}
		w.Header().Set("Content-Type", "application/grpc")
		switch service {
		case "unimplemented":
			w.Header().Set("Grpc-Status", "12")
			w.Header().Set("Grpc-Message", "unknown%20service")
			return
		case "slow":
			<-r.Context().Done()
			return
		case "web":
			return
		}
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		if n, err := strconv.Atoi(service); err == nil || service == "" {
			_, _ = w.Write(grpc.Frame([]byte{8, byte(max(n, 1))}))
			w.Header().Set("Grpc-Status", "0")
			return
		}
		w.WriteHeader(http.StatusOK)
		w.Header().Set("Grpc-Status", "5")
		w.Header().Set("Grpc-Message", "unknown service")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s
}

func TestGRPCProbe(t *testing.T) {
	s := healthServer(t)
	defer s.Close()
	ip, c := listening(t, s.URL)
	before := goruntime.NumGoroutine()
	for service, want := range map[string]Outcome{
		"":              {Result: Success, Output: "service healthy"},
		"1":             {Result: Success, Output: "service healthy"},
		"2":             {Result: Failure, Output: `service unhealthy (responded with "NOT_SERVING")`},
		"nosuch":        {Result: Failure, Output: "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		"unimplemented": {Result: Failure, Output: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service"},
		"slow":          {Result: Failure, Output: "timeout: health rpc did not complete within 1s"},
		"web":           {Result: Failure, Output: "error: health rpc probe failed: HTTP status 200 and no status of gRPC"},
	} {
		spec := &corev1.Probe{TimeoutSeconds: 1}
		spec.GRPC = &corev1.GRPCAction{Port: c.Ports[0].ContainerPort, Service: &service}
		if got := New(nil, "1").ask(t.Context(), spec, c, "", ip); got != want {
			t.Errorf("%q: %+v, want %+v", service, got, want)
		}
	}
	// Every probe has a connection of its own, and its goroutines end with it.
	testrun.Until(t, 2*time.Second, "the goroutines of probes end", func() bool { return goruntime.NumGoroutine() <= before+2 })
	s.Close()
	spec := &corev1.Probe{}
	spec.GRPC = &corev1.GRPCAction{Port: c.Ports[0].ContainerPort}
	if got := New(nil, "1").ask(t.Context(), spec, c, "", ip); got.Result != Failure ||
		!strings.HasPrefix(got.Output, `error: failed to connect service at "127.0.0.1:`) {
		t.Errorf("nobody listens: %+v", got)
	}
}

// TestHooks: any answer to a request will do, a command has to exit 0, and what is not a hook fails (as tcpSocket does on
// Kubernetes).
func TestHooks(t *testing.T) {
	plain := httptest.NewServer(webServer(nil))
	defer plain.Close()
	ip, c := listening(t, plain.URL)
	p := New(execer(func(_ context.Context, x runtime.Exec) (runtime.Exit, error) {
		fmt.Fprint(x.Stderr, "no")
		return runtime.Exit{Code: len(x.Args) - 1}, nil
	}), "1")
	get := func(path string, scheme corev1.URIScheme) corev1.LifecycleHandler {
		return corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), Scheme: scheme}}
	}
	for name, tc := range map[string]struct {
		hook corev1.LifecycleHandler
		err  string
	}{
		"command":          {corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"a"}}}, ""},
		"failing command":  {corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"a", "b"}}}, `command "a b" exited with 1: "no"`},
		"request":          {get("/code/200", corev1.URISchemeHTTP), ""},
		"failing request":  {get("/code/500", corev1.URISchemeHTTP), ""},
		"not really https": {get("/code/200", corev1.URISchemeHTTPS), ""},
		"no such port":     {corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("x")}}, "nor the name of a port"},
		"sleep":            {corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 0}}, ""},
		"tcpSocket":        {corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}, "invalid handler"},
	} {
		err := p.Hook(t.Context(), &tc.hook, c, "id", ip)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Hook(ctx, &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3600}}, c, "id", ip); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("a sleep that is cut short: %v", err)
	}
}
