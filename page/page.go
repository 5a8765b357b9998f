// Package page is the board's page for people with a browser: what the API says, in one handler, as HTML, as JSON, or as a stream of
// what changes. It asks the API with the rights of who looks and has none of its own.
package page

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/table"
)

// Asked is the API of a control plane, and what its board says of itself (package api/board).
type Asked interface {
	api.Client
	api.Streams
	Ask(ctx context.Context, verb, path string, in, out any) error
}

// Guard says who may look.
type Guard interface {
	// Admit answers those itself who may not, and what is about coming and going.
	Admit(w http.ResponseWriter, r *http.Request) (v Visitor, ok bool)
}

// Visitor is somebody who may look.
type Visitor struct {
	Form string          // the secret that forms carry
	Done <-chan struct{} // closed when he may not any more; nil: he always may
}

// Config is what a page needs.
type Config struct {
	API   Asked
	Guard Guard
	Acts  bool                              // pods can be restarted, boards drained and switched off
	Told  func(message string, args ...any) // of what is done; nil: nobody is
	CA    []byte                            // certificates that visitors may install; nil: there are none on offer
	// Stopping is a context of a request's that ends when the server wants to stop; nil: it is the request's own.
	Stopping func(context.Context) context.Context
}

// Page answers browsers.
type Page struct {
	c      Config
	views  *http.ServeMux
	waits  *streams
	onlyUs *http.CrossOriginProtection
}

// New makes a page. Nothing is followed until somebody looks.
func New(c Config) *Page {
	p := &Page{c: c, views: http.NewServeMux(), onlyUs: http.NewCrossOriginProtection()}
	p.waits = newStreams(c.API)
	for _, v := range views {
		p.views.HandleFunc("GET "+v.pattern, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, v) })
	}
	p.views.HandleFunc("GET /pods/{namespace}/{name}/log", p.log)
	p.views.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fail(w, r, apierrors.NewNotFound(thing, r.URL.Path)) })
	if c.Acts {
		for pattern, do := range acts {
			p.views.HandleFunc("POST "+pattern, func(w http.ResponseWriter, r *http.Request) { p.act(w, r, do) })
		}
	}
	return p
}

//go:embed style.css script.js icon.svg
var files embed.FS

// files are what a page loads besides itself. Everybody may have them: they are in every binary.
var fileTypes = map[string]string{"/style.css": "text/css; charset=utf-8", "/script.js": "text/javascript; charset=utf-8",
	"/icon.svg": "image/svg+xml"}

// secure are the headers of every answer. Nothing is loaded from elsewhere, run that is not script.js, shown in a frame, or kept.
var secure = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
	"Cache-Control":                "no-store",
}

// most a form may have, in bytes.
const mostForm = 16 << 10

// ServeHTTP answers one request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range secure {
		w.Header().Set(name, value)
	}
	patient(w)
	if kind, ok := fileTypes[r.URL.Path]; ok && r.Method == http.MethodGet {
		data, err := files.ReadFile(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data)
		return
	}
	if r.URL.Path == "/ca.crt" && r.Method == http.MethodGet { // whoever connects is shown it anyway
		p.giveCA(w, r)
		return
	}
	if err := p.onlyUs.Check(r); err != nil {
		fail(w, r, apierrors.NewForbidden(thing, "", errors.New("this request comes from another page")))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	visitor, ok := p.c.Guard.Admit(w, r)
	if !ok {
		return
	}
	p.views.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, visitor)))
}

type visitorKey struct{}

func visitorOf(r *http.Request) Visitor {
	v, _ := r.Context().Value(visitorKey{}).(Visitor)
	return v
}

// writeTime is how long a visitor may take to read a piece of an answer.
const writeTime = 30 * time.Second

// patient gives the next write its time.
func patient(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder of a test has none
}

// view is one page of it.
type view struct {
	pattern string
	menu    string      // what the menu calls it; empty: it is not there
	follows []*api.Kind // whose changes change it
	look    func(*visit) (answer, error)
}

// answer is what a view has found: as JSON it is itself.
type answer interface {
	title() string
	sections(v *visit) []section
}

// section is a part of a page that is replaced as a whole when it changes.
type section struct {
	id, head string
	body     markup
}

func (s section) markup() markup {
	parts := []any{at("id", s.id), at("aria-labelledby", s.id+"-head"), el("h2", at("id", s.id+"-head"), s.head), s.body}
	return el("section", parts...)
}

// visit is one look at a view.
type visit struct {
	ctx   context.Context
	api   Asked
	query url.Values
	value func(string) string // a part of the path
	now   time.Time
	acts  bool
	form  string // the secret that forms carry
}

func (p *Page) visit(r *http.Request) *visit {
	return &visit{ctx: r.Context(), api: p.c.API, query: r.URL.Query(), value: r.PathValue, now: time.Now(), acts: p.c.Acts,
		form: visitorOf(r).Form}
}

// show answers in the form that is asked for.
func (p *Page) show(w http.ResponseWriter, r *http.Request, v view) {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		p.stream(w, r, v)
		return
	}
	vis := p.visit(r)
	found, err := v.look(vis)
	if err != nil {
		fail(w, r, err)
		return
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(found) // who reads it may go
		return
	}
	var parts []markup
	for _, s := range found.sections(vis) {
		parts = append(parts, s.markup())
	}
	p.write(w, r, http.StatusOK, found.title(), parts, true)
}

