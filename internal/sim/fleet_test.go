package sim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/rest"
	"ledge/brain"
	"ledge/brain/played"
	"ledge/config"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	machinefake "ledge/node/machine/fake"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
	"ledge/storage"
)

// fleet is a shed of boards that have joined one control plane, which is a board too, though without a Node: the brains of all are
// real, and so are the pipes between them.
type fleet struct {
	*testing.T
	dir    string
	ctx    context.Context
	boards []*member
	pods   int // that the user wants
	kept   int // of them, by controllers

	plane   *member
	store   *storage.Store          // of the plane
	local   api.Client              // the plane's own, around which nothing stands
	nodes   *api.View[*corev1.Node] // as any watcher sees them
	all     *api.View[*corev1.Pod]
	jobs    *api.View[*batchv1.Job]
	unwatch func() // ends the views

	weights []weight

	scaled scaled
	held   holdings

	tallies map[types.UID]tally  // of Jobs, as they counted last
	began   map[string]types.UID // the Job that a CronJob made for a time
}

// member is one board of a fleet.
type member struct {
	name    string
	dir     string
	machine *Machine
	engine  *enginefake.Engine
	starts  *starts
	images  *imagesfake.Store
	network *networkfake.Machine
	sizes   atomic.Pointer[played.Sizes] // of the card that it has now
	up      *uplink
	dial    atomic.Pointer[func(context.Context) (net.Conn, error)]
	client  *rest.Client
	how     config.Settings
	life    *process // nil: it is off
	boots   int
	touched time.Time    // when a fault that may make it not ready last ended; zero: it has not
	ahead   atomic.Int64 // how far its clock is
	stall   atomic.Int64 // until when its card takes no writes
}

func (m *member) storeDir() string { return filepath.Join(m.machine.disk, "store") }

// stalled waits until a card takes writes again.
func stalled(ctx context.Context, until *atomic.Int64) error {
	wait := time.Until(time.Unix(0, until.Load()))
	if until.Load() == 0 || wait <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// card is the engine of a board whose card may stall: what writes to it waits, what runs runs on. It also sees to it that a
// pod is started on no board but its own.
type card struct {
	engineWire
	f *fleet
	m *member
}

func (c card) EnsurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	if err := stalled(ctx, &c.m.stall); err != nil {
		return runtime.PodStatus{}, err
	}
	return c.engineWire.EnsurePod(ctx, p)
}

func (c card) Start(ctx context.Context, x runtime.Container) (runtime.Status, error) {
	if err := stalled(ctx, &c.m.stall); err != nil {
		return runtime.Status{}, err
	}
	for _, o := range c.f.boards {
		if o != c.m && c.f.running(o)[x.PodUID] > 0 {
			c.f.Errorf("pod %s is started on %s and runs on %s", x.PodUID, c.m.name, o.name)
		}
	}
	return c.engineWire.Start(ctx, x)
}

func (c card) Remove(ctx context.Context, id string) error {
	if err := stalled(ctx, &c.m.stall); err != nil {
		return err
	}
	err := c.engineWire.Remove(ctx, id)
	if err == nil {
		c.m.starts.forget(id)
	}
	return err
}

// bare is how many pods of a fleet nobody makes again but the user.
const bare = 3

func newFleet(t *testing.T, boards int) *fleet {
	was := debug.SetGCPercent(400) // a heap of tens of MiB; what it holds is weighed after a collection
	t.Cleanup(func() { debug.SetGCPercent(was) })
	f := &fleet{T: t, dir: t.TempDir(), ctx: context.WithoutCancel(t.Context()), pods: 3*boards + bare, kept: 3 * boards,
		tallies: map[types.UID]tally{}, began: map[string]types.UID{}, held: newHoldings()}
	f.plane = f.member("plane")
	var err error
	f.plane.how, err = resolve("serve", f.plane.dir, f.plane.name, f.plane.machine.disk, "--listen", "", "--register-node=false",
		"--terminated-pod-gc-threshold", strconv.Itoa(keptTerminated))
	f.must(err)
	for i := range boards {
		m := f.member(fmt.Sprintf("board-%d", i))
		m.up.dial = func(ctx context.Context) (net.Conn, error) { return (*m.dial.Load())(ctx) }
		m.client, err = rest.FromDialer(m.up.connect)
		f.must(err)
		kubeconfig := filepath.Join(m.dir, "kubeconfig") // that is never asked: see start
		f.must(os.WriteFile(kubeconfig, []byte(noServer), 0o600))
		m.how, err = resolve("agent", m.dir, m.name, m.machine.disk, "--kubeconfig", kubeconfig, "--port", "0")
		f.must(err)
		f.boards = append(f.boards, m)
	}
	f.scaled.boards, f.scaled.replicas = f.boards, leastScaled
	f.startPlane()
	f.control()
	for _, m := range f.boards {
		f.start(m)
	}
	t.Cleanup(func() {
		for _, m := range f.boards {
			f.kill(m)
			m.client.Close()
		}
		f.stopPlane()
	})
	return f
}

