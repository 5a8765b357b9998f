package sim

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/rest"
	"ledge/brain"
	"ledge/brain/place"
	"ledge/images"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	"ledge/node/stats"
	"ledge/runtime"
	"ledge/shutdown"
	"ledge/storage"
)

// rims are what this life gets of the board. The API has two doors, the user's and the agent's: on a board the agent calls the API, here its
// way there can be cut.
func (x *life) rims() (brain.Rims, error) {
	b := x.b
	user, dialUser := httpd.Pipe(api.User{Name: "user", Groups: []string{api.AdminGroup}})
	agent, dialAgent := httpd.Pipe(api.User{Name: api.NodeUserPrefix + b.cfg.Name, Groups: []string{api.NodesGroup}})
	x.uplink.dial, x.caller = dialAgent, dialUser
	var noUser, noAgent error
	x.user, noUser = rest.FromDialer(dialUser)
	x.node, noAgent = rest.FromDialer(x.uplink.connect)
	return brain.Rims{
		Host: b.Machine.host, Machine: counted{b.Machine, b.kernel}, Stats: stats.New(stats.Config{Mount: b.kernel.dir, Proc: b.kernel.dir}),
		Store: x.openStore,
		Images: func(context.Context, images.StoreConfig) (brain.Images, error) {
			return imageDoor{door: x.door, Store: b.images}, nil
		},
		Keeper:  brain.Keeper{Open: func([]string) brain.Engine { return engineDoor{door: x.door, Engine: b.engine, starts: b.starts} }},
		Network: bridges{x},
		Power: brain.Power{Signals: x.signals, Keys: filepath.Join(filepath.Dir(b.disk), "none"),
			GoingDown: func(context.Context) bool { return false }, Off: x.switchOff},
		Doors:  func(string) ([]*httpd.Listener, error) { return []*httpd.Listener{user, agent}, nil },
		Around: x.lookOn,
		Uplink: func(api.Client) api.Client { return x.node },
	}, errors.Join(noUser, noAgent)
}

func (x *life) openStore(ctx context.Context, dir string) (s *storage.Store, err error) {
	x.store, err = storage.Open(ctx, storage.Config{Dir: dir, NoSync: true})
	return x.store, err
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

// bridges are the pod networks of a board, which has one.
type bridges struct{ x *life }

func (bridges) Check(string) error { return nil }

func (bridges) Hold(context.Context) (func(), error) { return func() {}, nil }

func (n bridges) Open(_ string, cidr, _ netip.Prefix) (brain.PodNetwork, error) {
	if have := plan.ChooseCIDR(nil); cidr != have {
		n.x.b.Errorf("the pods get the network %s, and had %s", cidr, have)
	}
	return podNetwork{networkDoor{door: n.x.door, Setup: networkfake.New(n.x.b.network)}, n.x.b.network}, nil
}

type podNetwork struct {
	networkDoor
	machine *networkfake.Machine
}

func (n podNetwork) Pods() int { return len(n.machine.Pods()) }

// Run implements brain.Engine: the keeper of a simulation needs nobody to hold its files.
func (e engineDoor) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Process implements brain.Engine.
func (e engineDoor) Process(context.Context) (int, runtime.Info, error) {
	return 0, runtime.Info{}, errors.New("the keeper of a simulation is no process")
}

// Reset implements brain.Engine.
func (e engineDoor) Reset(context.Context) error {
	return errors.New("no simulation ends with its pods")
}

// OOMs implements brain.Machine: the kernel of a simulation writes no log.
func (c counted) OOMs(ctx context.Context, _ func(string, int)) error {
	<-ctx.Done()
	return nil
}

// Stalled implements brain.Machine.
func (c counted) Stalled(ctx context.Context, fn func(string)) error { return c.stalled(ctx, fn) }

// Reclaim implements brain.Machine.
func (c counted) Reclaim(context.Context, string, int64) (int64, error) { return 0, fs.ErrNotExist }

// ask posts a request of /ledge/v1, as the user.
func (x *life) ask(path string, query url.Values, body io.Reader) error {
	resp, err := place.AskBy(x.b.ctx, x.caller, "POST", path, query, "", body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
