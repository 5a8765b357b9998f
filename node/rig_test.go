package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	"ledge/node/machine"
	machinefake "ledge/node/machine/fake"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
	"ledge/storage"
)

const image = "example.com/app:v1"

// rig is an agent with everything around it played, in a bubble of simulated time.
type rig struct {
	*testing.T
	api.Client // what the test does as the user
	via        *line
	engine     *enginefake.Engine
	images     *imagesfake.Store
	network    *networkfake.Machine
	board      *playedBoard
	machine    *machinefake.Machine // of the board
	events     *playedEvents
	dir        string
	cfg        Config

	agent *Agent
	stop  func()
}

// with runs fn beside an agent on a fresh board. does says how containers behave, by their name.
func with(t *testing.T, does map[string]enginefake.Behaviour, fn func(r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(dir, "store"), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		client, err := local.New(local.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		net, err := networkfake.NewMachine(netip.MustParsePrefix("10.0.0.0/24"))
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{T: t, Client: client, via: &line{Client: client}, network: net, dir: dir, events: &playedEvents{},
			board: &playedBoard{sample: sampleBoard()}, images: &imagesfake.Store{Dir: filepath.Join(dir, "roots")},
			engine: enginefake.New(enginefake.Config{Script: func(c runtime.Container) enginefake.Behaviour { return does[c.Name] }})}
		r.machine = &machinefake.Machine{See: r.board.look}
		r.addImage(image)
		r.cfg = Config{Name: "n", Version: "v1.2.3", Client: r.via, Engine: r.engine, Images: rootMaker{r.images},
			Network: networkfake.New(net), Machine: r.machine, Events: r.events, DataDir: filepath.Join(dir, "data"),
			RunDir: filepath.Join(dir, "run"), ResolvConf: filepath.Join(dir, "resolv.conf"), HostsFile: filepath.Join(dir, "hosts")}
		fn(r)
		r.end()
	})
}

// begin starts an agent; another one, when one was there before.
func (r *rig) begin() {
	r.Helper()
	r.end()
	var err error
	if r.agent, err = New(r.cfg); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.Errorf("the agent ended with %v", err)
		}
	}
	synctest.Wait()
}

func (r *rig) end() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) addImage(names ...string) {
	r.Helper()
	if _, err := r.images.Add(images.Image{Names: names}); err != nil {
		r.Fatal(err)
	}
}

// pod makes a pod on this node.
func (r *rig) pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	r.Helper()
	p, err := api.Create(r.Context(), r.Client, api.Pods, aPod(name, edit...))
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
	return p
}

func aPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName = "n"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: image, Command: []string{"app"}}}
	for _, f := range edit {
		f(p)
	}
	return p
}

func policy(p corev1.RestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
}

func (r *rig) get(name string) *corev1.Pod {
	r.Helper()
	p, err := api.Get[*corev1.Pod](r.Context(), r.Client, api.Pods, "default", name)
	if err != nil {
		r.Fatal(err)
	}
	return p
}

func (r *rig) gone(name string) bool {
	_, err := r.Get(r.Context(), api.Pods, "default", name)
	return apierrors.IsNotFound(err)
}

func (r *rig) delete(name string, grace *int64) {
	r.Helper()
	if _, err := r.Delete(r.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: grace}); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) node() *corev1.Node {
	r.Helper()
	n, err := api.Get[*corev1.Node](r.Context(), r.Client, api.Nodes, "", "n")
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// running are the IDs of the containers that run, without the pod's UID.
func (r *rig) running() []string {
	r.Helper()
	st, err := r.engine.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			out = append(out, strings.TrimPrefix(c.ID, c.PodUID+"."))
		}
	}
	return out
}

// left are the pods that the engine still holds.
func (r *rig) left() (uids []string) {
	r.Helper()
	st, err := r.engine.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, p := range st.Pods {
		uids = append(uids, p.Pod.UID)
	}
	return uids
}

