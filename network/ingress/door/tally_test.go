package door

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

// logged takes what is said in the log from now on.
func logged(t *testing.T) *safeBuffer {
	b, before := &safeBuffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return b
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestTally: each request is counted by the host of its rule and its code, and has a line.
func TestTally(t *testing.T) {
	log := logged(t)
	r := open(t, 100)
	echo := backend(t, false, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.Copy(w, q.Body)
	})
	r.lead(at(echo), func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "*.test" })
	c := r.client(one)
	for range 3 {
		r.ask(c, "POST", "http://A.test/", strings.NewReader("abc"))
	}
	r.ask(c, "GET", "http://a.test/early", nil)
	r.ask(c, "GET", "http://stranger.example/"+strings.Repeat("x", 1000)+"?secret", nil)
	r.lead(at(gone(t)), nil)
	r.ask(c, "GET", "http://a.test/", nil)
	r.stop() // after the last of them was counted

	var text strings.Builder
	r.s.handler.told.metrics(&text)
	for _, line := range []string{
		`ledge_ingress_requests_total{host="*.test",code="200"} 3`, `ledge_ingress_requests_total{host="*.test",code="418"} 1`,
		`ledge_ingress_requests_total{host="",code="404"} 1`, `ledge_ingress_requests_total{host="a.test",code="502"} 1`,
		`ledge_ingress_request_duration_seconds_count{host="*.test"} 4`, `ledge_ingress_request_duration_seconds_sum{host="*.test"} 0.`,
		"# TYPE ledge_ingress_requests_total counter", "# TYPE ledge_ingress_request_duration_seconds summary",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("not there: %s\n%s", line, text.String())
		}
	}
	said := log.String()
	if n := strings.Count(said, "msg=request"); n != 6 {
		t.Errorf("%d lines\n%s", n, said)
	}
	for _, part := range []string{"host=A.test method=POST path=/ protocol=HTTP/1.1 code=200 bytes=3 took=", "ingress=n/i endpoint=" + echo.String(),
		strings.Repeat("x", 255) + "... protocol"} {
		if !strings.Contains(said, part) {
			t.Errorf("not there: %s\n%s", part, said)
		}
	}
	if strings.Contains(said, "secret") {
		t.Error("what stands behind the question mark is in the log")
	}
}

// TestClientWhoGoes: nobody took the answer; it is not the endpoint's failure.
func TestClientWhoGoes(t *testing.T) {
	r := open(t, 100)
	asked := make(chan bool)
	r.lead(at(backend(t, false, func(_ http.ResponseWriter, q *http.Request) {
		close(asked)
		<-q.Context().Done()
	})), nil)
	req := httptest.NewRequest("GET", "http://"+r.plain+"/", nil)
	req.RequestURI, req.Host = "", "a.test"
	c := r.client(one)
	go func() {
		<-asked
		c.CloseIdleConnections()
	}()
	c.Timeout = 50 * time.Millisecond
	if resp, err := c.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("an answer")
	}
	r.stop()
	if n := r.s.handler.told.requests[series{"a.test", clientGone}]; n != 1 {
		t.Errorf("%v", r.s.handler.told.requests)
	}
}

// TestTallyIsBounded: neither counters nor lines grow with what strangers and endpoints think of.
func TestTallyIsBounded(t *testing.T) {
	log := logged(t)
	synctest.Test(t, func(t *testing.T) {
		told := newTally(true)
		r := httptest.NewRequest("GET", "http://a.test/", nil)
		for i := range 2 * mostSeries {
			told.answered(&patient{host: fmt.Sprint("h", i), code: 200 + i%800}, r, time.Second)
		}
		if len(told.requests) > mostSeries+10 || len(told.took) > mostSeries+1 {
			t.Errorf("%d counters, %d times", len(told.requests), len(told.took))
		}
		if of := told.took[others]; of.count != mostSeries || of.seconds != mostSeries {
			t.Errorf("%+v", of)
		}
		if n := strings.Count(log.String(), "msg=request"); n != mostLines {
			t.Errorf("%d lines in a second", n)
		}
		time.Sleep(time.Second)
		told.answered(&patient{}, r, time.Second)
		if !strings.Contains(log.String(), fmt.Sprintf("number=%d", 2*mostSeries-mostLines)) {
			t.Error("nobody says how many were left out")
		}
	})
}

// TestTallyOfOneHost: an endpoint that answers with any code takes no counters from others, and hosts that no rule has any more make room.
func TestTallyOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := newTally(false)
		for h := range 6 {
			for code := 100; code < 1000; code++ {
				told.count(&patient{host: fmt.Sprint("evil", h), code: code}, time.Millisecond)
			}
		}
		told.count(&patient{host: "shop", code: 200}, time.Millisecond)
		told.count(&patient{host: "shop", code: clientGone}, time.Millisecond)
		if len(told.requests) > 6*mostCodes+2 || told.requests[series{"shop", 200}] != 1 || told.requests[series{"shop", clientGone}] != 1 {
			t.Errorf("%d counters", len(told.requests))
		}
		var sum uint64
		for s, n := range told.requests {
			if s.host == "evil0" {
				sum += n
			}
		}
		if sum != 900 || told.requests[series{"evil0", 200}] < 80 || told.requests[series{"evil0", 900}] != 100 {
			t.Errorf("%d requests, %v", sum, told.requests)
		}
		for i := 0; len(told.requests) < mostSeries; i++ {
			told.count(&patient{host: fmt.Sprint("h", i), code: 200}, time.Millisecond)
		}
		told.known = func(host string) bool { return host == "shop" }
		told.count(&patient{host: "new", code: 200}, time.Millisecond) // all others are gone
		if len(told.requests) != 3 || told.requests[series{"new", 200}] != 1 || len(told.took) != 2 || len(told.codes) != 2 {
			t.Errorf("%d counters, %d times, %d hosts", len(told.requests), len(told.took), len(told.codes))
		}
	})
}

// TestSettle: nobody is taken in before everything was heard, but for long nobody waits.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, heard := range []time.Duration{0, time.Second, time.Hour} {
			began := time.Now()
			settle(t.Context(), func() bool { return time.Since(began) >= heard })
			if took := time.Since(began); took != min(heard, firstWords) {
				t.Errorf("heard after %v: %v", heard, took)
			}
		}
	})
}
