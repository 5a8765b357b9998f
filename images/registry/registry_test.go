package registry_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/registry"
)

// rig is a registry over HTTP on loopback whose behaviour a test changes.
type rig struct {
	*it.Registry
	srv  *httptest.Server
	name string // as it stands in references

	mu      sync.Mutex
	asked   []*http.Request
	respond func(w http.ResponseWriter, q *http.Request, next http.Handler) // nil: as it should be
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Registry: &it.Registry{}}
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, q)
		respond := r.respond
		r.mu.Unlock()
		next := r.Handler(r.name)
		if respond != nil {
			respond(w, q, next)
			return
		}
		next.ServeHTTP(w, q)
	}))
	t.Cleanup(r.srv.Close)
	r.name = strings.TrimPrefix(r.srv.URL, "http://")
	return r
}

func (r *rig) answer(respond func(http.ResponseWriter, *http.Request, http.Handler)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.respond = respond
}

func (r *rig) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

func newClient(t *testing.T, cfg registry.Config) *registry.Client {
	t.Helper()
	c, err := registry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ref(t *testing.T, s string) images.Reference {
	t.Helper()
	r, err := images.ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read gets a whole image: documents and layers.
func read(ctx context.Context, c *registry.Client, r images.Reference, keys images.Keyring) error {
	f, _, err := images.ResolveRemote(ctx, c, r, keys, images.HostPlatform(), 1<<30)
	if err != nil {
		return err
	}
	for _, l := range f.Layers {
		s, err := c.Blob(ctx, images.BlobRequest{Ref: r, Digest: l.Digest, Keys: keys})
		if err != nil {
			return err
		}
		data, err := io.ReadAll(s)
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
		if it.Digest(data) != l.Digest {
			return fmt.Errorf("layer has the digest %s", it.Digest(data))
		}
	}
	return nil
}

func TestRead(t *testing.T) {
	r := newRig(t)
	im := it.Sample(r.name + "/team/app:1")
	r.Push(im)
	c := newClient(t, registry.Config{UserAgent: "ledge/test"})
	if err := read(t.Context(), c, ref(t, im.Names[0]), nil); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Head(t.Context(), ref(t, im.Names[0]), nil); err != nil || d != im.ManifestDigest() {
		t.Errorf("head: %s, %v", d, err)
	}
	if err := read(t.Context(), c, ref(t, r.name+"/team/app@"+im.ManifestDigest()), nil); err != nil {
		t.Error(err)
	}
	for _, q := range r.requests() {
		if q.Header.Get("User-Agent") != "ledge/test" || q.Header.Get("Authorization") != "" {
			t.Errorf("%s %s: %v", q.Method, q.URL, q.Header)
		}
	}
	err := read(t.Context(), c, ref(t, r.name+"/team/app:2"), nil)
	var se *registry.StatusError
	if !errors.As(err, &se) || se.Code != 404 || !se.Permanent() || errors.Is(err, images.ErrUnreachable) {
		t.Errorf("unknown tag: %v", err)
	}
}

func TestRange(t *testing.T) {
	r := newRig(t)
	im := it.Sample(r.name + "/app")
	r.Push(im)
	c := newClient(t, registry.Config{})
	blob := im.Compress(im.Layers[0])
	get := func() (images.BlobStream, string) {
		t.Helper()
		s, err := c.Blob(t.Context(), images.BlobRequest{Ref: ref(t, r.name+"/app"), Digest: it.Digest(blob), Offset: 7})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(s)
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		return s, string(data)
	}
	if s, data := get(); s.From != 7 || data != string(blob[7:]) {
		t.Errorf("from %d, %d bytes", s.From, len(data))
	}
	// One that does not know ranges sends all of it, and says so.
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		q.Header.Del("Range")
		next.ServeHTTP(w, q)
	})
	if s, data := get(); s.From != 0 || data != string(blob) {
		t.Errorf("from %d, %d bytes", s.From, len(data))
	}
	r.answer(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Range", "bytes five-9/10")
		w.WriteHeader(http.StatusPartialContent)
	})
	if _, err := c.Blob(t.Context(), images.BlobRequest{Ref: ref(t, r.name+"/app"), Digest: it.Digest(blob), Offset: 7}); err == nil {
		t.Error("a range nobody can read")
	}
}

