package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/grumble"
	"ledge/node/volume"
)

// Registration says how the Node object is made.
type Registration struct {
	Off        bool // --register-node=false (N-1.12)
	Labels     map[string]string
	Taints     []corev1.Taint
	NodeIPs    []netip.Addr // --node-ip (N-1.20)
	ExternalIP netip.Addr
	// External: a cloud controller owns addresses and removes a taint (N-1.14).
	External bool
	// Again: register anew when the Node is deleted (N-1.34).
	Again bool
}

// pickIPs follows N-1.20 to N-1.22: the addresses asked for, if all are the board's, else the default route's. None:
// the board has no address now, or not the one it should have.
func (r Registration) pickIPs(have []netip.Addr) []netip.Addr {
	var asked []netip.Addr
	v6first := false
	for _, ip := range r.NodeIPs {
		switch {
		case ip.IsUnspecified():
			v6first = ip.Is6()
		case slices.Contains(have, ip):
			asked = append(asked, ip)
		default:
			return nil
		}
	}
	if len(asked) > 0 {
		return asked
	}
	for _, ip := range have {
		if ip.Is6() == v6first {
			return []netip.Addr{ip}
		}
	}
	return have[:min(len(have), 1)]
}

// poster keeps the Node object: one goroutine.
type poster struct {
	a             *Agent
	began         time.Time
	registered    bool
	lastSent      time.Time
	delay         time.Duration // on top of the report period (N-2.13)
	ready         bool
	unschedulable *bool         // as last seen
	nextTry       time.Time     // to register, after a failure
	pause         time.Duration // before that
	grumble       grumble.Once
	noAddress     grumble.Once
	troubled      string // why it is not ready, as last told
	wrote         written
	rivals        int   // how often the Node was another's
	refused       error // why the last try to register failed
	wrong         error // a configuration that this board cannot have: the agent ends
}

// postStatus registers the Node, then keeps its status true.
func (a *Agent) postStatus(ctx context.Context) error {
	cfg := &a.cfg.Status
	defaultDuration(&cfg.UpdateEvery, 10*time.Second)
	defaultDuration(&cfg.ReportEvery, 5*time.Minute)
	if cfg.MaxPods == 0 {
		cfg.MaxPods = 110
	}
	p := &poster{a: a, began: time.Now()}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-a.evictor.Looked():
	}
	for {
		rest := time.Duration(float64(cfg.UpdateEvery) * (1 + 0.04*rand.Float64())) // N-2.11
		if err := p.sync(ctx); ctx.Err() == nil {
			p.grumble.About("cannot post node status", err, "node", a.cfg.Name)
		}
		if p.wrong != nil {
			return p.wrong
		}
		if !p.ready && !a.Closed() && time.Since(begin) < 120*time.Second {
			rest = 100 * time.Millisecond // N-2.16: do not let the first pods wait
		}
		if !p.registered && p.pause > 0 {
			rest = min(rest, max(time.Until(p.nextTry), 0))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.statusCh:
		case <-time.After(rest):
		}
	}
}

