package brain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/mirror"
	"ledge/api/rest"
	"ledge/config"
	"ledge/node/join"
	"ledge/node/kubeport"
	"ledge/pki"
)

// uplink is the way to a control plane on another machine.
type uplink struct {
	identity *pki.Identity // nil: a kubeconfig says who we are
	servers  *rest.Servers // likewise
	kube     *join.Node    // what this board is at a Kubernetes, if that is its own to keep; nil otherwise
	plane    *rest.Client  // by the kubeconfig; nil: there is none
	renewal  renewal       // nil: that of identity, if there is one
	renew    chan struct{} // capacity 1: a server does not take our certificate

	port net.Listener        // for the control plane; nil: there is none
	kept *kubeport.Port      // who gets in there on a board that has joined by a kubeconfig; nil otherwise
	door *httpd.Server       // on it, and behind answered calls; nil: the control plane gets in nowhere
	hand func(net.Conn) bool // serves a connection that answers a call; nil likewise
}

// openUplink finds out who this board is, and joins if it has not yet.
func (b *Brain) openUplink(ctx context.Context) error {
	u := b.uplink
	if b.Kubeconfig != "" {
		return openKubernetes(ctx, b)
	}
	var err error
	u.identity, err = pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(b.DataDir, "board"), Node: b.Name,
		Floor: b.Build.ClockFloor(b.DataDir)})
	if err != nil {
		return err
	}
	if u.identity.Joined() {
		ca, _ := u.identity.CA()
		if b.JoinToken != nil && b.JoinToken.CA != ca {
			return fmt.Errorf("this board has joined the control plane with the CA %s, the token is for the one with %s; to move it, remove %s and join again",
				ca, b.JoinToken.CA, filepath.Join(b.DataDir, "board"))
		}
	} else if err := b.join(ctx); err != nil {
		return err
	}
	wipeToken(b.TokenFile)
	if u.servers, err = rest.NewServers(b.Servers, u.identity.Client(), u.refused); err != nil {
		return err
	}
	client, err := rest.New(rest.Config{Servers: u.servers})
	if err != nil {
		return err
	}
	ca, _ := u.identity.CA()
	if err := movedTo(b, "ledge "+ca.String()); err != nil {
		return err
	}
	return b.remember(client)
}

// remember puts the mirror before the control plane: pods come back after a reboot while it cannot be reached.
func (b *Brain) remember(behind api.Client) (err error) {
	b.client, err = mirror.New(mirror.Config{Client: through(b.rims.Uplink, behind), Node: b.Name, Table: b.store.Table("mirror")})
	return err
}

// refused is told when a server does not take our certificate: its end may have come without this board knowing what day
// it is.
func (u *uplink) refused() {
	select {
	case u.renew <- struct{}{}:
	default:
	}
}

var errStopped = errors.New("told to end before this board had joined")

// join asks for the first certificate until it has it, or until it is certain that it never will.
func (b *Brain) join(ctx context.Context) error {
	id := b.uplink.identity
	if b.JoinToken == nil {
		return errors.Join(config.Usagef("agent: this board has not joined yet: --token of 'ledge token create' is needed once (or in %s)",
			config.TokenPath(b.Path, b.File.TokenFile)), id.Forget())
	}
	return untilJoined(ctx, b, func() (final bool, err error) {
		err = askCertificate(ctx, id, b.Servers, b.JoinToken.CA, b.JoinToken.Proof(), func() error { return join.Forget(join.Dir(b.DataDir)) })
		// Somebody else at one address is none at all of them: the right one may be starting behind another.
		r, ok := errors.AsType[*refusal](err)
		if ok && r.code == http.StatusNotFound {
			err = fmt.Errorf("%w: is it a control plane of ledge?", err)
		}
		if ok || rest.Everywhere(err, pki.ErrOtherCA) {
			return true, errors.Join(err, id.Forget()) // nothing is left half-joined
		}
		return false, err
	})
}

// untilJoined tries until this board has joined, or until it is certain that it never will.
func untilJoined(ctx context.Context, b *Brain, try func() (final bool, err error)) error {
	said, told, began := "", false, time.Now()
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		final, err := try()
		if err == nil {
			slog.Info("this board has joined", "node", b.Name, "server", b.Servers[0])
			return nil
		}
		if final {
			b.card().TellJoin(err)
			return fmt.Errorf("join: %w", err)
		}
		if !told && time.Since(began) > 5*time.Minute { // a control plane that starts with the board needs a while
			told = true
			b.card().TellJoin(err)
		}
		if err.Error() != said {
			said = err.Error()
			slog.Warn("cannot join yet; trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return errStopped
		case <-b.rims.Power.Signals:
			return errStopped
		case <-time.After(wait):
		}
	}
}

