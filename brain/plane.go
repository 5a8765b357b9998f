package brain

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/api/httpd/auditlog"
	"ledge/api/local"
	"ledge/api/local/allocate"
	"ledge/api/manifest"
	"ledge/config"
	"ledge/controller"
	"ledge/host"
	"ledge/node"
	"ledge/pki"
)

// plane is the control plane: what a board that serves has and an agent alone has not.
type plane struct {
	b        *Brain
	client   *local.Client
	api      api.Client // what all use that write or answer: client, and what is around it
	ca       *pki.Authority
	joins    *pki.Joins
	loops    controller.Config
	audit    *auditlog.Log     // nil: there is none
	listener net.Listener      // nil: there is no TLS address
	doors    []*httpd.Listener // on it and for pods, once the server is open
	podsAt   netip.AddrPort    // where the one for pods is or, before that, was when this board last ran; invalid: there is none
	page     *pageRoom         // nil: there is none
	boards   fleet
	services local.Services
	caLost   atomic.Bool // it is not the one that the store remembers

	mu       sync.Mutex
	stranger []byte // the last certificate that was turned away
}

// openPlane makes the API over the store, and the keys by which it and its callers know each other.
func (b *Brain) openPlane(ctx context.Context) (err error) {
	p := b.plane
	if err := movedTo(b, ownPlane); err != nil {
		return err
	}
	if p.ca, err = pki.Open(pki.Config{Dir: filepath.Join(b.DataDir, "pki"), Floor: b.Build.ClockFloor(b.DataDir)}); err != nil {
		return err
	}
	keys, err := p.ca.Tokens()
	if err != nil {
		return err
	}
	if p.joins, err = p.ca.Joins(pki.JoinsConfig{Tokens: b.store.Table("joinTokens"), Boards: b.store.Table("boards"),
		Own: b.Name}); err != nil {
		return err
	}
	if err := p.lookAtCA(ctx); err != nil {
		return err
	}
	tokens := &local.Tokens{Keys: keys, RootCA: p.ca.CA(), Now: p.ca.Now, Revoked: p.joins.Revoked}
	settings, _, err := b.store.Table("settings").All()
	if err != nil {
		return err
	}
	if p.services, err = serviceSource(b, settings); err != nil {
		return err
	}
	// Until the network is there pods find the API where they did: its endpoint is not taken away at each start.
	if pods := podNetworks(b.CIDR, b.CIDR6, settings); len(pods) > 0 {
		p.podsAt = p.podsDoorAt(pods[0])
	}
	if p.client, err = local.New(b.Admission(local.Config{Store: b.store, Now: b.rims.Now, Endpoint: p.endpoint(), Services: p.services,
		Tokens: tokens, PodSecurity: b.File.PodSecurity})); err != nil {
		return err
	}
	p.api = through(b.rims.Around, p.client)
	b.client = through(b.rims.Uplink, p.api)
	p.boards.client, p.boards.tls = p.api, p.joins.BoardTLS
	p.loops = b.Controllers()
	p.loops.Client, p.loops.Schedule.Closed, p.loops.Believed = through(b.rims.Loops, p.api), b.closed, b.clock.believed
	p.loops.Node = b.Name
	return nil
}

// through is a client with something around it, if there is something.
func through(around func(api.Client) api.Client, c api.Client) api.Client {
	if around == nil {
		return c
	}
	return around(c)
}

func (p *plane) listen(ctx context.Context, at string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--listen %s: the address is taken by another program; give another one", at)
	}
	if err != nil {
		return fmt.Errorf("--listen %s: %w", at, err)
	}
	p.listener = l
	return nil
}

// below is what runs as long as the API does.
func (p *plane) below() []func(context.Context) error {
	out := []func(context.Context) error{p.client.Run}
	if p.audit != nil {
		out = append(out, p.audit.Run)
	}
	if p.page != nil {
		out = append(out, p.page.Run)
	}
	if p.listener != nil || p.page != nil {
		out = append(out, p.followAddresses)
	}
	return out
}

// jobs is what a control plane does.
func (p *plane) jobs() []func(context.Context) error {
	out := []func(context.Context) error{p.b.resumeCancelled, p.followBoards,
		func(ctx context.Context) error { return controller.Run(ctx, p.loops) }}
	if p.b.Manifests != "" {
		out = append(out, (&manifest.Dir{Path: p.b.Manifests, Client: p.api}).Run)
	}
	if _, err := os.Stat(filepath.Join(p.b.BootState, config.BootKubeconfigFile)); p.b.BootState != "" && err == nil {
		out = append(out, p.kubeconfigOnCard)
	}
	return out
}

