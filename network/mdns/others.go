package mdns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Programs that answer for this machine already, as the kernel calls their processes. Two that have its name would tell different things
// of it, so they are asked to announce the board.
const (
	Avahi    = "avahi-daemon"
	Resolved = "systemd-resolve" // the kernel has room for no more
)

// Beside has another program announce the board until ctx ends. It fails if that program ends, or does not take it.
func Beside(ctx context.Context, program string, cfg Config) error {
	if program == Avahi {
		return beside(ctx, cfg, "org.freedesktop.Avahi", &avahi{groups: map[string]*avahiGroup{}})
	}
	return beside(ctx, cfg, "org.freedesktop.resolve1", &resolved{})
}

// another is a program that announces for others, over D-Bus.
type another interface {
	// announce has it announce what is wanted, and nothing else of ours. It gives the board's label.
	announce(o *dbus.Conn, want Wanted) (labels []string, err error)
	// hear takes a signal; true: announce again.
	hear(*dbus.Signal) bool
	// end takes all back.
	end(*dbus.Conn)
}

func beside(ctx context.Context, cfg Config, name string, a another) error {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return fmt.Errorf("ask %s: %w", name, err)
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name)},
		{dbus.WithMatchSender(name), dbus.WithMatchMember("StateChanged")}} {
		if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("listen to %s: %w", name, err)
		}
	}
	var told []string
	var last *Wanted
	for {
		if want := cfg.Wanted(); last == nil || !same(want, *last) {
			now, err := a.announce(conn, want)
			if err != nil {
				return fmt.Errorf("%s does not announce the board: %w", name, err)
			}
			if last = &want; !slices.Equal(now, told) {
				told = now
				cfg.Told(now)
			}
		}
		select {
		case <-ctx.Done():
			a.end(conn)
			return nil
		case <-cfg.Changed:
			select { // as rarely as by ourselves
			case <-ctx.Done():
			case <-time.After(setEvery):
			}
		case s, ok := <-signals:
			switch {
			case !ok || s.Name == "org.freedesktop.DBus.NameOwnerChanged":
				return fmt.Errorf("%s has ended, or was started again", name)
			case a.hear(s):
				last = nil
			}
		}
	}
}

func same(a, b Wanted) bool {
	return a.Label == b.Label && a.Port == b.Port && a.Version == b.Version && a.State == b.State &&
		slices.EqualFunc(a.Aliases, b.Aliases, func(x, y Alias) bool { return x.Label == y.Label && slices.Equal(x.Addresses, y.Addresses) })
}

// avahi has a group of entries for the board, and one for each further name. They end with the connection.
type avahi struct{ groups map[string]*avahiGroup }

type avahiGroup struct {
	group
	path dbus.ObjectPath
}

func (a *avahi) announce(conn *dbus.Conn, want Wanted) (list []string, err error) {
	const server = "org.freedesktop.Avahi.Server."
	at := conn.Object("org.freedesktop.Avahi", "/")
	var host string
	if err := at.Call(server+"GetHostName", 0).Store(&host); err != nil {
		return nil, err
	}
	wanted := append([]Alias{{Label: ""}}, want.Aliases[:min(len(want.Aliases), MostAliases)]...)
	for label, g := range a.groups {
		if !slices.ContainsFunc(wanted, func(w Alias) bool { return w.Label == label }) {
			_ = conn.Object("org.freedesktop.Avahi", g.path).Call("org.freedesktop.Avahi.EntryGroup.Free", 0).Err
			delete(a.groups, label)
		}
	}
	list = []string{host}
	for _, w := range wanted {
		g := a.groups[w.Label]
		if g == nil {
			g = &avahiGroup{group: group{label: w.Label, board: w.Label == ""}}
			if err := at.Call(server+"EntryGroupNew", 0).Store(&g.path); err != nil {
				return nil, err
			}
			a.groups[w.Label] = g
		}
		g.addrs = w.Addresses
		if g.board {
			g.label = host
		}
		switch err := g.commit(conn, want); {
		case err != nil && g.board:
			return nil, err
		case err != nil: // it may be avahi's own name: the board has its own all the same
			slog.Warn("avahi-daemon does not announce the name of a Service", "name", g.has(), "err", err)
		case !g.board:
			list = append(list, g.has())
		}
	}
	return list, nil
}

func (g *avahiGroup) commit(conn *dbus.Conn, want Wanted) error {
	const entries = "org.freedesktop.Avahi.EntryGroup."
	const anyInterface, anyProtocol, noReverse = int32(-1), int32(-1), uint32(16)
	at := conn.Object("org.freedesktop.Avahi", g.path)
	errs := []error{at.Call(entries+"Reset", 0).Err}
	if g.board {
		for _, s := range want.offers() {
			var text [][]byte
			for _, t := range s.text {
				text = append(text, []byte(t))
			}
			if s.port != discard { // avahi's own business
				errs = append(errs, at.Call(entries+"AddService", 0, anyInterface, anyProtocol, uint32(0), g.has(), s.kind+"._tcp", "", "", s.port,
					text).Err)
			}
		}
	}
	for _, addr := range g.addrs[:min(len(g.addrs), MostAddresses)] {
		errs = append(errs, at.Call(entries+"AddAddress", 0, anyInterface, anyProtocol, noReverse, g.has()+".local", addr.String()).Err)
	}
	return errors.Join(append(errs, at.Call(entries+"Commit", 0).Err)...)
}

// hear gives a group whose name another has the next name.
func (a *avahi) hear(s *dbus.Signal) bool {
	const collision = 3
	if len(s.Body) == 0 || s.Body[0] != int32(collision) {
		return false
	}
	for _, g := range a.groups {
		if g.path == s.Path {
			g.next()
			return true
		}
	}
	return true // of the server: it has another name now
}

func (a *avahi) end(*dbus.Conn) {} // with the connection

// resolved announces services; it knows no further names.
type resolved struct{ paths []dbus.ObjectPath }

func (r *resolved) announce(conn *dbus.Conn, want Wanted) ([]string, error) {
	r.end(conn)
	at := conn.Object("org.freedesktop.resolve1", "/org/freedesktop/resolve1")
	for _, s := range want.offers() {
		text := map[string][]byte{}
		for _, t := range s.text {
			key, value, _ := strings.Cut(t, "=")
			text[key] = []byte(value)
		}
		if s.port == discard { // that there is a machine its own name says
			continue
		}
		var path dbus.ObjectPath
		id := strings.TrimSuffix("ledge-"+s.kind[1:], "-ledge")
		err := at.Call("org.freedesktop.resolve1.Manager.RegisterService", 0, id, "%H", s.kind+"._tcp", s.port, uint16(0), uint16(0),
			[]map[string][]byte{text}).Store(&path)
		if err != nil {
			return nil, err
		}
		r.paths = append(r.paths, path)
	}
	name, err := at.GetProperty("org.freedesktop.resolve1.Manager.LLMNRHostname") // of mDNS, too
	if host, ok := name.Value().(string); err == nil && ok {
		return []string{host}, nil
	}
	return []string{want.Label}, nil
}

func (r *resolved) hear(*dbus.Signal) bool { return false }

func (r *resolved) end(conn *dbus.Conn) {
	at := conn.Object("org.freedesktop.resolve1", "/org/freedesktop/resolve1")
	for _, path := range r.paths {
		_ = at.Call("org.freedesktop.resolve1.Manager.UnregisterService", 0, path).Err // it may have gone with the program
	}
	r.paths = nil
}
