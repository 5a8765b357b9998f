package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/websocket"
	"ledge/internal/testrun"
)

// commands runs what is asked for as a process of this machine, in a directory of its own.
type commands struct {
	dir     string
	running atomic.Int32
	sizes   chan api.TerminalSize
}

func (c *commands) Exec(ctx context.Context, _, _ string, x api.Exec) (int, error) {
	c.running.Add(1)
	defer c.running.Add(-1)
	if x.Command[0] == "size" { // what the client says its terminal is
		select {
		case s := <-x.Resize:
			c.sizes <- s
		case <-ctx.Done():
		}
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, x.Command[0], x.Command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.dir, x.Stdout, x.Stderr, time.Second
	if x.Stdin != nil { // not by cmd.Stdin: a command ends though its client goes on
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		go func() {
			io.Copy(in, x.Stdin)
			in.Close()
		}()
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Attach is to a container that repeats what it reads, and says nothing else.
func (c *commands) Attach(ctx context.Context, _, _ string, x api.Attach) error {
	c.running.Add(1)
	defer c.running.Add(-1)
	if x.Stdin == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := io.Copy(x.Stdout, x.Stdin)
	if err == nil && x.Stderr != nil {
		_, err = io.WriteString(x.Stderr, "end\n")
	}
	return err
}

// ports dials this machine.
type ports struct{}

func (ports) Dial(ctx context.Context, _, _ string, port uint16) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// withRunningPod makes a pod whose container says that it runs.
func (f *fixture) withRunningPod(name string) {
	f.t.Helper()
	f.withRunning(name, pod(name))
}

func (f *fixture) withRunning(name, json string) {
	f.t.Helper()
	if f.node != "" {
		json = strings.Replace(json, `"spec":{`, `"spec":{"nodeName":"`+f.node+`",`, 1)
	}
	f.must(201, "POST", podsPath, json)
	p, err := api.Get[*corev1.Pod](f.t.Context(), f.store, api.Pods, "default", name)
	if err != nil {
		f.t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if _, err := api.UpdateStatus(f.t.Context(), f.store, api.Pods, p); err != nil {
		f.t.Fatal(err)
	}
}

// Commands, copies and forwarded ports by the real kubectl, over WebSocket and over SPDY, with a pod of the server's own board and
// with one of another.
func TestKubectlSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs kubectl")
	}
	t.Run("here", func(t *testing.T) {
		c := &commands{dir: t.TempDir()}
		f := serve(t, httpd.Config{})
		f.kubectlSessions(t, c, httpd.Config{Client: f.store, Exec: c, Forward: ports{}})
	})
	t.Run("elsewhere", func(t *testing.T) {
		c := &commands{dir: t.TempDir()}
		f := serve(t, httpd.Config{})
		f.node = "b"
		dial := f.board(httpd.Config{Exec: c, Forward: ports{}})
		f.kubectlSessions(t, c, httpd.Config{Client: f.store, Exec: none{}, Forward: ports{}, Node: "a", DialBoard: dial})
	})
}

func (f *fixture) kubectlSessions(t *testing.T, c *commands, conf httpd.Config) {
	h, err := httpd.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	url, a, _ := secured(t, h)
	f.withRunningPod("web")
	f.withRunning("open", strings.Replace(pod("open"), `"image"`, `"stdin":true,"image"`, 1))
	if err := os.WriteFile(filepath.Join(c.dir, "file"), []byte(strings.Repeat("0123456789abcdef", 1<<16)), 0o644); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("all work and no play ", 50_000)
	for _, transport := range []string{"websocket", "spdy"} {
		t.Run(transport, func(t *testing.T) {
			k := newKubectl(t, a, url)
			if transport == "spdy" {
				k.env = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}
			}
			if out, err := k.run("", "exec", "web", "--", "sh", "-c", "echo out; echo err >&2"); err != nil || !strings.Contains(out, "out\n") ||
				!strings.Contains(out, "err\n") {
				t.Errorf("exec: %q, %v", out, err)
			}
			if out, err := k.run(big, "exec", "-i", "web", "--", "cat"); err != nil || out != big {
				t.Errorf("exec -i: %d bytes came back of %d, %v", len(out), len(big), err)
			}
			out, err := k.run("", "exec", "web", "--", "sh", "-c", "exit 7")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 || !strings.Contains(out, "exit code 7") {
				t.Errorf("exit code: %q, %v", out, err)
			}
			if out, err := k.run("", "exec", "web", "-c", "none", "--", "true"); err == nil ||
				!strings.Contains(out, "container none is not valid for pod web") {
				t.Errorf("no such container: %q, %v", out, err)
			}
			if out, err := k.run("", "exec", "web", "--", "no-such-program"); err == nil || !strings.Contains(out, "no-such-program") {
				t.Errorf("no such program: %q, %v", out, err)
			}
			if out, err := k.run("typed\n", "attach", "-i", "open"); err != nil || !strings.Contains(out, "\ntyped\n") ||
				!strings.Contains(out, "\nend\n") {
				t.Errorf("attach -i: %q, %v", out, err)
			}
			if out, err := k.run("typed\n", "attach", "-i", "web"); err == nil ||
				!strings.Contains(out, "container c of pod web has no stdin to attach to") {
				t.Errorf("attach -i to a container without: %q, %v", out, err)
			}
			to := filepath.Join(t.TempDir(), "copy")
			if out, err := k.run("", "cp", "default/web:file", to); err != nil {
				t.Errorf("cp: %q, %v", out, err)
			} else if got, err := os.ReadFile(to); err != nil || len(got) != 1<<20 {
				t.Errorf("cp: %d bytes, %v", len(got), err)
			}
			if out, err := k.run("", "cp", to, "default/web:back"); err != nil {
				t.Errorf("cp back: %q, %v", out, err)
			} else if got, err := os.ReadFile(filepath.Join(c.dir, "back")); err != nil || len(got) != 1<<20 {
				t.Errorf("cp back: %d bytes, %v", len(got), err)
			}
			k.forward(t)
		})
	}
	if n := c.running.Load(); n != 0 {
		t.Errorf("%d commands still run", n)
	}
}

// forward talks through port-forward to a server that answers in capitals.
func (k *kubectl) forward(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(bytes.ToUpper(body))
	}))
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.CommandContext(t.Context(), k.bin, "port-forward", "pod/web", ":"+port)
	cmd.Env = append([]string{"HOME=" + k.home, "KUBECONFIG=" + k.kubeconfig}, k.env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:N -> M
	if err != nil {
		t.Fatalf("port-forward: %v, %s", err, &complaints)
	}
	at := strings.Fields(line)[2]
	client := http.Client{Timeout: 20 * time.Second}
	for i := range 5 {
		text := strings.Repeat(fmt.Sprint("hello ", i), 20_000)
		resp, err := client.Post("http://"+at, "text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatalf("through port-forward: %v", err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != strings.ToUpper(text) {
			t.Errorf("through port-forward: %d bytes of %d, %v", len(got), len(text), err)
		}
	}
	short := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 200 { // more than may be open at once
		resp, err := short.Get("http://" + at)
		if err != nil {
			t.Fatalf("connection %d through port-forward: %v", i, err)
		}
		resp.Body.Close()
	}
}