// Answers that are not what was asked for.
func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		respond     func(w http.ResponseWriter, q *http.Request, next http.Handler)
		want        string
		unreachable bool
		permanent   bool
	}{
		"wrong manifest digest": {func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			w.Header().Set("Docker-Content-Digest", it.Digest([]byte("x")))
			_, _ = io.WriteString(w, "{}")
		}, "has the digest", false, true},
		"endless manifest": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			for range 100 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, "longer than", false, true},
		"500":     {status(500, ""), "500", true, false},
		"503":     {status(503, ""), "503", true, false},
		"429":     {status(429, ""), "429", false, false},
		"403":     {status(403, ""), "403", false, true},
		"418":     {status(418, `{"errors":[{"code":"TEA","message":"bad\nline `+strings.Repeat("x", 5000)+`"}]}`), "TEA: bad line", false, true},
		"no body": {status(404, ""), "is not there", false, true},
		"cut": {func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			next.ServeHTTP(it.Throttle(w, 20), q)
		}, "unexpected EOF", true, false},
		"hang up": {func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, "EOF", true, false},
		"redirect loop": {func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			http.Redirect(w, q, q.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects more than", false, true},
		"redirect to a file": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Location", "file:///etc/shadow")
			w.WriteHeader(http.StatusFound)
		}, "not an address", false, true},
		"unknown auth": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", "Negotiate")
			w.WriteHeader(http.StatusUnauthorized)
		}, "unknown way of authentication", false, true},
		"wants a password": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "no credential", false, true},
		// apple/container's advisory: a realm decides where we send requests and credentials.
		"realm without TLS elsewhere": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", it.BearerRealm("gopher://169.254.169.254/latest", "s", "x"))
			w.WriteHeader(http.StatusUnauthorized)
		}, "not to be asked", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Push(it.Sample(r.name + "/app"))
			r.answer(c.respond)
			err := read(t.Context(), newClient(t, registry.Config{}), ref(t, r.name+"/app"), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%v", err)
			}
			var p interface{ Permanent() bool }
			if got := errors.As(err, &p) && p.Permanent(); got != c.permanent || errors.Is(err, images.ErrUnreachable) != c.unreachable {
				t.Errorf("permanent %v, unreachable %v: %v", got, errors.Is(err, images.ErrUnreachable), err)
			}
		})
	}
}