// openServer adds the TLS address to the doors of the API.
func (p *plane) openServer(s *httpd.Server) error {
	if err := p.openPage(s); err != nil {
		return err
	}
	if p.listener == nil {
		return nil
	}
	names, ips := p.serverNames()
	conf, err := p.ca.ServerTLS(names, ips)
	if err != nil {
		return err
	}
	if err := errors.Join(p.openDoor(s, p.listener, conf), p.openPodsDoor(s, conf)); err != nil {
		return err
	}
	return p.b.debts.orOwe(context.Background(), "write admin.kubeconfig", p.writeKubeconfig)
}

func (p *plane) openDoor(s *httpd.Server, at net.Listener, conf *tls.Config) error {
	l, err := httpd.WrapTLS(at, conf)
	if err != nil {
		return err
	}
	p.doors = append(p.doors, l.WithTokens())
	s.Listeners = append(s.Listeners, p.doors[len(p.doors)-1])
	return nil
}

func (p *plane) writeKubeconfig(context.Context) error {
	return p.ca.WriteKubeconfig(filepath.Join(p.b.RunDir, "admin.kubeconfig"), p.url())
}

// followAddresses keeps the API's certificate good for the addresses that the board has: a lease may come long after the
// start, or another one tomorrow. The administrator's own is renewed on the way.
func (p *plane) followAddresses(ctx context.Context) error {
	said := ""
	err := host.WatchAddresses(ctx, func() {
		p.client.SetEndpoint(p.endpoint())
		err := errors.Join(p.ca.Rename(p.serverNames()), p.writeKubeconfig(ctx))
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			slog.Error("the certificates of the API stay as they are", "err", err)
		}
	})
	if err != nil {
		slog.Error("the API's certificate stays as it is, whatever addresses this board gets", "err", err)
	}
	return nil
}

// url is where kubectl on this board finds the API.
func (p *plane) url() string { return "https://" + p.address().String() }

// address is the same without the scheme; invalid when the API has no TLS address.
func (p *plane) address() netip.AddrPort {
	at := p.listenAddress()
	if at.IsValid() && at.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	return at
}

// listenAddress is where the API listens, which may be everywhere.
func (p *plane) listenAddress() netip.AddrPort {
	if p.listener == nil {
		return netip.AddrPort{}
	}
	at, err := netip.ParseAddrPort(p.listener.Addr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// outward is where other machines find the API; empty: nowhere, or nowhere yet.
func (p *plane) outward() (url string, err error) {
	at, err := p.outwardAt()
	if !at.IsValid() {
		return "", err
	}
	return "https://" + at.String(), nil
}

// outwardAt is the same as an address; invalid: nowhere.
func (p *plane) outwardAt() (netip.AddrPort, error) {
	at := p.listenAddress()
	if !at.IsValid() || at.Addr().IsLoopback() {
		return netip.AddrPort{}, nil
	}
	if at.Addr().IsUnspecified() {
		have, err := p.b.rims.Host.Addresses(p.b.Bridge)
		if err != nil || len(have) == 0 {
			return netip.AddrPort{}, err
		}
		at = netip.AddrPortFrom(have[0], at.Port())
	}
	return at, nil
}

// endpoint is where the pods of all boards find the API; invalid: nowhere, or nowhere yet.
func (p *plane) endpoint() netip.AddrPort {
	if p.podsAt.IsValid() {
		return p.podsAt
	}
	at, err := p.outwardAt()
	if err != nil {
		slog.Warn("cannot find this board's addresses: pods do not find the API by its service", "err", err)
	}
	return at
}

// reachableAt is where other boards find the API; local says that none does.
func (p *plane) reachableAt() (urls []string, local bool) {
	url, err := p.outward()
	if url != "" {
		return []string{url}, false
	}
	if p.listenAddress().Addr().IsUnspecified() {
		slog.Warn("cannot find this board's addresses", "err", err)
	}
	return []string{p.url()}, true
}

// serverNames are what the API's certificate is good for.
func (p *plane) serverNames() ([]string, []net.IP) {
	label, _, _ := strings.Cut(p.b.Name, ".")
	names := append([]string{p.b.Name, label + ".local", "localhost", pki.ServerIdentity}, p.serviceNames()...)
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, r := range p.services.Ranges {
		ips = append(ips, net.IP(allocate.NewRange(r).First().AsSlice()))
	}
	if p.listener != nil {
		if h, _, err := net.SplitHostPort(p.listener.Addr().String()); err == nil {
			if ip := net.ParseIP(h); ip != nil && !ip.IsUnspecified() {
				ips = append(ips, ip)
			}
		}
	}
	have, err := p.b.rims.Host.Addresses()
	if err != nil {
		slog.Warn("cannot list this board's addresses; its certificate is good for the local ones only", "err", err)
	}
	for _, a := range have {
		ips = append(ips, net.IP(a.AsSlice()))
	}
	return names, ips
}

// serviceNames are those by which pods find the API.
func (p *plane) serviceNames() []string {
	domain := strings.TrimSuffix(strings.ToLower(p.b.File.ClusterDomain), ".")
	if domain == "" {
		domain = "cluster.local"
	}
	return []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain}
}

// join answers a board that wants a certificate. Both sides log a refusal in the same words.
func (p *plane) join(ctx context.Context, remote string, request []byte, token string) ([]byte, error) {
	taken := func(node string) (is, alive bool, err error) { return p.taken(ctx, node) }
	cert, node, err := p.joins.Sign(request, token, taken)
	if r, ok := errors.AsType[*pki.Refusal](err); ok {
		slog.Warn("a board was not let in", "node", node, "from", remote, "why", r.Why)
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: r.Why}}
	}
	if err != nil {
		return nil, api.NewInternal("sign the certificate of board %q: %w", node, err)
	}
	slog.Info("a board has a new certificate", "node", node, "from", remote, "joined", token != "")
	if token != "" {
		p.cut(node) // of another that had the name
	}
	return cert, nil
}

