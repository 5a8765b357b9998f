package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/brain/played"
	"ledge/config"
	"ledge/controller"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	machinefake "ledge/node/machine/fake"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
	"ledge/storage"
)

// fleet is a shed of boards with one control plane: real agents over pipes, a real store, the real loops.
type fleet struct {
	*testing.T
	dir    string
	ctx    context.Context
	boards []*member
	pods   int // that the user wants
	kept   int // of them, by controllers

	store *storage.Store
	local *local.Client
	nodes *api.View[*corev1.Node] // as any watcher sees them
	all   *api.View[*corev1.Pod]
	stop  func() error
	ahead atomic.Int64 // how far the control plane's clock is
	stall atomic.Int64 // until when its card takes no writes

	weights []weight
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
	up      *uplink
	dial    atomic.Pointer[func(context.Context) (net.Conn, error)]
	client  *rest.Client
	how     config.Settings
	end     func() error // nil: it is off
	boots   int
	touched time.Time    // when a fault that may make it not ready last ended; zero: it has not
	ahead   atomic.Int64 // how far its clock is
	stall   atomic.Int64 // until when its card takes no writes
}

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
	engineDoor
	f *fleet
	m *member
}

func (c card) EnsurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	if err := stalled(ctx, &c.m.stall); err != nil {
		return runtime.PodStatus{}, err
	}
	return c.engineDoor.EnsurePod(ctx, p)
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
	return c.engineDoor.Start(ctx, x)
}

func (c card) Remove(ctx context.Context, id string) error {
	if err := stalled(ctx, &c.m.stall); err != nil {
		return err
	}
	err := c.engineDoor.Remove(ctx, id)
	if err == nil {
		c.m.starts.forget(id)
	}
	return err
}

func newFleet(t *testing.T, boards int) *fleet {
	was := debug.SetGCPercent(400) // a heap of tens of MiB; what it holds is weighed after a collection
	t.Cleanup(func() { debug.SetGCPercent(was) })
	f := &fleet{T: t, dir: t.TempDir(), ctx: context.WithoutCancel(t.Context()), pods: 3 * boards, kept: 2 * boards}
	for i := range boards {
		m := &member{name: fmt.Sprintf("board-%d", i), up: newUplink(), engine: enginefake.New(enginefake.Config{Script: Script}),
			starts: newStarts()}
		m.starts.fail = f.Errorf
		m.dir = filepath.Join(f.dir, m.name)
		m.machine = newMachine(filepath.Join(m.dir, "disk"), 0)
		m.machine.sample.MachineID = m.name
		var err error
		m.network, err = networkfake.NewMachine(plan.ChooseCIDR(nil))
		f.must(err)
		m.images = &imagesfake.Store{Dir: filepath.Join(m.dir, "roots")}
		_, err = m.images.Add(images.Image{Names: []string{ImageOne}, Size: 1 << 20})
		f.must(err)
		m.up.dial = func(ctx context.Context) (net.Conn, error) { return (*m.dial.Load())(ctx) }
		m.client, err = rest.FromDialer(m.up.connect)
		f.must(err)
		f.must(m.machine.show(filepath.Join(m.dir, "machine")))
		kubeconfig := filepath.Join(m.dir, "kubeconfig") // that is never asked: see start
		f.must(os.WriteFile(kubeconfig, []byte(noServer), 0o600))
		m.how, err = settle("agent", m.dir, m.name, m.machine.disk, "--kubeconfig", kubeconfig)
		f.must(err)
		f.boards = append(f.boards, m)
	}
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
		f.must(f.stop())
	})
	return f
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", f.now(), err)
	}
}

func (f *fleet) now() string { return time.Now().UTC().Format("02 15:04:05") }

// pen is the scribe of a fleet: each field has one writer (architecture: One writer per field), whichever board it is.
type pen struct {
	scribe
	f *fleet
}

// Delete implements api.Client; what is left on a board is looked at when the fleet has settled.
func (p pen) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	out, err := p.Client.Delete(ctx, kind, namespace, name, opts)
	if err == nil {
		p.judge(ctx, "delete "+kind.Resource)
	}
	return out, err
}

// Update implements api.Client. Of pods that no board will ever finish, the control plane says that they failed (N-3.47).
func (p pen) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	if kind == coordination.Leases { // most of what is written: no need to look what of it has changed
		p.judge(ctx, "leases spec")
		return p.Client.Update(ctx, kind, obj, opts)
	}
	if pod, ok := obj.(*corev1.Pod); ok && writer(ctx) == byPlane && pod.Status.Phase == corev1.PodFailed {
		return p.Client.Update(ctx, kind, obj, opts)
	}
	return p.scribe.Update(ctx, kind, obj, opts)
}