func status(code int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestRetryAfter(t *testing.T) {
	r := newRig(t)
	r.answer(status(429, ""))
	_, err := newClient(t, registry.Config{}).Manifest(t.Context(), ref(t, r.name+"/app"), nil)
	var ra interface{ RetryAfter() time.Duration }
	if !errors.As(err, &ra) || ra.RetryAfter() != 7*time.Second {
		t.Errorf("%v", err)
	}
}

// A transfer that comes to a stop ends, long before TCP notices.
func TestStall(t *testing.T) {
	r := newRig(t)
	im := it.Sample(r.name + "/app")
	r.Push(im)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if !strings.Contains(q.URL.Path, "/blobs/") {
			next.ServeHTTP(w, q)
			return
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("a little"))
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	c := newClient(t, registry.Config{StallAfter: 50 * time.Millisecond})
	s, err := c.Blob(t.Context(), images.BlobRequest{Ref: ref(t, r.name+"/app"), Digest: it.Digest(im.Compress(im.Layers[0]))})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(s)
	if !errors.Is(err, images.ErrUnreachable) || !strings.Contains(err.Error(), "nothing came") {
		t.Errorf("%v", err)
	}
	_ = s.Close()
}

// A manifest or a token that never ends is given up too: pulls wait for each other.
func TestStalledAnswers(t *testing.T) {
	for _, word := range []string{"/manifests/", "/token"} {
		r := newRig(t)
		r.Push(it.Sample(r.name + "/app"))
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if word == "/token" && !strings.Contains(q.URL.Path, word) {
				w.Header().Set("WWW-Authenticate", it.BearerRealm(r.srv.URL+word, "s", "x"))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			<-release
		})
		c := newClient(t, registry.Config{StallAfter: 100 * time.Millisecond})
		if err := read(t.Context(), c, ref(t, r.name+"/app"), nil); !errors.Is(err, images.ErrUnreachable) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

const secret = "s3cret"

// tokenServer gives tokens for a name and password, or to anybody.
func tokenServer(t *testing.T, anonymous bool) (*httptest.Server, *[]*http.Request) {
	t.Helper()
	var asked []*http.Request
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = q.ParseForm()
		asked = append(asked, q)
		user, pass, _ := q.BasicAuth()
		ok := anonymous || user == "me" && pass == secret || q.PostForm.Get("refresh_token") == secret
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"token":"tok-%s","expires_in":300}`, q.Form.Get("scope"))
	}))
	t.Cleanup(srv.Close)
	return srv, &asked
}

func wantToken(realm string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Header.Get("Authorization") != "Bearer tok-repository:team/app:pull" {
			w.Header().Set("WWW-Authenticate", it.BearerRealm(realm, "the-service", "repository:team/app:pull"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, q)
	}
}

func keysFor(host string, c images.Credential) images.Keyring {
	name, port, _ := strings.Cut(host, ":")
	return images.Keyring{{Host: name, Port: port, Credential: c}}
}

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		anonymous bool
		cred      images.Credential
		ok        bool
	}{
		"anonymous":      {true, images.Credential{}, true},
		"nobody":         {false, images.Credential{}, false},
		"password":       {false, images.Credential{Username: "me", Password: secret}, true},
		"wrong password": {false, images.Credential{Username: "me", Password: "guess"}, false},
		"identity token": {false, images.Credential{Token: secret}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			im := it.Sample(r.name + "/team/app")
			r.Push(im)
			srv, asked := tokenServer(t, c.anonymous)
			r.answer(wantToken(srv.URL + "/token?x=1"))
			var keys images.Keyring
			if c.cred != (images.Credential{}) {
				keys = keysFor(r.name, c.cred)
			}
			cl := newClient(t, registry.Config{})
			err := read(t.Context(), cl, ref(t, im.Names[0]), keys)
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if err != nil {
				if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "guess") {
					t.Errorf("the message tells the secret: %v", err)
				}
				return
			}
			// One token for all of it, kept for the next time.
			if err := read(t.Context(), cl, ref(t, im.Names[0]), keys); err != nil || len(*asked) != 1 {
				t.Errorf("%d tokens asked for; %v", len(*asked), err)
			}
			if f := (*asked)[0].Form; f.Get("service") != "the-service" || f.Get("scope") != "repository:team/app:pull" {
				t.Errorf("%v", f)
			}
			for _, q := range r.requests() { // the password is for the token server only
				if strings.HasPrefix(q.Header.Get("Authorization"), "Basic") {
					t.Errorf("%s saw %s", q.URL, q.Header.Get("Authorization"))
				}
			}
		})
	}
}

// A token that has run out is asked for again, once.
func TestTokenRunsOut(t *testing.T) {
	r := newRig(t)
	r.Push(it.Sample(r.name + "/team/app"))
	srv, asked := tokenServer(t, true)
	good := wantToken(srv.URL)
	r.answer(good)
	c := newClient(t, registry.Config{})
	if err := read(t.Context(), c, ref(t, r.name+"/team/app"), nil); err != nil {
		t.Fatal(err)
	}
	refused := 0
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if refused++; refused == 1 {
			q.Header.Set("Authorization", "Bearer old")
		}
		good(w, q, next)
	})
	if err := read(t.Context(), c, ref(t, r.name+"/team/app"), nil); err != nil || len(*asked) != 2 {
		t.Errorf("%d tokens; %v", len(*asked), err)
	}
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		q.Header.Set("Authorization", "never good")
		good(w, q, next)
	})
	if err := read(t.Context(), c, ref(t, r.name+"/team/app"), nil); err == nil || len(*asked) != 3 {
		t.Errorf("%d tokens; %v", len(*asked), err)
	}
}

func TestBasic(t *testing.T) {
	r := newRig(t)
	r.Push(it.Sample(r.name + "/app"))
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if user, pass, _ := q.BasicAuth(); user != "me" || pass != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, q)
	})
	c := newClient(t, registry.Config{})
	// Of several the one that opens is found.
	keys := append(keysFor(r.name, images.Credential{Username: "me", Password: "old"}),
		keysFor(r.name, images.Credential{Username: "me", Password: secret})...)
	if err := read(t.Context(), c, ref(t, r.name+"/app"), keys); err != nil {
		t.Error(err)
	}
	if err := read(t.Context(), c, ref(t, r.name+"/app"),
		keysFor("other.example", images.Credential{Username: "me", Password: secret})); err == nil {
		t.Error("a credential for another host was used")
	}
	own := newClient(t, registry.Config{Keys: func() (images.Keyring, error) { return keys, nil }})
	if err := read(t.Context(), own, ref(t, r.name+"/app"), nil); err != nil {
		t.Errorf("the node's own: %v", err)
	}
	broken := newClient(t, registry.Config{Keys: func() (images.Keyring, error) { return nil, os.ErrPermission }})
	if err := read(t.Context(), broken, ref(t, r.name+"/app"), nil); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}

// GO-2022-0803: a registry redirects layers to another host. No credential goes there, also not when that host
// redirects back and forth.
func TestRedirectKeepsCredentials(t *testing.T) {
	store := newRig(t) // the layer host
	r := newRig(t)
	im := it.Sample(r.name + "/app")
	r.Push(im)
	store.Registry = r.Registry
	store.name = r.name // it serves the same repositories
	store.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.URL.Query().Get("signature") != "ok" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, q)
	})
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if user, _, _ := q.BasicAuth(); user != "me" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch {
		case strings.Contains(q.URL.Path, "/blobs/") && !q.URL.Query().Has("here"):
			http.Redirect(w, q, q.URL.Path+"?here=1", http.StatusFound) // itself first: that one may see it
		case strings.Contains(q.URL.Path, "/blobs/"):
			http.Redirect(w, q, store.srv.URL+q.URL.Path+"?signature=ok", http.StatusTemporaryRedirect)
		default:
			next.ServeHTTP(w, q)
		}
	})
	keys := keysFor(r.name, images.Credential{Username: "me", Password: secret})
	if err := read(t.Context(), newClient(t, registry.Config{}), ref(t, r.name+"/app"), keys); err != nil {
		t.Fatal(err)
	}
	if len(store.requests()) != 3 {
		t.Errorf("%d requests", len(store.requests()))
	}
	for _, q := range store.requests() {
		if q.Header.Get("Authorization") != "" || q.Header.Get("Cookie") != "" {
			t.Errorf("the other host saw %v", q.Header)
		}
	}
	// The range goes along.
	blob := im.Compress(im.Layers[1])
	s, err := newClient(t, registry.Config{}).Blob(t.Context(),
		images.BlobRequest{Ref: ref(t, r.name+"/app"), Digest: it.Digest(blob), Keys: keys, Offset: 3})
	if err != nil || s.From != 3 {
		t.Fatalf("from %d, %v", s.From, err)
	}
	_ = s.Close()
}

// A registry elsewhere cannot have this board ask itself, or what only its own link can see.
func TestNoLocalDetours(t *testing.T) {
	inside := newRig(t)
	r := newRig(t)
	im := it.Sample("far.example/app")
	r.Push(im)
	r.name = "far.example"
	c := newClient(t, registry.Config{Hosts: map[string]registry.Host{"far.example": {PlainHTTP: true}}})
	registry.DialFor(c, "far.example:80", strings.TrimPrefix(r.srv.URL, "http://"))
	r.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if strings.Contains(q.URL.Path, "/blobs/") {
			http.Redirect(w, q, inside.srv.URL+q.URL.Path, http.StatusFound)
			return
		}
		next.ServeHTTP(w, q)
	})
	if err := read(t.Context(), c, ref(t, "far.example/app"), nil); err == nil || !strings.Contains(err.Error(), "no business") {
		t.Errorf("%v", err)
	}
	r.answer(wantToken(inside.srv.URL))
	if err := read(t.Context(), c, ref(t, "far.example/app"), nil); err == nil || !strings.Contains(err.Error(), "no business") {
		t.Errorf("%v", err)
	}
	if n := len(inside.requests()); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}

func TestMirrors(t *testing.T) {
	mirror, r := newRig(t), newRig(t)
	im := it.Sample(r.name + "/team/app")
	r.Push(im)
	mirror.name = r.name
	m := it.Sample(r.name + "/cache/team/app") // below a prefix
	mirror.Push(m)
	c := newClient(t, registry.Config{Hosts: map[string]registry.Host{r.name: {Mirrors: []string{mirror.srv.URL + "/cache"},
		PlainHTTP: true}}})
	mirror.answer(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Header.Get("Authorization") != "" {
			t.Errorf("the mirror saw %v", q.Header)
		}
		if q.URL.Query().Get("ns") != r.name {
			t.Errorf("asked for %s", q.URL)
		}
		next.ServeHTTP(w, q)
	})
	keys := keysFor(r.name, images.Credential{Username: "me", Password: secret}) // not the mirror's
	// What the mirror has comes from there.
	if err := read(t.Context(), c, ref(t, r.name+"/team/app"), keys); err != nil {
		t.Fatal(err)
	}
	if len(r.requests()) != 0 || len(mirror.requests()) == 0 {
		t.Errorf("%d requests to the registry, %d to the mirror", len(r.requests()), len(mirror.requests()))
	}
	// A mirror that is down, or lies, is passed over.
	for name, respond := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"500":     status(500, ""),
		"404":     status(404, ""),
		"hang up": func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"digest": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Docker-Content-Digest", it.Digest(nil))
			_, _ = io.WriteString(w, "{}")
		},
	} {
		mirror.answer(respond)
		if name == "digest" { // only documents are checked here
			if _, err := c.Manifest(t.Context(), ref(t, r.name+"/team/app"), nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err := read(t.Context(), c, ref(t, r.name+"/team/app"), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One that gave wrong content is not asked for it again.
	s, err := c.Blob(t.Context(), images.BlobRequest{Ref: ref(t, r.name+"/team/app"), Digest: it.Digest(im.Compress(im.Layers[0])),
		Avoid: []string{mirror.srv.URL + "/cache"}})
	if err != nil || s.Place != "http://"+r.name {
		t.Errorf("%s, %v", s.Place, err)
	}
	_ = s.Close()
	_, err = c.Blob(t.Context(), images.BlobRequest{Ref: ref(t, r.name+"/team/app"), Digest: it.Digest(nil),
		Avoid: []string{mirror.srv.URL + "/cache", "http://" + r.name}})
	if !errors.Is(err, images.ErrDamaged) {
		t.Errorf("nobody left: %v", err)
	}
	// Both failing: both are told.
	mirror.answer(status(500, ""))
	r.answer(status(404, ""))
	_, err = c.Manifest(t.Context(), ref(t, r.name+"/team/app"), nil)
	if err == nil || !strings.Contains(err.Error(), "404") || !strings.Contains(err.Error(), "mirror "+mirror.srv.URL) ||
		errors.Is(err, images.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// TLS is expected of everything that is not on this board, and checked.
func TestTLS(t *testing.T) {
	r := newRig(t)
	r.srv.Close()
	r.srv = httptest.NewTLSServer(r.Handler("127.0.0.1"))
	t.Cleanup(r.srv.Close)
	u, err := url.Parse(r.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := "127.0.0.1:" + u.Port()
	r.Push(it.Sample("127.0.0.1/app"))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	pem := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(r.srv.Certificate().Raw) + "\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	for caFile, ok := range map[string]bool{"": false, ca: true} {
		c := newClient(t, registry.Config{Hosts: map[string]registry.Host{"127.0.0.1": {Mirrors: []string{"https://" + name}, CAFile: caFile}}})
		err := read(t.Context(), c, ref(t, "127.0.0.1/app"), nil)
		if (err == nil) != ok {
			t.Errorf("CA %q: %v", caFile, err)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]registry.Host{
		"not a name/":       {},
		"team/app":          {},
		"r.example":         {Mirrors: []string{"mirror.example"}},
		"s.example":         {Mirrors: []string{"ftp://mirror.example"}},
		"t.example":         {Mirrors: []string{"https://user:pw@mirror.example"}},
		"u.example":         {CAFile: filepath.Join(dir, "none")},
		"v.example":         {CAFile: empty},
		"index.docker.io":   {},
		"https://r.example": {},
	} {
		if _, err := registry.New(registry.Config{Hosts: map[string]registry.Host{name: h}}); err == nil {
			t.Errorf("%s %+v: accepted", name, h)
		}
	}
}
