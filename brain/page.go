package brain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/host"
	"ledge/page"
	"ledge/page/password"
)

// pageRoom is the board's page, where it is switched on: a door for people with a browser, and the way from there to the API.
type pageRoom struct {
	listener net.Listener
	server   *httpd.Server
	api      *rest.Client
}

// listenForPage takes the page's address.
func (p *plane) listenForPage(ctx context.Context) error {
	at := p.b.File.Page.Listen
	if at == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("page.listen %s: the address is taken by another program; give another one", at)
	}
	if err != nil {
		return fmt.Errorf("page.listen %s: %w", at, err)
	}
	p.page = &pageRoom{listener: l}
	return nil
}

// openPage opens the page. It asks the API as the page's own user, like everybody else, and is answered what that may know.
func (p *plane) openPage(s *httpd.Server) error {
	if p.page == nil {
		return nil
	}
	hash, err := password.Of(p.b.File.Page.Password)
	if err != nil {
		return fmt.Errorf("page.password: %w", err)
	}
	p.b.HidePasswords()
	user := api.User{Name: api.PageUser, Groups: []string{api.AuthenticatedGroup}}
	if p.b.File.Page.Acts {
		user.Groups = append(user.Groups, api.PageActs)
	}
	inner, dial := httpd.Pipe(user)
	s.Listeners = append(s.Listeners, inner)
	if p.page.api, err = rest.FromDialer(dial); err != nil {
		return err
	}
	names, ips := p.serverNames()
	conf, err := p.ca.ServerTLS(names, ips)
	if err != nil {
		return err
	}
	l, err := httpd.Strangers(p.page.listener, conf)
	if err != nil {
		return err
	}
	h := page.New(page.Config{API: p.page.api, Guard: page.NewGate(hash.Opens, slog.Info), Acts: p.b.File.Page.Acts, CA: p.ca.CA(),
		Stopping: httpd.Stopping})
	p.page.server = &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}}
	return nil
}

// close lets go of the address, if nobody serves it.
func (r *pageRoom) close() error {
	if r == nil {
		return nil
	}
	if err := r.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
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
