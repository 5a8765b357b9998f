// Package poster keeps this board's Node in the API: it registers it, and keeps its status true. What a status says follows from Facts
// alone, which have no effects; a Poster gets them from its Board, and has the effects.
package poster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/grumble"
)

// Config is what a poster needs.
type Config struct {
	Name         string
	Version      string // reported as kubeletVersion
	Client       api.Client
	Registration Registration
	Status       StatusConfig
	Board        Board
	Events       Events
	Node         corev1.ObjectReference // whom events are about
}

// Board is the board that a poster speaks for.
type Board interface {
	// Look gathers the facts, anew; those of Config are put to them.
	Look(context.Context) (Facts, error)
	// Reached: the container engine has been found since the start.
	Reached() bool
	// Closed: no new pods are taken.
	Closed() bool
	// Self is the Node as the API last told it; false: it has not.
	Self() (*corev1.Node, bool)
	// Seen hears of the Node as the API has it; true asks for another look at once.
	Seen(*corev1.Node) bool
}

// Events takes events for users to read.
type Events interface {
	EventOn(ref corev1.ObjectReference, eventType, reason, message string)
}

// Poster keeps one Node. One goroutine runs it.
type Poster struct {
	Config
	wake   chan struct{} // poked when the board should be looked at now
	looked chan struct{} // closed when it has been looked at once
	known  chan struct{} // closed when the API has been seen to have the Node
	told   atomic.Bool   // the API has it from us, and last, that the Node is ready

	began         time.Time
	registered    bool
	lastSent      time.Time
	delay         time.Duration // on top of the report period (N-2.13)
	ready         bool
	unschedulable *bool         // as last seen
	nextTry       time.Time     // to register, after a failure
	pause         time.Duration // before that
	grumble       grumble.Once
	troubled      string // why it is not ready, as last told
	wrote         written
	rivals        int   // how often the Node was another's
	refused       error // why the last try to register failed
	wrong         error // a configuration that this board cannot have: the agent ends
}

// New makes a poster that has told nothing yet.
func New(cfg Config) *Poster {
	return &Poster{Config: cfg, wake: make(chan struct{}, 1), looked: make(chan struct{}), known: make(chan struct{})}
}

// Poke has the board looked at now.
func (p *Poster) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Looked is closed when the board has been looked at once.
func (p *Poster) Looked() <-chan struct{} { return p.looked }

// Known is closed when the API has been seen to have the Node.
func (p *Poster) Known() <-chan struct{} { return p.known }

// Ready says whether the API has been told by this process, and last, that the Node is ready.
func (p *Poster) Ready() bool { return p.told.Load() }

// Run registers the Node once begin is closed, then keeps its status true until ctx ends.
func (p *Poster) Run(ctx context.Context, begin <-chan struct{}) error {
	p.began = time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-begin:
	}
	for {
		rest := time.Duration(float64(p.Status.UpdateEvery) * (1 + 0.04*rand.Float64())) // N-2.11
		if err := p.sync(ctx); ctx.Err() == nil {
			p.grumble.About("cannot post node status", err, "node", p.Name)
		}
		if p.wrong != nil {
			return p.wrong
		}
		if !p.ready && !p.Board.Closed() && time.Since(p.began) < 120*time.Second {
			rest = 100 * time.Millisecond // N-2.16: do not let the first pods wait
		}
		if !p.registered && p.pause > 0 {
			rest = min(rest, max(time.Until(p.nextTry), 0))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-time.After(rest):
		}
	}
}

