package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ledge/internal/testrun"
)

// trick is something that nobody should get away with, and the answer to it.
type trick struct {
	name string
	door string // root: the socket; otherwise TLS: stranger, or with the token of that name
	text string // all that is sent
	want string // the code, or several
}

// amount is a pod that asks for so much.
func amount(cpu string) string {
	return `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a","resources":{"limits":{"cpu":"` + cpu + `"}}}]}}`
}

// sent writes a request out. Headers come in lines.
func sent(method, path, head, body string) string {
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return method + " " + path + " HTTP/1.1\r\nHost: ledge\r\nConnection: close\r\n" + head + "\r\n" + body
}

const (
	abusePods = "/api/v1/namespaces/default/pods"
	abuseMaps = "/api/v1/namespaces/default/configmaps"
	asJSON    = "Content-Type: application/json\r\n"
	asYAML    = "Content-Type: application/yaml\r\n"
	asProto   = "Content-Type: application/vnd.kubernetes.protobuf\r\n"
	webSocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
		"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
	spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
)

func upgraded(method, path, head string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: ledge\r\n" + head + "\r\n"
}

// tricks are the abuse list: what attackers of other servers of this kind have tried.
func tricks() []trick {
	mapNamed := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
	}
	wide := strings.TrimSuffix(strings.Repeat("{},", 80000), ",")
	list := []trick{
		// Paths and names.
		{"dots in a path", "root", sent("GET", abusePods+"/../../../../etc/passwd", "", ""), "404"},
		{"escaped dots", "root", sent("GET", abusePods+"/%2e%2e%2f%2e%2e%2fetc", "", ""), "404"},
		{"escaped slash", "root", sent("GET", abusePods+"/a%2fb", "", ""), "404"},
		{"escaped twice", "root", sent("GET", abusePods+"/%252e%252e", "", ""), "404"},
		{"backslashes", "root", sent("GET", abusePods+"/..%5c..%5cetc", "", ""), "404"},
		{"a null byte", "root", sent("GET", abusePods+"/a%00b", "", ""), "404"},
		{"a name of 300 letters", "root", sent("GET", abusePods+"/"+strings.Repeat("a", 300), "", ""), "404"},
		{"two slashes", "root", sent("GET", "//api/v1/pods", "", ""), "404"},
		{"a thousand segments", "root", sent("GET", strings.Repeat("/a", 1000), "", ""), "404"},
		{"a namespace of dots", "root", sent("GET", "/api/v1/namespaces/../secrets", "", ""), "404"},
		{"a file for a name", "root", sent("POST", abuseMaps, asJSON, mapNamed("../../etc/passwd")), "422"},
		{"a file for a key", "root", sent("POST", abuseMaps, asJSON, `{"metadata":{"name":"a"},"data":{"../x":"y"}}`), "422"},
		{"another name on the URL", "root", sent("PUT", abuseMaps+"/a", asJSON, mapNamed("b")), "400"},
		{"another namespace in the body", "root", sent("POST", abuseMaps, asJSON, `{"metadata":{"name":"a","namespace":"kube-system"}}`), "400"},
		// Options.
		{"a file for a container of a log", "root", sent("GET", abusePods+"/rough/log?container=../../../etc/passwd", "", ""), "400"},
		{"a null byte for a container of a log", "root", sent("GET", abusePods+"/rough/log?container=%00", "", ""), "400"},
		{"fewer lines than none", "root", sent("GET", abusePods+"/rough/log?tailLines=-1", "", ""), "422"},
		{"fewer bytes than none", "root", sent("GET", abusePods+"/rough/log?limitBytes=-1", "", ""), "422"},
		{"too many seconds", "root", sent("GET", abusePods+"/rough/log?sinceSeconds=99999999999999999999", "", ""), "400"},
		{"no time", "root", sent("GET", abusePods+"/rough/log?sinceTime=never", "", ""), "400"},
		{"no continue token", "root", sent("GET", abuseMaps+"?limit=1&continue=eyJydiI6LTF9", "", ""), "400"},
		{"a continue token of 8 KB", "root", sent("GET", abuseMaps+"?continue="+strings.Repeat("A", 8<<10), "", ""), "400"},
		{"a revision of the future", "root", sent("GET", abuseMaps+"?resourceVersion=99999999999999", "", ""), "504"},
		{"a negative limit", "root", sent("GET", abuseMaps+"?limit=-5", "", ""), "422"},
		{"a negative time to watch", "root", sent("GET", abuseMaps+"?watch=1&timeoutSeconds=-5", "", ""), "422"},
		{"a field that cannot be selected", "root", sent("GET", abuseMaps+"?fieldSelector=data.a%3Db", "", ""), "400"},
		{"a selector of commas", "root", sent("GET", abuseMaps+"?labelSelector="+strings.Repeat(",", 4000), "", ""), "400"},
		{"a field manager of 5 KB", "root", sent("PATCH", abuseMaps+"/a?fieldManager="+strings.Repeat("m", 5000),
			"Content-Type: application/apply-patch+yaml\r\n", mapNamed("a")), "422"},
		// Bodies.
		{"deep JSON", "root", sent("POST", abusePods, asJSON, strings.Repeat(`{"a":`, 40000)+"1"+strings.Repeat("}", 40000)), "400"},
		{"deep lists", "root", sent("POST", abuseMaps, asJSON, `{"data":`+strings.Repeat("[", 100000)), "400"},
		{"wide JSON", "root", sent("POST", abusePods, asJSON, `{"spec":{"containers":[`+wide[:240000-240000%3-1]+`]}}`), "400"},
		{"3 MB of JSON", "root", sent("POST", abusePods, asJSON, `{"spec":{"containers":[`+strings.Repeat(wide+",", 13)+`{}]}}`), "413"},
		{"an endless body", "root", "POST " + abusePods +
			" HTTP/1.1\r\nHost: ledge\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("8000\r\n"+strings.Repeat(" ", 0x8000)+"\r\n", 64),
			"413"},
		{"laughs", "root", sent("POST", abuseMaps, asYAML, "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c]\n"),
			"400"},
		{"large YAML", "root", sent("POST", abuseMaps, asYAML, "data:\n"+strings.Repeat("  a: b\n", 20000)), "400"},
		{"YAML that calls a constructor", "root", sent("POST", abuseMaps, asYAML, "!!python/object/apply:os.system [id]\n"), "400"},
		{"two documents of YAML", "root", sent("POST", abuseMaps, asYAML, mapNamed("one")+"\n---\n"+mapNamed("two")), "400"},
		{"a packed body", "root", sent("POST", abuseMaps, asJSON+"Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00\x00\x00\x00"), "415"},
		{"no length", "root", "POST " + abuseMaps + " HTTP/1.1\r\nHost: ledge\r\nContent-Length: -1\r\n\r\n{}", "400"},
		{"two lengths", "root", "POST " + abuseMaps + " HTTP/1.1\r\nHost: ledge\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", "400"},
		{"chunks of no number", "root", "POST " + abuseMaps +
			" HTTP/1.1\r\nHost: ledge\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", "400"},
		{"another transfer encoding", "root", "POST " + abuseMaps +
			" HTTP/1.1\r\nHost: ledge\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
		{"cut protobuf", "root", sent("POST", abuseMaps, asProto, "k8s\x00\x0a\xff\xff\xff\x7f"), "400"},
		{"protobuf of many fields", "root", sent("POST", abusePods, asProto, "k8s\x00"+strings.Repeat("\x0a\x00", 100000)), "400 422"},
		{"protobuf without its beginning", "root", sent("POST", abusePods, asProto, strings.Repeat("\x00", 1000)), "400"},
		{"bytes that are no text", "root", sent("POST", abuseMaps, asJSON, "{\"metadata\":{\"name\":\"\xff\xfe\"}}"), "400 422"},
		{"a number without end", "root", sent("POST", abusePods, asJSON, `{"spec":{"priority":1`+strings.Repeat("0", 10000)+`}}`), "400"},
		{"an exponent", "root", sent("POST", abusePods+"?dryRun=All", asJSON, amount("1e1000000000")), "400"},
		{"a small exponent", "root", sent("POST", abusePods+"?dryRun=All", asJSON, amount("1e-1000000000")), "400"},
		{"an exponent that hides", "root", sent("POST", abusePods+"?dryRun=All", asJSON, amount(`1\u0065-1000000000`)), "400"},
		{"the same key twice", "root", sent("POST", abuseMaps+"?fieldValidation=Strict", asJSON, `{"metadata":{"name":"a","name":"b"}}`), "400"},
		{"another kind", "root", sent("POST", abuseMaps, asJSON, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`), "400"},
		{"an empty body", "root", sent("POST", abuseMaps, asJSON+"Content-Length: 0\r\n", ""), "400"},
		{"a patch of 10,001 steps", "root", sent("PATCH", abuseMaps+"/kube-root-ca.crt", "Content-Type: application/json-patch+json\r\n",
			"["+strings.Repeat(`{"op":"test","path":"/a","value":1},`, 10000)+`{"op":"test","path":"/a","value":1}]`), "400 413 422"},
		{"a patch that doubles", "root", sent("PATCH", abuseMaps+"/kube-root-ca.crt", "Content-Type: application/json-patch+json\r\n",
			`[{"op":"add","path":"/data/a","value":"x"}`+strings.Repeat(`,{"op":"copy","from":"/data","path":"/data/b"}`, 60)+`]`), "400 413 422"},
		{"a patch of nothing known", "root", sent("PATCH", abuseMaps+"/kube-root-ca.crt", "Content-Type: text/plain\r\n", "x"), "415"},
		// HTTP.
		{"a header of 32 KB", "root", sent("GET", "/version", "X: "+strings.Repeat("x", 32<<10)+"\r\n", ""), "431"},
		{"many headers", "root", sent("GET", "/version", strings.Repeat("X: y\r\n", 10000), ""), "431"},
		{"a path of 32 KB", "root", sent("GET", "/"+strings.Repeat("a", 32<<10), "", ""), "431"},
		{"no host", "root", "GET /version HTTP/1.1\r\nConnection: close\r\n\r\n", "400"},
		{"a method of its own", "root", sent("TRACE", "/version", "", ""), "405"},
		{"a proxy wanted", "root", sent("CONNECT", "169.254.169.254:80", "", ""), "400 404 405"},
		{"no HTTP", "root", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
		// Who one is.
		{"nobody lists pods", "stranger", sent("GET", abusePods, "", ""), "401"},
		{"nobody runs a command", "stranger", upgraded("GET", abusePods+"/rough/exec?command=id&stdout=1", webSocket), "401"},
		{"nobody sends much", "stranger", "POST " + abusePods +
			" HTTP/1.1\r\nHost: ledge\r\nConnection: close\r\nContent-Length: 9999999\r\n\r\n{", "401"},
		{"a password", "stranger", sent("GET", abusePods, "Authorization: Basic cm9vdDpyb290\r\n", ""), "401"},
		{"a token that nobody signed", "stranger", sent("GET", abusePods, "Authorization: Bearer "+unsigned()+"\r\n", ""), "401"},
		{"a token of 15 KB", "stranger", sent("GET", abusePods, "Authorization: Bearer "+strings.Repeat("a.", 7<<10)+"\r\n", ""), "401"},
		{"the token of one that is gone", "gone", sent("GET", abusePods, "", ""), "401"},
		{"a token that was changed", "changed", sent("GET", abusePods, "", ""), "401"},
		{"a token for others", "elsewhere", sent("GET", abusePods, "", ""), "401"},
		{"a second token", "viewer", sent("GET", abusePods, "Authorization: Bearer x\r\n", ""), "401"},
		{"secrets", "viewer", sent("GET", "/api/v1/secrets", "", ""), "403"},
		{"secrets by a watch", "viewer", sent("GET", "/api/v1/secrets?watch=1", "", ""), "403"},
		{"somebody else", "viewer", sent("GET", "/api/v1/secrets", "Impersonate-User: system:admin\r\nImpersonate-Group: system:masters\r\n", ""),
			"403"},
		{"a role for oneself", "viewer", sent("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", asJSON,
			`{"metadata":{"name":"up"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","name":"me"}]}`), "403"},
		{"a token of another", "viewer", sent("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", asJSON, `{"spec":{}}`),
			"403"},
		{"the board", "viewer", sent("POST", "/ledge/v1/shutdown", asJSON, "{}"), "403"},
		{"the kubelet's way in", "viewer", sent("GET", "/api/v1/nodes/x/proxy/exec/default/rough?command=id", "", ""), "403"},
		{"a proxy into the pod", "viewer", sent("GET", abusePods+"/rough/proxy/", "", ""), "403"},
	}
	for _, sub := range []string{"exec?command=id&stdout=1", "attach?stdout=1", "portforward?ports=80"} {
		list = append(list,
			trick{sub + " by WebSocket", "viewer", upgraded("GET", abusePods+"/rough/"+sub, webSocket), "403"},
			trick{sub + " by SPDY", "viewer", upgraded("POST", abusePods+"/rough/"+sub, spdy), "403"},
			trick{sub + " by no upgrade", "viewer", sent("POST", abusePods+"/rough/"+sub, "", ""), "403"})
	}
	return list
}

// unsigned is a token that says that it needs no signature.
func unsigned() string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none","typ":"JWT"}`)) +
		"." + part([]byte(`{"sub":"system:serviceaccount:default:default","exp":9999999999}`)) + "."
}

// doors are the ways in, with the tokens that belong to some.
type doors struct {
	b      *testBoard
	tokens map[string]string
}

func (b *testBoard) doors() *doors {
	b.t.Helper()
	d := &doors{b: b, tokens: map[string]string{}}
	b.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: viewer}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: gone}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: viewer}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
		"subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]\n")
	d.tokens["viewer"], d.tokens["gone"] = d.token("viewer", "{}"), d.token("gone", "{}")
	d.tokens["elsewhere"] = d.token("viewer", `{"audiences":["elsewhere"]}`)
	good := d.tokens["viewer"]
	middle := strings.Index(good, ".") + 20
	d.tokens["changed"] = good[:middle] + string(good[middle]^1) + good[middle+1:]
	if got := d.answer("gone", sent("GET", "/version", "", "")); got != "200" {
		b.t.Fatalf("a good token: %s", got)
	}
	b.must("delete", "serviceaccount", "gone")
	return d
}

