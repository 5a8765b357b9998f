package page

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// visitor is a browser as far as a gate sees it.
type visitor struct {
	t      *testing.T
	g      Guard
	from   string
	cookie string
}

func (v *visitor) do(method, path string, form url.Values, accept string) *httptest.ResponseRecorder {
	v.t.Helper()
	r := httptest.NewRequest(method, "https://board"+path, strings.NewReader(form.Encode()))
	r.RemoteAddr = v.from + ":4000"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", accept)
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	w := httptest.NewRecorder()
	if _, ok := v.g.Admit(w, r); ok {
		w.Code = http.StatusTeapot // it would be shown
	}
	for _, c := range w.Result().Cookies() {
		v.cookie = c.Name + "=" + c.Value
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			v.t.Errorf("cookie %s can be read, or sent along from elsewhere", c)
		}
	}
	return w
}

func (v *visitor) enter(password string) int {
	v.t.Helper()
	return v.do("POST", "/enter", url.Values{"password": {password}, "to": {"/pods"}}, "text/html").Code
}

func (v *visitor) look() int { return v.do("GET", "/pods", nil, "text/html").Code }

func testGate(t *testing.T) *Gate {
	return NewGate(func(p string) bool { time.Sleep(100 * time.Millisecond); return p == "right" }, nil)
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &visitor{t: t, g: testGate(t), from: "192.0.2.7"}
		if w := v.do("GET", "/pods?a=b", nil, "text/html"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/enter?to=%2Fpods%3Fa=b" {
			t.Errorf("a stranger is answered %d, %s", w.Code, w.Header().Get("Location"))
		}
		for _, accept := range []string{"application/json", "text/event-stream"} {
			if got := v.do("GET", "/pods", nil, accept).Code; got != http.StatusUnauthorized {
				t.Errorf("a stranger who wants %s is answered %d", accept, got)
			}
		}
		if got := v.do("POST", "/act/shutdown", nil, "text/html").Code; got != http.StatusUnauthorized {
			t.Errorf("a stranger's form is answered %d", got)
		}
		if v.enter("wrong") != http.StatusForbidden || v.look() != http.StatusSeeOther {
			t.Error("a wrong password opens")
		}
		if v.enter("right") != http.StatusSeeOther || v.look() != http.StatusTeapot {
			t.Error("the password does not open")
		}
		time.Sleep(longestRest - time.Minute)
		if v.look() != http.StatusTeapot {
			t.Error("a session that is used has ended")
		}
		time.Sleep(longestRest + time.Minute)
		if v.look() == http.StatusTeapot {
			t.Error("a session that rests goes on")
		}
		v.enter("right")
		for range 13 { // used every hour
			time.Sleep(time.Hour)
			v.look()
		}
		if v.look() == http.StatusTeapot {
			t.Error("a session goes on for ever")
		}
	})
}

func TestGateLeads(t *testing.T) {
	for path, want := range map[string]string{"/pods": "/pods", "//evil.example": "/", "https://evil.example": "/", "/\\evil.example": "/", "": "/",
		"/a\r\nSet-Cookie: x": "/", "/" + strings.Repeat("x", 2000): "/"} {
		if got := to(path); got != want {
			t.Errorf("%q leads to %q, not %q", path, got, want)
		}
	}
}

func TestGateForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(t)
		v := &visitor{t: t, g: g, from: "192.0.2.7"}
		v.enter("right")
		if got := v.do("POST", "/leave", url.Values{"form": {"stolen"}}, "text/html").Code; got == http.StatusSeeOther {
			t.Errorf("a form of somebody else ends a session: %d", got)
		}
		var s *session
		for _, one := range g.sessions {
			s = one
		}
		if got := v.do("POST", "/leave", url.Values{"form": {s.form}}, "text/html").Code; got != http.StatusSeeOther || v.look() == http.StatusTeapot {
			t.Errorf("leaving: %d", got)
		}
		select {
		case <-s.done:
		default:
			t.Error("what was open stays open after leaving")
		}
	})
}

