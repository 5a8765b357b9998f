package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/controller"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	"ledge/node"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
	"ledge/storage"
)

// fleet is a shed of boards with one control plane: real agents over pipes, a real store, the real loops.
type fleet struct {
	*testing.T
	rng    *rand.Rand
	dir    string
	ctx    context.Context
	boards []*member
	pods   int // that the user wants

	store *storage.Store
	local *local.Client
	stop  func()
}

// member is one board of a fleet.
type member struct {
	name    string
	dir     string
	machine *Machine
	engine  *enginefake.Engine
	images  *imagesfake.Store
	network *networkfake.Machine
	up      *uplink
	dial    atomic.Pointer[func(context.Context) (net.Conn, error)]
	client  *rest.Client
	agent   *node.Agent
	end     func() error // nil: it is off
	boots   int
	touched time.Time // when a fault of its own last ended
}

func newFleet(t *testing.T, seed uint64, boards int) *fleet {
	f := &fleet{T: t, rng: rand.New(rand.NewPCG(seed, 0xf1ee7)), dir: t.TempDir(), ctx: context.WithoutCancel(t.Context()), pods: 3 * boards}
	for i := range boards {
		m := &member{name: fmt.Sprintf("board-%d", i), up: &uplink{conns: map[net.Conn]bool{}}, engine: enginefake.New(enginefake.Config{Script: Script})}
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
		f.boards = append(f.boards, m)
	}
	f.startPlane()
	for _, m := range f.boards {
		f.start(m)
	}
	t.Cleanup(func() {
		for _, m := range f.boards {
			f.kill(m)
			m.client.Close()
		}
		f.stop()
	})
	return f
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", time.Now().UTC().Format("02 15:04:05"), err)
	}
}

// pen is the scribe of a fleet: one writer per field (DESIGN 6.10), whichever board it is.
type pen struct{ scribe }

// Delete implements api.Client; what is left on a board is looked at when the fleet has settled.
func (p pen) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	out, err := p.Client.Delete(ctx, kind, namespace, name, opts)
	if err == nil {
		p.judge(ctx, "delete "+kind.Resource)
	}
	return out, err
}

// Update implements api.Client. Of pods that no board will ever finish, the control plane says that they failed (N-3.47).
func (p pen) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if pod, ok := obj.(*corev1.Pod); ok && writer(ctx) == byPlane && pod.Status.Phase == corev1.PodFailed {
		return p.Client.Update(ctx, kind, obj, opts)
	}
	return p.scribe.Update(ctx, kind, obj, opts)
}

// startPlane starts the control plane, over the store as it was left.
func (f *fleet) startPlane() {
	f.Helper()
	var err error
	f.store, err = storage.Open(f.ctx, storage.Config{Dir: filepath.Join(f.dir, "store"), NoSync: true})
	f.must(err)
	f.local, err = local.New(local.Config{Store: f.store})
	f.must(err)
	client := pen{scribe{Client: f.local, b: &Board{t: f.T}}}
	h, err := httpd.New(httpd.Config{Client: client})
	f.must(err)
	server := &httpd.Server{Handler: h}
	for _, m := range f.boards {
		l, dial := httpd.Pipe(api.User{Name: "system:node:" + m.name, Groups: []string{"system:nodes"}})
		server.Listeners = append(server.Listeners, l)
		m.dial.Store(&dial)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	g, ctx := errgroup.WithContext(ctx)
	loops := controller.Config{Client: client, TerminatedPods: keptTerminated}
	for _, run := range []func(context.Context) error{f.store.Run, f.local.Run, server.Run,
		func(ctx context.Context) error { return controller.Run(ctx, loops) }} {
		g.Go(func() error { return run(ctx) })
	}
	synctest.Wait()
	f.stop = func() {
		cancel()
		if err := errors.Join(g.Wait(), f.store.Close()); err != nil {
			f.Errorf("the control plane ended with %v", err)
		}
	}
}

// start starts a board's agent.
func (f *fleet) start(m *member) {
	f.Helper()
	run := filepath.Join(m.dir, "run")
	f.must(os.MkdirAll(m.machine.disk, 0o700))
	f.must(os.MkdirAll(run, 0o700))
	resolv := filepath.Join(m.dir, "resolv.conf")
	f.must(os.WriteFile(resolv, []byte("nameserver 192.0.2.1\n"), 0o600))
	events := api.NewRecorder(m.client, "kubelet", m.name)
	var err error
	m.agent, err = node.New(node.Config{Name: m.name, Version: "v0.0.0-sim", Client: m.client, Engine: m.engine, Images: imageDoor{door: &door{}, store: m.images},
		Network: networkfake.New(m.network), Board: m.machine, Events: events, DataDir: m.machine.disk, RunDir: run,
		Status: node.StatusConfig{Eviction: patient()}, ResolvConf: resolv})
	f.must(err)
	ctx, cancel := context.WithCancel(f.ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.agent.Run(ctx) })
	g.Go(func() error { return events.Run(ctx) })
	m.end = func() error { cancel(); return g.Wait() }
	m.touched = time.Now()
	synctest.Wait()
}