// taken says whether there is a Node of that name, and whether a board is at work under it: one that renews a Lease is Ready
// until it has been silent for the grace, by the control plane's clock. What time the board wrote into its Lease proves nothing.
func (p *plane) taken(ctx context.Context, name string) (is, alive bool, err error) {
	node, err := api.Get[*corev1.Node](ctx, p.api, api.Nodes, "", name)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil || !api.NodeReady(node) {
		return err == nil, false, err
	}
	_, err = p.api.Get(ctx, coordination.Leases, corev1.NamespaceNodeLease, name)
	if apierrors.IsNotFound(err) {
		return true, false, nil
	}
	return true, err == nil, err
}

// known turns boards away whose place has been taken, and says so once for each.
func (p *plane) known(peer []*x509.Certificate) error {
	leaf := peer[0]
	err := p.joins.Known(leaf)
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bytes.Equal(p.stranger, leaf.Raw) {
		p.stranger = leaf.Raw
		slog.Warn("a board is turned away", "user", leaf.Subject.CommonName, "why", err)
	}
	return err
}

// followBoards ends the streams to boards that are gone, and brings back what an orderly power-off of another board stopped,
// once that board takes pods again: after its boot, or when the power-off did not happen (architecture: Bare pods come back).
func (p *plane) followBoards(ctx context.Context) error {
	nodes := api.NewView[*corev1.Node](p.api, api.Nodes, api.Selection{})
	done := make(chan error, 1)
	go func() { done <- nodes.Run(ctx) }()
	ready := readiness{}
	for {
		select {
		case <-ctx.Done():
			return <-done
		case <-nodes.Changed():
		}
		list := nodes.List()
		p.boards.look(list)
		for _, name := range ready.turned(list) {
			if name == p.b.Name {
				continue
			}
			if err := p.b.resumer(name).resume(); err != nil {
				slog.Error("pods that a power-off stopped cannot be started again", "node", name, "err", err)
			}
		}
	}
}

// readiness is which boards took pods at the last look.
type readiness map[string]bool

// turned are the boards that did not take pods at the last look and do now.
func (r readiness) turned(nodes []*corev1.Node) (names []string) {
	for _, n := range nodes {
		is := api.NodeReady(n)
		if is && !r[n.Name] {
			names = append(names, n.Name)
		}
		r[n.Name] = is
	}
	return names
}

// pages are what the board tells of itself: the agent's numbers and the control plane's.
type pages struct {
	*node.Agent
	plane *controller.Metrics
}

// Page implements api.Metrics.
func (p pages) Page(ctx context.Context, path string) (string, []byte, bool, error) {
	media, text, ok, err := p.Agent.Page(ctx, path)
	if path == "/metrics" && ok && err == nil {
		text = append(text, p.plane.Text()...)
	}
	return media, text, ok, err
}