// What is asked of a session is checked before the connection is taken over, and who may not is told on every transport,
// wherever the pod is.
func TestSessionsRefused(t *testing.T) {
	c := &commands{dir: t.TempDir()}
	t.Run("here", func(t *testing.T) { serve(t, httpd.Config{Exec: c, Forward: ports{}}).sessionsRefused(t, c) })
	t.Run("elsewhere", func(t *testing.T) {
		f := elsewhere(t, httpd.Config{Exec: none{}, Forward: ports{}}, httpd.Config{Exec: c, Forward: ports{}})
		f.sessionsRefused(t, c)
	})
}

func (f *fixture) sessionsRefused(t *testing.T, c *commands) {
	f.withRunningPod("web")
	f.must(201, "POST", podsPath, pod("waiting"))
	ws := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	v5 := append([]string{"Sec-WebSocket-Protocol", "v5.channel.k8s.io"}, ws...)
	spdy := []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"}
	exec := podsPath + "/web/exec?command=true&stdout=1"
	for _, tc := range []struct {
		name, method, path string
		head               []string
		code               int
		word               string
	}{
		{"no upgrade", "POST", exec, nil, 400, "unable to upgrade"},
		{"no command", "GET", podsPath + "/web/exec?stdout=1", v5, 400, "at least one command"},
		{"no stream", "GET", podsPath + "/web/exec?command=true", v5, 400, "at least one of"},
		{"terminal with stderr", "GET", exec + "&tty=1&stderr=1", v5, 400, "tty and stderr"},
		{"no pod", "GET", podsPath + "/none/exec?command=true&stdout=1", v5, 404, "not found"},
		{"not running", "GET", podsPath + "/waiting/exec?command=true&stdout=1", v5, 500, "not running"},
		{"attach to no stream", "GET", podsPath + "/web/attach", v5, 400, "at least one of"},
		{"attach to what does not run", "GET", podsPath + "/waiting/attach?stdout=1", v5, 500, "not running"},
		{"attach to no container", "GET", podsPath + "/web/attach?stdout=1&container=x", v5, 400, "not valid"},
		{"attach to no stdin", "GET", podsPath + "/web/attach?stdin=1", v5, 400, "no stdin"},
		{"attach by SPDY to no stdin", "POST", podsPath + "/web/attach?stdin=1", spdy, 400, "no stdin"},
		{"no container", "GET", exec + "&container=x", v5, 400, "not valid"},
		{"another protocol", "GET", exec, append([]string{"Sec-WebSocket-Protocol", "chat"}, ws...), 400, "chat"},
		{"another origin", "GET", exec, append([]string{"Origin", "https://evil.example"}, v5...), 400, "Origin"},
		{"another version", "GET", exec, append([]string{"Sec-WebSocket-Version", "8"}, v5[:len(v5)-4]...), 400, "Version"},
		{"SPDY of another protocol", "POST", exec, append([]string{}, append(spdy[:4:4], "X-Stream-Protocol-Version", "v9")...), 403,
			"v4.channel"},
		{"forward to what does not run", "GET", podsPath + "/waiting/portforward", ws, 400, "not running"},
		{"forward without tunnel", "GET", podsPath + "/web/portforward", v5, 400, "portforward"},
	} {
		a := f.do(admin, tc.method, tc.path, "", tc.head...)
		if s := a.status(t); a.code != tc.code || !strings.Contains(s.Message, tc.word) {
			t.Errorf("%s: %d %q, want %d with %q", tc.name, a.code, s.Message, tc.code, tc.word)
		}
	}
	for _, u := range []api.User{bob, nodeA} {
		for _, sub := range []string{"exec?command=true&stdout=1", "attach?stdout=1", "portforward?ports=80"} {
			for _, head := range [][]string{v5, spdy} {
				method := "GET"
				if len(head) == len(spdy) {
					method = "POST"
				}
				if a := f.do(u, method, podsPath+"/web/"+sub, "", head...); a.code != 403 {
					t.Errorf("%s may %s %s: %d", u.Name, method, sub, a.code)
				}
			}
		}
	}
	if n := c.running.Load(); n != 0 {
		t.Errorf("%d commands were run", n)
	}
}

