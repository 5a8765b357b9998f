// Package node is the agent: it follows the pods bound to this board and makes them true. One goroutine, the
// worker, owns each pod; it asks node/podstate what to do and carries it out. The agent also registers the
// Node, posts its status and keeps its Lease.
//
// It sees neither storage nor HTTP: only an api.Client, which may be in process, on another board, or a real
// kube-apiserver.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/images"
	"ledge/lease"
	"ledge/network"
	"ledge/node/claims"
	"ledge/node/devices"
	"ledge/node/evict"
	"ledge/node/machine"
	"ledge/node/plugins"
	"ledge/node/podlog"
	"ledge/node/podspec"
	"ledge/node/podstate"
	"ledge/node/poster"
	"ledge/node/probe"
	"ledge/node/static"
	"ledge/node/stats"
	"ledge/node/volume"
	"ledge/runtime"
)

// Config is what an agent needs. The interfaces are joined to their adapters in cmd/ledge.
type Config struct {
	Name    string // of the Node
	Version string // reported as kubeletVersion (api.VersionOf)
	Client  api.Client
	Engine  Engine
	Images  images.Store
	Network network.Setup
	Machine Machine
	Events  Recorder // nil: nobody reads any

	Believed func() bool // whether the clock is right, as far as anybody knows; nil: it is

	DataDir string // volumes and logs
	Logs    podlog.Config
	Static  static.Config
	Stats   *stats.Collector // nil: pods are not measured
	// Shrink gives back room on the disk that ledge's own files hold for nothing; false: none. May be nil.
	Shrink     func(ctx context.Context) (freed bool, err error)
	Written    func(id string) string // where what a container writes to its root file system is; may be nil
	RunDir     string                 // files that die with the boot
	OwnFiles   int64                  // bytes that a pod may write to what every container is given, /etc/hosts and its like; 0: no bound
	ResolvConf string                 // the host's resolver configuration
	HostsFile  string                 // the host's /etc/hosts; empty: that path

	// APIServer is where pods find the API that their tokens are for; not valid: nowhere. An unspecified address is
	// the node's own.
	APIServer netip.AddrPort

	// Services are those of a namespace and the API's, for the variables that tell pods where they are. It waits while they are not known
	// yet, and asks nobody. nil: pods are told where the API is, and nothing else.
	Services func(ctx context.Context, namespace string) ([]*corev1.Service, error)

	// ClusterDNS is who is asked by pods with dnsPolicy ClusterFirst, just now; nil, or nobody: they ask whom the host asks.
	ClusterDNS    func() []string
	ClusterDomain string // "": cluster.local

	// Hold leaves the pods as they are until Release, and the Node not ready with this message. Empty: they are looked
	// after at once.
	Hold string

	// Lineage names the unbroken run of what the store behind the API knows: another one says that it may have lost pods.
	// Restore puts such a pod back, uid and all; false: there is a newer one of that name. Deleted says that one was not
	// lost but deleted. All three, or none: the API is elsewhere, and what it has forgotten is told by its client.
	Lineage string
	Restore func(context.Context, *corev1.Pod) (bool, error)
	Deleted func(namespace, name string) bool

	Registration poster.Registration
	Status       poster.StatusConfig
	Resources    podspec.ResourceConfig
	Reclaim      bool            // memory is taken back from a pod before one is evicted
	Sysctls      podspec.Sysctls // that pods may set besides the safe ones

	// Conditions are written to the Node beside Kubernetes' own. One without a status is removed; a condition that is
	// not returned stays. May be nil.
	Conditions func() []corev1.NodeCondition
	// Handed is called when all pods of this board are known, and after each change of them. May be nil.
	Handed func()
	// Seen is shown the Node as the API has it, at each look at its status; true asks for another look at once. May be nil.
	Seen func(*corev1.Node) bool
	// Shutdowns is when the last orderly shutdown began and when it ended, for the metrics. May be nil.
	Shutdowns func() (begun, ended time.Time)
	// Questions for names that this board has answered so far, by kind, for the metrics. May be nil.
	Questions func(each func(kind string, n uint64))
	// ClaimWrites is what pods that had a claim have written to its disk since the boot, for the metrics. May be nil.
	ClaimWrites func(each func(namespace, claim string, bytes int64))

	// Disks hold claims beside the card; nil: none. DiskGone says of a mount, by its numbers, whether its disk was taken away; nil: none is.
	Disks    *claims.Disks
	DiskGone func(major, minor int) (bool, error)
	Sizes    claims.Sizes // hold claims on the card to a size; nil: the kernel does

	// Devices are what pods may have; nil: they are given none.
	Devices *devices.Board

	// Plugins are the device plugins that give what they have to pods; nil: there are none.
	Plugins *plugins.Plugins

	// NoPodNetwork puts every pod on the host's network, whatever it asks for: a board without bridges.
	NoPodNetwork bool
	// Unconfined runs containers without the default system call filter unless they ask for it, as a kubelet
	// with seccompDefault: false does.
	Unconfined bool
}