// kill takes a board's power away.
func (f *fleet) kill(m *member) {
	f.Helper()
	if m.end == nil {
		return
	}
	if err := m.end(); err != nil {
		f.Errorf("%s ended with %v", m.name, err)
	}
	m.end = nil
	m.engine.Reboot()
	f.must(m.images.Retain(f.ctx, nil))
	for _, uid := range m.network.Pods() {
		f.must(networkfake.New(m.network).Detach(f.ctx, uid))
	}
	f.must(unmountBelow(filepath.Join(m.dir, "run", "volumes")))
	f.must(os.RemoveAll(filepath.Join(m.dir, "run")))
	f.must(os.RemoveAll(m.images.Dir))
	m.boots++
	m.machine.Change(func(s *node.Sample) { s.BootID = fmt.Sprintf("boot-%d", m.boots) })
}

func (f *fleet) listPods() []*corev1.Pod {
	f.Helper()
	list, err := f.local.List(f.ctx, api.Pods, api.ListOptions{})
	f.must(err)
	var out []*corev1.Pod
	for _, o := range list.Items {
		out = append(out, o.(*corev1.Pod))
	}
	return out
}

// stock makes the pods that the user wants and that are not there: bare ones, that nobody else makes again.
func (f *fleet) stock() {
	f.Helper()
	for i := range f.pods {
		p := Pod(fmt.Sprint("p-", i), WantSteady, corev1.RestartPolicyAlways, "run", "stop=500ms")
		_, err := api.Create(api.WithUser(f.ctx, api.User{Name: "user", Groups: []string{api.AdminGroup}}), f.local, api.Pods, p)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			f.must(err)
		}
	}
}

// running is the containers that run on a board, by pod.
func (f *fleet) running(m *member) map[string]int {
	f.Helper()
	st, err := m.engine.List(f.ctx)
	if errors.Is(err, runtime.ErrUnavailable) {
		return nil
	}
	f.must(err)
	out := map[string]int{}
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			out[c.PodUID]++
		}
	}
	return out
}

