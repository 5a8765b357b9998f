package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/httpd"
)

// badAnswer is what a made-up board, or a pod, says to whatever it is asked. $UP is the protocol that was asked for.
type badAnswer struct {
	name string
	text string
	more func(to io.Writer) // until it cannot write any more
}

// steering is every header that has some client do something.
const steering = "Location: /api/v1/secrets\r\nSet-Cookie: a=b; Path=/\r\nSet-Cookie2: a=b\r\nRefresh: 0; url=/api/v1/secrets\r\n" +
	"WWW-Authenticate: Basic realm=x\r\nProxy-Authenticate: Basic realm=x\r\nClear-Site-Data: \"*\"\r\nStrict-Transport-Security: max-age=99\r\n" +
	"Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nLink: </api/v1/secrets>; rel=preload\r\nAlt-Svc: h2=\"evil.example:1\"\r\n" +
	"Content-Security-Policy: default-src *\r\nContent-Location: /api\r\nService-Worker-Allowed: /\r\nNEL: {}\r\nReport-To: {}\r\nWarning: 299 - \"run this\"\r\n" +
	"Public-Key-Pins: x\r\nX-Accel-Redirect: /etc/shadow\r\nX-Content-Type-Options: sniff\r\nTrailer: Set-Cookie\r\nKeep-Alive: timeout=9\r\nSourceMap: /x\r\n"