// speaks is a client of a WebSocket that offers some protocols.
func (f *fixture) speaks(path string, offers ...string) (*websocket.Conn, error) {
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	conn, in := f.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: " + key + "\r\n" + offer(offers...) + "\r\n")
	f.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	return websocket.Client(conn, in, answer, key, offers)
}

func offer(offers ...string) string {
	if offers = slices.DeleteFunc(offers, func(s string) bool { return s == "" }); len(offers) == 0 {
		return ""
	}
	return "Sec-WebSocket-Protocol: " + strings.Join(offers, ", ") + "\r\n"
}

// heard is what comes on each channel until the end, or until the end of a message is as wanted.
func heard(t *testing.T, conn *websocket.Conn, until string) map[byte]string {
	t.Helper()
	channels := map[byte]string{}
	buf := make([]byte, 32<<10)
	var channel byte
	for {
		n, first, last, err := conn.Next(buf)
		if errors.Is(err, io.EOF) && until == "" {
			return channels
		}
		if err != nil {
			t.Fatalf("%v after %q", err, channels)
		}
		data := buf[:n]
		if first {
			channel, data = data[0], data[1:]
		}
		channels[channel] += string(data)
		if last && until != "" && strings.HasSuffix(channels[channel], until) {
			return channels
		}
	}
}

// The protocols of WebSockets tell output, errors and exit codes each in its way, and the newest that is offered is spoken.
func TestWebSocketProtocols(t *testing.T) {
	c := &commands{dir: t.TempDir()}
	t.Run("here", func(t *testing.T) { serve(t, httpd.Config{Exec: c, Forward: ports{}}).webSocketProtocols(t) })
	t.Run("elsewhere", func(t *testing.T) {
		elsewhere(t, httpd.Config{Exec: none{}, Forward: ports{}}, httpd.Config{Exec: c, Forward: ports{}}).webSocketProtocols(t)
	})
}

