// Package brain is what one process joins that runs a board: the store, the API and its controllers or the way to those elsewhere, the
// agent, and what ends it all in order.
package brain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/boot/ending"
	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/network"
	"ledge/network/dns"
	"ledge/network/given"
	"ledge/node"
	"ledge/node/claims"
	"ledge/node/devices"
	"ledge/shutdown"
	"ledge/storage"
)

// Config is what a brain is told.
type Config struct {
	config.Settings
	RunDir    string
	Build     config.Build
	Trial     *Trial                 // of the version that this is
	UnderInit bool                   // ledge is process 1, and this its child
	Launcher  func() (string, error) // the program that the machine starts; it chooses the version
}

// New makes a brain that nothing is open of.
func New(cfg Config, rims Rims) *Brain {
	b := &Brain{Config: cfg, rims: rims, staticsChanged: make(chan struct{}, 1)}
	if b.Joins {
		b.uplink = &uplink{renew: make(chan struct{}, 1)}
	} else {
		b.plane = &plane{b: b}
	}
	return b
}

// Run works until the board is told to stop, or cannot go on, and does what follows from that.
func (b *Brain) Run(ctx context.Context) error {
	b.clock = newTrust(b.Build.ClockFloor(b.DataDir), b.rims.Host.ClockSynced) // before it is set
	if b.UnderInit {
		if err := host.SetClock(b.Build.ClockFloor(b.DataDir)); err != nil { // architecture: Observer's clock
			slog.Warn("the clock stays behind the time", "err", err)
		}
	}
	go b.card().WatchLinks(ctx, "/sys/class/net")
	if err := b.open(ctx); err != nil {
		return errors.Join(err, b.close())
	}
	if b.Path == config.DefaultPath {
		if err := config.KeepFirst(b.Path); err != nil {
			slog.Warn("the first configuration is not written", "err", err)
		}
	}
	if err := b.guard.begun(); err != nil { // a board that cannot count is not one that dies
		slog.Warn("this start is not counted for safe mode", "err", err)
	}
	err := errors.Join(b.run(ctx), b.close())
	if b.off.Ordered() {
		err = errors.Join(err, b.guard.inOrder())
	}
	return b.follow(ctx, err)
}

// follow does what an ending asks for, now that all is closed.
func (b *Brain) follow(ctx context.Context, err error) error {
	switch b.off.Next(b.UnderInit) {
	case ending.TellInit:
		if err != nil {
			slog.Error("the node did not end well", "err", err)
		}
		return b.off.Code()
	case ending.Exec:
		return b.Trial.becomeAnother(b.Launcher, err)
	case ending.SwitchOff:
		return errors.Join(err, b.rims.Power.Off(ctx, shutdown.Direct, b.off == ending.Reboot))
	}
	return err
}

// Brain is everything a serving process holds, joined.
type Brain struct {
	Config
	rims Rims
	lock *os.File // of the run directory

	staticsChanged chan struct{} // capacity 1

	plane  *plane  // nil: the control plane is elsewhere
	uplink *uplink // nil: it is here
	client api.Client

	store      *storage.Store
	images     Images
	keeper     Engine
	network    network.Setup
	given      *given.Network // nil: pods have the host's network
	forwarding forwarding
	asked      dns.Counts // questions for names
	fences     fences
	names      *names // nil: pods' questions for names are not answered here
	found      *found // nil: the board is not found by name
	agent      *node.Agent
	claims     *claims.Loop   // nil: this board makes no volumes
	devices    *devices.Board // nil: pods are given none
	writes     *writesMeter
	events     *api.Recorder
	server     *httpd.Server

	power *power
	dogs  dogs
	off   ending.Why // why run returned

	debts debts // of this start
	clock *trust

	guard *guard
	holds host.Check // what holds pods to their limits

	begun bool // more than files may stand

	cut bool // the boot before this one ended without a clean end of the store
}

// open makes ready what a board stands on, in the order of need. What it opened before an error is closed by close.
func (b *Brain) open(ctx context.Context) (failed error) {
	if err := b.preflight(); err != nil {
		return err
	}
	made, err := b.takeDirs(ctx)
	// Who cannot start leaves nothing behind. What has something in it already stays.
	defer func() {
		for _, dir := range made {
			if failed != nil {
				_ = os.Remove(dir)
			}
		}
	}()
	if err != nil {
		return err
	}
	b.HidePasswords()
	if err := b.listen(ctx); err != nil {
		return err
	}
	if err := b.leaveFormer(ctx); err != nil {
		return err
	}
	b.Trial.tell()
	for _, say := range b.Notes {
		say()
	}
	undo := b.firstTry()
	defer func() {
		if failed != nil {
			undo()
		}
	}()
	if err := b.openStore(ctx); err != nil {
		return err
	}
	b.begun = b.uplink != nil                                                     // a join cannot be made undone
	if err := b.debts.orOwe(ctx, "write node.json", b.writeRunInfo); err != nil { // before there is anything that 'ledge reset' has to find
		return err
	}
	if err := b.openAPI(ctx); err != nil {
		return err
	}
	if err := b.openImages(ctx); err != nil {
		return err
	}
	b.begun = true
	if b.rims.Checked != nil { // not before: who cannot start leaves nothing behind
		if err := b.rims.Checked(); err != nil {
			slog.Debug("the next start looks again", "err", err)
		}
	}
	if err := b.openNetwork(ctx); err != nil {
		return err
	}
	if err := b.resumePods(ctx); err != nil {
		return err
	}
	if b.guard, err = newGuard(b.RunDir, b.Trial.safeAfter(b.SafeAfter)); err != nil {
		return err
	}
	if b.Trial.came != nil {
		b.guard.failed = 0
	}
	b.forwarding = openForwarding(b)
	b.fences.open(b)
	b.found = openFound(b)
	if err := b.openAgent(); err != nil {
		return err
	}
	b.names = openNames(ctx, b)
	if b.power, err = openPower(b.Config, b.rims, powerNode{b}, b.events); err != nil {
		return err
	}
	if err := b.openServer(); err != nil {
		return err
	}
	return b.dogs.open(b.WatchdogDevice)
}