func forEver(piece string, pause time.Duration) func(io.Writer) {
	return func(to io.Writer) {
		for {
			if _, err := io.WriteString(to, piece); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

func slowly(text string) func(io.Writer) {
	return func(to io.Writer) {
		for i := range text {
			if _, err := io.WriteString(to, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
}

// silence says nothing and stays.
func silence(to io.Writer) {
	time.Sleep(time.Hour)
}

func redirect(code int, to string) string {
	return fmt.Sprintf("HTTP/1.1 %d Go There\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", code, to)
}

const (
	ok200 = "HTTP/1.1 200 OK\r\n"
	up101 = "HTTP/1.1 101 Switching Protocols\r\n"
)

var badAnswers = []badAnswer{
	{"301 to another pod's exec", redirect(301, "http://ledge/api/v1/namespaces/other/pods/p/exec?command=id&stdout=1"), nil},
	{"302 to a Secret", redirect(302, "/api/v1/namespaces/default/secrets/s"), nil},
	{"302 to a Secret, by dots", redirect(302, "../../../../../../../../api/v1/secrets"), nil},
	{"302 to a Secret, by escaped dots", redirect(302, "/%2e%2e/%2e%2e/%2e%2e/secrets"), nil},
	{"303 to a foreign host", redirect(303, "http://evil.example/"), nil},
	{"307 to a shutdown", redirect(307, "http://ledge/ledge/v1/shutdown?in=1h"), nil},
	{"308 to a foreign host, its scheme ours", redirect(308, "//evil.example/"), nil},
	{"302 to javascript", redirect(302, "javascript:alert(1)"), nil},
	{"302 to a file", redirect(302, "file:///etc/shadow"), nil},
	{"302 to a user's host", redirect(302, "http://ledge@evil.example/"), nil},
	{"302 with a tab in it", redirect(302, "\thttp://evil.example/"), nil},
	{"302 to nowhere", "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", nil},
	{"300 with choices", redirect(300, "http://evil.example/"), nil},
	{"305 to a proxy", redirect(305, "http://evil.example/"), nil},
	{"399 to a foreign host", redirect(399, "http://evil.example/"), nil},
	{"201 with a Location", redirect(201, "http://evil.example/"), nil},
	{"200 with all that steers", ok200 + steering + "Content-Length: 2\r\n\r\nok", nil},
	{"401 with all that steers", "HTTP/1.1 401 Unauthorized\r\n" + steering + "Content-Length: 2\r\n\r\nno", nil},
	{"407 of a proxy", "HTTP/1.1 407 Proxy Authentication Required\r\n" + steering + "Content-Length: 0\r\n\r\n", nil},
	{"429, try again at once", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n", nil},
	{"426 to another protocol", "HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n", nil},
	{"500 with a Status of 302", "HTTP/1.1 500 No\r\nContent-Type: application/json\r\n" + steering + "\r\n" +
		`{"kind":"Status","code":302,"reason":"Unauthorized","message":"go away","details":{"retryAfterSeconds":1}}`, nil},
	{"500 without end", "HTTP/1.1 500 No\r\n\r\n", forEver(strings.Repeat("x", 4096), 0)},
	{"500, a byte a second", "HTTP/1.1 500 No\r\n\r\n", forEver("x", time.Second)},
	{"a page with a script", ok200 + "Content-Type: text/html\r\nContent-Length: 25\r\n\r\n<script>alert(1)</script>", nil},
	{"a page without a type", ok200 + "\r\n<!doctype html><script>alert(1)</script>", nil},
	{"200 with two types", ok200 + "Content-Type: text/plain\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok", nil},
	{"101 to what nobody asked for", up101 + "Connection: Upgrade\r\nUpgrade: evil/1\r\n\r\n", forEver("x", time.Second)},
	{"101 without a protocol", up101 + "\r\n", silence},
	{"101 with all that steers", up101 + "Connection: Upgrade\r\nUpgrade: $UP\r\n" + steering + "\r\n", silence},
	{"101 and garbage", up101 + "Connection: Upgrade\r\nUpgrade: $UP\r\n\r\n\xff\xfe\x00\x01", forEver("\xff\x00", time.Minute)},
	{"103 and 101 by turns", "HTTP/1.1 103 Early Hints\r\n" + steering + "\r\n" + up101 + "Connection: Upgrade\r\nUpgrade: $UP\r\n\r\n",
		silence},
	{"103 without end", "", forEver("HTTP/1.1 103 Early Hints\r\n"+steering+"\r\n", 0)},
	{"100 without end, one a second", "", forEver("HTTP/1.1 100 Continue\r\n\r\n", time.Second)},
	{"headers without end", ok200, forEver("X-A: "+strings.Repeat("b", 100)+"\r\n", 0)},
	{"a header without end", ok200 + "X-A: ", forEver(strings.Repeat("b", 4096), 0)},
	{"a status line without end", "HTTP/1.1 200 ", forEver(strings.Repeat("b", 4096), 0)},
	{"headers, one a second", ok200, forEver("X-A: b\r\n", time.Second)},
	{"a head, a byte a second", "", slowly(ok200 + "Content-Length: 2\r\n\r\nok")},
	{"a body, a byte a second", ok200 + "\r\n", forEver("x", time.Second)},
	{"a body that stops", ok200 + "Content-Length: 100\r\n\r\nhalf", silence},
	{"a body without end", ok200 + "\r\n", forEver(strings.Repeat("x", 32<<10), 0)},
	{"JSON without end", ok200 + "Content-Type: application/json\r\n\r\n" + `{"pods":[`, forEver(strings.Repeat("{},", 1000), 0)},
	{"JSON, a million deep", ok200 + "Content-Type: application/json\r\n\r\n", forEver(strings.Repeat("[", 4096), 0)},
	{"a length that is not kept", ok200 + "Content-Length: 100\r\n\r\nhalf", nil},
	{"a length below zero", ok200 + "Content-Length: -1\r\n\r\nx", nil},
	{"a length of exabytes", ok200 + "Content-Length: 9223372036854775807\r\n\r\nx", nil},
	{"two lengths", ok200 + "Content-Length: 1\r\nContent-Length: 5\r\n\r\nabcde", nil},
	{"a length and pieces", ok200 + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", nil},
	{"two encodings", ok200 + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", nil},
	{"a piece of exabytes", ok200 + "Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nx", silence},
	{"a piece of no length", ok200 + "Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n", nil},
	{"a piece's name without end", ok200 + "Transfer-Encoding: chunked\r\n\r\n1;", forEver(strings.Repeat("b", 4096), 0)},
	{"trailers that steer", ok200 + "Trailer: Set-Cookie, Location\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nLocation: /x\r\n\r\n", nil},
	{"trailers without end", ok200 + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", forEver("X-A: b\r\n", 0)},
	{"a gzip that says so", ok200 + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00", nil},
	{"two answers", ok200 + "Content-Length: 2\r\n\r\nok" + redirect(302, "/api/v1/secrets"), nil},
	{"half a status line", "HTTP/1.1 2", nil},
	{"half a head", ok200 + "Content-Le", nil},
	{"nothing", "", nil},
	{"silence", "", silence},
	{"garbage", "\x00\x01\x02\xff\r\n\r\n\r\n", nil},
	{"HTTP/0.9", "<script>alert(1)</script>", nil},
	{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nok", nil},
	{"HTTP/2", "\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", nil},
	{"HTTP/9.9", "HTTP/9.9 200 OK\r\n\r\nok", nil},
	{"TLS", "\x15\x03\x01\x00\x02\x02\x46", nil},
	{"a NUL in a header", ok200 + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\nok", nil},
	{"lines that end in CR", "HTTP/1.1 200 OK\rX-A: b\r\r", nil},
	{"a folded Location", "HTTP/1.1 302 Found\r\nLocation:\r\n http://evil.example/\r\nContent-Length: 0\r\n\r\n", nil},
	{"a space before the colon", ok200 + "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\nok", nil},
	{"a header without a name", ok200 + ": x\r\nContent-Length: 2\r\n\r\nok", nil},
	{"status 000", "HTTP/1.1 000 No\r\nContent-Length: 2\r\n\r\nok", nil},
	{"status 199", "HTTP/1.1 199 No\r\n\r\n", silence},
	{"status 600", "HTTP/1.1 600 No\r\nContent-Length: 2\r\n\r\nok", nil},
	{"status 1000", "HTTP/1.1 1000 No\r\nContent-Length: 2\r\n\r\nok", nil},
	{"status -1", "HTTP/1.1 -01 No\r\nContent-Length: 2\r\n\r\nok", nil},
}

// badBoard answers whatever comes. behind is how many requests it answers well first, as a board in front of a bad pod; secure has the
// pod speak TLS.
func badBoard(b badAnswer, behind int, secure *tls.Config) net.Conn {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		in := bufio.NewReader(there)
		asked, err := http.ReadRequest(in)
		for ; err == nil && behind > 0; behind-- {
			fmt.Fprintf(there, "%sConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", up101, asked.Header.Get("Upgrade"))
			if secure != nil { // who asks has waited for the answer: nothing of it is in the buffer
				there = tls.Server(there, secure)
				in = bufio.NewReader(there)
			}
			asked, err = http.ReadRequest(in)
		}
		if err != nil {
			return
		}
		go io.Copy(io.Discard, in)
		io.WriteString(there, strings.ReplaceAll(b.text, "$UP", asked.Header.Get("Upgrade")))
		if b.more != nil {
			b.more(there)
		}
	}()
	return here
}

// badVerb is a way to ask a board for something.
type badVerb struct {
	name, method, path string
	upgrade            string // what is asked for, or nothing
	behind             int    // requests that are answered well first
	pod                bool   // the answer is a pod's
	secure             bool   // which speaks TLS
}

const servicesPath = "/api/v1/namespaces/default/services"

var badVerbs = []badVerb{
	{"logs", "GET", podsPath + "/far/log", "", 0, false, false},
	{"logs -f", "GET", podsPath + "/far/log?follow=1", "", 0, false, false},
	{"logs 10", "GET", podsPath + "/far/log?limitBytes=10", "", 0, false, false},
	{"exec", "GET", podsPath + "/far/exec?command=id&stdout=1", "websocket", 0, false, false},
	{"exec/1.3", "POST", podsPath + "/far/exec?command=id&stdout=1", "SPDY/3.1", 0, false, false},
	{"attach", "GET", podsPath + "/far/attach?stdout=1", "websocket", 0, false, false},
	{"forward", "POST", podsPath + "/far/portforward?ports=80", "SPDY/3.1", 0, false, false},
	{"top", "GET", "/apis/metrics.k8s.io/v1beta1/nodes", "", 0, false, false},
	{"stats", "GET", "/api/v1/nodes/b/proxy/stats/summary", "", 0, false, false},
	{"metrics", "GET", "/api/v1/nodes/b/proxy/metrics", "", 0, false, false},
	{"way", "GET", podsPath + "/far:8080/proxy/x", "", 0, false, false},
	{"pod", "GET", podsPath + "/far:8080/proxy/x", "", 1, true, false},
	{"pod post", "POST", podsPath + "/far:8080/proxy/x", "", 1, true, false},
	{"pod up", "GET", podsPath + "/far:8080/proxy/x", "websocket", 1, true, false},
	{"pod tls", "GET", podsPath + "/https:far:8443/proxy/x", "", 1, true, true},
	{"service", "GET", servicesPath + "/far:80/proxy/x", "", 1, true, false},
	{"serv up", "GET", servicesPath + "/far:80/proxy/x", "websocket", 1, true, false},
}

// badTry is how one went.
type badTry struct {
	code  int // 0: the connection was cut before a status
	head  http.Header
	bytes int64
	took  time.Duration
	early int // 1xx answers that came through
	cut   bool
}

func (b badTry) String() string {
	s := fmt.Sprint(b.code)
	if b.cut {
		s += "/"
	}
	return s
}

// ask is a raw client: it reads an answer as it stands, a megabyte of it, and ten minutes at most.
func (v badVerb) ask(t *testing.T, dial func(context.Context) (net.Conn, error)) (out badTry) {
	t.Helper()
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	conn.SetDeadline(begun.Add(10 * time.Minute))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: ledge\r\nContent-Length: 0\r\nCookie: mine\r\nAuthorization: Bearer mine\r\n", v.method, v.path)
	switch v.upgrade {
	case "":
	case "websocket":
		io.WriteString(conn, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n")
	default:
		fmt.Fprintf(conn, "Connection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n", v.upgrade)
	}
	io.WriteString(conn, "\r\n")
	in := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(in, &http.Request{Method: v.method})
		if err != nil {
			out.cut = true
			break
		}
		if out.code, out.head = answer.StatusCode, answer.Header; out.code < 200 && out.code != 101 {
			out.early++
			continue
		}
		out.bytes, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
		if out.code == 101 {
			out.bytes, err = io.Copy(io.Discard, io.LimitReader(in, 1<<20))
		}
		out.cut = err != nil
		for name := range answer.Trailer {
			out.head.Set("Trailing-"+name, "x")
		}
		break
	}
	out.took = time.Since(begun)
	return out
}

// What may stand in the head of an answer that somebody else gave.
var (
	harmless = []string{"Audit-Id", "Cache-Control", "Connection", "Content-Length", "Content-Security-Policy", "Content-Type", "Date",
		"Sec-Websocket-Accept",
		"Sec-Websocket-Protocol", "Upgrade", "X-Content-Type-Options", "X-Stream-Protocol-Version"}
	harmlessOfPods = []string{"Content-Encoding", "Location", "Retry-After", "X-A"}
)

// judge says what is wrong with how a try went.
func (v badVerb) judge(b badTry) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	location := b.head.Get("Location")
	inPod := v.pod && strings.HasPrefix(location, strings.TrimSuffix(v.path, "x")) && !strings.Contains(location, "%2e") &&
		!strings.Contains(location, "..")
	switch {
	case b.code == 0 && b.cut: // the head was good, the rest was not
		return nil
	case b.code == 0 || b.code > 599:
		bad("no answer of ours: %d", b.code)
	case b.code >= 300 && b.code <= 399 && !inPod, location != "" && !inPod:
		bad("%d leads to %q", b.code, location)
	case v.upgrade != "" && b.code != 101 && b.code < 400:
		bad("%d for an upgrade", b.code)
	case v.upgrade == "" && b.code == 101:
		bad("an upgrade that nobody asked for")
	case b.code == 401 && !v.pod, b.code == 407 && !v.pod:
		bad("%d, as if it were ours", b.code)
	}
	if v.name == "logs 10" && b.code == 200 && b.bytes > 10 {
		bad("%d bytes of 10", b.bytes)
	}
	if b.early > 0 {
		bad("%d early answers", b.early)
	}
	if patient := v.pod || v.name == "logs -f"; b.took > 6*time.Minute && !(patient && b.code == 200) && b.code != 101 && b.bytes == 0 {
		bad("took %s", b.took)
	}
	ours := b.code >= 400 && b.head.Get("Content-Security-Policy") == ""
	for name := range b.head {
		if !slices.Contains(harmless, name) && !(v.pod && slices.Contains(harmlessOfPods, name)) {
			bad("header %s passed", name)
		}
	}
	kind, _, _ := strings.Cut(b.head.Get("Content-Type"), ";")
	switch {
	case b.code == 101 || v.name == "top":
	case ours && kind != "application/json":
		bad("an error of ours in %s", kind)
	case ours:
	case !strings.HasPrefix(b.head.Get("Content-Security-Policy"), "sandbox") || b.head.Get("X-Content-Type-Options") != "nosniff":
		bad("a page that is trusted: %v", b.head)
	case !v.pod && kind != "text/plain" && kind != "application/json":
		bad("a board shows %s", kind)
	}
	return wrong
}

// reachable makes a running pod that has an address.
func (f *fixture) reachable(name, ip string) {
	f.t.Helper()
	f.withRunningPod(name)
	p, err := api.Get[*corev1.Pod](f.t.Context(), f.store, api.Pods, "default", name)
	if err != nil {
		f.t.Fatal(err)
	}
	p.Status.PodIP = ip
	if _, err := api.UpdateStatus(f.t.Context(), f.store, api.Pods, p); err != nil {
		f.t.Fatal(err)
	}
}

// behindService makes a service of the name of a pod that leads to it.
func (f *fixture) behindService(name, ip string) {
	f.t.Helper()
	f.must(201, "POST", servicesPath, `{"metadata":{"name":"`+name+`"},"spec":{"ports":[{"port":80,"targetPort":8080}]}}`)
	f.must(201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"`+name+`",
		"labels":{"kubernetes.io/service-name":"`+name+`"}},"addressType":"IPv4","ports":[{"port":8080}],
		"endpoints":[{"addresses":["`+ip+`"],"targetRef":{"kind":"Pod","namespace":"default","name":"`+name+`"}}]}`)
}

// TestBadBoards has a made-up board, and a pod behind an honest one, answer every verb with everything that is bad. Nothing of
// it has a client do anything, and each try ends.
func TestBadBoards(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-40s", "answer")
	for _, v := range badVerbs {
		fmt.Fprintf(&table, " %8s", v.name)
	}
	tries, broken := 0, 0
	pod := httptest.NewTLSServer(nil) // for its certificate
	pod.Close()
	reached := map[string]bool{} // by verb: something was let through
	synctest.Test(t, func(t *testing.T) {
		var answer badAnswer
		var verb badVerb
		f := serve(t, httpd.Config{Node: "a", Streams: none{}, Exec: none{}, Forward: ports{}, Metrics: measuredBoard{},
			DialBoard: func(context.Context, string) (net.Conn, error) {
				if verb.secure {
					return badBoard(answer, verb.behind, &tls.Config{Certificates: pod.TLS.Certificates}), nil
				}
				return badBoard(answer, verb.behind, nil), nil
			}})
		f.node = "b"
		f.reachable("far", "10.1.0.7")
		f.behindService("far", "10.1.0.7")
		f.withNodes()
		for _, answer = range badAnswers {
			fmt.Fprintf(&table, "\n%-40s", answer.name)
			for _, verb = range badVerbs {
				time.Sleep(time.Minute)
				got := verb.ask(t, f.dial[admin.Name])
				tries++
				reached[verb.name] = reached[verb.name] || got.code == 200 || got.code == 101
				fmt.Fprintf(&table, " %8s", got)
				if wrong := verb.judge(got); wrong != nil {
					broken++
					t.Errorf("%s, %s: %s", verb.name, answer.name, strings.Join(wrong, "; "))
				}
				synctest.Wait()
			}
		}
		time.Sleep(2 * time.Hour) // the silent ones
		f.stop()
	})
	for _, v := range badVerbs {
		if !reached[v.name] && v.name != "way" { // which has no good answer but to another protocol
			t.Errorf("%s: no answer of 200 or 101 came through: the made-up board is not reached", v.name)
		}
	}
	t.Logf("%s\n\n%d answers, %d verbs, %d tries, %d broken (code; / is a connection that was cut)", table.String(), len(badAnswers),
		len(badVerbs), tries, broken)
}
