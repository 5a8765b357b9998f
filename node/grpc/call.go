package grpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client makes calls of one server.
type Client struct {
	Authority string // what the server is called
	Agent     string
	Most      int // bytes of a message that it may answer

	t *http.Transport
}

// What a server may have underway that nobody has read yet.
const (
	streamWindow     = 64 << 10
	connectionWindow = 256 << 10
)

// NewClient has calls go over what dial opens.
func NewClient(c Client, dial func(context.Context) (net.Conn, error)) *Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c.t = &http.Transport{Protocols: protocols, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		IdleConnTimeout: time.Minute, // Close passes over a connection whose call has just been given up
		HTTP2:           &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow},
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return &c
}

// Close lets go of connections that no call uses.
func (c *Client) Close() { c.t.CloseIdleConnections() }

func (c *Client) begin(ctx context.Context, method string, message []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Authority+method, bytes.NewReader(Frame(message)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", c.Agent)
	return c.t.RoundTrip(req)
}

// Call asks and is answered by one message.
func (c *Client) Call(ctx context.Context, method string, message []byte) (answer []byte, err error) {
	n := 0
	err = c.Watch(ctx, method, message, func(m []byte) error {
		if answer, n = m, n+1; n > 1 {
			return errors.New("it answers more than one message")
		}
		return nil
	})
	if err == nil && n == 0 {
		err = errors.New("it answers no message")
	}
	return answer, err
}

// Watch asks, and calls each for every message that is answered until there are no more.
func (c *Client) Watch(ctx context.Context, method string, message []byte, each func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx) // a body that is not read to its end ends with it
	defer cancel()
	resp, err := c.begin(ctx, method, message)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %d and no status of gRPC", resp.StatusCode)
	}
	if resp.Header.Get("Grpc-Status") == "" { // else an answer of headers alone
		for err == nil {
			var m []byte
			if m, err = readFrame(resp.Body, c.Most); err == nil {
				err = each(m)
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return status(resp)
}

// status is how a call has ended whose body was read.
func status(resp *http.Response) error {
	end := resp.Trailer
	if resp.Header.Get("Grpc-Status") != "" {
		end = resp.Header
	}
	code, err := strconv.Atoi(end.Get("Grpc-Status"))
	switch {
	case err != nil:
		return fmt.Errorf("HTTP status %d and no status of gRPC", resp.StatusCode)
	case code != 0:
		message, _ := url.PathUnescape(end.Get("Grpc-Message"))
		return Error{code, message}
	}
	return nil
}

// Method answers one message to another.
type Method func(ctx context.Context, message []byte) ([]byte, error)

// Handler serves methods by their paths, for messages of at most most bytes.
func Handler(methods map[string]Method, most int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			http.Error(w, "this is gRPC's", http.StatusUnsupportedMediaType)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		answer, err := serve(r, methods[r.URL.Path], most)
		var e Error
		switch {
		case err == nil:
			_, _ = w.Write(Frame(answer))
		case !errors.As(err, &e):
			e = Error{Internal, err.Error()}
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(e.Code))
		if e.Message != "" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(e.Message))
		}
	})
}

func serve(r *http.Request, method Method, most int) ([]byte, error) {
	if method == nil {
		return nil, Error{Unimplemented, "unknown method " + r.URL.Path}
	}
	m, err := readFrame(r.Body, most)
	if err != nil {
		return nil, err
	}
	return method(r.Context(), m)
}
