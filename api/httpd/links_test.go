package httpd

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const linksPrefix = "/api/v1/namespaces/x/pods/web:8080/proxy"

func pageOf(t testing.TB, method string, a *http.Response) string {
	t.Helper()
	p := &podRequest{scheme: "http", host: "10.0.0.2:8080", rest: "/dir/page", prefix: linksPrefix,
		from: httptest.NewRequest(method, "https://board"+linksPrefix+"/dir/page", nil)}
	if err := p.relink(a); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func htmlAnswer(body io.Reader) *http.Response {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(body),
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Content-Length": {"9"}}}
}

// TestLinksOfPages: a page that names its own root finds it below this server's path to the pod; everything else stays as it was.
func TestLinksOfPages(t *testing.T) {
	for in, want := range map[string]string{
		`<a href="/next?a=1&amp;b=2#c">n</a>`:                `<a href="` + linksPrefix + `/next?a=1&amp;b=2#c">n</a>`,
		`<A HREF='/next' class=x>`:                           `<A HREF='` + linksPrefix + `/next' class=x>`,
		`<img src=/i.png><link href="/s.css"/>`:              `<img src="` + linksPrefix + `/i.png"><link href="` + linksPrefix + `/s.css"/>`,
		`<a href="http://10.0.0.2:8080/next">`:               `<a href="` + linksPrefix + `/next">`,
		`<a href="` + linksPrefix + `/next">`:                `<a href="` + linksPrefix + `/next">`,
		`<object data="/o" id=1>`:                            `<object data="` + linksPrefix + `/o" id=1>`,
		`<div data="/o">`:                                    `<div data="/o">`,
		`<a href="next">`:                                    `<a href="next">`,
		`<a href="//elsewhere/x">`:                           `<a href="//elsewhere/x">`,
		`<a href="https://elsewhere/x">`:                     `<a href="https://elsewhere/x">`,
		`<a href="/../../up">`:                               `<a href="` + linksPrefix + `/up">`,
		`<!-- <a href="/x"> --><A  Href = "x"  >&lt;<b`:      `<!-- <a href="/x"> --><A  Href = "x"  >&lt;<b`,
		`<!--><a href="/x"><!---><a href="/y">`:              `<!--><a href="` + linksPrefix + `/x"><!---><a href="` + linksPrefix + `/y">`,
		`<a title="a>b" href = /x>1 < 2`:                     `<a title="a>b" href = "` + linksPrefix + `/x">1 < 2`,
		`<a =x href='/a"b'></a title="<a href='/x'>">`:       `<a =x href='` + linksPrefix + `/a%22b'></a title="<a href='/x'>">`,
		`<?x <a href="/x">?><!doctype a><a href>`:            `<?x <a href="/x">?><!doctype a><a href>`,
		`<STYLE>a</styles><a href=/x></Style ><a href=/x>`:   `<STYLE>a</styles><a href=/x></Style ><a href="` + linksPrefix + `/x">`,
		`<script>if (a<b) f("<a href='/x'>")</script>&nbsp;`: `<script>if (a<b) f("<a href='/x'>")</script>&nbsp;`,
	} {
		for _, body := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			a := htmlAnswer(body)
			if got := pageOf(t, "GET", a); got != want || a.Header.Get("Content-Length") != "" {
				t.Errorf("%s:\n%s, want\n%s", in, got, want)
			}
		}
	}
}

// TestPagesThatStay: what is no page, is part of one, or is packed in a way that we do not read.
func TestPagesThatStay(t *testing.T) {
	const text = `<a href="/x">`
	for name, change := range map[string]func(*http.Response){
		"no page":     func(a *http.Response) { a.Header.Set("Content-Type", "text/plain") },
		"a part":      func(a *http.Response) { a.StatusCode = http.StatusPartialContent },
		"packed":      func(a *http.Response) { a.Header.Set("Content-Encoding", "br") },
		"no such":     func(a *http.Response) { a.Header.Set("Content-Type", "a;b;") },
		"not said so": func(a *http.Response) { a.Header.Del("Content-Type") },
	} {
		a := htmlAnswer(strings.NewReader(text))
		change(a)
		if got := pageOf(t, "GET", a); got != text || a.Header.Get("Content-Length") != "9" {
			t.Errorf("%s: %s %v", name, got, a.Header)
		}
	}
	if got := pageOf(t, "HEAD", htmlAnswer(http.NoBody)); got != "" {
		t.Error(got)
	}
}