func defaultDuration(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

func (a *Agent) pokeStatus() {
	nudge(a.statusCh)
}

// sync looks at the board once and tells the API if there is something to tell.
func (p *poster) sync(ctx context.Context) error {
	early := p.early() // as of before the look: the engine may come while it is taken
	f, err := p.look(ctx)
	if err == nil {
		if p.wrong = f.overReserved(); p.wrong != nil {
			return p.wrong
		}
	}
	select {
	case <-p.a.looked:
	default:
		close(p.a.looked)
		p.warnOfSwap(volume.CanKeepOffSwap())
	}
	if err != nil {
		return err
	}
	if !p.registered && !p.a.cfg.Registration.Off {
		if f.now.Before(p.nextTry) {
			return p.refused
		}
		if p.refused = p.tryRegister(ctx, f); p.refused != nil {
			return p.refused
		}
	}
	if early {
		return nil
	}
	p.tellTroubles(f.troubles)
	for try := range 5 { // N-2.14
		err = p.send(ctx, f, try > 0)
		if err == nil || !apierrors.IsConflict(err) || ctx.Err() != nil {
			break
		}
		slog.Debug("node status conflict, reading again", "try", try)
	}
	if apierrors.IsNotFound(err) && p.a.cfg.Registration.Again {
		p.registered = false
	}
	if apierrors.IsConflict(err) {
		return fmt.Errorf("update node status exceeds retry count: %w", err)
	}
	return err
}

// How registration is tried again (N-1.27): a control plane that is away is not asked ten times a second by a fleet.
const (
	firstRegisterPause = 100 * time.Millisecond
	mostRegisterPause  = 7 * time.Second
)

func (p *poster) tryRegister(ctx context.Context, f facts) error {
	err := p.register(ctx, f)
	if err == nil {
		p.pause = 0
		return nil
	}
	p.pause = min(max(2*p.pause, firstRegisterPause), mostRegisterPause)
	p.nextTry = time.Now().Add(p.pause)
	return fmt.Errorf("register node %s: %w", f.name, err)
}

// tellTroubles logs why the node is not ready, when that changes: who looks at a board by its log alone has no other sign.
func (p *poster) tellTroubles(why string) {
	switch {
	case why == p.troubled:
	case why != "":
		slog.Warn("this node is not ready", "why", why)
	default:
		slog.Info("what kept this node from being ready is over")
	}
	p.troubled = why
}

// settling is how long a restarted brain may take to find its keeper before its Node is called not ready: a restart
// must not be seen as an outage.
const settling = 2 * time.Second

func (p *poster) early() bool {
	return !p.a.engine.reached() && time.Since(p.began) < settling
}

// look gathers the facts.
func (p *poster) look(ctx context.Context) (facts, error) {
	a := p.a
	before := a.usage.podTasks()
	sample, err := a.cfg.Machine.Sample()
	if err == nil {
		sample, err = sample.Since(a.outlook.last().sample)
	}
	if err != nil {
		return facts{}, fmt.Errorf("look at the board: %w", err)
	}
	a.usage.countTasks(before, sample)
	now := time.Now()
	f := facts{name: a.cfg.Name, sample: sample, cfg: a.cfg.Status, reg: a.cfg.Registration, version: a.cfg.Version,
		engine: "libcontainer://Unknown", now: now}
	f.pressure = a.evictor.Short()
	if a.engine.running() {
		info := a.engine.last()
		f.engine = info.Name + "://" + info.Version
	}
	if err := a.engine.fault(now); err != nil {
		f.faults = append(f.faults, err.Error())
	}
	if err := a.cfg.Network.Ready(ctx); err != nil {
		f.faults = append(f.faults, "container runtime network not ready: "+err.Error())
	}
	f.troubles = strings.Join(f.faults, "; ")
	if msg := a.closed(); msg != "" {
		f.faults = append(f.faults, msg)
	}
	if msg := a.Held(); msg != "" {
		f.faults = append(f.faults, msg)
	}
	f.images = p.imageList(ctx)
	if a.cfg.Conditions != nil {
		f.extra = a.cfg.Conditions()
	}
	f.extra = append(f.extra, a.engine.condition(now))
	var ips []string
	for _, ip := range f.reg.pickIPs(sample.Addresses) {
		ips = append(ips, ip.String())
	}
	var none error
	if len(ips) == 0 {
		none = fmt.Errorf("asked for %v, the board has %v", f.reg.NodeIPs, sample.Addresses)
	}
	p.noAddress.About("no address for this node; those it has stay", none, "node", f.name)
	a.outlook.set(sample, f.allocatable(), ips)
	return f, nil
}

func (p *poster) imageList(ctx context.Context) []corev1.ContainerImage {
	list, err := p.a.cfg.Images.List(ctx)
	if err != nil {
		return nil
	}
	return nodeImages(list)
}

// register makes the Node, or puts right the one that is there (N-1.27 to N-1.33).
func (p *poster) register(ctx context.Context, f facts) error {
	fresh := f.object()
	_, err := p.a.cfg.Client.Create(ctx, api.Nodes, fresh, api.WriteOptions{})
	if err == nil {
		slog.Info("registered node", "node", f.name)
		p.registered, p.lastSent, p.delay = true, time.Now(), p.spread()
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return err
	}
	old, gerr := api.Get[*corev1.Node](ctx, p.a.cfg.Client, api.Nodes, "", f.name)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	if reconcileLabels(old, fresh) {
		if _, err := api.Update(ctx, p.a.cfg.Client, api.Nodes, old); err != nil {
			return err
		}
	}
	if id := old.Status.NodeInfo.MachineID; id != "" && f.sample.MachineID != "" && id != f.sample.MachineID { // N-1.4
		slog.Warn("another machine had this name; delete the node first to replace one", "node", f.name, "was", id, "is", f.sample.MachineID)
		p.a.nodeEvent(corev1.EventTypeWarning, "MachineChanged",
			fmt.Sprintf("Node %s was the machine %s and is %s now", f.name, id, f.sample.MachineID))
	}
	if b := old.Status.NodeInfo.BootID; b != "" && b != f.sample.BootID { // N-1.51
		p.a.nodeEvent(corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", f.name, f.sample.BootID))
	}
	p.registered = true
	return nil
}

// object is the Node as first posted (N-1.28).
func (f facts) object() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name, Labels: map[string]string{
		corev1.LabelHostname: f.name, corev1.LabelOSStable: f.sample.OS, corev1.LabelArchStable: f.sample.Arch,
		"beta.kubernetes.io/os": f.sample.OS, "beta.kubernetes.io/arch": f.sample.Arch,
	}}}
	maps.Copy(n.Labels, f.reg.Labels)
	n.Spec.Taints = append(n.Spec.Taints, f.reg.Taints...)
	if f.reg.External {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized",
			Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	f.fill(n)
	f.tellIPs(n)
	return n
}