// Machine is the hardware and the kernel under an agent, as it measures and uses them: brain.MachineOf is the real one, node/machine/fake
// is played.
type Machine interface {
	evict.Machine
	// Sample is a look at everything. An error says that nothing could be read; what only some of could not is in the sample's Unread.
	Sample() (machine.Sample, error)
	// Dial connects to a loopback port in a network namespace.
	Dial(ctx context.Context, netns string, port uint16) (net.Conn, error)
}

// Engine runs containers and changes their limits.
type Engine interface {
	runtime.Engine
	runtime.Limiter
	runtime.Attacher
}

// Recorder takes events for users to read. It never blocks.
type Recorder interface {
	Event(object api.Object, eventType, reason, message string)
	// EventOn speaks of a part of an object, such as one container of a pod.
	EventOn(ref corev1.ObjectReference, eventType, reason, message string)
	// Annotated is EventOn with annotations.
	Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string)
}

// silent tells nobody.
type silent struct{}

func (silent) Event(api.Object, string, string, string) {}

func (silent) EventOn(corev1.ObjectReference, string, string, string) {}

func (silent) Annotated(corev1.ObjectReference, map[string]string, string, string, string) {}

// Agent runs the pods of one board.
type Agent struct {
	streams
	usage

	cfg     Config
	pods    *api.View[*corev1.Pod]
	self    *api.View[*corev1.Node] // this board's Node
	volumes *volume.Volumes
	shelf   *claims.Shelf
	prober  *probe.Prober
	statics *static.Pods
	engine  *engineView
	evictor *evict.Evictor
	poster  *poster.Poster
	storage storageBounds
	hands   *hands
	roster  roster
	grants  grants
	outlook outlook

	searches  searches
	admission admission
	groups    groups
	sweeper   sweeper
	mirrors   *static.Mirrors
	logs      podlog.Logs
	sources   *sources
	tokens    *tokens

	mu       sync.Mutex
	closing  string        // not empty: new pods are refused, the Node is not ready, with this message
	clearing bool          // what stopped pods leave is removed although it is closed
	groupsCh chan struct{} // poked when what pods stand in should be bounded anew
	turns    chan struct{} // taken by the loop of reconcile whenever it comes round
	released chan struct{} // closed when pods are not held, or no longer
	handed   chan struct{} // closed when every pod has been handed to a worker once
}

