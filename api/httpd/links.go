package httpd

import (
	"bytes"
	"compress/gzip"
	"html"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// mostTag is how much of a page is held at once: sixteen boards may answer with one tag that does not end. A longer tag is left as it is.
const mostTag = 32 << 10

// textElements have text in which nothing is a tag.
var textElements = []string{"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"}

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
	a.Body, a.ContentLength = &page{Closer: a.Body, links: p, from: body}, -1
	return nil
}

// page is read as it comes. Only start tags are looked into; all else, and what is no link in them, is handed on byte for byte.
type page struct {
	io.Closer
	links *podRequest
	from  io.Reader
	err   error        // of from
	next  []byte       // what was read and not looked at yet
	ready bytes.Buffer // what was looked at
	until string       // what ends a piece in which nothing is a tag; empty: there is none
}

func (g *page) Read(b []byte) (int, error) {
	for g.ready.Len() == 0 {
		switch {
		case g.step():
		case g.err == nil:
			some := make([]byte, 4<<10)
			n, err := g.from.Read(some)
			g.next, g.err = append(g.next, some[:n]...), err
		case len(g.next) == 0:
			return 0, g.err
		default: // it ends in the middle of something
			g.pass(len(g.next))
		}
	}
	return g.ready.Read(b)
}

// pass hands on the next n bytes.
func (g *page) pass(n int) {
	g.ready.Write(g.next[:n])
	g.next = g.next[n:]
}

// step looks at what comes next; false: it cannot be told yet.
func (g *page) step() bool {
	if len(g.next) == 0 {
		return false
	}
	if g.until != "" {
		return g.skip()
	}
	if n := bytes.IndexByte(g.next, '<'); n != 0 {
		if n < 0 {
			n = len(g.next)
		}
		g.pass(n)
		return true
	}
	switch {
	case len(g.next) < 4 && g.err == nil:
		return false
	case bytes.HasPrefix(g.next, []byte("<!--")):
		g.pass(2) // <!--> is a whole one
		g.until = "-->"
	case len(g.next) > 1 && strings.IndexByte("!/?", g.next[1]) >= 0:
		g.until = ">"
	case len(g.next) > 1 && isLetter(g.next[1]):
		end := eachAttribute(g.next, nil)
		switch {
		case end > 0:
			g.tag(g.next[:end])
			g.next = g.next[end:]
		case len(g.next) < mostTag:
			return false
		default:
			g.until = ">"
		}
	default:
		g.pass(1)
	}
	return true
}

// skip hands on what comes before the end of the piece, and that.
func (g *page) skip() bool {
	if i := indexFold(g.next, g.until); i >= 0 {
		end := i + len(g.until)
		switch {
		case g.until[0] != '<':
			g.until = ""
		case end == len(g.next): // </script is one only if the name ends there
			if i > 0 {
				g.pass(i)
			}
			return i > 0
		case wordEnd(g.next[end:], " \t\r\n\f/>") == 0:
			g.until = ">"
		}
		g.pass(end)
		return true
	}
	n := len(g.next) - len(g.until) + 1 // the rest may be its beginning
	if n <= 0 {
		return false
	}
	g.pass(n)
	return true
}

// indexFold is bytes.Index for an end in small letters.
func indexFold(in []byte, end string) int {
	for at := 0; ; at++ {
		i := bytes.IndexByte(in[at:], end[0])
		if at += i; i < 0 || len(in)-at < len(end) {
			return -1
		}
		if strings.EqualFold(string(in[at:at+len(end)]), end) {
			return at
		}
	}
}

// tag hands a start tag on, with other words where a link leads elsewhere now.
func (g *page) tag(as []byte) {
	name := strings.ToLower(string(as[1 : 1+wordEnd(as[1:], " \t\r\n\f/>")]))
	done := 0
	eachAttribute(as, func(key []byte, from, to int) {
		k := strings.ToLower(string(key))
		if !slices.Contains(linkAttributes, k) && (name != "object" || k != "data") {
			return
		}
		leads, ok := g.links.link(html.UnescapeString(string(as[from:to])))
		if !ok {
			return
		}
		g.ready.Write(as[done:from])
		done = to
		leads = html.EscapeString(leads)
		if as[from-1] != '"' && as[from-1] != '\'' {
			leads = `"` + leads + `"`
		}
		g.ready.WriteString(leads)
	})
	g.ready.Write(as[done:])
	if slices.Contains(textElements, name) {
		g.until = "</" + name
	}
}

// eachAttribute calls do, unless it is nil, for each attribute of the start tag at the beginning of a text that has a value, which is
// in[from:to]. It returns where the tag ends, -1 if that is not there.
func eachAttribute(in []byte, do func(key []byte, from, to int)) (end int) {
	const space = " \t\r\n\f"
	at := 1 + wordEnd(in[1:], space+"/>")
	for {
		at += wordStart(in[at:], space+"/")
		if at >= len(in) {
			return -1
		}
		if in[at] == '>' {
			return at + 1
		}
		key := in[at : at+1+wordEnd(in[at+1:], space+"/>=")] // = may begin a name
		at += len(key)
		value := at + wordStart(in[at:], space)
		if value >= len(in) {
			return -1
		}
		if in[value] != '=' {
			continue
		}
		at = value + 1 + wordStart(in[value+1:], space)
		if at >= len(in) {
			return -1
		}
		from, to := at, at
		if quote := in[at]; quote == '"' || quote == '\'' {
			n := bytes.IndexByte(in[at+1:], quote)
			if n < 0 {
				return -1
			}
			from, to = at+1, at+1+n
			at = to + 1
		} else {
			to += wordEnd(in[at:], space+">")
			at = to
		}
		if do != nil && to < len(in) {
			do(key, from, to)
		}
	}
}

// wordEnd is how many bytes come before the first one of those that end a word.
func wordEnd(in []byte, ends string) int {
	if n := bytes.IndexAny(in, ends); n >= 0 {
		return n
	}
	return len(in)
}

// wordStart is how many bytes of those between words come first.
func wordStart(in []byte, between string) int { return len(in) - len(bytes.TrimLeft(in, between)) }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// link is where a link of a page leads on this server, if that is not where it leads anyway.
func (p *podRequest) link(to string) (string, bool) {
	to = strings.TrimSpace(to)
	if strings.HasPrefix(to, "//") || !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, p.scheme+"://"+p.host) {
		return "", false
	}
	return p.within(to)
}