// providedIPs tells a cloud's controller which addresses this board was given (N-1.44).
const providedIPs = "alpha.kubernetes.io/provided-node-ip"

// tellIPs puts that annotation right; it says whether it changed.
func (f facts) tellIPs(n *corev1.Node) bool {
	var want []string
	if f.reg.External {
		for _, ip := range f.reg.NodeIPs {
			want = append(want, ip.String())
		}
	}
	have, is := n.Annotations[providedIPs]
	if text := strings.Join(want, ","); text != "" && have != text {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[providedIPs] = text
		return true
	} else if text == "" && is {
		delete(n.Annotations, providedIPs)
		return true
	}
	return false
}

// reconciledLabels are the label keys a restart puts right (N-1.31).
var reconciledLabels = []string{corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch"}

func reconcileLabels(old, fresh *corev1.Node) (changed bool) {
	for _, key := range reconciledLabels {
		want, ok := fresh.Labels[key]
		have, had := old.Labels[key]
		switch {
		case !ok || had && have == want:
			continue
		case want == "":
			delete(old.Labels, key)
			changed = changed || had
			continue
		}
		if old.Labels == nil {
			old.Labels = map[string]string{}
		}
		old.Labels[key], changed = want, true
	}
	return changed
}

// written is what the last write answered, and what it was written over.
type written struct {
	over string // a resource version
	node *corev1.Node
}

// recall returns the Node from the watch, shared with others. It asks the server only if the watch does not have the
// Node, or if a write has shown that the watch lags: asking every ten seconds would be half of a control plane's work
// in a fleet.
func (p *poster) recall(ctx context.Context, anew bool) (*corev1.Node, error) {
	n, ok := p.a.self.Get("", p.a.cfg.Name)
	switch {
	case !ok || anew:
		return api.Get[*corev1.Node](ctx, p.a.cfg.Client, api.Nodes, "", p.a.cfg.Name)
	case n.ResourceVersion == p.wrote.over: // our own write has not come round yet
		return p.wrote.node, nil
	}
	return n, nil
}

// send posts the status if it changed or has not been heard of for long (N-2.12).
func (p *poster) send(ctx context.Context, f facts, anew bool) (failed error) {
	defer func() { p.a.ready.Store(p.ready && failed == nil) }()
	old, err := p.recall(ctx, anew)
	if err != nil {
		return err
	}
	select {
	case <-p.a.known:
	default:
		close(p.a.known)
	}
	p.tellRival(old, f.sample.BootID)
	p.tellCordon(old.Spec.Unschedulable)
	if p.a.cfg.Seen != nil && p.a.cfg.Seen(old) {
		p.a.pokeStatus()
	}
	next := own(old)
	f.fill(next)
	fixed := reconcileLabels(next, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ // N-1.33
		corev1.LabelOSStable: f.sample.OS, corev1.LabelArchStable: f.sample.Arch}}})
	fixed = f.tellIPs(next) || fixed
	changed := fixed || !sameStatus(&old.Status, &next.Status)
	p.ready = isReady(next)
	now := time.Now()
	if !changed && now.Sub(p.lastSent) < p.a.cfg.Status.ReportEvery+p.delay {
		return nil
	}
	got, err := api.UpdateStatus(ctx, p.a.cfg.Client, api.Nodes, next)
	if err != nil {
		return err
	}
	p.wrote = written{over: old.ResourceVersion, node: got}
	if changed || p.lastSent.IsZero() {
		p.delay = p.spread()
	} else {
		p.delay = 0
	}
	p.lastSent = now
	p.tellChanges(old, next)
	return nil
}