// New prepares an agent.
func New(cfg Config) (*Agent, error) {
	if cfg.Name == "" || cfg.Client == nil || cfg.Engine == nil || cfg.Images == nil || cfg.Network == nil || cfg.Machine == nil {
		return nil, errors.New("node: Name, Client, Engine, Images, Network and Machine are required")
	}
	cfg.Status = cfg.Status.WithDefaults()
	if cfg.Events == nil {
		cfg.Events = silent{}
	}
	vols, err := volume.New(cfg.DataDir, cfg.RunDir)
	if err != nil {
		return nil, err
	}
	sel := api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", cfg.Name)}
	vols.Absent, vols.Gone = cfg.Disks.Absent, cfg.DiskGone
	a := &Agent{cfg: cfg, volumes: vols, shelf: claims.NewShelf(filepath.Join(cfg.DataDir, "claims"), cfg.Sizes),
		prober: probe.New(cfg.Engine, cfg.Version), pods: api.NewView[*corev1.Pod](cfg.Client, api.Pods, sel),
		self:     api.NewView[*corev1.Node](cfg.Client, api.Nodes, api.Selection{Fields: fields.OneTermEqualSelector("metadata.name", cfg.Name)}),
		grants:   grants{held: map[types.UID]corev1.ResourceList{}},
		groupsCh: make(chan struct{}, 1), turns: make(chan struct{}), released: make(chan struct{}), handed: make(chan struct{})}
	a.streams, a.usage, a.storage = streams{a}, usage{a}, storageBounds{a}
	a.admission, a.groups, a.sweeper = admission{a}, groups{a}, sweeper{a}
	a.hands = &hands{a: a, blocks: map[types.UID]runtime.IDRange{}}
	a.engine = newEngineView(cfg.Engine, engineEars{a})
	a.logs = podlog.Logs{Files: podlog.NewFiles(cfg.DataDir, cfg.RunDir, cfg.Logs), Pods: logPods{a}}
	cfg.Disks.OnCome(func() { // pods that wait for it are tried again
		for _, w := range a.roster.all() {
			w.sourcesChanged()
		}
	})
	a.evictor, a.poster = newEvictor(a), newPoster(a)
	a.statics = static.New(cfg.Name, cfg.DataDir, cfg.RunDir, cfg.Static, a.nodeWarning)
	a.mirrors = static.NewMirrors(cfg.Name, a.statics, shownIn{cfg.Client, a})
	if cfg.Hold == "" {
		close(a.released)
	}
	serveDevices(a)
	servePlugins(a)
	a.sources, a.tokens = newSources(cfg.Client, a.sourceChanged), newTokens(cfg.Client)
	return a, nil
}

// Shelf is where the claims of this board lie.
func (a *Agent) Shelf() *claims.Shelf { return a.shelf }

// Run works until ctx ends. Pods keep running: to stop them first use StopPod.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.pods.Run(ctx) })
	g.Go(func() error { return a.self.Run(ctx) })
	g.Go(func() error { return a.engine.Run(ctx) })
	g.Go(func() error { return a.sources.Run(ctx) })
	g.Go(func() error { return a.storage.Run(ctx) })
	g.Go(func() error { return a.evictor.Run(ctx) })
	g.Go(func() error { return a.poster.Run(ctx, a.evictor.Looked()) })
	g.Go(func() error { return a.reconcile(ctx, g) })
	g.Go(func() error { return a.renewLease(ctx) })
	g.Go(func() error { return a.usage.measure(ctx) })
	g.Go(func() error { return a.mirrors.Run(ctx, a.poster.Known(), a.pods.Synced()) })
	g.Go(func() error { return a.groups.tendGroups(ctx) })
	g.Go(func() error { return a.collectImages(ctx) })
	if cfg := a.cfg; cfg.Devices != nil {
		g.Go(func() error { return cfg.Devices.Run(ctx) })
	}
	if cfg := a.cfg; cfg.Plugins != nil {
		g.Go(func() error { return cfg.Plugins.Run(ctx) })
	}
	return g.Wait()
}

// renewLease begins once the Node is known: there is no Lease without one (N-2.3), and a first try that must fail
// would cost the first ten seconds.
func (a *Agent) renewLease(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.poster.Known():
	}
	r, err := lease.NewRenewer(lease.RenewerConfig{Client: a.cfg.Client, Node: a.cfg.Name, Duration: a.cfg.Status.LeaseDuration})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// nudge wakes who waits at c, if that is not to be woken already.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reconcile keeps one worker per pod bound here, and sweeps what no pod stands for. It begins when the board's