// TestGateGuesses: who guesses waits, and nobody else does.
func TestGateGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(t)
		thief, other := &visitor{t: t, g: g, from: "192.0.2.66"}, &visitor{t: t, g: g, from: "192.0.2.7"}
		tried := 0
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
			if thief.enter("wrong") == http.StatusForbidden {
				tried++
			}
		}
		if tried < 10 || tried > 24 {
			t.Errorf("%d guesses in an hour", tried)
		}
		if other.enter("right") != http.StatusSeeOther {
			t.Error("somebody else has to wait, too")
		}
		if thief.enter("right") == http.StatusSeeOther {
			t.Error("who has to wait may guess")
		}
		for i := range 2 * mostGuessers { // a network of thieves
			(&visitor{t: t, g: g, from: fmt.Sprintf("198.51.%d.%d", i/256, i%256)}).enter("wrong")
		}
		if n := len(g.tries.by); n > mostGuessers+1 {
			t.Errorf("%d guessers are remembered", n)
		}
		for i := range 2 * mostSessions {
			(&visitor{t: t, g: g, from: fmt.Sprintf("203.0.113.%d", i)}).enter("right")
		}
		if n := len(g.sessions); n > mostSessions {
			t.Errorf("%d sessions", n)
		}
	})
}

// TestGateSources: who chooses his addresses is one, and who shares a network with others is not all of them.
func TestGateSources(t *testing.T) {
	of := func(remote, local string) string {
		r := httptest.NewRequest("GET", "https://board/", nil)
		r.RemoteAddr = remote
		here := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
		return source(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here)))
	}
	const far = "[2001:db8:9::1]:443"
	if a, b := of("[2001:db8::1]:1", far), of("[2001:db8::ffff]:2", far); a != b || a == of("[2001:db8:0:1::1]:1", far) {
		t.Errorf("%s and %s: a host of IPv6 chooses its addresses", a, b)
	}
	for _, pair := range [][3]string{{"[fe80::1%eth0]:1", "[fe80::2%eth0]:1", "[fe80::9]:443"}, {"[fd00::1]:1", "[fd00::2]:1", "[fd00::9]:443"},
		{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::9]:443"}, {"10.0.0.1:1", "10.0.0.2:1", "10.0.0.9:443"}} {
		if of(pair[0], pair[2]) == of(pair[1], pair[2]) {
			t.Errorf("%s and %s are one at %s", pair[0], pair[1], pair[2])
		}
	}
	if of("10.0.0.1:1", far) != of("10.0.0.1:2", far) || of("[::ffff:10.0.0.1]:1", far) != of("10.0.0.1:1", far) {
		t.Error("one address is several")
	}
}

// TestGateSideBySide: guesses that are sent together are no more than those that are sent one after the other, from one address or from
// many.
func TestGateSideBySide(t *testing.T) {
	for addresses, most := range map[int]int{1: 24, 200: 3000} {
		synctest.Test(t, func(t *testing.T) {
			checked := 0
			g := NewGate(func(p string) bool {
				checked++ // one at a time
				time.Sleep(50 * time.Millisecond)
				return p == "right"
			}, nil)
			owner := &visitor{t: t, g: g, from: "192.0.2.7"}
			owner.enter("right")
			for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(max(5, time.Duration(addresses)/5) * time.Second) {
				var wg sync.WaitGroup
				for i := range max(10, addresses) {
					wg.Go(func() { (&visitor{t: t, g: g, from: fmt.Sprintf("198.51.100.%d", i%addresses)}).enter("wrong") })
				}
				wg.Wait()
			}
			if checked > most {
				t.Errorf("%d guesses in an hour from %d addresses", checked, addresses)
			}
			if got := owner.enter("right"); got != http.StatusSeeOther {
				t.Errorf("who has said the password before is kept out: %d", got)
			}
		})
	}
}

