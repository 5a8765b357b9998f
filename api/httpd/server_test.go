package httpd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/pki"
)

// answering is a handler that says who asks.
var answering = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })

// run serves until the test ends, or stop is called.
func run(t *testing.T, srv *httpd.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// handler is the API over a real store.
func handler(t *testing.T) http.Handler {
	t.Helper()
	h, err := httpd.New(httpd.Config{Client: serve(t, httpd.Config{}).store})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(c *http.Client, url string) (int, string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// Shutdown over HTTP/2 and HTTP/1: watches end cleanly, a request that is being answered is answered.
func TestGracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(started)
			time.Sleep(2 * time.Second)
			fmt.Fprint(w, "late")
		})
		l, dial := httpd.Pipe(admin)
		stop := run(t, &httpd.Server{Handler: slow, Listeners: []*httpd.Listener{l}})
		tr := &http.Transport{DialContext: dialer(dial)}
		got := make(chan string)
		go func() {
			code, body, err := get(&http.Client{Transport: tr}, "http://x/")
			got <- fmt.Sprint(code, body, err)
		}()
		<-started
		start := time.Now()
		go stop()
		if s := <-got; s != "200late<nil>" {
			t.Errorf("a request in flight: %s", s)
		}
		if _, err := dial(t.Context()); err == nil {
			t.Error("the listener still takes connections")
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("took %s", d)
		}
		tr.CloseIdleConnections()
		time.Sleep(time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		w := f.watch(mapsPath + "?watch=1&timeoutSeconds=600")
		start := time.Now()
		go f.stop()
		w.ended()
		if d := time.Since(start); d > time.Second {
			t.Errorf("a watch held up the stop for %s", d)
		}
		f.stop()
	})
	// Over TLS with HTTP/2.
	f := serve(t, httpd.Config{})
	h, err := httpd.New(httpd.Config{Client: f.store})
	if err != nil {
		t.Fatal(err)
	}
	url, a, stop := secured(t, h)
	resp, err := withCert(t, a, "x", api.AdminGroup).Get(url + mapsPath + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	start := time.Now()
	stop()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("the watch ended with %q %v", rest, err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("a watch held up the stop for %s", d)
	}
}

// A request that does not end is cut off after the grace; nothing is left running.
func TestStopCutsOffAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		stuck := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-r.Context().Done()
		})
		l, dial := httpd.Pipe(admin)
		stop := run(t, &httpd.Server{Handler: stuck, Listeners: []*httpd.Listener{l}, Grace: 4 * time.Second})
		tr := &http.Transport{DialContext: dialer(dial)}
		failed := make(chan error)
		go func() {
			_, _, err := get(&http.Client{Transport: tr}, "http://x/")
			failed <- err
		}()
		<-started
		start := time.Now()
		stop()
		if d := time.Since(start); d < 4*time.Second || d > 5*time.Second {
			t.Errorf("the stop took %s", d)
		}
		if <-failed == nil {
			t.Error("the stuck request was answered")
		}
		tr.CloseIdleConnections()
	})
}

func TestRunReportsABrokenListener(t *testing.T) {
	l, _ := httpd.Pipe(admin)
	good, _ := httpd.Pipe(admin)
	l.Close()
	err := (&httpd.Server{Handler: answering, Listeners: []*httpd.Listener{good, l}}).Run(context.Background())
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := (&httpd.Server{Handler: answering}).Run(context.Background()); err == nil {
		t.Error("a server without listeners runs")
	}
}

// authority makes a CA, and how a server of it listens on loopback.
func authority(t *testing.T) (*pki.Authority, *tls.Config) {
	t.Helper()
	a, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := a.ServerTLS([]string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return a, conf
}

// secured is a server with TLS on loopback, and its authority.
func secured(t *testing.T, h http.Handler) (url string, a *pki.Authority, stop func()) {
	t.Helper()
	a, conf := authority(t)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	// A grace far beyond what anything should need, so that whoever needs it is noticed even on a busy machine.
	stop = run(t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}, Grace: time.Minute})
	return "https://" + l.Addr().String(), a, stop
}

// withCert is an HTTP client of that server.
func withCert(t *testing.T, a *pki.Authority, user string, groups ...string) *http.Client {
	t.Helper()
	conf := &tls.Config{RootCAs: a.Pool()}
	if user != "" {
		cert, err := a.Client(user, groups)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
