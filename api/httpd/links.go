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

// How much of a page is held at once. Each attribute of a tag takes a hundred times its two bytes, and sixteen boards may answer with
// nothing else. A longer tag is left as it is; after a longer script so is all that follows.
const (
	mostTag  = 32 << 10
	mostText = 256 << 10
)

// textElements have text in which nothing is a tag.
var textElements = []string{"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"}

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
	a.Body, a.ContentLength = &page{Closer: a.Body, links: p, html: html.NewTokenizer(body), rest: body}, -1
	return nil
}

// page is read as it comes.
type page struct {
	io.Closer
	links *podRequest
	html  *html.Tokenizer
	rest  io.Reader // of the page, after what html has taken of it
	ready bytes.Buffer
	text  bool // what comes next is the text of a script or the like
	long  bool // in the middle of a tag that is too long
	over  bool // html takes no more
}

func (g *page) Read(b []byte) (int, error) {
	for g.ready.Len() == 0 && !g.over {
		if g.long {
			if err := g.pass(b); err != nil {
				return 0, err
			}
			continue
		}
		g.html.SetMaxBuf(mostTag)
		if g.text {
			g.html.SetMaxBuf(mostText)
		}
		g.text = false
		switch g.html.Next() {
		case html.ErrorToken:
			raw := g.html.Raw()
			g.long = g.html.Err() == html.ErrBufferExceeded && len(raw) == mostTag && raw[0] == '<'
			g.over = !g.long
			g.ready.Write(raw)
			if g.over {
				g.ready.Write(g.html.Buffered())
			} else {
				g.rest = io.MultiReader(bytes.NewReader(bytes.Clone(g.html.Buffered())), g.rest)
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			g.text = slices.Contains(textElements, g.tag())
		default:
			g.ready.Write(g.html.Raw())
		}
	}
	if g.ready.Len() > 0 {
		return g.ready.Read(b)
	}
	return g.rest.Read(b) // after the end: what the end was
}

// pass hands on what is left of a long tag, with b to read into.
func (g *page) pass(b []byte) error {
	n, err := g.rest.Read(b)
	end := bytes.IndexByte(b[:n], '>') + 1
	if end == 0 {
		g.ready.Write(b[:n])
		if g.ready.Len() > 0 {
			return nil
		}
		return err
	}
	g.ready.Write(b[:end])
	g.rest = io.MultiReader(bytes.NewReader(bytes.Clone(b[end:n])), g.rest)
	g.html, g.long = html.NewTokenizer(g.rest), false
	return nil
}

// tag hands a tag on, with other words only if it has links that lead elsewhere now, and says which it is.
func (g *page) tag() (name string) {
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
		return t.Data
	}
	g.ready.WriteString(t.String())
	return t.Data
}

// link is where a link of a page leads on this server, if that is not where it leads anyway.
func (p *podRequest) link(to string) (string, bool) {
	to = strings.TrimSpace(to)
	if strings.HasPrefix(to, "//") || !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, p.scheme+"://"+p.host) {
		return "", false
	}
	return p.within(to)
}
