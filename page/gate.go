package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long visitors stay, and how many.
const (
	mostSessions = 16
	longestStay  = 12 * time.Hour
	longestRest  = 2 * time.Hour // without a request; an open page makes none, and ends its session all the same
	checkWait    = 5 * time.Second
)

// Gate lets those in who know a password, over TLS.
type Gate struct {
	Opens func(password string) bool
	Told  func(message string, args ...any) // of who came, and who tried; nil: nobody is

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]*session
	tries    tries
	checking chan struct{} // a check costs memory: one at a time
}

// session is one visitor's, in memory only: after a restart he says the password again.
type session struct {
	form  string
	until time.Time
	seen  time.Time
	done  chan struct{}
	timer *time.Timer
}

// NewGate makes a gate for a password.
func NewGate(opens func(string) bool, told func(string, ...any)) *Gate {
	return &Gate{Opens: opens, Told: told, sessions: map[[sha256.Size]byte]*session{}, checking: make(chan struct{}, 1)}
}

// cookie is the name of the cookie. Browsers take one of this prefix from this host alone, over TLS, for all paths.
const cookie = "__Host-ledge"

// Admit implements Guard.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) (Visitor, bool) {
	s := g.of(r)
	switch {
	case r.URL.Path == "/enter" && r.Method == http.MethodPost:
		g.enter(w, r)
	case r.URL.Path == "/enter":
		ask(w, http.StatusOK, to(r.URL.Query().Get("to")), "")
	case s == nil && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		http.Redirect(w, r, "/enter?to="+pathOf(r.URL.RequestURI()), http.StatusSeeOther)
	case s == nil:
		fail(w, r, apierrors.NewUnauthorized("say the password at /enter first"))
	case r.URL.Path == "/leave" && r.Method == http.MethodPost && same(r.PostFormValue("form"), s.form):
		g.end(s)
		http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/enter", http.StatusSeeOther)
	default:
		return Visitor{Form: s.form, Done: s.done}, true
	}
	return Visitor{}, false
}

// to is where a visitor wanted to go: a place of this page, and no other.
func to(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") || len(path) > 1024 {
		return "/"
	}
	return path
}

// of is the session of a request; nil: it has none that counts.
func (g *Gate) of(r *http.Request) *session {
	c, err := r.Cookie(cookie)
	if err != nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sha256.Sum256([]byte(c.Value))]
	if s != nil {
		s.seen = time.Now()
		s.timer.Reset(min(longestRest, time.Until(s.until)))
	}
	return s
}

func (g *Gate) end(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, one := range g.sessions {
		if one == s {
			g.drop(id)
		}
	}
}

// drop ends a session; g.mu is held.
func (g *Gate) drop(id [sha256.Size]byte) {
	s := g.sessions[id]
	delete(g.sessions, id)
	s.timer.Stop()
	close(s.done)
}

// enter looks at a password, as fast as who sent it may guess.
func (g *Gate) enter(w http.ResponseWriter, r *http.Request) {
	next, from := to(r.PostFormValue("to")), source(r.RemoteAddr)
	g.mu.Lock()
	wait := g.tries.wait(from, time.Now())
	g.mu.Unlock()
	if wait > 0 {
		ask(w, http.StatusTooManyRequests, next, "Too many tries: wait "+wait.Round(time.Second).String()+".")
		return
	}
	ok, err := g.check(r.Context(), r.PostFormValue("password"))
	if err != nil {
		ask(w, http.StatusServiceUnavailable, next, "Others are trying, too: try again.")
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok {
		g.tries.failed(from, time.Now())
		g.tell("somebody tried to open the page with a wrong password", "from", from)
		ask(w, http.StatusForbidden, next, "That is not the password.")
		return
	}
	g.tries.forget(from)
	g.tell("somebody opened the page", "from", from)
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: g.begin(), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(longestStay / time.Second)})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (g *Gate) tell(message string, args ...any) {
	if g.Told != nil {
		g.Told(message, args...)
	}
}

// check waits for its turn, not for long.
func (g *Gate) check(ctx context.Context, password string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	select {
	case g.checking <- struct{}{}:
	case <-ctx.Done():
		return false, errors.New("others are being checked")
	}
	defer func() { <-g.checking }()
	return g.Opens(password), nil
}

// begin makes a session, in the place of the one that has rested longest if there are many; g.mu is held. Who gets one knows the
// password, so nobody else can drive a visitor out.
func (g *Gate) begin() (secret string) {
	if len(g.sessions) >= mostSessions {
		var oldest [sha256.Size]byte
		var seen time.Time
		for id, s := range g.sessions {
			if seen.IsZero() || s.seen.Before(seen) {
				oldest, seen = id, s.seen
			}
		}
		g.drop(oldest)
	}
	secret = random()
	id := sha256.Sum256([]byte(secret))
	now := time.Now()
	s := &session{form: random(), until: now.Add(longestStay), seen: now, done: make(chan struct{})}
	s.timer = time.AfterFunc(longestRest, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.sessions[id] == s {
			g.drop(id)
		}
	})
	g.sessions[id] = s
	return secret
}

func random() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it does not fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// source is who guesses: an address, or the network that a host of IPv6 chooses its addresses from.
func source(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// ask is the page on which the password is said.
func ask(w http.ResponseWriter, code int, next, trouble string) {
	parts := []any{at("method", "post"), at("action", "/enter"), class("enter"), hidden("to", next),
		el("label", at("for", "password"), "Password"),
		el("input", at("id", "password"), at("name", "password"), at("type", "password"), at("autocomplete", "current-password"), at("required", ""),
			at("autofocus", ""))}
	if trouble != "" {
		parts = append(parts, el("p", at("role", "alert"), badge("grave", trouble)))
	}
	document(w, code, "Enter", el("main", at("id", "main"), el("h1", "ledge"), el("form", append(parts, button("Enter", "well"))...),
		el("p", link("/ca.crt", "The board's certificate"), " tells a browser to trust it.")))
}

// tries are who has guessed wrong lately, and how long each waits until the next guess. The zero value has seen nobody.
type tries struct{ by map[string]*guesser }

type guesser struct {
	failed int
	until  time.Time // of waiting
	last   time.Time
}

const (
	mostGuessers = 128
	freeGuesses  = 3
	longestWait  = 5 * time.Minute
	forgetAfter  = time.Hour
)

// wait is how long a source has to wait now.
func (t *tries) wait(from string, now time.Time) time.Duration {
	if g := t.by[from]; g != nil && now.Sub(g.last) < forgetAfter {
		return max(0, g.until.Sub(now))
	}
	return 0
}

// failed has the source wait, each time twice as long after some free tries. Of many sources the one is forgotten that has rested longest.
func (t *tries) failed(from string, now time.Time) {
	g := t.by[from]
	if g == nil || now.Sub(g.last) >= forgetAfter {
		g = &guesser{}
	}
	g.failed++
	g.last = now
	if over := g.failed - freeGuesses; over >= 0 {
		g.until = now.Add(min(longestWait, time.Second<<min(over, 10)))
	}
	if t.by == nil {
		t.by = map[string]*guesser{}
	}
	t.by[from] = g
	if len(t.by) <= mostGuessers {
		return
	}
	oldest := ""
	for name, one := range t.by {
		if oldest == "" || one.last.Before(t.by[oldest].last) {
			oldest = name
		}
	}
	delete(t.by, oldest)
}

func (t *tries) forget(from string) { delete(t.by, from) }
