// Package rest is an api.Client over HTTP: to a ledge server on this board or another, or to a kube-apiserver. The
// caller does not learn which.
//
// It uses the rest and clientcmd parts of client-go for what they are good at (kubeconfigs, credentials, TLS,
// retries, warnings) and speaks JSON, but for Leases (protobuf). There are no typed clientsets, informers or wait
// helpers, and nothing runs in the background but what net/http keeps for its connections; Close ends that.
//
// The package imports nothing of ledge but api.
package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ledge/api"
)

// Config says where the server is. Exactly one of Servers, Server and Dial is required.
type Config struct {
	// Servers are the addresses of a ledge control plane.
	Servers *Servers
	// Server is a server as client-go describes it.
	Server *clientrest.Config
	// Dial reaches a server that takes the connection itself as proof of who is calling: a unix socket, a pipe.
	Dial func(ctx context.Context) (net.Conn, error)
	// Warn receives the server's warnings; nil logs them.
	Warn func(text string)
	// Timeout of requests other than watches and logs; 0 is 30 s.
	Timeout time.Duration
}

// Client is an api.Client and api.Streams over HTTP. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	rest    *clientrest.RESTClient
	timeout time.Duration
}

// New makes a client. Nothing is sent yet.
func New(c Config) (*Client, error) {
	given := 0
	for _, is := range []bool{c.Servers != nil, c.Server != nil, c.Dial != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("make API client: one of servers, a server and a dialer must be given")
	}
	out := &Client{timeout: c.Timeout}
	if out.timeout == 0 {
		out.timeout = 30 * time.Second
	}
	conf := &clientrest.Config{Host: "http://ledge"}
	switch {
	case c.Server != nil:
		conf = clientrest.CopyConfig(c.Server)
	case c.Servers != nil:
		conf = &clientrest.Config{Host: c.Servers.URL(), Transport: c.Servers.Transport()}
	}
	if conf.QPS == 0 {
		conf.QPS = -1 // client-go would hold us to 5 a second; servers refuse what is too much for them
	}
	if conf.UserAgent == "" {
		conf.UserAgent = "ledge"
	}
	conf.WarningHandler = warnings{c.Warn}
	conf.NegotiatedSerializer = statusCodec()
	conf.ContentType, conf.AcceptContentTypes = "application/json", "application/json"
	var err error
	if c.Dial != nil {
		out.http = &http.Client{Transport: dialTransport(c.Dial)}
	} else if out.http, err = clientrest.HTTPClientFor(conf); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	own := *out.http                                                                                  // it may be everybody's
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // it would be followed with our rights
	out.http = &own
	if out.rest, err = clientrest.UnversionedRESTClientForConfigAndClient(conf, out.http); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return out, nil
}

// FromKubeconfig makes a client from a kubeconfig file, with its current context.
func FromKubeconfig(path string) (*Client, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return New(Config{Server: conf})
}

// FromPod makes a client for a program in a pod, with the token of its service account.
func FromPod() (*Client, error) {
	conf, err := clientrest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API of this pod's cluster: %w", err)
	}
	return New(Config{Server: conf})
}

// FromSocket makes a client of the ledge server behind a unix socket.
func FromSocket(path string) (*Client, error) {
	return FromDialer(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
}

// FromDialer makes a client of a server reached by dial, such as one at the other end of a net.Pipe.
func FromDialer(dial func(ctx context.Context) (net.Conn, error)) (*Client, error) {
	return New(Config{Dial: dial})
}

// Close lets go of idle connections. Requests that are going on are not touched.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

func dialTransport(dial func(ctx context.Context) (net.Conn, error)) http.RoundTripper {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     50 * time.Second, // before the server's end of it
		DisableCompression:  true,
	}
}

// warnings passes on what the server warns of.
type warnings struct{ to func(string) }

func (w warnings) HandleWarningHeader(code int, _ string, text string) {
	switch {
	case code != 299 || text == "":
	case w.to != nil:
		w.to(text)
	default:
		slog.Warn("warning from the API server", "text", text)
	}
}

// statusCodec reads the one kind that client-go itself must understand: Status.
func statusCodec() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

var (
	_ api.Client  = (*Client)(nil)
	_ api.Streams = (*Client)(nil)
)
