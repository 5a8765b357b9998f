package brain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/host"
	"ledge/internal/grumble"
	"ledge/page"
	"ledge/page/password"
)

// pageRoom is the board's page, where it is switched on: a door for people with a browser, and the way from there to the API.
type pageRoom struct {
	at      string // where it is shown
	handler http.Handler
	tls     *tls.Config
	api     *rest.Client
	trouble grumble.Once
}

// openPage makes the page. It asks the API as the page's own user, like everybody else, and is answered what that may know.
func (p *plane) openPage(s *httpd.Server) error {
	k := p.b.File.Page
	if k.Listen == "" {
		return nil
	}
	hash, err := password.Of(k.Password)
	if err != nil {
		return fmt.Errorf("page.password: %w", err)
	}
	user := api.User{Name: api.PageUser, Groups: []string{api.AuthenticatedGroup}}
	if k.Acts {
		user.Groups = append(user.Groups, api.PageActs)
	}
	inner, dial := httpd.Pipe(user)
	s.Listeners = append(s.Listeners, inner)
	r := &pageRoom{at: k.Listen}
	if r.api, err = rest.FromDialer(dial); err != nil {
		return err
	}
	names, ips := p.serverNames()
	if r.tls, err = p.ca.ServerTLS(names, ips); err != nil {
		return err
	}
	r.handler = page.New(page.Config{API: r.api, Guard: page.NewGate(hash.Opens, slog.Info), Acts: k.Acts, Told: slog.Info, CA: p.ca.CA(),
		Stopping: httpd.Stopping})
	p.page = r
	return nil
}

// pageRetry is how long an address may take to come, or another program to let go of it.
const pageRetry = 10 * time.Second

// Run shows the page until ctx ends. A board whose page has no address runs its pods all the same.
func (r *pageRoom) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.trouble.About("the board's page is not shown (page.listen "+r.at+"); trying again", err)
		pauseFor(ctx, pageRetry)
	}
	return nil
}

func (r *pageRoom) serve(ctx context.Context) error {
	at, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.at)
	if err != nil {
		return err
	}
	l, err := httpd.Strangers(at, r.tls)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	r.trouble.About("the board's page", nil)
	return (&httpd.Server{Handler: r.handler, Listeners: []*httpd.Listener{l}}).Run(ctx)
}

// port is where others reach the page; 0: nowhere.
func (r *pageRoom) port() uint16 {
	if r == nil {
		return 0
	}
	host, port, err := net.SplitHostPort(r.at)
	if err != nil {
		return 0
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return 0
	}
	n, _ := strconv.ParseUint(port, 10, 16) // config has looked at it
	return uint16(n)
}

// machineReport is what this board is.
func machineReport(b *Brain) board.Machine {
	m := board.Machine{Node: b.Name, Version: b.Build.Version, Throttled: host.Throttled(b.rims.Host), ClockBelieved: b.clock.believed(),
		Unclean: b.cut}
	if c, ok := host.Celsius(b.rims.Host); ok {
		m.Celsius = &c
	}
	return m
}