func (d *doors) token(account, spec string) string {
	d.b.t.Helper()
	conn, err := d.open("root")
	must(d.b.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, sent("POST", "/api/v1/namespaces/default/serviceaccounts/"+account+"/token", asJSON, `{"spec":`+spec+`}`))
	must(d.b.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(d.b.t, err)
	var made struct{ Status struct{ Token string } }
	must(d.b.t, json.NewDecoder(resp.Body).Decode(&made))
	return made.Status.Token
}

func (d *doors) open(door string) (net.Conn, error) {
	if door == "root" {
		return net.Dial("unix", filepath.Join(d.b.runDir, "ledge.sock"))
	}
	return tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", d.b.port), &tls.Config{InsecureSkipVerify: true})
}

// answer sends a text through a door and gives the code of what comes back; "" when nothing does.
func (d *doors) answer(door, text string) string {
	conn, err := d.open(door)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if token := d.tokens[door]; token != "" {
		text = strings.Replace(text, "\r\n", "\r\nAuthorization: Bearer "+token+"\r\n", 1)
	}
	if err := conn.SetDeadline(time.Now().Add(testrun.Patience(20 * time.Second))); err != nil {
		return err.Error()
	}
	go func() { _, _ = io.WriteString(conn, text) }() // it may be answered before it has been read
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close() // the rest of it does not matter
	return fmt.Sprint(resp.StatusCode)
}

// play tries every trick, several at a time, and then what takes more than a request.
func (d *doors) play() {
	t := d.b.t
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	list := tricks()
	for _, trick := range list {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if got := d.answer(trick.door, trick.text); !slices.Contains(strings.Fields(trick.want), got) {
				t.Errorf("%s, from %s: %s, want %s", trick.name, trick.door, got, trick.want)
			}
		})
	}
	all.Wait()
	if t.Logf("%d tricks", len(list)); len(list) < 80 {
		t.Error("some of the tricks are gone") // with what comes below 60 were promised
	}
	d.resizes(10_000)
	d.drops(50)
	d.names(50)
	d.crowd(500)
}

