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
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long visitors stay, and how many.
const (
	mostSessions  = 16
	mostStrangers = 16 // at once
	longestStay   = 12 * time.Hour
	longestRest   = 2 * time.Hour // without a request; an open page makes none, and ends its session all the same
	checkWait     = 5 * time.Second
	formTime      = 5 * time.Second // to send a form
)

// Gate lets those in who know a password, over TLS.
type Gate struct {
	Opens func(password string) bool
	Told  func(message string, args ...any) // of who came, and who tried; nil: nobody is

	mu        sync.Mutex // nothing is written to a visitor while it is held
	sessions  map[[sha256.Size]byte]*session
	tries     tries
	checking  chan struct{} // a check costs memory: one at a time
	strangers chan struct{} // who is being answered without a session
}

// session is one visitor's, in memory only: after a restart he says the password again.
type session struct {
	from  string // the address that said the password: cookies know no ports, and a pod of this board may be shown this one
	form  string
	until time.Time
	seen  time.Time
	done  chan struct{}
	timer *time.Timer
}

// NewGate makes a gate for a password.
func NewGate(opens func(string) bool, told func(string, ...any)) *Gate {
	return &Gate{Opens: opens, Told: told, sessions: map[[sha256.Size]byte]*session{}, checking: make(chan struct{}, 1),
		strangers: make(chan struct{}, mostStrangers)}
}

// cookie is the name of the cookie. Browsers take one of this prefix from this host alone, over TLS, for all paths.
const cookie = "__Host-ledge"

// Admit implements Guard.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) (Visitor, bool) {
	s := g.of(r)
	if s == nil {
		select {
		case g.strangers <- struct{}{}:
			defer func() { <-g.strangers }()
		default:
			fail(w, r, apierrors.NewTooManyRequests("many are asking at once: try again", 1))
			return Visitor{}, false
		}
	}
	if r.Method == http.MethodPost {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTime)) // a recorder of a test has none
	}
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
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") || len(path) > 256 {
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
	if s == nil || s.from != host(r.RemoteAddr) {
		return nil
	}
	s.seen = time.Now()
	s.timer.Reset(min(longestRest, time.Until(s.until)))
	return s
}

// host is an address without its port.
func host(remote string) string {
	h, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return h
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
	next, from := to(r.PostFormValue("to")), source(r)
	wait := g.waits(from)
	secret, err := "", error(nil)
	if wait == 0 {
		secret, wait, err = g.check(r.Context(), from, host(r.RemoteAddr), r.PostFormValue("password"))
	}
	switch {
	case err != nil:
		ask(w, http.StatusServiceUnavailable, next, "Others are trying, too: try again.")
	case wait > 0:
		ask(w, http.StatusTooManyRequests, next, "Too many tries: wait "+max(time.Second, wait.Round(time.Second)).String()+".")
	case secret == "":
		g.tell("somebody tried to open the page with a wrong password", "from", r.RemoteAddr)
		ask(w, http.StatusForbidden, next, "That is not the password.")
	default:
		g.tell("somebody opened the page", "from", r.RemoteAddr)
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: secret, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
			MaxAge: int(longestStay / time.Second)})
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

func (g *Gate) waits(from string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tries.wait(from, time.Now())
}

func (g *Gate) tell(message string, args ...any) {
	if g.Told != nil {
		g.Told(message, args...)
	}
}

// check waits for its turn, not for long, and looks at a password then: secret is that of a new session, none for a wrong one. Of guesses
// that were sent side by side the later ones wait as if they had been sent one after the other.
func (g *Gate) check(ctx context.Context, from, address, password string) (secret string, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	select {
	case g.checking <- struct{}{}:
	case <-ctx.Done():
		return "", 0, errors.New("others are being checked")
	}
	defer func() { <-g.checking }()
	if wait := g.waits(from); wait > 0 {
		return "", wait, nil
	}
	ok := g.Opens(password)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok {
		g.tries.failed(from, time.Now())
		return "", 0, nil
	}
	g.tries.trust(from)
	return g.begin(address), 0, nil
}

// begin makes a session, in the place of the one that has rested longest if there are many; g.mu is held. Who gets one knows the
// password, so nobody else can drive a visitor out.
func (g *Gate) begin(address string) (secret string) {
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
	s := &session{from: address, form: random(), until: now.Add(longestStay), seen: now, done: make(chan struct{})}
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

// source is who guesses: an address, or the network that a host of IPv6 elsewhere chooses its addresses from. A whole house is one such
// network, so those on the board's own are told apart.
func source(r *http.Request) string {
	ip, err := netip.ParseAddr(host(r.RemoteAddr))
	if err != nil {
		return host(r.RemoteAddr)
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() || ip.IsLinkLocalUnicast() || ip.IsPrivate() || ip.IsLoopback() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	if here, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && network.Contains(here.AddrPort().Addr().Unmap()) {
		return ip.String()
	}
	return network.String()
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

// tries are who has guessed wrong in the last hour, and how long each waits until the next guess. When there
// are as many of those as there is room for, all others wait together. Who has said the password before is never one of them.
type tries struct {
	by      map[string]*guesser
	trusted []string // the last to come is the last
}

type guesser struct {
	failed int
	until  time.Time // of waiting
	last   time.Time
}

const (
	mostGuessers = 128
	mostTrusted  = 32
	freeGuesses  = 3
	longestWait  = 5 * time.Minute
	forgetAfter  = time.Hour
	allOthers    = "*"
)

// wait is how long a source has to wait now.
func (t *tries) wait(from string, now time.Time) time.Duration {
	if g := t.by[t.key(from, now)]; g != nil && now.Sub(g.last) < forgetAfter {
		return max(0, g.until.Sub(now))
	}
	return 0
}

// key is under what a source is counted.
func (t *tries) key(from string, now time.Time) string {
	if t.by[from] != nil || len(t.by) < mostGuessers || slices.Contains(t.trusted, from) || t.idle(now) != "" {
		return from
	}
	return allOthers
}

// idle is a source that has rested so long that it may begin anew; empty: there is none.
func (t *tries) idle(now time.Time) string {
	for name, g := range t.by {
		if now.Sub(g.last) >= forgetAfter {
			return name
		}
	}
	return ""
}

// failed has the source wait, each time twice as long after some free tries.
func (t *tries) failed(from string, now time.Time) {
	key := t.key(from, now)
	g := t.by[key]
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
	if idle := t.idle(now); t.by[key] == nil && len(t.by) >= mostGuessers && idle != "" {
		delete(t.by, idle)
	}
	t.by[key] = g
}

// trust remembers who has said the password.
func (t *tries) trust(from string) {
	delete(t.by, from)
	t.trusted = append(slices.DeleteFunc(t.trusted, func(s string) bool { return s == from }), from)
	t.trusted = t.trusted[max(0, len(t.trusted)-mostTrusted):]
}