// addresses and memory are known: pods carry them, and would be written twice after each start.
func (a *Agent) reconcile(ctx context.Context, g *errgroup.Group) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.poster.Looked():
	}
	for held := true; held; {
		select {
		case <-ctx.Done():
			return nil
		case <-a.turns:
		case <-a.released:
			held = false
		}
	}
	a.statics.ReadFirst() // before anything is swept
	g.Go(func() error { return a.statics.Run(ctx, a.cfg.Static.Changed) })
	for synced := false; !synced; {
		a.dispatchStatic(ctx, g) // they wait for no API
		select {
		case <-ctx.Done():
			return nil
		case <-a.pods.Synced():
			synced = true
		case <-a.turns:
		case <-a.statics.Changed():
		}
	}
	for met := a.engine.met; !a.sweeper.sweep(ctx); {
		select {
		case <-ctx.Done():
			return nil
		case <-a.turns:
		case <-met:
			met = nil
		case <-time.After(200 * time.Millisecond):
		}
	}
	for first := true; ; first = false {
		a.dispatch(ctx, g)
		if first {
			close(a.handed)
		}
		if a.cfg.Handed != nil {
			a.cfg.Handed()
		}
		a.pokeGroups()
		a.mirrors.Poke()
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return nil
			case <-a.turns:
			case <-a.pods.Changed():
				changed = true
			case <-a.statics.Changed():
				changed = true
			}
		}
	}
}

// Turn returns when the loop that hands pods to their workers has gone round once: a sign of life for a watchdog.
func (a *Agent) Turn(ctx context.Context) error {
	select {
	case a.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dispatchStatic hands every static pod to its worker. A file that was changed makes another pod: the old one ends
// first (N-7.50).
func (a *Agent) dispatchStatic(ctx context.Context, g *errgroup.Group) {
	pods := a.statics.List()
	wanted := map[types.UID]bool{}
	for _, p := range pods {
		wanted[p.UID] = true
	}
	busy, closed := map[string]bool{}, a.Closed()
	for _, w := range a.roster.all() {
		switch {
		case !w.static:
		case !wanted[w.uid]:
			busy[api.Key(w.current()).String()] = true
			w.retire(time.Now())
		case w.stoppedForNothing() && !closed:
			a.statics.Restart(w.uid)
			w.vanished()
		}
	}
	for _, p := range pods {
		w := a.roster.of(p.UID)
		if w == nil && !busy[api.Key(p).String()] {
			w = newWorker(a, p)
			w.static, w.status.home = true, a.statics
			a.begin(ctx, g, w)
		}
		if w != nil {
			w.offer(p)
		}
	}
}

// begin has a worker look after its pod.
func (a *Agent) begin(ctx context.Context, g *errgroup.Group, w *worker) {
	a.roster.add(w)
	g.Go(func() error { w.run(ctx); return nil })
}

// dispatch hands every pod to its worker.
func (a *Agent) dispatch(ctx context.Context, g *errgroup.Group) {
	a.dispatchStatic(ctx, g)
	live := map[types.UID]bool{}
	pods := slices.DeleteFunc(a.pods.List(), api.IsMirror)
	a.grants.holdNew(pods)
	for _, p := range pods {
		live[p.UID] = true
		w := a.roster.of(p.UID)
		if w == nil {
			w = newWorker(a, p)
			a.sources.hold(p)
			a.begin(ctx, g, w)
		}
		w.offer(p)
	}
	for _, w := range a.roster.all() {
		if !live[w.uid] && !w.static {
			w.vanished()
		}
	}
}

// nodeWarning tells of something wrong with the board itself.
func (a *Agent) nodeWarning(reason, message string) {
	a.cfg.Events.EventOn(a.ref(), corev1.EventTypeWarning, reason, message)
}

// ref is the Node in events; its UID is the node's name, as describe looks for it (N-11.38).
func (a *Agent) ref() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: a.cfg.Name, UID: types.UID(a.cfg.Name)}
}