// always checks what is true at any moment: a pod runs on one board at most, where it is bound, and a board that nothing
// happened to is ready.
func (f *fleet) always() {
	f.Helper()
	at := map[string]string{}
	for _, m := range f.boards {
		for uid := range f.running(m) {
			if at[uid] != "" {
				f.Errorf("pod %s runs on %s and %s", uid, at[uid], m.name)
			}
			at[uid] = m.name
		}
	}
	for _, p := range f.listPods() {
		if on := at[string(p.UID)]; on != "" && on != p.Spec.NodeName {
			f.Errorf("pod %s is bound to %q and runs on %s", p.Name, p.Spec.NodeName, on)
		}
	}
	for _, m := range f.boards {
		if m.end == nil || m.touched.IsZero() || time.Since(m.touched) < 2*time.Minute {
			continue
		}
		n, err := api.Get[*corev1.Node](f.ctx, f.local, api.Nodes, "", m.name)
		f.must(err)
		if !nodeReady(n) {
			f.Errorf("%s is not ready, and nothing happened to it: %+v", m.name, n.Status.Conditions)
		}
	}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pass lets time go by, looking every half minute.
func (f *fleet) pass(d time.Duration) {
	f.Helper()
	for ; d > 0 && !f.Failed(); d -= 30 * time.Second {
		time.Sleep(min(d, 30*time.Second))
		synctest.Wait()
		f.always()
	}
}

// settle waits until all is well, and says what is not.
func (f *fleet) settle(within time.Duration) {
	f.Helper()
	var err error
	for end := time.Now().Add(within); time.Now().Before(end); f.pass(10 * time.Second) {
		f.stock()
		synctest.Wait()
		if err = f.wrong(); err == nil || f.Failed() {
			return
		}
	}
	f.Errorf("not well after %s: %v", within, err)
}

func (f *fleet) wrong() error {
	f.Helper()
	bound, pods := map[string]string{}, f.listPods()
	for _, p := range pods {
		if p.DeletionTimestamp != nil || !isTrue(p, corev1.PodReady) {
			return fmt.Errorf("pod %s on %q: %s, deleted %v, %+v", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Status.ContainerStatuses)
		}
		bound[string(p.UID)] = p.Spec.NodeName
	}
	if len(pods) != f.pods {
		return fmt.Errorf("%d pods, %d are wanted", len(pods), f.pods)
	}
	total := 0
	for _, m := range f.boards {
		n, err := api.Get[*corev1.Node](f.ctx, f.local, api.Nodes, "", m.name)
		if err != nil || !nodeReady(n) || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("%s: %w, taints %v", m.name, err, n.Spec.Taints)
		}
		for uid := range f.running(m) {
			if total++; bound[uid] != m.name {
				return fmt.Errorf("%s runs pod %s, which is bound to %q", m.name, uid, bound[uid])
			}
		}
	}
	if total != f.pods {
		return fmt.Errorf("%d pods run, %d are wanted", total, f.pods)
	}
	return nil
}

// some is that many boards.
func (f *fleet) some(n int) []*member {
	out := make([]*member, 0, n)
	for _, i := range f.rng.Perm(len(f.boards))[:n] {
		out = append(out, f.boards[i])
	}
	return out
}

// during has some boards in trouble for a time, and the others watched.
func (f *fleet) during(boards []*member, d time.Duration, begin, end func(*member)) {
	for _, m := range boards {
		m.touched = time.Time{}
		begin(m)
	}
	f.pass(d)
	for _, m := range boards {
		end(m)
		m.touched = time.Now()
	}
	synctest.Wait()
}

// cut takes the links of some boards away. Pods of boards that are given up are deleted; when most of a zone is silent,
// or all of it, nobody is given up (N-3.37, N-3.38, N-3.41), and a cut shorter than the toleration ends nobody (N-3.29).
func (f *fleet) cut(n int, d time.Duration) {
	boards := f.some(n)
	on := map[string]bool{}
	for _, m := range boards {
		on[m.name] = true
	}
	f.during(boards, d, func(m *member) { m.up.set(true) }, func(m *member) {
		if m == boards[0] { // before the first comes back
			f.judgeCut(on, d)
		}
		m.up.set(false)
	})
}

// fewGivenUp is how many boards may be given up before it is seen that most of them are silent: they are not heard for the
// last time at one moment, and the first one's turn comes at once.
const fewGivenUp = 3

