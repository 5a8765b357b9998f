package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api"
	"ledge/api/httpd"
)

// Slow clients: headers, bodies and idle connections have their time, and so does each piece of an answer.

// raw sends bytes over a connection of its own.
func (f *fixture) raw(text string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	conn, err := f.dial["admin"](f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		f.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func within(t *testing.T, start time.Time, least, most time.Duration) {
	t.Helper()
	if d := time.Since(start); d < least || d > most {
		t.Errorf("took %s, want %s to %s", d, least, most)
	}
}

func TestSlowHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		start := time.Now()
		conn, in := f.raw("GET /version HTTP/1.1\r\nHost: x\r\nX: ")
		given := make(chan struct{})
		go func() { // a byte a second
			defer close(given)
			for {
				if _, err := conn.Write([]byte("a")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		io.Copy(io.Discard, in)
		within(t, start, 5*time.Second, 7*time.Second)
		conn.Close()
		<-given
		f.stop()
	})
}

func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		start := time.Now()
		conn, in := f.raw("POST " + mapsPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 408 {
			t.Errorf("%v %v, want 408", resp, err)
		}
		within(t, start, 10*time.Second, 11*time.Second)
		conn.Close()
		f.stop()
	})
}

func TestSlowBodyThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		start := time.Now()
		conn, in := f.raw("POST /no/such/path HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 404 {
			t.Errorf("%v %v, want 404", resp, err)
		}
		io.Copy(io.Discard, in) // and the connection is closed
		within(t, start, 0, 11*time.Second)
		conn.Close()
		f.stop()
	})
}

func TestIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		conn, in := f.raw("GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		io.Copy(io.Discard, resp.Body)
		start := time.Now()
		io.Copy(io.Discard, in)
		within(t, start, 55*time.Second, 65*time.Second)
		conn.Close()
		f.stop()
	})
}

func TestSlowReaderOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{MaxWatches: 1})
		conn, in := f.raw("GET " + mapsPath + "?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		f.must(201, "POST", mapsPath, configMap("m", "one")) // an event that nobody takes
		f.must(429, "GET", mapsPath+"?watch=1", "")
		time.Sleep(31 * time.Second)
		w := f.watch(mapsPath + "?watch=1&timeoutSeconds=1") // its place is free again
		w.expect("ADDED m one")
		w.ended()
		conn.Close()
		f.stop()
	})
}

func TestSlowReaderOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{MaxInFlight: 1})
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"m"},"data":{"k":"`+strings.Repeat("x", 200<<10)+`"}}`)
		synctest.Wait() // the answer of that arrives before its place is free
		conn, _ := f.raw("GET " + mapsPath + " HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		f.must(429, "GET", mapsPath, "")
		time.Sleep(31 * time.Second)
		f.must(200, "GET", mapsPath, "")
		conn.Close()
		f.stop()
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{MaxWatches: 2})
		one := f.watch(mapsPath + "?watch=1&timeoutSeconds=600")
		f.watch(mapsPath + "?watch=1&timeoutSeconds=600")
		a := f.must(429, "GET", mapsPath+"?watch=1", "")
		if a.head.Get("Retry-After") == "" || a.status(t).Reason != "TooManyRequests" {
			t.Errorf("%v %s", a.head, a.body)
		}
		// The cap is each one's own.
		resp, err := f.send(nodeA, "GET", "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da", "")
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		one.resp.Body.Close()
		synctest.Wait()
		f.watch(mapsPath + "?watch=1&timeoutSeconds=600")
		f.stop()
	})
	// A flood of others does not stop a node's heartbeat: its requests have a lane of their own.
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{MaxInFlight: 1})
		conn, err := f.dial["admin"](t.Context())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "POST "+mapsPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
		synctest.Wait()
		f.must(429, "GET", "/version", "")
		if a := f.do(nodeA, "GET", "/version", ""); a.code != 200 {
			t.Errorf("a node: %d %s", a.code, a.body)
		}
		conn.Close()
		f.stop()
	})
}

// Who floods is told to slow down, and nobody else is: not the administrator, not a node, whose heartbeats get through even when
// it is the node that floods.
func TestFloodIsSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, httpd.Config{})
		flood := func(u api.User, times int) (through int) {
			for range times {
				switch a := f.do(u, "GET", "/version", ""); a.code {
				case 200:
					through++
				case 429:
					if a.head.Get("Retry-After") != "1" || a.status(t).Reason != "TooManyRequests" {
						t.Fatalf("%v %s", a.head, a.body)
					}
				default:
					t.Fatalf("%d %s", a.code, a.body)
				}
			}
			return through
		}
		if n := flood(bob, 300); n != 200 {
			t.Errorf("%d of 300 requests of a user", n)
		}
		if n := flood(nodeA, 1200); n != 1000 {
			t.Errorf("%d of 1200 requests of a node", n)
		}
		if a := f.do(nodeA, "GET", "/api/v1/nodes/a", ""); a.code == 429 {
			t.Error("a heartbeat waits behind the node's other requests")
		}
		if n := flood(admin, 1200); n != 1200 {
			t.Errorf("%d of 1200 requests of the administrator", n)
		}
		time.Sleep(time.Second)
		if n := flood(bob, 300); n != 50 {
			t.Errorf("%d of 300 requests of a user a second later", n)
		}
		f.stop()
	})
}

// What stands under /ledge/ is the admin's alone, and its bodies take the time they take.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			u, _ := api.UserFrom(r.Context())
			fmt.Fprintf(w, "%s sent %d bytes, %v", u.Name, n, err)
		})
		f := serve(t, httpd.Config{Board: board})
		for _, u := range []api.User{nodeA, bob} {
			if a := f.do(u, "POST", "/ledge/v1/images", "x"); a.status(t).Code != 403 {
				t.Errorf("%s: %d", u.Name, a.code)
			}
		}
		// What a redirect or a page could have a client ask for is not done.
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if a := f.do(admin, method, "/ledge/v1/shutdown?in=1h", "", "Content-Type", "application/json"); a.code != 400 ||
				!strings.Contains(a.status(t).Message, httpd.HeaderMeant) {
				t.Errorf("%s that nobody meant: %d %s", method, a.code, a.body)
			}
			f.must(200, method, "/ledge/v1/shutdown?in=1h", "", httpd.HeaderMeant, "yes")
		}
		f.must(200, "GET", "/ledge/v1/shutdown", "")
		r, w := io.Pipe()
		go func() {
			for range 40 {
				w.Write(make([]byte, 100<<10))
				time.Sleep(time.Second)
			}
			w.Close()
		}()
		req, err := http.NewRequest("POST", "http://x/ledge/v1/images", r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(httpd.HeaderMeant, "yes")
		resp, err := f.as["admin"].Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); string(got) != "admin sent 4096000 bytes, <nil>" {
			t.Errorf("%q %v", got, err)
		}
		f.stop()
	})
}

func TestHeadersAreBounded(t *testing.T) {
	f := serve(t, httpd.Config{})
	a := f.do(admin, "GET", "/version", "", "X-Large", strings.Repeat("x", 64<<10))
	if a.code != 431 {
		t.Errorf("%d %s, want 431", a.code, a.body)
	}
}

// A panic answers 500 and does not end the server.
func TestPanic(t *testing.T) {
	f := serve(t, httpd.Config{Checks: []httpd.Check{{Name: "x", Run: func(context.Context) error { panic("boom") }}}})
	if s := f.must(500, "GET", "/readyz", "").status(t); !strings.Contains(s.Message, "boom") {
		t.Errorf("%+v", s)
	}
	f.must(200, "GET", "/livez", "")
}

// A flood of wide bodies stays within the memory of a small board (reliability F): each of these would unfold to
// tens of megabytes if it were decoded.
func TestAbuseCostsLittleMemory(t *testing.T) {
	f := serve(t, httpd.Config{})
	wide := []byte(`{"spec":{"containers":[` + strings.Repeat("{},", 80000) + `{}]}}`)
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	for range 20 {
		resp, err := f.as["admin"].Post("http://x"+podsPath, "application/json", bytes.NewReader(wide))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Fatalf("%d", resp.StatusCode)
		}
	}
	goruntime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / 20; per > 2<<20 {
		t.Errorf("a refused body of %d bytes allocates %d", len(wide), per)
	}
}
