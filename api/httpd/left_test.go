package httpd_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/spdystream"

	"ledge/api/httpd"
	"ledge/internal/testrun"
)

// TestLeftUnread: a client that has left ends its session, though the program never reads what the client had sent.
func TestLeftUnread(t *testing.T) {
	defer httpd.LookForGone(50 * time.Millisecond)()
	c := &commands{dir: t.TempDir()}
	conf := httpd.Config{Exec: c}
	f := serve(t, conf)
	f.withRunningPod("web")
	conf.Client = f.store
	h, err := httpd.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := httpd.ListenUnix(path, func(net.Conn) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	run(t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}})
	f.dial["admin"] = func(context.Context) (net.Conn, error) { return net.Dial("unix", path) }
	const exec = podsPath + "/web/exec?command=sleep&command=1000&stdin=1&stdout=1"
	for name, begin := range map[string]func() (input io.Writer, leave func()){
		"WebSocket": func() (io.Writer, func()) {
			ws, err := f.speaks(exec, "v4.channel.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			return stdin{func(p []byte) error { return ws.WriteMessage([]byte{0}, p) }}, func() { ws.NetConn().Close() }
		},
		"SPDY": func() (io.Writer, func()) {
			conn, in := f.raw("POST " + exec + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
				"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n")
			if a, err := http.ReadResponse(in, nil); err != nil || a.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(a, err)
			}
			spdy, err := spdystream.NewConnection(conn, false)
			if err != nil {
				t.Fatal(err)
			}
			go spdy.Serve(spdystream.NoOpStreamHandler)
			streams := map[string]*spdystream.Stream{}
			for _, kind := range []string{"error", "stdin", "stdout"} {
				if streams[kind], err = spdy.CreateStream(http.Header{"Streamtype": {kind}}, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			return streams["stdin"], func() { conn.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			input, leave := begin()
			testrun.Until(t, 20*time.Second, "the command runs", func() bool { return c.running.Load() == 1 })
			sent := make(chan bool)
			go func() {
				defer close(sent)
				for _, err := input.Write([]byte(strings.Repeat("y", 32<<10))); err == nil; {
					_, err = input.Write([]byte(strings.Repeat("y", 32<<10)))
				}
			}()
			select { // until nothing more is taken
			case <-sent:
				t.Error("what nobody reads ends the session")
			case <-time.After(500 * time.Millisecond):
			}
			if n := c.running.Load(); n != 1 {
				t.Errorf("%d commands run while the client is there", n)
			}
			leave()
			testrun.Until(t, 20*time.Second, "the command has ended", func() bool { return c.running.Load() == 0 })
			<-sent
		})
	}
}

// stdin writes by a function.
type stdin struct{ write func([]byte) error }

func (s stdin) Write(p []byte) (int, error) { return len(p), s.write(p) }
