package sim

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/brain"
	"ledge/brain/place"
	"ledge/brain/played"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	"ledge/node/stats"
	"ledge/shutdown"
	"ledge/storage"
)

// rims are what this life gets of the board. The API has two doors, the user's and the agent's: on a board the agent calls the API, here
// its way there can be cut.
func (x *life) rims() (brain.Rims, error) {
	b := x.b
	user, dialUser := httpd.Pipe(api.User{Name: "user", Groups: []string{api.AdminGroup}})
	agent, dialAgent := httpd.Pipe(api.User{Name: api.NodeUserPrefix + b.cfg.Name, Groups: []string{api.NodesGroup}})
	x.uplink.dial, x.caller = dialAgent, dialUser
	var noUser, noAgent error
	x.user, noUser = rest.FromDialer(dialUser)
	x.node, noAgent = rest.FromDialer(x.uplink.connect)
	rims := played.Board{Host: b.Machine.host, Machine: newCounted(b.Machine, b.kernel),
		Engine: engineWire{wire: x.wire, Engine: b.engine, starts: b.starts}, Images: imageWire{wire: x.wire, Store: b.images},
		Network: networks(x.wire, b.network, b.Errorf), Signals: x.signals, Keys: b.Machine.keys()}.Rims()
	rims.Stats = stats.New(stats.Config{Mount: b.kernel.dir, Proc: b.kernel.dir})
	open := rims.Store
	rims.Store = func(ctx context.Context, dir string) (s *storage.Store, err error) {
		x.store, err = open(ctx, dir)
		return x.store, err
	}
	rims.Power.Off = x.switchOff
	rims.Doors = func(string) ([]*httpd.Listener, error) { return []*httpd.Listener{user, agent}, nil }
	rims.Around = x.lookOn
	rims.Uplink = func(api.Client) api.Client { return x.node }
	return rims, errors.Join(noUser, noAgent)
}

func (x *life) lookOn(c api.Client) api.Client {
	x.local = c
	return scribe{Client: c, b: x.b}
}

func (x *life) switchOff(_ context.Context, by shutdown.Backend, reboot bool) error {
	if by != shutdown.Direct || reboot {
		x.b.Errorf("the board is switched off by %s, reboot %t", by, reboot)
	}
	x.b.off = true
	return nil
}

// networks opens the pod network of a board, and sees to it that it stays the same.
func networks(d *wire, m *networkfake.Machine, fail func(format string, args ...any)) func(cidr, cidr6 netip.Prefix) (brain.PodNetwork,
	error) {
	return func(cidr, _ netip.Prefix) (brain.PodNetwork, error) {
		if have := plan.ChooseCIDR(nil); cidr != have {
			fail("the pods get the network %s, and had %s", cidr, have)
		}
		return networkWire{wire: d, Setup: networkfake.New(m)}, nil
	}
}

// ask posts a request of /ledge/v1, as the user.
func (x *life) ask(path string, query url.Values, body io.Reader) error {
	resp, err := place.AskBy(x.b.ctx, x.caller, "POST", path, query, "", body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
