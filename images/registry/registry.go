// Package registry reads images from OCI and Docker v2 registries over HTTP, or from mirrors of them. It keeps nothing
// but tokens; what it reads is checked by whoever keeps it, except that a manifest has the digest it is given for.
//
// What a registry answers is made by strangers. Credentials go to the host they are meant for and to the token server
// that this host names, and never along with a redirect to another; every document is bounded; and a registry out there
// cannot have this board ask addresses of its own: its token server and its redirects must not be local.
package registry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ledge/images"
)

// Config says how registries are reached. The zero value is the default.
type Config struct {
	// Hosts are settings of registries, by their name in image references ("docker.io", "registry.local:5000").
	Hosts map[string]Host
	// Keys gives the node's own credentials, asked after those of a pull; nil: none.
	Keys func() (images.Keyring, error)
	// UserAgent is how ledge calls itself.
	UserAgent string
	// StallAfter ends a transfer of which nothing comes for so long; 0: one minute.
	StallAfter time.Duration
}

// Host is how one registry is reached.
type Host struct {
	// Mirrors are asked first, in order: "https://mirror.local:5000/prefix". A plain http address is taken at its word.
	Mirrors   []string
	PlainHTTP bool   // no TLS
	CAFile    string // certificates that are believed beside the system's, for the registry and its mirrors
}

// Client is an images.Registry.
type Client struct {
	cfg    Config
	places map[string][]place // by registry

	mu     sync.Mutex
	tokens map[tokenKey]token
	plain  *caller // for registries without settings
	local  *caller // for those on this board
}

var _ images.Registry = (*Client)(nil)

// place is where images of a registry can be had: itself or a mirror.
type place struct {
	base   url.URL // scheme, host and prefix
	mirror bool
	call   *caller
}

func (p place) String() string { return p.base.Scheme + "://" + p.base.Host + p.base.Path }

// New checks the settings.
func New(cfg Config) (*Client, error) {
	if cfg.StallAfter == 0 {
		cfg.StallAfter = time.Minute
	}
	c := &Client{cfg: cfg, places: map[string][]place{}, tokens: map[tokenKey]token{}}
	c.plain, c.local = c.newCaller(nil, false), c.newCaller(nil, true)
	for name, h := range cfg.Hosts {
		ref, err := images.ParseReference(name + "/x")
		if err != nil || ref.Domain != name {
			return nil, fmt.Errorf("registry %q: not a registry's name as it stands in image names", name)
		}
		if c.places[name], err = c.configured(name, h); err != nil {
			return nil, fmt.Errorf("registry %s: %w", name, err)
		}
	}
	return c, nil
}

func (c *Client) configured(name string, h Host) ([]place, error) {
	var roots *x509.CertPool
	if h.CAFile != "" {
		pem, err := os.ReadFile(h.CAFile)
		if err != nil {
			return nil, err
		}
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", h.CAFile)
		}
	}
	var out []place
	for _, m := range h.Mirrors {
		u, err := url.Parse(m)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("mirror %q is not an address such as https://mirror.local:5000", m)
		}
		base := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}
		base.Path = strings.TrimSuffix(base.Path, "/v2")
		// Who names a local mirror wants it asked.
		out = append(out, place{base: base, mirror: true, call: c.newCaller(roots, isLocal(u.Host))})
	}
	own := origin(name)
	if h.PlainHTTP {
		own.Scheme = "http"
	}
	return append(out, place{base: own, call: c.newCaller(roots, isLocal(name))}), nil
}

// origin is where a registry without settings is. On this board itself no TLS is expected, as Docker has it.
func origin(name string) url.URL {
	if name == "docker.io" {
		name = "registry-1.docker.io"
	}
	if isLocal(name) {
		return url.URL{Scheme: "http", Host: name}
	}
	return url.URL{Scheme: "https", Host: name}
}

func (c *Client) placesOf(name string) []place {
	if list, ok := c.places[name]; ok {
		return list
	}
	if isLocal(name) {
		return []place{{base: origin(name), call: c.local}}
	}
	return []place{{base: origin(name), call: c.plain}}
}

func isLocal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// caller makes requests for one registry.
type caller struct {
	own     *http.Client // to the host that the owner of the board named
	foreign *http.Client // to hosts that the registry names
}

func (c *Client) newCaller(roots *x509.CertPool, local bool) *caller {
	dialer := &net.Dialer{Timeout: 15 * time.Second}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 15 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4,
		MaxResponseHeaderBytes: 64 << 10,
		// A layer is compressed already, and its digest is of the bytes as they are.
		DisableCompression: true}
	own := &http.Client{Transport: t, CheckRedirect: stay}
	// A proxy may be anywhere, and decides itself where it goes.
	if local || proxied() {
		return &caller{own: own, foreign: own}
	}
	ft := t.Clone()
	ft.DialContext = (&net.Dialer{Timeout: 15 * time.Second, Control: notLocal}).DialContext
	return &caller{own: own, foreign: &http.Client{Transport: ft, CheckRedirect: stay}}
}

func proxied() bool {
	return slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"},
		func(name string) bool { return os.Getenv(name) != "" })
}

// stay hands redirects to us.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// notLocal refuses this board itself and what only its own link can see, such as a cloud's metadata service.
func notLocal(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := ap.Addr().Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast() {
		return fmt.Errorf("the registry sends us to %s, which it has no business with", ip)
	}
	return nil
}

// each asks the places of a registry in turn, until one has what is wanted. The registry itself is the last, and what
// it says counts: a mirror may lack what it has.
func (c *Client) each(ref images.Reference, avoid []string, ask func(place) error) error {
	var mirrors []string
	err := error(&permanent{fmt.Errorf("nobody is left to ask: wrong content came from %s: %w", strings.Join(avoid, ", "), images.ErrDamaged)})
	for _, p := range c.placesOf(ref.Domain) {
		if slices.Contains(avoid, p.String()) {
			continue
		}
		if err = ask(p); err == nil {
			return nil
		}
		if p.mirror {
			mirrors = append(mirrors, fmt.Sprintf("mirror %s: %v", p, err))
		}
	}
	if len(mirrors) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(mirrors, "; "))
	}
	return err
}
