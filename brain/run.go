package brain

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"ledge/boot/ending"
	"ledge/brain/place"
	"ledge/host"
	"ledge/host/alive"
	"ledge/images/archives"
)

// run works until a signal or an error ends it. The API outlives the agent, so that last statuses are written.
func (b *Brain) run(ctx context.Context) error {
	apiCtx, stopAPI := context.WithCancel(ctx)
	defer stopAPI()
	base, apiCtx := errgroup.WithContext(apiCtx)
	below := []func(context.Context) error{b.store.Run, b.server.Run, b.events.Run}
	if b.plane != nil {
		below = append(below, b.plane.below()...)
	} else if b.uplink.door != nil {
		below = append(below, b.uplink.door.Run)
	}
	for _, r := range below {
		base.Go(func() error { return r(apiCtx) })
	}
	workCtx, stopWork := context.WithCancel(apiCtx)
	defer stopWork()
	work, workCtx := errgroup.WithContext(workCtx)
	for _, j := range b.jobs() {
		work.Go(func() error { return j(workCtx) })
	}
	if b.rims.Beside != nil {
		go b.rims.Beside(workCtx)
	}
	b.tellStart()
	where := []any{"listen", b.ListenAt}
	if b.plane == nil {
		where = []any{"server", cmp.Or(b.Kubeconfig, strings.Join(b.Servers, ","))}
	}
	slog.Info("serving", append([]any{"node", b.Name, "version", b.Build.Version, "socket", place.Socket(b.RunDir)}, where...)...)
	warnUnbounded(b.holds)
	alive.TellManager(daemon.SdNotifyReady)

	why := ending.Why(0)
	select {
	case <-workCtx.Done():
	case why = <-b.power.end:
	}
	if why.PodsStop() {
		awaitCleared(workCtx, b.agent)
		b.beginAnew()
	}
	clears := why.Clears(b.UnderInit, b.rims.Power.GoingDown(ctx))
	if why.Stopping() { // else systemd would wait for the end of the process
		alive.TellManager(daemon.SdNotifyStopping)
	}
	stopWork()
	err := work.Wait()
	b.off = why
	if clears && err == nil {
		err = b.clear(ctx)
	}
	stopAPI()
	err = errors.Join(err, base.Wait())
	if b.plane != nil {
		err = errors.Join(err, b.plane.audit.Close())
	}
	return err
}

// jobs is what a brain does while it serves.
func (b *Brain) jobs() []func(context.Context) error {
	clock := timekeeper{b.Config, b.rims.Host.ClockSynced}
	jobs := []func(context.Context) error{clock.keep, clock.tell, b.guardPods, b.agent.Run, b.keeper.Run, b.writes.Run, b.debts.Run,
		b.power.manager.Run}
	for _, w := range b.dogs.watch(commits(b.store), alive.Sign{Name: "the pods' loop", Look: b.agent.Turn}, Answers(b.keeper)) {
		jobs = append(jobs, w.Run)
	}
	if b.plane != nil {
		jobs = append(jobs, b.plane.jobs()...)
	} else {
		jobs = append(jobs, b.uplink.Run, b.uplink.answerCalls)
		if b.uplink.kept != nil {
			jobs = append(jobs, b.uplink.kept.Run)
		}
	}
	if b.Trial.on {
		jobs = append(jobs, b.proveWell)
	}
	if b.store.Health().Unclean {
		jobs = append(jobs, b.verifyImages)
	}
	if dir := archives.Find(b.File.ImageArchives, b.rims.Host.Root()); dir != "" || b.BootState != "" {
		a := archived{b.card(), b.store.Table("archives"), b.images, b.agent}
		jobs = append(jobs, func(ctx context.Context) error { return a.boot(ctx, dir) })
	}
	if len(b.Statics) > 0 {
		jobs = append(jobs, b.watchStatics)
	}
	if b.forwarding.loop != nil {
		jobs = append(jobs, b.forwarding.loop.Run)
	}
	if b.fences.loop != nil {
		jobs = append(jobs, b.fences.loop.Run)
	}
	if b.given != nil && (b.plane == nil || b.given.Expect) { // elsewhere nobody gives networks
		jobs = append(jobs, func(ctx context.Context) error { return b.given.Watch(ctx, b.client) })
	}
	if b.names != nil {
		jobs = append(jobs, b.names.Run)
	}
	if b.found != nil {
		jobs = append(jobs, b.found.Run)
	}
	if b.claims != nil {
		jobs = append(jobs, b.claims.Run)
	}
	return append(jobs, func(ctx context.Context) error { return showConsole(ctx, b) })
}

// watchStatics tells the agent of files that change. Without inotify it finds out in its own time.
func (b *Brain) watchStatics(ctx context.Context) error {
	var dirs []string
	for _, d := range b.Statics {
		dirs = append(dirs, d.Path)
	}
	err := host.WatchDirs(ctx, dirs, func() {
		select {
		case b.staticsChanged <- struct{}{}:
		default:
		}
	})
	if err != nil {
		slog.Warn("changes of static pods are seen every 20 seconds only", "err", err)
	}
	return nil
}