// once closes a channel, if it is not closed.
func once(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// sync looks at the board once and tells the API if there is something to tell.
func (p *Poster) sync(ctx context.Context) error {
	early := p.early() // as of before the look: the engine may come while it is taken
	f, err := p.Board.Look(ctx)
	if err == nil {
		f.Name, f.Version, f.Config, f.Registration = p.Name, p.Version, p.Status, p.Registration
		if p.wrong = f.overReserved(); p.wrong != nil {
			return p.wrong
		}
	}
	once(p.looked)
	if err != nil {
		return err
	}
	if !p.registered && !p.Registration.Off {
		if f.Now.Before(p.nextTry) {
			return p.refused
		}
		if p.refused = p.tryRegister(ctx, f); p.refused != nil {
			return p.refused
		}
	}
	if early {
		return nil
	}
	p.tellTroubles(f.Troubles)
	for try := range 5 { // N-2.14
		err = p.send(ctx, f, try > 0)
		if err == nil || !apierrors.IsConflict(err) || ctx.Err() != nil {
			break
		}
		slog.Debug("node status conflict, reading again", "try", try)
	}
	if apierrors.IsNotFound(err) && p.Registration.Again {
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

func (p *Poster) tryRegister(ctx context.Context, f Facts) error {
	err := p.register(ctx, f)
	if err == nil {
		p.pause = 0
		return nil
	}
	p.pause = min(max(2*p.pause, firstRegisterPause), mostRegisterPause)
	p.nextTry = time.Now().Add(p.pause)
	return fmt.Errorf("register node %s: %w", f.Name, err)
}

// tellTroubles logs why the node is not ready, when that changes: who looks at a board by its log alone has no other sign.
func (p *Poster) tellTroubles(why string) {
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

func (p *Poster) early() bool {
	return !p.Board.Reached() && time.Since(p.began) < settling
}

// register makes the Node, or puts right the one that is there (N-1.27 to N-1.33).
func (p *Poster) register(ctx context.Context, f Facts) error {
	fresh := f.object()
	_, err := p.Client.Create(ctx, api.Nodes, fresh, api.WriteOptions{})
	if err == nil {
		slog.Info("registered node", "node", f.Name)
		p.registered, p.lastSent, p.delay = true, time.Now(), p.spread()
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return err
	}
	old, gerr := api.Get[*corev1.Node](ctx, p.Client, api.Nodes, "", f.Name)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	if disks := reconcileDisks(old, fresh); reconcileLabels(old, fresh) || disks {
		if _, err := api.Update(ctx, p.Client, api.Nodes, old); err != nil {
			return err
		}
	}
	if id := old.Status.NodeInfo.MachineID; id != "" && f.Sample.MachineID != "" && id != f.Sample.MachineID { // N-1.4
		slog.Warn("another machine had this name; delete the node first to replace one", "node", f.Name, "was", id, "is", f.Sample.MachineID)
		p.event(corev1.EventTypeWarning, "MachineChanged",
			fmt.Sprintf("Node %s was the machine %s and is %s now", f.Name, id, f.Sample.MachineID))
	}
	if b := old.Status.NodeInfo.BootID; b != "" && b != f.Sample.BootID { // N-1.51
		p.event(corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", f.Name, f.Sample.BootID))
	}
	p.registered = true
	return nil
}

// written is the answer of the last write, and the object that it was written over.
type written struct {
	over string // a resource version
	node *corev1.Node
}

// recall returns the Node from the watch, shared with others. It asks the server only if the watch does not have the
// Node, or if a write has shown that the watch lags: asking every ten seconds would be half of a control plane's work
// in a fleet.
func (p *Poster) recall(ctx context.Context, anew bool) (*corev1.Node, error) {
	n, ok := p.Board.Self()
	switch {
	case !ok || anew:
		return api.Get[*corev1.Node](ctx, p.Client, api.Nodes, "", p.Name)
	case n.ResourceVersion == p.wrote.over: // our own write has not come round yet
		return p.wrote.node, nil
	}
	return n, nil
}

// send posts the status if it changed or has not been heard of for long (N-2.12).
func (p *Poster) send(ctx context.Context, f Facts, anew bool) (failed error) {
	defer func() { p.told.Store(p.ready && failed == nil) }()
	old, err := p.recall(ctx, anew)
	if err != nil {
		return err
	}
	once(p.known)
	p.tellRival(old, f.Sample.BootID)
	p.tellCordon(old.Spec.Unschedulable)
	if p.Board.Seen(old) {
		p.Poke()
	}
	next := own(old)
	f.fill(next)
	fixed := reconcileLabels(next, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ // N-1.33
		corev1.LabelOSStable: f.Sample.OS, corev1.LabelArchStable: f.Sample.Arch}}})
	fixed = f.tellIPs(next) || fixed
	changed := fixed || !sameStatus(&old.Status, &next.Status)
	p.ready = api.NodeReady(next)
	now := time.Now()
	if !changed && now.Sub(p.lastSent) < p.Status.ReportEvery+p.delay {
		return nil
	}
	got, err := api.UpdateStatus(ctx, p.Client, api.Nodes, next)
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
func (p *Poster) tellRival(n *corev1.Node, boot string) {
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
	p.event(corev1.EventTypeWarning, "NameShared",
		fmt.Sprintf("Two boards are at work as %s, boots %s and %s: copies of one card?", n.Name, boot, other))
}

// rivalsEach is after how many times it is said again: a quarter of an hour, where both post at each look.
const rivalsEach = 100

// spread is the delay after the first report of a process, or one of a change: the Nodes of a fleet that started
// together shall not report together (N-2.13).
func (p *Poster) spread() time.Duration {
	return time.Duration((rand.Float64() - 0.5) * float64(p.Status.ReportEvery))
}

// changeWords are the events of N-1.50, by condition: became True, became False.
var changeWords = map[corev1.NodeConditionType][2]string{
	corev1.NodeReady:          {"NodeReady", "NodeNotReady"},
	corev1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	corev1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	corev1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

func (p *Poster) tellChanges(old, next *corev1.Node) {
	for t, words := range changeWords {
		was, is := conditionOf(old, t), conditionOf(next, t)
		if was == is {
			continue
		}
		reason := words[1]
		if is == corev1.ConditionTrue {
			reason = words[0]
		}
		p.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", p.Name, reason))
	}
}

// tellCordon is the event of a cordon and of its end (N-1.50).
func (p *Poster) tellCordon(is bool) {
	was := p.unschedulable
	p.unschedulable = &is
	if was == nil || *was == is {
		return
	}
	reason := "NodeSchedulable"
	if is {
		reason = "NodeNotSchedulable"
	}
	p.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", p.Name, reason))
}

func (p *Poster) event(eventType, reason, message string) {
	p.Events.EventOn(p.Node, eventType, reason, message)
}