// TestGateSessionStays: a cookie that comes from elsewhere, such as a pod that it was shown to, opens nothing.
func TestGateSessionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(t)
		v := &visitor{t: t, g: g, from: "192.0.2.7"}
		v.enter("right")
		if thief := (&visitor{t: t, g: g, from: "10.42.0.9", cookie: v.cookie}); thief.look() == http.StatusTeapot {
			t.Error("the session opens from another address")
		}
		if v.look() != http.StatusTeapot {
			t.Error("and not from its own any more")
		}
		g.end(g.of(&http.Request{Header: http.Header{"Cookie": {v.cookie}}, RemoteAddr: "192.0.2.7:1"}))
	})
}

// slow is a visitor who does not read.
type slow struct {
	*httptest.ResponseRecorder
	writing, read chan struct{}
}

func (s slow) Write(p []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.read
	return len(p), nil
}

// TestGateSlowReader: one who does not read his answer keeps nobody else waiting.
func TestGateSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(t)
		s := slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		done := make(chan struct{})
		go func() {
			r := httptest.NewRequest("POST", "https://board/enter", strings.NewReader("password=wrong"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			g.Admit(s, r)
			close(done)
		}()
		<-s.writing
		began := time.Now()
		v := &visitor{t: t, g: g, from: "192.0.2.7"}
		if v.enter("right") != http.StatusSeeOther || v.look() != http.StatusTeapot || time.Since(began) > time.Second {
			t.Errorf("another waits for %s", time.Since(began))
		}
		close(s.read)
		go func() {
			for range s.writing {
			}
		}()
		<-done
		close(s.writing)
		g.end(g.of(&http.Request{Header: http.Header{"Cookie": {v.cookie}}, RemoteAddr: "192.0.2.7:1"}))
	})
}

// TestGateCrowd: passwords are looked at one after the other, and who waits too long is told.
func TestGateCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, most := 0, 0
		var mu sync.Mutex
		g := NewGate(func(string) bool {
			mu.Lock()
			at++
			most = max(most, at)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			at--
			mu.Unlock()
			return false
		}, nil)
		var wg sync.WaitGroup
		codes := make(chan int, 100)
		for i := range 100 {
			wg.Go(func() { codes <- (&visitor{t: t, g: g, from: fmt.Sprintf("192.0.2.%d", i)}).enter("wrong") })
		}
		wg.Wait()
		close(codes)
		busy := 0
		for c := range codes {
			if c == http.StatusServiceUnavailable || c == http.StatusTooManyRequests {
				busy++
			}
		}
		if most != 1 || busy < 90 {
			t.Errorf("%d at once, %d were sent away", most, busy)
		}
	})
}

func TestOnce(t *testing.T) {
	g, link := NewOnce("127.0.0.1:1234")
	do := func(host, path, cookie string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://"+host+path, nil)
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		w := httptest.NewRecorder()
		if _, ok := g.Admit(w, r); ok {
			w.Code = http.StatusTeapot
		}
		return w
	}
	if do("evil.example:1234", link, "").Code != http.StatusForbidden {
		t.Error("a name that leads here from elsewhere opens the page")
	}
	for _, bad := range []string{"/", "/enter", "/enter?key=", "/enter?key=x"} {
		if got := do("127.0.0.1:1234", bad, "").Code; got != http.StatusUnauthorized {
			t.Errorf("%s: %d", bad, got)
		}
	}
	w := do("127.0.0.1:1234", link, "")
	cookie := strings.SplitN(w.Header().Get("Set-Cookie"), ";", 2)[0]
	if w.Code != 200 || cookie == "" || do("127.0.0.1:1234", "/pods", cookie).Code != http.StatusTeapot {
		t.Fatalf("the link: %d, %q", w.Code, cookie)
	}
	if do("127.0.0.1:1234", link, "").Code != http.StatusUnauthorized {
		t.Error("the link opens twice")
	}
	if do("127.0.0.1:1234", "/pods", onceCookie+"-1234=").Code != http.StatusUnauthorized {
		t.Error("no secret is a secret")
	}
}