// openAPI makes the API, or finds it.
func (b *Brain) openAPI(ctx context.Context) error {
	open := b.openPlane
	if b.uplink != nil {
		open = b.openUplink
	}
	if err := open(ctx); err != nil {
		return err
	}
	b.card().TellJoin(nil)
	b.events = api.NewRecorder(b.client, "kubelet", b.Name)
	return nil
}

// listen takes the TLS address first: if it is taken, or the socket is, nothing else is begun.
func (b *Brain) listen(ctx context.Context) error {
	if servedAt(ctx, place.Socket(b.RunDir)) {
		return fmt.Errorf("--run-dir %s: another ledge answers there; stop it, or give another directory", b.RunDir)
	}
	if b.plane == nil {
		return b.uplink.listen(ctx, b)
	}
	if b.ListenAt == "" {
		return nil
	}
	return b.plane.listen(ctx, b.ListenAt)
}

// servedAt says whether a ledge listens on the socket. For a moment after it was killed, one may still seem to: a child that it had forked
// and that has not yet executed its program holds what its parent listened on.
func servedAt(ctx context.Context, socket string) bool {
	for range 10 {
		conn, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			return false
		}
		_ = conn.Close()
		select {
		case <-ctx.Done():
			return true
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
}

// tellStart makes seen where people look, in the node's events, what this start found.
func (b *Brain) tellStart() {
	ref := b.ref()
	b.Trial.tellReturn(b.events, ref, b.Build.Version)
	if why := b.guard.holding(); why != "" {
		slog.Error(why)
		b.events.EventOn(ref, corev1.EventTypeWarning, "SafeMode", why)
	}
	if why := b.plane.lost(); why != "" {
		b.events.EventOn(ref, corev1.EventTypeWarning, string(AuthorityLost), why)
	}
	if h := b.store.Health(); h.Restored != "" {
		end := "what was written after it and is not in the log is lost"
		if h.Complete {
			end = "the log had everything after it: nothing is lost"
		}
		b.events.EventOn(ref, corev1.EventTypeWarning, "StoreRestored",
			fmt.Sprintf("The store was damaged (kept as %s) and replaced by the snapshot %s; %s", h.Damaged, h.Restored, end))
	} else if h.Replayed > 0 {
		b.events.EventOn(ref, corev1.EventTypeWarning, "StoreRestored",
			fmt.Sprintf("The disk had forgotten %d writes that it had acknowledged; they were put back from the log", h.Replayed))
	}
	if b.store.Health().LogMissing {
		b.events.EventOn(ref, corev1.EventTypeWarning, "StoreLogMissing",
			"The log beside the store is missing: whether the newest writes are in the store cannot be told")
	}
	if !b.cut { // N-4.11
		return
	}
	message := "The machine went down without an orderly shutdown"
	if b.power.manager.Status().Last.Unfinished() { // N-5.35
		message = "The machine went down before an orderly shutdown had ended; give it more time (shutdownGracePeriod, or the UPS's)"
	}
	b.events.EventOn(ref, corev1.EventTypeWarning, "UncleanShutdown", message)
}

// closed tells the scheduler that this board takes no more pods, before its Node says so.
func (b *Brain) closed(node string) bool {
	if node != b.Name {
		_, revoked := b.plane.joins.Revoked(node)
		return revoked
	}
	return b.agent.Closed() || b.agent.Held() != ""
}

// clear removes what pods stood on, once none is left: a drained node leaves the machine as it found it.
func (b *Brain) clear(ctx context.Context) error {
	if n := len(b.agent.Pods()); n > 0 {
		return fmt.Errorf("%d pods could not be stopped; 'ledge reset' removes them", n)
	}
	err := errors.Join(b.network.Close(ctx), b.forwarding.remove(ctx), b.fences.remove(ctx))
	if !underSystemd() {
		err = errors.Join(err, b.keeper.Reset(ctx))
	}
	return err
}

// close lets go of everything, last opened first.
func (b *Brain) close() error {
	var errs []error
	if b.images != nil {
		errs = append(errs, b.images.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if l := b.port(); l != nil {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if b.uplink != nil && b.uplink.kube != nil {
		b.uplink.kube.Close()
	}
	errs = append(errs, b.dogs.close(b.off.KeepsWatchdog(b.UnderInit)))
	if b.lock != nil { // the last: another one may begin
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}

// port is the address of this board that others reach over the network; nil: there is none.
func (b *Brain) port() net.Listener {
	if b.plane != nil {
		return b.plane.listener
	}
	return b.uplink.port
}