func (r *rig) want(what string, got []string, want ...string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// nothingLeft checks that no pod has anything on the board any more.
func (r *rig) nothingLeft() {
	r.Helper()
	st, err := r.engine.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	if len(st.Pods)+len(st.Containers) > 0 || len(r.images.Mounts()) > 0 || len(r.network.Pods()) > 0 {
		r.Errorf("left in the engine: %v, the images: %v, the network: %v", st, r.images.Mounts(), r.network.Pods())
	}
	for _, dir := range []string{"data/volumes", "data/logs", "run/volumes", "run/config", "run/subpaths", "run/files", "run/podfiles"} {
		entries, err := os.ReadDir(filepath.Join(r.dir, dir))
		if err == nil && len(entries) > 0 {
			r.Errorf("left in %s: %v", dir, entries)
		}
	}
}

// line is the agent's way to the API: counted, and it can be made to fail.
type line struct {
	api.Client

	mu    sync.Mutex
	fail  func(verb string, kind *api.Kind) error
	calls map[string]int
}

// break makes calls fail for which f has an error; nil mends it.
func (l *line) breaks(f func(verb string, kind *api.Kind) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

func (l *line) count(call string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[call]
}

func (l *line) call(verb string, kind *api.Kind) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[verb+" "+kind.Resource]++
	if l.fail == nil {
		return nil
	}
	return l.fail(verb, kind)
}

// down is an API that cannot be reached.
func down(string, *api.Kind) error { return apierrors.NewServiceUnavailable("the API is away") }

// failing makes one call fail.
func failing(call string, err error) func(string, *api.Kind) error {
	return func(verb string, kind *api.Kind) error {
		if verb+" "+kind.Resource == call {
			return err
		}
		return nil
	}
}

func (l *line) Get(ctx context.Context, k *api.Kind, ns, name string) (api.Object, error) {
	if err := l.call("get", k); err != nil {
		return nil, err
	}
	return l.Client.Get(ctx, k, ns, name)
}

func (l *line) List(ctx context.Context, k *api.Kind, o api.ListOptions) (api.List, error) {
	if err := l.call("list", k); err != nil {
		return api.List{}, err
	}
	return l.Client.List(ctx, k, o)
}

func (l *line) Create(ctx context.Context, k *api.Kind, obj api.Object, o api.WriteOptions) (api.Object, error) {
	if err := l.call("create", k); err != nil {
		return nil, err
	}
	return l.Client.Create(ctx, k, obj, o)
}

func (l *line) Update(ctx context.Context, k *api.Kind, obj api.Object, o api.WriteOptions) (api.Object, error) {
	if err := l.call("update", k); err != nil {
		return nil, err
	}
	return l.Client.Update(ctx, k, obj, o)
}

func (l *line) Delete(ctx context.Context, k *api.Kind, ns, name string, o api.DeleteOptions) (api.Object, error) {
	if err := l.call("delete", k); err != nil {
		return nil, err
	}
	return l.Client.Delete(ctx, k, ns, name, o)
}

// rootMaker makes the root file systems that the fake store only names.
type rootMaker struct{ *imagesfake.Store }

func (m rootMaker) Mount(ctx context.Context, id, key string) (string, error) {
	dir, err := m.Store.Mount(ctx, id, key)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// playedBoard is the hardware, which may be changed.
type playedBoard struct {
	mu     sync.Mutex
	sample machine.Sample
	err    error
}

func (b *playedBoard) look() (machine.Sample, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sample, b.err
}

func (b *playedBoard) change(fn func(*machine.Sample)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn(&b.sample)
}

func sampleBoard() machine.Sample {
	s := machinefake.Board("n")
	s.Addresses = append(s.Addresses, netip.MustParseAddr("2001:db8::10"))
	return s
}

// playedEvents keeps events as "Type Reason object: message".
type playedEvents struct {
	mu   sync.Mutex
	list []string
}

func (e *playedEvents) Event(object api.Object, eventType, reason, message string) {
	e.note(object.GetName(), eventType, reason, message)
}

func (e *playedEvents) EventOn(ref corev1.ObjectReference, eventType, reason, message string) {
	e.note(ref.Name, eventType, reason, message)
}

func (e *playedEvents) Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	e.note(ref.Name, eventType, reason, fmt.Sprint(message, annotations))
}

func (e *playedEvents) note(name, eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf("%s %s %s: %s", eventType, reason, name, message))
}

// of are the events with one of these reasons, in order.
func (e *playedEvents) of(reasons ...string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, line := range e.list {
		if slices.Contains(reasons, strings.Fields(line)[1]) {
			out = append(out, line)
		}
	}
	return out
}

// idle is the config of an agent whose rooms are never asked anything.
func idle(dataDir, runDir string) Config {
	return Config{Name: "n", Client: &line{}, Engine: enginefake.New(enginefake.Config{}), Images: &imagesfake.Store{},
		Network: networkfake.New(nil), Machine: machinefake.Of(machine.Sample{}), DataDir: dataDir, RunDir: runDir}
}

func isReady(n *corev1.Node) bool { return api.NodeReady(n) }