// refusal is a control plane's no.
type refusal struct {
	server  string
	code    int
	message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s says: %s", r.server, r.message) }

// askCertificate gets a certificate for this board's key and keeps it. proof is empty for further ones: the key is enough. leaving, which
// may be nil, ends what this board was elsewhere.
func askCertificate(ctx context.Context, id *pki.Identity, urls []string, ca pki.Pin, proof string, leaving func() error) error {
	servers, err := rest.NewServers(urls, id.Join(ca), nil)
	if err != nil {
		return err
	}
	request, err := id.Request()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, servers.URL()+httpd.JoinPath, bytes.NewReader(request))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/pkcs10")
	if proof != "" {
		req.Header.Set("Authorization", "Bearer "+proof)
	}
	client := &http.Client{Transport: servers.Transport()}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return answerError(servers.URL(), resp, data)
	}
	if leaving != nil {
		if err := leaving(); err != nil {
			return err
		}
	}
	return id.Accept(data, ca, resp.TLS.PeerCertificates)
}

// answerError tells a no, which stays one, from a server that cannot answer now.
func answerError(server string, resp *http.Response, body []byte) error {
	var st metav1.Status
	text := resp.Status
	if json.Unmarshal(body, &st) == nil && st.Message != "" {
		text = st.Message
	}
	if resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests &&
		resp.StatusCode != http.StatusRequestTimeout {
		return &refusal{server, resp.StatusCode, text}
	}
	return fmt.Errorf("%s answered: %s", server, text)
}

const (
	renewLook = 5 * time.Minute  // clocks are put right now and then, and a board may start without one
	renewPace = time.Minute      // between two tries, at least
	renewSlow = 30 * time.Minute // at most: a certificate that is there is looked for before Kubernetes removes its request, after an hour
)

// renewal is a certificate that has an end.
type renewal interface {
	RenewIn() time.Duration
	Renew(ctx context.Context) error
}

// ownRenewal is that of a board of ledge's own control plane.
type ownRenewal struct{ u *uplink }

func (r ownRenewal) RenewIn() time.Duration { return r.u.identity.RenewIn() }

func (r ownRenewal) Renew(ctx context.Context) error {
	pin, _ := r.u.identity.CA()
	return askCertificate(ctx, r.u.identity, r.u.servers.URLs(), pin, "", nil)
}

// Run keeps the certificate good until ctx ends.
func (u *uplink) Run(ctx context.Context) error {
	r := u.renewal
	if r == nil && u.identity != nil {
		r = ownRenewal{u}
	}
	if r == nil {
		<-ctx.Done()
		return nil
	}
	said, pace, refused := "", renewPace, false
	for {
		wait := min(r.RenewIn(), renewLook)
		if wait == 0 || refused {
			err := r.Renew(ctx)
			wait = pace
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				slog.Info("this board's certificate is renewed")
				said, pace = "", renewPace
			case err.Error() != said:
				said = err.Error()
				slog.Warn("this board's certificate cannot be renewed; trying again", "err", err)
			}
			if err != nil {
				pace = min(2*pace, renewSlow)
			}
			wait += time.Duration(rand.Int64N(int64(wait) / 4)) // a shed full of boards shall not ask together
			refused = false
			if !sleepFor(ctx, wait) {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.renew:
			refused = true
		case <-time.After(wait):
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// address is where pods find the API, if it is known by an address.
func (u *uplink) address() netip.AddrPort {
	if u.servers == nil {
		return netip.AddrPort{}
	}
	for _, text := range u.servers.URLs() {
		at, err := url.Parse(text)
		if err != nil {
			continue
		}
		port, err := strconv.ParseUint(at.Port(), 10, 16)
		if err != nil {
			continue
		}
		ips, err := lookup(at.Hostname())
		if err == nil && len(ips) > 0 {
			return netip.AddrPortFrom(ips[0].Unmap(), uint16(port))
		}
	}
	return netip.AddrPort{}
}

// lookup does not wait long: a board must start while no name server answers.
func lookup(host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// wipeToken removes the file of a token that has done its work; empty: there is none.
func wipeToken(path string) {
	if path == "" {
		return
	}
	if err := wipe(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("the token is not needed any more and cannot be removed; do it, for others may join with it", "path", path, "err", err)
	}
}

// wipe overwrites a file before it removes it. A card may keep the old blocks for a while all the same.
func wipe(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(make([]byte, info.Size()))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}