func (f *fleet) judgeCut(on map[string]bool, d time.Duration) {
	f.Helper()
	n, most := len(on), len(on) > len(f.boards)/2
	ended := map[string]bool{}
	for _, p := range f.listPods() {
		gone := p.DeletionTimestamp != nil
		if !on[p.Spec.NodeName] {
			continue
		}
		if ended[p.Spec.NodeName] = ended[p.Spec.NodeName] || gone; !most && d > 15*time.Minute && !gone {
			f.Errorf("%d boards were cut off for %s, and pod %s on %s stays", n, d, p.Name, p.Spec.NodeName)
		}
	}
	given := 0
	for _, gone := range ended {
		if gone {
			given++
		}
	}
	if n == len(f.boards) && given > 0 || most && given > fewGivenUp || d < 5*time.Minute && given > 0 {
		f.Errorf("%d of %d boards were cut off for %s, and %d were given up", n, len(f.boards), d, given)
	}
}

// mischief does things to the fleet for a time, as the seed says.
func (f *fleet) mischief(long time.Duration) {
	f.settle(5 * time.Minute)
	upTo := func(d time.Duration) time.Duration { return time.Duration(f.rng.Int64N(int64(d))) }
	half := len(f.boards) / 2
	for end := time.Now().Add(long); time.Now().Before(end) && !f.Failed(); {
		deed := f.rng.IntN(8)
		f.Logf("%s: deed %d", time.Now().UTC().Format("02 15:04:05"), deed)
		switch deed {
		case 0:
			f.cut(1+f.rng.IntN(half), upTo(4*time.Minute))
		case 1:
			f.cut(1+f.rng.IntN(half), 16*time.Minute+upTo(10*time.Minute))
		case 2:
			f.cut(len(f.boards)*6/10+f.rng.IntN(len(f.boards)*4/10), 10*time.Minute+upTo(20*time.Minute))
		case 3:
			f.cut(len(f.boards), 10*time.Minute+upTo(20*time.Minute))
		case 4: // sudden death, and return
			f.during(f.some(1+f.rng.IntN(half)), upTo(20*time.Minute), f.kill, f.start)
		case 5: // a card that stalls
			f.during(f.some(1+f.rng.IntN(half)), 30*time.Second, func(m *member) { m.engine.SetAway(true) }, func(m *member) { m.engine.SetAway(false) })
		case 6: // the control plane is restarted, also while boards die
			for _, m := range f.boards {
				m.touched = time.Time{}
			}
			f.stop()
			time.Sleep(upTo(3 * time.Minute))
			f.startPlane()
			for _, m := range f.boards {
				m.touched = time.Now()
			}
		case 7: // a board is taken out of service while it is off, replaced under its name, and comes back empty
			m := f.some(1)[0]
			f.during([]*member{m}, 5*time.Minute, f.kill, func(m *member) {
				_, err := f.local.Delete(f.ctx, api.Nodes, "", m.name, api.DeleteOptions{})
				f.must(err)
				f.pass(upTo(2 * time.Minute))
				f.start(m)
			})
		}
		f.settle(8 * time.Minute)
		f.pass(upTo(20 * time.Minute))
		f.settle(time.Minute)
	}
}

// play has a fleet of some boards live through mischief.
func (f fleets) play(t *testing.T) {
	s, began, simulated := seed(t), time.Now(), time.Duration(0)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		newFleet(t, s, f.boards).mischief(f.long)
		simulated = time.Since(start)
	})
	journal.take(t)
	t.Logf("%s simulated in %s", simulated.Round(time.Second), time.Since(began).Round(time.Millisecond))
}

type fleets struct {
	boards int
	long   time.Duration
}

// TestFleet: ten boards and what may happen to them, with DESIGN 6.10 held at every write.
func TestFleet(t *testing.T) {
	long := 90 * time.Minute
	if raced {
		long = 10 * time.Minute
	}
	fleets{10, long}.play(t)
}

// TestFleetDay is a day of ten boards, and hours of a hundred; set LEDGE_LONG.
func TestFleetDay(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" || raced {
		t.Skip("takes minutes: set LEDGE_LONG, without the race detector")
	}
	t.Run("ten", fleets{10, 24 * time.Hour}.play)
	t.Run("hundred", fleets{100, 2 * time.Hour}.play)
}