func TestPackedPages(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(`<a href="/x">`))
	z.Close()
	a := htmlAnswer(&packed)
	a.Header.Set("Content-Encoding", "gzip")
	if got := pageOf(t, "GET", a); got != `<a href="`+linksPrefix+`/x">` || a.Header.Get("Content-Encoding") != "" {
		t.Errorf("%s %v", got, a.Header)
	}
	a = htmlAnswer(strings.NewReader("<a"))
	a.Header.Set("Content-Encoding", "gzip")
	p := &podRequest{from: httptest.NewRequest("GET", "/", nil)}
	if err := p.relink(a); err == nil {
		t.Error("a page that is not packed as it says was taken")
	}
}

// TestLongPieces: a pod's page cannot have the server hold more of it than a piece's bound.
func TestLongPieces(t *testing.T) {
	to := strings.NewReplacer(`"/x"`, `"`+linksPrefix+`/x"`)
	for name, long := range map[string]string{
		"a script":                      `<a href="/x"><script>` + strings.Repeat("0123456789abcdef", 1<<16) + `</script><a href="/x">`,
		"a comment":                     `<!--` + strings.Repeat(`<a href="/y">`, 1<<16) + `--><a href="/x">`,
		"a picture":                     `<a href="/x"><img src="data:image/png;base64,` + strings.Repeat("AAAA", 3*mostTag) + `"><a href="/x">`,
		"a tag that does not end":       `<a href="/x"><a ` + strings.Repeat("b ", 3*mostTag),
		"a tag that ends with the page": `<a href="/x"><a href="/y"`,
	} {
		for _, body := range []io.Reader{strings.NewReader(long), iotest.HalfReader(strings.NewReader(long))} {
			if got := pageOf(t, "GET", htmlAnswer(body)); got != to.Replace(long) {
				t.Errorf("%s: %d bytes, want %d", name, len(got), len(to.Replace(long)))
			}
		}
	}
}

// TestHostilePages: sixteen boards that answer with attributes only, and stop in the middle of a tag, cost less than 32 MB.
func TestHostilePages(t *testing.T) {
	var names strings.Builder
	for i := range 1 << 17 {
		fmt.Fprintf(&names, "%c%s ", 'a'+i%26, strconv.FormatInt(int64(i), 36))
	}
	goruntime.GC()
	var before, during goruntime.MemStats
	goruntime.ReadMemStats(&before)
	var pages []io.ReadCloser
	for range 16 {
		for _, cut := range []int{mostTag - 10, names.Len()} {
			stalled, w := io.Pipe()
			go func() { _, _ = io.WriteString(w, "<a "+names.String()[:cut]) }()
			a := htmlAnswer(stalled)
			p := &podRequest{scheme: "http", host: "10.0.0.2:80", prefix: linksPrefix, from: httptest.NewRequest("GET", "https://board/", nil)}
			if err := p.relink(a); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, a.Body) }()
			pages = append(pages, stalled)
		}
	}
	most := uint64(0)
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		goruntime.ReadMemStats(&during)
		most = max(most, during.HeapAlloc-min(during.HeapAlloc, before.HeapAlloc))
	}
	for _, p := range pages {
		_ = p.Close()
	}
	goruntime.GC()
	t.Logf("%d MB at most, garbage included", most>>20)
	if most > 64<<20 { // twice: what is garbage already is in it
		t.Errorf("%d MB", most>>20)
	}
}

// FuzzPage: without links that lead elsewhere a page is what it was, byte for byte.
func FuzzPage(f *testing.F) {
	for _, s := range []string{"<p>a</p>", "<a x='", "</", "<!doctype html><title>a<b</title>", "<textarea><a b></textarea", "\x00<?x", "<![CDATA[ ]]>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ReplaceAll(s, "/", "\\")
		for _, escaped := range []string{"&#47", "&sol", "&#x2f", "&#X2f", "&#0", "&#x0"} {
			if strings.Contains(strings.ToLower(s), strings.ToLower(escaped)) {
				return
			}
		}
		if got := pageOf(t, "GET", htmlAnswer(strings.NewReader(s))); got != s {
			t.Errorf("%q is now %q", s, got)
		}
	})
}