func (a *Agent) workerDone(w *worker) {
	if !a.roster.remove(w) {
		return
	}
	a.grants.release(w.uid)
	a.hands.freeUsers(w.uid)
	a.sources.release(w.uid)
	a.tokens.release(w.uid)
	if asksDevices(w.current()) {
		a.roster.tryDevices() // what it had may go to others
	}
	if w.static {
		a.statics.Poke() // what waited for its end may begin
	}
}

// sourceChanged tells a pod that something it names has come, changed or gone.
func (a *Agent) sourceChanged(uid types.UID) {
	if w := a.roster.of(uid); w != nil {
		w.sourcesChanged()
	}
}

// Close refuses new pods from now on, restarts no container and reports the Node not ready, with the message as the cause
// (N-5.17, N-5.30, N-5.41); an empty message opens it again (N-5.18).
func (a *Agent) Close(message string) {
	a.mu.Lock()
	a.closing, a.clearing = message, false
	a.mu.Unlock()
	if message == "" {
		a.roster.poke() // what has ended meanwhile may be due
	}
	a.statics.Poke()
	a.poster.Poke()
}

// Clear removes what stopped pods have left on a closed board: namespaces, addresses, cgroups, root file systems.
// StopPod leaves them, so that a shutdown does not wait for their removal. Clear does not wait.
func (a *Agent) Clear() {
	a.mu.Lock()
	a.clearing = true
	a.mu.Unlock()
	a.roster.poke()
}

// Cleared waits until nothing is left of pods that have ended.
func (a *Agent) Cleared(ctx context.Context) error {
	for _, w := range a.roster.all() {
		if !w.isEnded() {
			continue
		}
		select {
		case <-w.bare:
		case <-ctx.Done():
			return fmt.Errorf("remove what is left of pod %s: %w", api.Key(w.current()), ctx.Err())
		}
	}
	return nil
}

// Closed says whether new pods are refused.
func (a *Agent) Closed() bool { return a.closed() != "" }

func (a *Agent) closed() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closing
}

// goingDown says whether the board is, and whether what its pods leave is to be removed later.
func (a *Agent) goingDown() (closing, later bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closing != "", a.closing != "" && !a.clearing
}

// ErrUnknownPod says that no pod of that UID runs here.
var ErrUnknownPod = errors.New("no such pod on this node")

// StopPod is the only way to stop a pod from the board's side. It returns when the pod's containers have
// ended, its volumes are unmounted and its final status is in the API, or with ctx's error. On a closed board something of
// the pod may be left then: see Clear.
func (a *Agent) StopPod(ctx context.Context, uid types.UID, stop podstate.Stop) error {
	w := a.roster.of(uid)
	if w == nil {
		return fmt.Errorf("stop pod %s: %w", uid, ErrUnknownPod)
	}
	w.stop(stop)
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop pod %s: %w", uid, ctx.Err())
	}
}

// Stopping says whether pods that were stopped from the board's side have not ended yet.
func (a *Agent) Stopping() bool {
	for _, w := range a.roster.all() {
		if w.toldToStop() && !w.isEnded() {
			return true
		}
	}
	return false
}

// Release lets the pods go that were held from the start.
func (a *Agent) Release() {
	a.mu.Lock()
	if a.heldLocked() != "" {
		close(a.released)
	}
	a.mu.Unlock()
	a.poster.Poke()
}

// Held is why pods are left as they are; empty when they are not.
func (a *Agent) Held() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heldLocked()
}

func (a *Agent) heldLocked() string {
	select {
	case <-a.released:
		return ""
	default:
		return a.cfg.Hold
	}
}

// Handed is closed once Pods has all of them: a moment after a start it does not know them yet.
func (a *Agent) Handed() <-chan struct{} { return a.handed }

// Pods are the pods that still have something on this board.
func (a *Agent) Pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.roster.all() {
		if !w.isEnded() {
			out = append(out, w.current())
		}
	}
	return out
}

// ImagesChanged tells waiting pods that an image may have come.
func (a *Agent) ImagesChanged() {
	for _, w := range a.roster.all() {
		w.retryNow()
	}
}