func (f *fixture) webSocketProtocols(t *testing.T) {
	f.withRunningPod("web")
	f.withRunning("open", strings.Replace(pod("open"), `"image"`, `"stdin":true,"image"`, 1))
	run := func(script string) string {
		return podsPath + "/web/exec?stdin=1&stdout=1&stderr=1&command=sh&command=-c&command=" + url.QueryEscape(script)
	}
	for _, tc := range []struct {
		offers                 []string
		speaks, success, fails string
	}{
		{[]string{"v4.channel.k8s.io", "v5.channel.k8s.io"}, "v5.channel.k8s.io", `{"metadata":{},"status":"Success"}`,
			`"causes":[{"reason":"ExitCode","message":"7"}]`},
		{[]string{"channel.k8s.io", "v4.channel.k8s.io"}, "v4.channel.k8s.io", `{"metadata":{},"status":"Success"}`,
			`"causes":[{"reason":"ExitCode","message":"7"}]`},
		{[]string{"base64.channel.k8s.io", "channel.k8s.io"}, "channel.k8s.io", "", "command terminated with non-zero exit code: exit status 7"},
		{nil, "", "", "command terminated with non-zero exit code: exit status 7"},
	} {
		begin := func(path string) *websocket.Conn {
			t.Helper()
			conn, err := f.speaks(path, tc.offers...)
			if err != nil || conn.Protocol != tc.speaks {
				t.Fatalf("offered %q: %v", tc.offers, err)
			}
			buf := make([]byte, 9)
			if strings.HasPrefix(tc.speaks, "v") {
				return conn
			}
			// An empty message says that the channel is open.
			if n, _, last, err := conn.Next(buf); err != nil || n != 1 || buf[0] != 1 || !last {
				t.Fatalf("%q begins with %q, %v", tc.speaks, buf[:n], err)
			}
			return conn
		}
		conn := begin(run("read x; echo got $x; echo err >&2; exit 7"))
		conn.WriteMessage([]byte{0}, []byte("it\n"))
		if got := heard(t, conn, ""); got[1] != "got it\n" || got[2] != "err\n" || !strings.Contains(got[3], tc.fails) {
			t.Errorf("%q: %q", tc.speaks, got)
		}
		conn.Close()
		conn = begin(run("true"))
		if got := heard(t, conn, ""); got[3] != tc.success || got[1] != "" {
			t.Errorf("%q: success is told as %q", tc.speaks, got)
		}
		conn.Close()
		conn = begin(podsPath + "/open/attach?stdin=1&stdout=1")
		conn.WriteMessage([]byte{0}, []byte("typed\n"))
		heard(t, conn, "typed\n")
		if tc.speaks == "v5.channel.k8s.io" { // which can say that its input has ended
			conn.WriteMessage([]byte{255, 0})
			if got := heard(t, conn, ""); got[3] != tc.success {
				t.Errorf("the end of stdin: %q", got)
			}
		}
		conn.Close()
	}
}

// Ports are forwarded by the channels of a plain WebSocket too, as clients did before there were tunnels.
func TestForwardByChannels(t *testing.T) {
	t.Run("here", func(t *testing.T) { serve(t, httpd.Config{Forward: ports{}}).forwardByChannels(t) })
	t.Run("elsewhere", func(t *testing.T) {
		elsewhere(t, httpd.Config{Forward: ports{}}, httpd.Config{Forward: ports{}}).forwardByChannels(t)
	})
}

// echoes answers each line with a greeting and the line, on a port, until it is "bye", and says when a client has left.
func echoes(t *testing.T, greeting string, ended chan<- bool) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	answer := func(c net.Conn) {
		defer c.Close()
		for in := bufio.NewReader(c); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				ended <- true
				return
			}
			io.WriteString(c, greeting+line)
			if line == "bye\n" {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func (f *fixture) forwardByChannels(t *testing.T) {
	f.withRunningPod("web")
	var numbers []string
	var begin []string
	ended := make(chan bool, 4)
	for _, greeting := range []string{"one ", "two "} {
		port := echoes(t, greeting, ended)
		numbers = append(numbers, strconv.Itoa(port))
		begin = append(begin, string(binary.LittleEndian.AppendUint16(nil, uint16(port))))
	}
	path := podsPath + "/web/portforward"
	for _, tc := range []struct{ query, protocol string }{
		{"?ports=" + numbers[0] + "&ports=" + numbers[1], "v4.channel.k8s.io"}, {"?ports=" + numbers[0] + "," + numbers[1], ""},
	} {
		conn, err := f.speaks(path+tc.query, tc.protocol)
		if err != nil || conn.Protocol != tc.protocol {
			t.Fatalf("%+v: %v", conn, err)
		}
		conn.WriteMessage([]byte{2}, []byte("hello\n"))
		heard(t, conn, "two hello\n")
		conn.WriteMessage([]byte{0}, []byte("hello\n"))
		heard(t, conn, "one hello\n")
		conn.WriteMessage([]byte{1}, []byte("to a channel of errors"))
		conn.WriteMessage([]byte{9}, []byte("to none"))
		conn.Close()
		for range numbers { // with the client its connections go
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("connections outlive their client")
			}
		}
	}
	// When every port has ended, so has the connection; each says on its own channel what is wrong.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().(*net.TCPAddr).Port
	free.Close()
	conn, err := f.speaks(fmt.Sprintf("%s?ports=%s,%d", path, numbers[0], nobody), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	conn.WriteMessage([]byte{0}, []byte("bye\n"))
	got := heard(t, conn, "")
	none := string(binary.LittleEndian.AppendUint16(nil, uint16(nobody)))
	if got[0] != begin[0]+"one bye\n" || got[1] != begin[0] || got[2] != none || !strings.HasPrefix(got[3], none+"error forwarding port ") {
		t.Errorf("%q", got)
	}
	for _, query := range []string{"", "?ports=", "?ports=0", "?ports=65536", "?ports=x", "?ports=80" + strings.Repeat(",80", 16)} {
		if conn, err := f.speaks(path+query, "v4.channel.k8s.io"); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: %v %v", query, conn, err)
		}
	}
}

