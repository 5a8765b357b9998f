package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
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

// played is what a brain gets of a board. When its door is shut nothing that it asks for has an effect.
type played struct {
	door    *door
	machine *Machine
	senses  brain.Machine
	engine  brain.Engine
	images  brain.Images
	network *networkfake.Machine
	signals chan os.Signal
	fail    func(format string, args ...any)
}

func (p played) rims() brain.Rims {
	return brain.Rims{
		Host: p.machine.host, Machine: p.senses,
		Store: func(ctx context.Context, dir string) (*storage.Store, error) {
			return storage.Open(ctx, storage.Config{Dir: dir, NoSync: true})
		},
		Images:  func(context.Context, images.StoreConfig) (brain.Images, error) { return p.images, nil },
		Keeper:  brain.Keeper{Open: func([]string) brain.Engine { return p.engine }},
		Network: bridges{p},
		Power: brain.Power{Signals: p.signals, Keys: filepath.Join(p.machine.root, "dev/input"), GoingDown: func(context.Context) bool { return false },
			Off: func(_ context.Context, by shutdown.Backend, _ bool) error {
				return fmt.Errorf("no board is switched off by %s here", by)
			}},
		Doors: func(string) ([]*httpd.Listener, error) { // that nobody knocks at
			l, _ := httpd.Pipe(api.User{Name: "nobody"})
			return []*httpd.Listener{l}, nil
		},
	}
}

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
	rims := played{door: x.door, machine: b.Machine, senses: counted{Machine: b.Machine, kernel: b.kernel}, engine: engineDoor{door: x.door, Engine: b.engine, starts: b.starts},
		images: imageDoor{door: x.door, Store: b.images}, network: b.network, signals: x.signals, fail: b.Errorf}.rims()
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

// bridges are the pod networks of a board, which has one.
type bridges struct{ played }

func (bridges) Check(string) error { return nil }

func (bridges) Hold(context.Context) (func(), error) { return func() {}, nil }

func (n bridges) Open(_ string, cidr, _ netip.Prefix) (brain.PodNetwork, error) {
	if have := plan.ChooseCIDR(nil); cidr != have {
		n.fail("the pods get the network %s, and had %s", cidr, have)
	}
	return podNetwork{networkDoor{door: n.door, Setup: networkfake.New(n.network)}, n.network}, nil
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

// unheard is what the kernel of a simulation does not tell, and cannot do.
type unheard struct{}

// OOMs implements brain.Machine: there is no log.
func (unheard) OOMs(ctx context.Context, _ func(string, int)) error {
	<-ctx.Done()
	return nil
}

// Stalled implements brain.Machine.
func (unheard) Stalled(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}

// Reclaim implements brain.Machine.
func (unheard) Reclaim(context.Context, string, int64) (int64, error) { return 0, fs.ErrNotExist }

// ask posts a request of /ledge/v1, as the user.
func (x *life) ask(path string, query url.Values, body io.Reader) error {
	resp, err := place.AskBy(x.b.ctx, x.caller, "POST", path, query, "", body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