// member makes a board that is off.
func (f *fleet) member(name string) *member {
	f.Helper()
	m := &member{name: name, dir: filepath.Join(f.dir, name), up: newUplink(), engine: enginefake.New(enginefake.Config{Script: Script}),
		starts: newStarts()}
	m.starts.fail = f.Errorf
	m.sizes.Store(played.NewSizes())
	m.machine = newMachine(filepath.Join(m.dir, "disk"), 0)
	m.machine.sample.MachineID = m.name
	var err error
	m.network, err = networkfake.NewMachine(plan.ChooseCIDR(nil))
	f.must(err)
	m.images = &imagesfake.Store{Dir: filepath.Join(m.dir, "roots")}
	_, err = m.images.Add(images.Image{Names: []string{ImageOne}, Size: 1 << 20})
	f.must(err)
	f.must(m.machine.show(filepath.Join(m.dir, "machine")))
	return m
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", f.now(), err)
	}
}

func (f *fleet) now() string { return time.Now().UTC().Format("02 15:04:05") }

// noServer is a control plane at an address that nobody has.
const noServer = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://192.0.2.1"}}], users: [{name: u, user: {}}]}`

// start starts the brain of a board that has joined. Its uplink is a link that can be cut, and has a clock of its own.
func (f *fleet) start(m *member) {
	f.Helper()
	f.begin(m, func(rims *brain.Rims) {
		rims.Uplink = func(api.Client) api.Client { return clocked{m.client, &m.ahead} }
	})
	m.touched = time.Now()
}

// begin starts the brain of a board, on rims that edit has changed.
func (f *fleet) begin(m *member, edit func(*brain.Rims)) {
	f.Helper()
	run, p := filepath.Join(m.dir, "run"), &process{wire: &wire{}, signals: make(chan os.Signal, 1), ended: make(chan error, 1)}
	f.must(os.MkdirAll(m.machine.disk, 0o700))
	f.must(os.MkdirAll(run, 0o700))
	rims := played.Board{Host: m.machine.host, Machine: machinefake.Machine{See: m.machine.look, Waits: make(chan string)},
		Engine: card{engineWire{wire: p.wire, Engine: m.engine, starts: m.starts}, f, m}, Images: imageWire{wire: p.wire, Store: m.images},
		Network: networks(p.wire, m.network, f.Errorf), Signals: p.signals, Keys: m.machine.keys(), Sizes: m.sizes.Load()}.Rims()
	edit(&rims)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(f.ctx)
	go func() { p.ended <- newBrain(m.how, run, rims, f.Errorf).Run(ctx) }()
	synctest.Wait()
	select {
	case err := <-p.ended:
		p.cancel()
		f.Fatalf("%s: %s does not start: %v", f.now(), m.name, err)
	default:
	}
	m.life = p
}

// process is one in which a brain of a fleet runs.
type process struct {
	wire    *wire // cut when it dies
	signals chan os.Signal
	cancel  context.CancelFunc
	ended   chan error
}

// stop ends it as a service is stopped.
func (p *process) stop() error {
	defer p.cancel()
	p.signals <- syscall.SIGTERM
	return <-p.ended
}

// die ends it as kill -9 does.
func (p *process) die() error {
	p.wire.cut.Store(true)
	p.cancel()
	return <-p.ended
}

// kill takes a board's power away.
func (f *fleet) kill(m *member) {
	f.Helper()
	if m.life == nil {
		return
	}
	f.dies(m)
	m.engine.Reboot()
	f.must(m.images.Retain(f.ctx, nil))
	for _, uid := range m.network.Pods() {
		f.must(networkfake.New(m.network).Detach(f.ctx, uid))
	}
	f.must(played.Unmount(filepath.Join(m.dir, "run")))
	f.must(os.RemoveAll(filepath.Join(m.dir, "run")))
	f.must(os.RemoveAll(m.images.Dir))
	m.starts.restart()
	m.boots++
	f.must(m.machine.booted(fmt.Sprintf("boot-%d", m.boots)))
}

// dies ends the brain of a board as a power cut does: its store holds what it held at that moment.
func (f *fleet) dies(m *member) {
	f.Helper()
	synctest.Wait() // no goroutine is in the middle of a write
	f.must(frozen(m.storeDir(), func() {
		m.stall.Store(0)
		if err := m.life.die(); err != nil {
			f.Errorf("%s ended with %v", m.name, err)
		}
	}))
	m.life = nil
}
