package brain

import (
	"context"
	"io"
	"net/netip"
	"os"
	"time"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/controller"
	"ledge/host"
	"ledge/images"
	"ledge/network"
	"ledge/network/dns"
	"ledge/network/mdns"
	"ledge/node"
	"ledge/node/claims"
	"ledge/node/devices"
	"ledge/node/stats"
	"ledge/runtime"
	"ledge/shutdown"
	"ledge/storage"
)

// Rims are where a brain touches what is not itself. cmd/ledge passes this machine's, a simulation plays them. What is only a file in one
// of the brain's two directories is no rim: a simulation has a disk too.
type Rims struct {
	Host    *host.Host       // what a brain reads of the machine
	Checked func() error     // writes down what its checks found, once it is sure to start; nil: nothing is kept
	Machine node.Machine     // what its agent measures and uses there
	Stats   *stats.Collector // what pods use; nil: they are not measured

	Store   func(ctx context.Context, dir string) (*storage.Store, error)
	Images  func(context.Context, images.StoreConfig) (Images, error)
	Keeper  Keeper
	Network Network
	// Names makes the sockets at which pods ask for names. Nil: this board does not answer them.
	Names func(ctx context.Context, at netip.AddrPort) (dns.Sockets, error)
	// Found has the board found on its own networks. The zero value: nobody does.
	Found Found
	Power Power
	// Disks are found, mounted and missed by Machine; Gone says of a mount whether its disk was. Nil: there are none beside the card.
	Disks    claims.Machine
	DiskGone func(major, minor int) (bool, error)
	// Sizes hold the directories of claims on the card to a size. Nil: the kernel does.
	Sizes claims.Sizes
	// Devices are found here for pods. Nil: they are given none.
	Devices Devices

	// Doors opens the API to those on this machine.
	Doors func(socket string) ([]*httpd.Listener, error)

	// Beside runs in the background while the brain serves, until ctx ends: what the process does to itself. Nil: nothing.
	Beside func(ctx context.Context)
	// Idle leaves processor and disk to all others, for the goroutine that calls it. Nil: nobody can.
	Idle func() error

	// Now is the clock of this brain's API. Nil: that of the process.
	Now func() time.Time
	// Around stands between the API of this brain and all who use it. Nil: nothing does.
	Around func(api.Client) api.Client
	// Loops stands between that and the controllers. Nil: nothing does.
	Loops func(api.Client) api.Client
	// Usage takes the place of what boards say that their pods use. Nil: nothing does.
	Usage controller.Usage
	// Uplink takes the place of the agent's way to the API, of this brain or of the one of ours that it has joined. Nil: nothing does.
	Uplink func(api.Client) api.Client
}

// Devices is where devices come and go; see devices.Machine.
type Devices interface {
	Look(wants func(path string) bool) ([]host.CharDevice, error)
	Wait(ctx context.Context, most time.Duration)
	Drain()
}

// givenDevices are those of a rim in the words of who gives them to pods.
type givenDevices struct{ Devices }

// Look implements devices.Machine.
func (g givenDevices) Look(wants func(path string) bool) (out []devices.Found, err error) {
	list, err := g.Devices.Look(wants)
	for _, d := range list {
		out = append(out, devices.Found(d))
	}
	return out, err
}

// Found is how a board is found by name.
type Found struct {
	Serve  func(context.Context, mdns.Config) error
	Beside func(ctx context.Context, program string, cfg mdns.Config) error // by one that has the port
}

// Images are the images of a board: what its agent does with them, and what its owner asks for beside that.
type Images interface {
	images.Store
	images.Collector
	images.Meter
	// Self makes the image of this program.
	Self(ctx context.Context, binary string) (images.Image, error)
	Export(ctx context.Context, w io.Writer, names []string) error
	// Check reads every layer; Verify repairs what it can, too.
	Check(context.Context) (images.Report, error)
	Verify(context.Context) (images.Report, error)
	// Pulls are those that go on.
	Pulls() []images.PullStatus
	// Written is where what a container writes to its root file system is.
	Written(key string) string
	Close() error
}

// Keeper is how a brain gets at the one that runs its containers.
type Keeper struct {
	// Open starts a keeper with the command where none answers; none: somebody else does.
	Open func(command []string) Engine
	// StopAll ends all pods of a keeper that stands at another cgroup, and it.
	StopAll func(ctx context.Context, cgroupRoot string) error
}

// Engine runs containers, in another process that may go away and come back.
type Engine interface {
	node.Engine
	// Run keeps in touch with the other process until ctx ends.
	Run(ctx context.Context) error
	// Process says which one it is.
	Process(context.Context) (pid int, info runtime.Info, err error)
	// Reset ends the other process and all it holds.
	Reset(context.Context) error
}

// Network is how pods are connected.
type Network interface {
	// Check finds, before anything is made, what will never become right by itself.
	Check(bridge string) error
	// Hold keeps others from choosing networks on this machine until release is called.
	Hold(ctx context.Context) (release func(), err error)
	// Open changes nothing yet. Invalid prefixes: the network is only looked at, and closed, or it is config.PluginNetwork, which has none.
	Open(bridge string, cidr, cidr6 netip.Prefix) (PodNetwork, error)
	// Forwarder forwards Services for the pods on a bridge and for the machine itself; without a bridge for the latter. Nil: nobody
	// does.
	Forwarder(bridge string) network.Forwarder
	// Fencer holds network policies for the pods on a bridge. Nil: nobody does.
	Fencer(bridge string) network.Fencer
}

// PodNetwork connects the pods of a board.
type PodNetwork interface {
	network.Setup
	// Pods is how many are connected.
	Pods() int
}

// Power is how a brain hears that the machine is to go down, and how it goes down.
type Power struct {
	Signals chan os.Signal // to this process
	Keys    string         // directory of the event devices that may have a power key; empty: the usual one
	Presses *os.File       // of the power key, where process 1 hears them; nil: nowhere
	// GoingDown says whether somebody else takes the machine down.
	GoingDown func(context.Context) bool
	// Off takes it down. The direct way comes back only with an error.
	Off func(ctx context.Context, by shutdown.Backend, reboot bool) error
}
