package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Once lets in who has a link that opens once, on this machine: the page on a laptop, with the rights of its owner.
type Once struct {
	host string // as a browser on this machine says it

	mu      sync.Mutex
	link    string // empty: it was used
	session string
	form    string
}

// NewOnce makes a guard of an address of this machine, and the path of the link.
func NewOnce(host string) (o *Once, path string) {
	o = &Once{host: host, link: random()}
	return o, "/enter?key=" + o.link
}

// onceCookie has no prefix: those of the other one need TLS, which there is none of on a machine's own address.
const onceCookie = "ledge-page"

// Admit implements Guard. A request must have been meant for this address: a page elsewhere can give this address a name of its own.
func (o *Once) Admit(w http.ResponseWriter, r *http.Request) (Visitor, bool) {
	if r.Host != o.host {
		fail(w, r, apierrors.NewForbidden(thing, "", errors.New("this page is at http://"+o.host)))
		return Visitor{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if key := r.URL.Query().Get("key"); r.URL.Path == "/enter" && r.Method == http.MethodGet && key != "" && same(key, o.link) {
		o.link, o.session, o.form = "", random(), random()
		http.SetCookie(w, &http.Cookie{Name: onceCookie + port(o.host), Value: o.session, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		// Not a redirect: a browser that comes from elsewhere would not send the cookie along with it.
		document(w, http.StatusOK, "Enter", at("data-to", "/"), el("main", at("id", "main"), el("p", link("/", "To the board"))))
		return Visitor{}, false
	}
	c, err := r.Cookie(onceCookie + port(o.host))
	known := err == nil && o.session != "" && same(c.Value, o.session)
	if known && r.URL.Path == "/enter" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return Visitor{}, false
	}
	if !known {
		fail(w, r, apierrors.NewUnauthorized("open the link that 'ledge page' has printed; it opens once: start it again for another"))
		return Visitor{}, false
	}
	if r.URL.Path == "/leave" && r.Method == http.MethodPost && same(r.PostFormValue("form"), o.form) {
		o.session = ""
		document(w, http.StatusOK, "Left", el("main", at("id", "main"), el("p", "The page is closed. 'ledge page' opens it again.")))
		return Visitor{}, false
	}
	return Visitor{Form: o.form}, true
}

// port tells the cookies of two pages of one machine apart: browsers do not.
func port(host string) string {
	_, p, _ := net.SplitHostPort(host) // a listener's address has one
	return "-" + p
}

// same compares secrets, none of which is empty, in the time of the longer one.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return a != "" && b != "" && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
