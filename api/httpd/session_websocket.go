package httpd

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/websocket"
)

// agree picks the first of ours that the client offers. A client that offers none gets "" where that is allowed.
func agree(r *request, ours ...string) (string, error) {
	if err := websocket.Check(r.Request); err != nil {
		return "", badRequest("%v", err)
	}
	offered := websocket.Protocols(r.Request)
	for _, p := range ours {
		if slices.Contains(offered, p) || p == "" && len(offered) == 0 {
			return p, nil
		}
	}
	return "", badRequest("none of the offered protocols %q is spoken here, only %q", offered, ours)
}

func openWebSocketSession(w *response, r *request, o sessionOptions) (*session, error) {
	protocol, err := agree(r, protocolV5, protocolV4, protocolV1, "")
	if err != nil {
		return nil, err
	}
	w.begun = true
	conn, err := websocket.Accept(w.ResponseWriter, r.Request, protocol)
	if err != nil {
		return nil, nil //nolint:nilerr // the connection is gone: there is nobody to tell
	}
	s := &session{gone: make(chan struct{}), resize: make(chan api.TerminalSize, 1)}
	out := func(wanted bool, channel byte) io.Writer {
		if !wanted {
			return nil
		}
		return channelWriter{conn, channel}
	}
	s.stdout, s.stderr = out(o.stdout, channelStdout), out(o.stderr, channelStderr)
	var stdin *io.PipeWriter
	if o.stdin {
		s.stdin, stdin = newPipe()
	}
	// Older clients expect an empty message first, which tells that the channel is open.
	if protocol == protocolV1 || protocol == "" {
		conn.WriteMessage([]byte{channelStdout})
	}
	s.finish = func(end metav1.Status) {
		if text := errorText(protocol, end); text != nil {
			conn.WriteMessage([]byte{channelError}, text)
		}
		if stdin != nil {
			stdin.Close()
		}
		conn.Close()
	}
	go func() {
		defer s.left()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go whenGone(ctx, conn.NetConn(), s.left)
		readChannels(conn, protocol, stdin, s.resize)
	}()
	return s, nil
}

// newPipe is io.Pipe with the reader as an interface, so that nil stays nil.
func newPipe() (io.Reader, *io.PipeWriter) {
	r, w := io.Pipe()
	return r, w
}

// readChannels takes apart what the client sends until it ends. A command that does not read its stdin holds the client
// up: nothing is buffered for it.
func readChannels(conn *websocket.Conn, protocol string, stdin *io.PipeWriter, resize chan api.TerminalSize) {
	if stdin != nil {
		defer stdin.CloseWithError(io.EOF)
	}
	const longest = 4 << 10 // of a message that is not stdin's
	var channel byte
	var message []byte
	buf := make([]byte, 32<<10)
	for {
		n, first, last, err := conn.Next(buf)
		if err != nil {
			return
		}
		data := buf[:n]
		if first {
			message = message[:0]
			if len(data) == 0 {
				continue
			}
			channel, data = data[0], data[1:]
		}
		if channel == channelStdin {
			if stdin != nil && len(data) > 0 {
				stdin.Write(data) // an error: the command has ended or reads no more
			}
			continue
		}
		if message = append(message, data...); len(message) > longest {
			return
		}
		if !last {
			continue
		}
		switch channel {
		case channelResize:
			var size api.TerminalSize
			if json.Unmarshal(message, &size) == nil {
				offerSize(resize, size)
			}
		case channelClose:
			if protocol == protocolV5 && len(message) == 1 && message[0] == channelStdin && stdin != nil {
				stdin.Close()
			}
		}
	}
}

// channelWriter writes messages of one channel.
type channelWriter struct {
	conn    *websocket.Conn
	channel byte
}

func (c channelWriter) Write(p []byte) (int, error) {
	if err := c.conn.WriteMessage([]byte{c.channel}, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