// tellRival says that another board writes this Node too: somebody has copied a card that had an identity on it. One time may be a
// store that was put back from a copy.
func (p *poster) tellRival(n *corev1.Node, boot string) {
	other := n.Status.NodeInfo.BootID
	if p.wrote.node == nil || other == "" || boot == "" || other == boot {
		return
	}
	if p.rivals++; p.rivals%rivalsEach != 2 {
		return
	}
	where := ""
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			where = a.Address
			break
		}
	}
	slog.Warn("another board is at work under this name: copies of one card? Take one out, and let it join anew without its data",
		"node", n.Name, "its address", where, "its boot", other, "this boot", boot)
	p.a.nodeEvent(corev1.EventTypeWarning, "NameShared",
		fmt.Sprintf("Two boards are at work as %s, boots %s and %s: copies of one card?", n.Name, boot, other))
}

// rivalsEach is after how many times it is said again: a quarter of an hour, where both post at each look.
const rivalsEach = 100

// own is a Node that may be filled: what that changes in place is its own, all else is still shared with n.
func own(n *corev1.Node) *corev1.Node {
	out := *n
	out.Labels, out.Annotations = maps.Clone(n.Labels), maps.Clone(n.Annotations)
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	return &out
}

// spread is the delay after the first report of a process, or one of a change: the Nodes of a fleet that started
// together shall not report together (N-2.13).
func (p *poster) spread() time.Duration {
	return time.Duration((rand.Float64() - 0.5) * float64(p.a.cfg.Status.ReportEvery))
}

// sameStatus compares all but heartbeat times. What there is most of is compared here, since every board does so every ten
// seconds, and reflection takes its time; what is left, fields of tomorrow too, by that.
func sameStatus(a, b *corev1.NodeStatus) bool {
	if !slices.EqualFunc(a.Conditions, b.Conditions, sameCondition) || !sameAmounts(a.Capacity, b.Capacity) ||
		!sameAmounts(a.Allocatable, b.Allocatable) ||
		!slices.EqualFunc(a.Images, b.Images, sameImage) || !slices.Equal(a.Addresses, b.Addresses) {
		return false
	}
	x, y := *a, *b
	for _, s := range []*corev1.NodeStatus{&x, &y} {
		s.Conditions, s.Capacity, s.Allocatable, s.Images, s.Addresses = nil, nil, nil, nil, nil
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	at := a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastHeartbeatTime, a.LastTransitionTime = b.LastHeartbeatTime, b.LastTransitionTime
	return at && a == b
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

func sameImage(a, b corev1.ContainerImage) bool {
	return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
}

func isReady(n *corev1.Node) bool { return conditionOf(n, corev1.NodeReady) == corev1.ConditionTrue }

func conditionOf(n *corev1.Node, t corev1.NodeConditionType) corev1.ConditionStatus {
	if c := api.NodeCondition(n, t); c != nil {
		return c.Status
	}
	return ""
}

// changeWords are the events of N-1.50, by condition: became True, became False.
var changeWords = map[corev1.NodeConditionType][2]string{
	corev1.NodeReady:          {"NodeReady", "NodeNotReady"},
	corev1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	corev1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	corev1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

func (p *poster) tellChanges(old, next *corev1.Node) {
	for t, words := range changeWords {
		was, is := conditionOf(old, t), conditionOf(next, t)
		if was == is {
			continue
		}
		reason := words[1]
		if is == corev1.ConditionTrue {
			reason = words[0]
		}
		p.a.nodeEvent(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", p.a.cfg.Name, reason))
	}
}

// tellCordon is the event of a cordon and of its end (N-1.50).
func (p *poster) tellCordon(is bool) {
	was := p.unschedulable
	p.unschedulable = &is
	if was == nil || *was == is {
		return
	}
	reason := "NodeSchedulable"
	if is {
		reason = "NodeNotSchedulable"
	}
	p.a.nodeEvent(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", p.a.cfg.Name, reason))
}

// nodeEvent speaks of the Node.
func (a *Agent) nodeEvent(eventType, reason, message string) {
	a.cfg.Events.EventOn(a.ref(), eventType, reason, message)
}

// warnOfSwap is N-8.14: secrets in memory may reach the card after all.
func (p *poster) warnOfSwap(canKeepOff bool) {
	if p.a.outlook.last().sample.SwapOnDisk && !canKeepOff {
		p.a.nodeWarning("PossibleMemoryBackedVolumesOnDisk",
			"The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) "+
				"might be swapped to disk and should no longer be considered secure.")
	}
}