// resizes tells a terminal its size again and again.
func (d *doors) resizes(n int) {
	t := d.b.t
	conn, err := d.open("root")
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, upgraded("GET", abusePods+"/rough/exec?command=/testprog&command=cat&command=0&stdin=1&stdout=1&tty=1",
		webSocket))
	must(t, err)
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, " 101 ") {
		t.Errorf("exec: %s, %v", line, err)
		return
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, in) }()
	frame := func(channel byte, text string) []byte {
		return append([]byte{0x82, byte(0x80 | (len(text) + 1)), 0, 0, 0, 0, channel}, text...)
	}
	for i := range n {
		if _, err := conn.Write(frame(4, fmt.Sprintf(`{"Width":%d,"Height":24}`, 10+i%200))); err != nil {
			t.Errorf("resize %d: %v", i, err)
			return
		}
	}
	conn.Close()
	<-ended
}

// drops attaches and leaves without a word.
func (d *doors) drops(n int) {
	t := d.b.t
	for range n {
		conn, err := d.open("root")
		must(t, err)
		_, err = io.WriteString(conn, upgraded("GET", abusePods+"/rough/attach?stdout=1", webSocket))
		must(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, " 101 ") && !strings.Contains(line, " 429 ") {
			t.Errorf("attach: %s, %v", line, err)
		}
		conn.Close()
	}
	d.b.eventually("somebody can attach again", func() error {
		conn, err := d.open("root")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, upgraded("GET", abusePods+"/rough/attach?stdout=1", webSocket)); err != nil {
			return err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && !strings.Contains(line, " 101 ") {
			err = errors.New(line)
		}
		return err
	})
}