// A client that goes away takes its command with it, and what a session holds is free again, whatever protocol it speaks.
func TestSessionsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 4 s")
	}
	for _, protocol := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io", ""} {
		t.Run("here "+protocol, func(t *testing.T) {
			c := &commands{dir: t.TempDir(), sizes: make(chan api.TerminalSize, 1)}
			serve(t, httpd.Config{Exec: c, MaxSessions: 2}).sessionsEnd(t, c, protocol)
		})
		t.Run("elsewhere "+protocol, func(t *testing.T) {
			c := &commands{dir: t.TempDir(), sizes: make(chan api.TerminalSize, 1)}
			elsewhere(t, httpd.Config{Exec: none{}, MaxSessions: 2}, httpd.Config{Exec: c}).sessionsEnd(t, c, protocol)
		})
	}
}

func (f *fixture) sessionsEnd(t *testing.T, c *commands, protocol string) {
	f.withRunningPod("web")
	upgrade := "GET " + podsPath + "/web/exec?command=sleep&command=1000&stdout=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n" +
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + offer(protocol) + "\r\n"
	until := func(what string, is func() bool) {
		t.Helper()
		testrun.Until(t, 20*time.Second, what, is)
	}
	begin := func() (net.Conn, string) {
		conn, in := f.raw(upgrade)
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, in)
		return conn, line
	}
	one, line := begin()
	if !strings.Contains(line, "101") {
		t.Fatal(line)
	}
	two, _ := begin()
	until("two commands run", func() bool { return c.running.Load() == 2 })
	three, line := begin()
	if !strings.Contains(line, "429") {
		t.Errorf("a third session of one identity: %s", line)
	}
	three.Close()
	one.Close()
	until("the first has ended", func() bool { return c.running.Load() == 1 })
	// What is no frame ends a session too.
	two.Write([]byte{0xff, 0xff, 0xff, 0xff})
	until("the second has ended", func() bool { return c.running.Load() == 0 })
	two.Close()
	four, line := begin()
	if !strings.Contains(line, "101") {
		t.Errorf("a session after others: %s", line)
	}
	four.Close()
	until("the fourth has ended", func() bool { return c.running.Load() == 0 })
	for range 20 { // attachers come and go
		a, in := f.raw(strings.Replace(upgrade, "exec?command=sleep&command=1000&", "attach?", 1))
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
			t.Fatalf("attach: %s, %v", line, err)
		}
		go io.Copy(io.Discard, in)
		until("it is attached", func() bool { return c.running.Load() == 1 })
		a.Close()
		until("it has left", func() bool { return c.running.Load() == 0 })
	}

	sized, in := f.raw(strings.Replace(upgrade, "command=sleep&command=1000&stdout=1", "command=size&stdin=1&stdout=1&tty=1", 1))
	message := append([]byte{4}, `{"Width":80,"Height":24}`...)
	frame := append([]byte{0x82, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "101") { // a client speaks when it is answered
		t.Fatalf("a terminal: %s, %v", line, err)
	}
	go io.Copy(io.Discard, in)
	sized.Write(frame)
	select {
	case s := <-c.sizes:
		if s.Width != 80 || s.Height != 24 {
			t.Errorf("size %+v", s)
		}
	case <-time.After(20 * time.Second):
		t.Error("the size of the terminal did not come through")
	}
	sized.Close()
}