// Create implements api.Client: it waits while the card stalls, as does every write.
func (p pen) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	return p.scribe.Create(ctx, kind, obj, opts)
}

// Patch implements api.Client.
func (p pen) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	if err := stalled(ctx, &p.f.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	return p.scribe.Patch(ctx, kind, namespace, name, patch, opts)
}

func (f *fleet) storeDir() string { return filepath.Join(f.dir, "store") }

// startPlane starts the control plane, over the store as it was left.
func (f *fleet) startPlane() {
	f.Helper()
	var err error
	f.store, err = storage.Open(f.ctx, storage.Config{Dir: f.storeDir(), NoSync: true})
	f.must(err)
	f.local, err = local.New(local.Config{Store: f.store, Now: func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }})
	f.must(err)
	client := pen{scribe{Client: f.local, b: &Board{t: f.T}, seen: timeless}, f}
	h, err := httpd.New(httpd.Config{Client: client})
	f.must(err)
	server := &httpd.Server{Handler: h}
	for _, m := range f.boards {
		l, dial := httpd.Pipe(api.User{Name: "system:node:" + m.name, Groups: []string{"system:nodes"}})
		server.Listeners = append(server.Listeners, l)
		m.dial.Store(&dial)
	}
	f.nodes = api.NewView[*corev1.Node](f.local, api.Nodes, api.Selection{})
	f.all = api.NewView[*corev1.Pod](f.local, api.Pods, api.Selection{})
	ctx, cancel := context.WithCancel(f.ctx)
	g, ctx := errgroup.WithContext(ctx)
	loops := controller.Config{Client: clocked{client, &f.ahead}, TerminatedPods: keptTerminated}
	for _, run := range []func(context.Context) error{f.store.Run, f.local.Run, server.Run, f.nodes.Run, f.all.Run,
		func(ctx context.Context) error { return controller.Run(ctx, loops) }} {
		g.Go(func() error { return run(ctx) })
	}
	synctest.Wait()
	f.stop = func() error {
		cancel()
		return errors.Join(g.Wait(), f.store.Close())
	}
}

// killPlane ends the control plane as a power cut does: the file holds what it held at that moment.
func (f *fleet) killPlane() {
	f.Helper()
	synctest.Wait() // no goroutine is in the middle of a write
	kept := filepath.Join(f.dir, "kept")
	f.must(copyDir(f.storeDir(), kept))
	_ = f.stop() // what it flushes now is thrown away
	f.must(os.RemoveAll(f.storeDir()))
	f.must(os.Rename(kept, f.storeDir()))
}

// noServer is a control plane at an address that nobody has.
const noServer = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://192.0.2.1"}}], users: [{name: u, user: {}}]}`

// start starts the brain of a board that has joined. Its uplink is a link that can be cut, and has a clock of its own.
func (f *fleet) start(m *member) {
	f.Helper()
	run := filepath.Join(m.dir, "run")
	f.must(os.MkdirAll(m.machine.disk, 0o700))
	f.must(os.MkdirAll(run, 0o700))
	way := &door{}
	rims := played.Board{Host: m.machine.host, Machine: machinefake.Machine{See: m.machine.look, Waits: make(chan string)},
		Engine: card{engineDoor{door: way, Engine: m.engine, starts: m.starts}, f, m}, Images: imageDoor{door: way, Store: m.images},
		Network: networks(way, m.network, f.Errorf), Signals: make(chan os.Signal, 1), Keys: m.machine.keys()}.Rims()
	rims.Uplink = func(api.Client) api.Client { return clocked{m.client, &m.ahead} }
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() { ended <- process(m.how, run, rims, f.Errorf).Run(ctx) }()
	synctest.Wait()
	select {
	case err := <-ended:
		cancel()
		f.Fatalf("%s: %s does not start: %v", f.now(), m.name, err)
	default:
	}
	m.end = func() error {
		way.shut.Store(true)
		cancel()
		m.stall.Store(0)
		return <-ended
	}
	m.touched = time.Now()
}

// kill takes a board's power away.
func (f *fleet) kill(m *member) {
	f.Helper()
	if m.end == nil {
		return
	}
	synctest.Wait() // no goroutine is in the middle of a write
	f.must(frozen(filepath.Join(m.machine.disk, "store"), func() {
		if err := m.end(); err != nil {
			f.Errorf("%s ended with %v", m.name, err)
		}
	}))
	m.end = nil
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