// names asks for servers that there are not: the certificate must stay as it is (CVE-2023-32187).
func (d *doors) names(n int) {
	t := d.b.t
	var first []byte
	for i := range n {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", d.b.port),
			&tls.Config{InsecureSkipVerify: true, ServerName: fmt.Sprintf("x%d.evil.example", i)})
		if err != nil {
			t.Errorf("a handshake for a made-up name: %v", err)
			return
		}
		leaf := conn.ConnectionState().PeerCertificates[0]
		conn.Close()
		if first == nil {
			first = leaf.Raw
		}
		if !bytes.Equal(first, leaf.Raw) || slices.Contains(leaf.DNSNames, fmt.Sprintf("x%d.evil.example", i)) {
			t.Errorf("the certificate was made anew for a name of a handshake: %v", leaf.DNSNames)
			return
		}
	}
}

// crowd opens connections that never get further: half of a handshake on TLS, half of a header on the socket. Others are
// answered meanwhile.
func (d *doors) crowd(n int) {
	t := d.b.t
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
	defer cancel()
	for i := range n {
		network, address, text := "tcp", fmt.Sprintf("127.0.0.1:%d", d.b.port), "\x16\x03\x01"
		if i%2 == 0 {
			network, address, text = "unix", filepath.Join(d.b.runDir, "ledge.sock"), "GET /version HTTP/1.1\r\nX-"
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		conns = append(conns, conn)
		_, _ = io.WriteString(conn, text) // above the cap it may be closed already
	}
	if out := d.b.must("get", "nodes"); !strings.Contains(out, d.b.name) {
		t.Errorf("beside %d connections: %s", n, out)
	}
}
