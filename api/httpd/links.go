package httpd

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// mostToken is how much of a page is held at once: longer pieces, such as a script in it, and what follows them are left as they are.
const mostToken = 1 << 20

// linkAttributes hold addresses. An <object> has one more, data.
var linkAttributes = []string{"action", "background", "cite", "codebase", "formaction", "href", "icon", "longdesc", "manifest", "poster",
	"profile", "src"}

// relink makes the links of a page that a pod answered lead back through this server, as its redirects do: a page that says "/style.css"
// means its own root.
func (p *podRequest) relink(a *http.Response) error {
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	packed := a.Header.Get("Content-Encoding")
	if err != nil || kind != "text/html" || a.StatusCode == http.StatusPartialContent || packed != "" && packed != "gzip" {
		return nil
	}
	body := io.Reader(a.Body)
	if a.Header.Del("Content-Length"); p.from.Method == http.MethodHead || a.Body == http.NoBody {
		return nil
	}
	if packed == "gzip" {
		if body, err = gzip.NewReader(a.Body); err != nil {
			return refused("answered with a page that is not packed as it says")
		}
		a.Header.Del("Content-Encoding")
	}
	page := &page{Closer: a.Body, links: p, html: html.NewTokenizer(body), rest: body}
	page.html.SetMaxBuf(mostToken)
	a.Body, a.ContentLength = page, -1
	return nil
}

// page is read as it comes.
type page struct {
	io.Closer
	links *podRequest
	html  *html.Tokenizer
	rest  io.Reader // of the page, after what html has taken of it
	ready bytes.Buffer
	over  bool // html takes no more
}

func (g *page) Read(b []byte) (int, error) {
	for g.ready.Len() == 0 && !g.over {
		switch g.html.Next() {
		case html.ErrorToken:
			g.over = true
			g.ready.Write(g.html.Raw())
			g.ready.Write(g.html.Buffered())
		case html.StartTagToken, html.SelfClosingTagToken:
			g.tag()
		default:
			g.ready.Write(g.html.Raw())
		}
	}
	if g.ready.Len() > 0 {
		return g.ready.Read(b)
	}
	return g.rest.Read(b) // after the end: what the end was
}

// tag hands a tag on, with other words only if it has links that lead elsewhere now.
func (g *page) tag() {
	as := bytes.Clone(g.html.Raw()) // Token turns the letters of names in place
	t, changed := g.html.Token(), false
	for i, a := range t.Attr {
		if !slices.Contains(linkAttributes, a.Key) && (t.Data != "object" || a.Key != "data") {
			continue
		}
		if to, ok := g.links.link(a.Val); ok {
			t.Attr[i].Val, changed = to, true
		}
	}
	if !changed {
		g.ready.Write(as)
		return
	}
	g.ready.WriteString(t.String())
}

// link is where a link of a page leads on this server, if that is not where it leads anyway.
func (p *podRequest) link(to string) (string, bool) {
	to = strings.TrimSpace(to)
	if strings.HasPrefix(to, "//") || !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, p.scheme+"://"+p.host) {
		return "", false
	}
	return p.within(to)
}