// wantsJSON: it is asked for, and HTML is not.
func wantsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// write sends a whole page. live: the script follows what changes.
func (p *Page) write(w http.ResponseWriter, r *http.Request, code int, title string, main []markup, live bool) {
	var menu []markup
	for _, v := range views {
		if v.menu == "" {
			continue
		}
		parts := []any{at("href", v.pattern), v.menu}
		if at0 := "/" + first(r.URL.Path); at0 == v.pattern || v.pattern == "/{$}" && r.URL.Path == "/" {
			parts = append(parts, at("aria-current", "page"))
		}
		if v.pattern == "/{$}" {
			parts[0] = at("href", "/")
		}
		menu = append(menu, el("li", el("a", parts...)))
	}
	end := []any{el("span", at("id", "live"), at("role", "status"), "")}
	if secret := visitorOf(r).Form; secret != "" {
		end = append(end, form("/leave", secret, "", button("Leave", "quiet")))
	}
	body := []any{el("a", class("skip"), at("href", "#main"), "To the content"),
		el("header", el("nav", at("aria-label", "Views"), el("ul", menu)), el("div", append([]any{class("end")}, end...)...)),
		el("main", at("id", "main"), el("h1", title), main)}
	if live {
		body = append(body, at("data-live", r.URL.RequestURI()))
	}
	document(w, code, title, body...)
}

// first is the first part of a path.
func first(path string) string {
	head, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return head
}

// document is what stands around every page.
func document(w http.ResponseWriter, code int, title string, body ...any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	head := el("head", el("meta", at("charset", "utf-8")), el("meta", at("name", "viewport"), at("content", "width=device-width, initial-scale=1")),
		el("meta", at("name", "color-scheme"), at("content", "light dark")), el("title", title+" · ledge"),
		el("link", at("rel", "icon"), at("href", "/icon.svg"), at("type", "image/svg+xml")),
		el("link", at("rel", "stylesheet"), at("href", "/style.css")),
		el("script", at("src", "/script.js"), at("defer", ""), ""))
	_, _ = w.Write([]byte("<!DOCTYPE html>\n" + string(el("html", at("lang", "en"), head, el("body", body...))) + "\n")) // who reads it may go
}

// fail answers with an error of the API, in the form that is asked for.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	code, message := http.StatusInternalServerError, err.Error()
	var st apierrors.APIStatus
	if errors.As(err, &st) {
		code, message = cmp.Or(int(st.Status().Code), code), cmp.Or(st.Status().Message, message)
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": message})
		return
	}
	document(w, code, http.StatusText(code), el("main", at("id", "main"), el("h1", http.StatusText(code)), el("p", message),
		el("p", link("/", "To the board"))))
}

// giveCA hands out the certificate by which the board is known.
func (p *Page) giveCA(w http.ResponseWriter, r *http.Request) {
	if p.c.CA == nil {
		fail(w, r, apierrors.NewNotFound(thing, "ca.crt"))
		return
	}
	w.Header().Set("Content-Type", "application/x-x509-ca-cert")
	w.Header().Set("Content-Disposition", `attachment; filename="ledge-ca.crt"`)
	_, _ = w.Write(p.c.CA)
}

// form is a form that changes something. confirm, if there is one, is asked before it is sent.
func form(action, secret, confirm string, parts ...any) markup {
	head := []any{at("method", "post"), at("action", action), el("input", at("type", "hidden"), at("name", "form"), at("value", secret))}
	if confirm != "" {
		head = append(head, at("data-confirm", confirm))
	}
	return el("form", append(head, parts...)...)
}

func button(words, names string) markup {
	return el("button", at("type", "submit"), class(names), words)
}

// lines are objects of a kind as kubectl shows them.
func (v *visit) lines(kind *api.Kind, objs []api.Object, wide bool, leads func(api.Object) string) (head []string, out [][]any) {
	if kind.Namespaced {
		head = append(head, "Namespace")
	}
	columns := kind.Columns()
	for _, c := range columns {
		if wide || c.Priority == 0 {
			head = append(head, c.Name)
		}
	}
	for _, o := range objs {
		var line []any
		if kind.Namespaced {
			line = append(line, o.GetNamespace())
		}
		cells, _ := kind.Row(o, table.Look{Now: v.now})
		for i, c := range cells {
			if !wide && columns[i].Priority != 0 {
				continue
			}
			cell := any(cellText(c))
			if columns[i].Name == "Name" && leads != nil {
				cell = link(leads(o), cellText(c))
			}
			line = append(line, cell)
		}
		out = append(out, line)
	}
	return head, out
}

// list is objects of a kind, in the order of their names, mostObjects of them at most; of how many it says besides.
func (v *visit) list(kind *api.Kind, sel api.Selection) (objs []api.Object, of int, err error) {
	err = v.each(kind, sel, func(o api.Object) {
		if of++; len(objs) < mostObjects {
			objs = append(objs, o)
		}
	})
	sort.Slice(objs, func(i, j int) bool {
		a, b := objs[i], objs[j]
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
	})
	return objs, of, err
}

// each looks at all objects of a kind, a page of them at a time; there are none where the control plane has no such kind, or does not show
// it.
func (v *visit) each(kind *api.Kind, sel api.Selection, do func(api.Object)) error {
	if kind.Namespaced && sel.Namespace == "" {
		sel.Namespace = v.query.Get("namespace")
	}
	for next := ""; ; {
		page, err := v.api.List(v.ctx, kind, api.ListOptions{Selection: sel, Limit: mostObjects, Continue: next})
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, o := range page.Items {
			do(o)
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// mostObjects is how many of a kind are shown at once.
const mostObjects = 500
