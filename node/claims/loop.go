// Package claims makes the volumes of this board: a directory of its card for each claim that the scheduler has sent here, held to its
// size where the disk can, and removed when its volume is. Plan decides (pure), a Shelf has the directories, the Loop joins them to the
// control plane:
//
//	claim -> directory, number, bound, synced -> PersistentVolume -> (the control plane binds) -> pods mount it
//	PersistentVolume deleted -> directory renamed aside, synced, emptied -> its finalizer taken off
//
// A power cut leaves each at one of these steps, and the next start goes on from there. Nothing is done before the control plane has told
// all that it has, and data goes only when its volume says so.
package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"golang.org/x/sync/errgroup"

	"ledge/api"
	"ledge/api/storage"
	"ledge/internal/grumble"
)

// Recorder takes events for users to read. It never blocks.
type Recorder interface {
	Event(object api.Object, eventType, reason, message string)
	EventOn(ref corev1.ObjectReference, eventType, reason, message string)
}

// Config is what a Loop needs.
type Config struct {
	Client api.Client
	Node   string
	Shelf  *Shelf
	Disks  *Disks // nil: none
	Events Recorder
	Retry  time.Duration // after something failed; 0 is 10 s
}

// Loop makes and removes what Plan says.
type Loop struct {
	cfg     Config
	volumes *api.View[*corev1.PersistentVolume]
	claims  *api.View[*corev1.PersistentVolumeClaim]
	wake    chan struct{}
	swept   map[string]chan struct{} // by disk, each of capacity 1: there may be something to sweep
	near    map[string]bool          // volumes that are nearly full, and told of
	errors  grumble.Once

	mu     sync.Mutex           // of what the passes at all places have
	said   map[string]string    // by volume: what its owner was told last
	backAt map[string]time.Time // by volume: when its claim was given back last
	strays map[string]bool      // that were told of
}

// New prepares a Loop.
func New(cfg Config) *Loop {
	if cfg.Retry == 0 {
		cfg.Retry = 10 * time.Second
	}
	here := api.Selection{Fields: fields.OneTermEqualSelector(api.NodeField, cfg.Node)}
	l := &Loop{cfg: cfg, wake: make(chan struct{}, 1), swept: map[string]chan struct{}{}, said: map[string]string{},
		backAt: map[string]time.Time{}, strays: map[string]bool{}, near: map[string]bool{},
		volumes: api.NewView[*corev1.PersistentVolume](cfg.Client, api.PersistentVolumes, here),
		claims:  api.NewView[*corev1.PersistentVolumeClaim](cfg.Client, api.PersistentVolumeClaims, here)}
	for _, p := range l.places() {
		l.swept[p.disk] = make(chan struct{}, 1)
	}
	l.volumes.Tell(l.wake)
	l.claims.Tell(l.wake)
	return l
}

// Volumes are those that lie on this board, by name, as far as they are known.
func (l *Loop) Volumes() []*corev1.PersistentVolume {
	list := l.volumes.List()
	slices.SortFunc(list, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Run follows the claims and volumes of this board until ctx ends. What a power cut left half-made or half-removed goes first: no
// control plane has to be asked for that.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.cfg.Shelf.Sweep(newPrefix); err != nil {
		slog.Warn("what a power cut left of claims stays for now", "err", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range l.places() {
		g.Go(func() error {
			if p.on == nil { // nothing of a board goes on without its card
				l.sweep(ctx, p)
			} else {
				leaveStuck(ctx, func() { l.sweep(ctx, p) })
			}
			return nil
		})
	}
	g.Go(func() error { return l.watchDisks(ctx) })
	if !l.awaitAny(ctx) {
		return g.Wait()
	}
	g.Go(func() error { return l.volumes.Run(ctx) })
	g.Go(func() error { return l.claims.Run(ctx) })
	g.Go(func() error { return l.follow(ctx) })
	return g.Wait()
}

// awaitAny waits until there are claims or volumes at all, where the control plane can say it. False: ctx has ended.
func (l *Loop) awaitAny(ctx context.Context) bool {
	sparse, ok := l.cfg.Client.(api.Sparse)
	if !ok {
		return true
	}
	some := make(chan struct{}, 1)
	none := true
	for _, kind := range []*api.Kind{api.PersistentVolumeClaims, api.PersistentVolumes} {
		none = sparse.WhenAny(kind, func() { poke(some) }) && none
	}
	if !none {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-some:
		return true
	}
}

func (l *Loop) follow(ctx context.Context) error {
	for _, known := range []<-chan struct{}{l.volumes.Synced(), l.claims.Synced()} {
		select {
		case <-ctx.Done():
			return nil
		case <-known:
		}
	}
	for {
		err := l.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.errors.About("claims wait", err)
		volumes := l.volumes.List()
		l.watchRoom(volumes)
		var again <-chan time.Time
		switch {
		case err != nil:
			again = time.After(l.cfg.Retry)
		case len(volumes) > 0:
			again = time.After(roomEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-again:
		}
	}
}

// A claim is told that it is nearly full from 85 % on, and again when it was below 80 % since. A look at it is two system calls.
const (
	roomEvery         = time.Minute
	nearFull, notNear = 85, 80 // percent
)

func (l *Loop) watchRoom(volumes []*corev1.PersistentVolume) {
	here := map[string]bool{}
	for _, v := range volumes {
		here[v.Name] = true
		u, ok := l.Use(v)
		if !ok || v.Spec.ClaimRef == nil || u.MaxBytes == 0 {
			continue
		}
		percent := max(u.Bytes*100/u.MaxBytes, u.Inodes*100/max(u.MaxInodes, 1))
		switch {
		case percent < notNear:
			delete(l.near, v.Name)
		case percent >= nearFull && !l.near[v.Name]:
			l.near[v.Name] = true
			l.cfg.Events.EventOn(*v.Spec.ClaimRef, corev1.EventTypeWarning, "NearlyFull", fmt.Sprintf(
				"%d%% of it is taken: %s of %s, %d of %d files; it can be made larger", percent, amount(u.Bytes), amount(u.MaxBytes), u.Inodes, u.MaxInodes))
		}
	}
	maps.DeleteFunc(l.near, func(name string, _ bool) bool { return !here[name] })
}

// sweep deletes what was removed at a place. That may take long, and holds up nobody.
func (l *Loop) sweep(ctx context.Context, p place) {
	var failed grumble.Once
	for {
		err := p.sweep()
		failed.About("removed claims still take room", err)
		poke(l.wake)
		var again <-chan time.Time
		if err != nil {
			again = time.After(l.cfg.Retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.swept[p.disk]:
		case <-again:
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pass does what there is to do now, on the card and on each disk.
func (l *Loop) pass(ctx context.Context) error {
	w := World{Volumes: l.volumes.List(), Claims: l.claims.List()}
	l.forget(w.Claims, w.Volumes)
	var err error
	if w.Classes, err = l.readClasses(ctx, w.Volumes, w.Claims); err != nil {
		return err
	}
	places := l.places()
	all := append(slices.Clone(places), unknown(w.Classes, places)...)
	errs := make([]error, len(all))
	var g sync.WaitGroup
	for i, p := range all[1:] {
		g.Go(func() { errs[i+1] = l.passOnDisk(ctx, p, w) })
	}
	errs[0] = l.passOf(ctx, all[0], w)
	g.Wait()
	for _, v := range w.Volumes {
		if v.Annotations[api.ProvisionedBy] == api.CardProvisioner && v.Spec.Local != nil &&
			!slices.ContainsFunc(places, func(p place) bool { return p.has(v) }) {
			l.say(v.Name, v, "DiskUnknown", fmt.Sprintf("its directory %s is on no disk that this board's configuration has (key disks)",
				v.Spec.Local.Path))
		}
	}
	return errors.Join(errs...)
}

// passOnDisk does it on a disk, and waits for that no longer than a little while. Nothing is begun where a pass before is still at it.
func (l *Loop) passOnDisk(ctx context.Context, p place, w World) error {
	if p.on == nil {
		return l.passOf(ctx, p, w)
	}
	err, ok := within(p.on.passes, passIn, func() error {
		begun := time.Now()
		err := l.passOf(ctx, p, w)
		if time.Since(begun) >= passIn {
			poke(l.wake) // nobody has waited for it
		}
		return err
	})
	switch {
	case ok:
		return err
	case !p.on.isMute():
		return fmt.Errorf("the %s takes long", p.on.Disk)
	}
	gone := absent(p.on.Disk, errMute)
	p.absent = gone.Error()
	return errors.Join(gone, l.passOf(ctx, p, w))
}

// passOf does it at one place.
func (l *Loop) passOf(ctx context.Context, at place, w World) error {
	begun := time.Now()
	if at.absent == "" {
		release, err := at.enter()
		switch {
		case err == nil:
			defer release()
		case errors.Is(err, errUnseen):
			return nil // no claim is given back for that
		default:
			at.absent = err.Error()
		}
	}
	all := w.Volumes
	w.Volumes, w.Disk = nil, at.disk
	for _, v := range all {
		if at.has(v) {
			w.Volumes = append(w.Volumes, v)
		}
	}
	if w.Path = func(string) string { return "" }; at.shelf != nil {
		w.Path = at.shelf.Path
	}
	if at.absent == "" {
		if err := at.work(func() error { return at.read(&w) }); err != nil {
			return err
		}
		if len(w.Dirs)+len(all)+len(w.Claims) == 0 {
			return nil
		}
		l.came(w.Volumes)
	}
	w.Absent = at.absent
	var errs []error
	skip := map[string]bool{} // one step of a volume rests on that before it
	for _, s := range Plan(w) {
		if skip[s.Name] {
			continue
		}
		if at.on != nil && time.Since(begun) >= muteIn {
			return errors.Join(append(errs, errStale)...)
		}
		switch err := l.do(ctx, at, w, s); {
		case err == nil:
		case errors.Is(err, errLater):
			errs = append(errs, err)
		case apierrors.IsConflict(err): // what it rests on has changed: we are about to hear of it
			skip[s.Name] = true
		default:
			skip[s.Name] = true
			l.tell(s, err)
			errs = append(errs, fmt.Errorf("%s %s: %w", s.Do, s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// errStale: what a plan was made of is old, as the disk has taken long.
var errStale = errors.New("the disk has taken long: it begins again")

// read reads what lies at a place. It counts only if the disk stands there still: who has unmounted it meanwhile has left nothing to see.
func (p place) read(w *World) (err error) {
	if w.Dirs, err = p.shelf.Dirs(); err != nil {
		return err
	}
	if w.Room, err = p.shelf.Room(); err != nil {
		return err
	}
	if why := p.shelf.CanSize(); why != nil {
		w.Unsized = why.Error()
	}
	if p.on != nil {
		if err := p.on.stands(); err != nil {
			return absent(p.on.Disk, err)
		}
	}
	return nil
}

// came forgets that volumes have waited for their disk: it may go again.
func (l *Loop) came(volumes []*corev1.PersistentVolume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range volumes {
		if strings.HasPrefix(l.said[v.Name], awaits) {
			delete(l.said, v.Name)
		}
	}
}

// readClasses reads those that something here is of.
func (l *Loop) readClasses(ctx context.Context, volumes []*corev1.PersistentVolume, claims []*corev1.PersistentVolumeClaim) (
	map[string]*storagev1.StorageClass, error) {
	classes := map[string]*storagev1.StorageClass{}
	var names []string
	for _, c := range claims {
		names = append(names, api.ClassOfClaim(c))
	}
	for _, v := range volumes {
		names = append(names, api.ClassOfVolume(v))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		o, err := l.cfg.Client.Get(ctx, storage.StorageClasses, "", name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			classes[name] = o.(*storagev1.StorageClass)
		}
	}
	return classes, nil
}

// known asks for a volume that was not seen: its directory is about to go for want of it. A board is not told of what is none of its own.
func (l *Loop) known(ctx context.Context, name string) (bool, error) {
	_, err := l.cfg.Client.Get(ctx, api.PersistentVolumes, "", name)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil, err
}

// do carries out one step. Each may be repeated.
func (l *Loop) do(ctx context.Context, at place, w World, s Step) error {
	shelf := at.shelf
	switch s.Do {
	case Make:
		return at.work(func() error { return shelf.Make(s.Name, s.Bytes) })
	case Offer:
		return l.offer(ctx, shelf, w.Classes[api.ClassOfClaim(s.Claim)], s)
	case Resize:
		return at.work(func() error { return shelf.Resize(s.Name, s.Bytes) })
	case Grow:
		v := s.Volume.DeepCopy()
		v.Spec.Capacity[corev1.ResourceStorage] = quantity(s.Bytes)
		_, err := l.cfg.Client.Update(ctx, api.PersistentVolumes, v, api.WriteOptions{})
		return err
	case Tell:
		return l.grown(ctx, s)
	case Mark:
		return l.mark(ctx, s)
	case Remove:
		if s.Volume == nil {
			if known, err := l.known(ctx, s.Name); known || err != nil {
				return err
			}
		}
		if err := at.work(func() error { return shelf.Remove(s.Name) }); err != nil {
			return err
		}
		l.unsay(s.Name)
		poke(l.swept[at.disk])
		return nil
	case Keep:
		return at.work(func() error { return shelf.Keep(s.Name) })
	case Free:
		v := s.Volume.DeepCopy()
		v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == api.CardFinalizer })
		_, err := l.cfg.Client.Update(ctx, api.PersistentVolumes, v, api.WriteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case Refuse:
		return l.refuse(ctx, s)
	case Lost:
		l.say(s.Name, s.Volume, "VolumeLost", "its directory "+shelf.Path(s.Name)+" is not on its disk: "+
			"put it back from a backup, or delete claim and volume")
	case Await:
		l.await(s)
	case Stray:
		l.mu.Lock()
		told := l.strays[s.Name]
		l.strays[s.Name] = true
		l.mu.Unlock()
		if !told {
			slog.Warn("a directory has no volume, and stays: its control plane has forgotten it, or somebody took its finalizer off",
				"path", shelf.Path(s.Name))
		}
	}
	return nil
}

// errLater: it was refused here a moment ago.
var errLater = errors.New("a claim that does not fit here has come again")

// backAgain is how long a claim is held that comes back to a board that had refused it. Without it a scheduler that knows no other board
// would go round and round.
const backAgain = time.Minute

// refuse says why a claim gets no volume, or no larger one, here, and gives it back where it has none yet: there may be another board.
func (l *Loop) refuse(ctx context.Context, s Step) error {
	l.say(s.Name, s.Claim, "ProvisioningFailed", "failed to provision volume: "+s.Why)
	if s.Claim.Spec.VolumeName != "" {
		return nil
	}
	l.mu.Lock()
	again := time.Since(l.backAt[s.Name]) < backAgain
	if !again {
		l.backAt[s.Name] = time.Now()
	}
	l.mu.Unlock()
	if again {
		return errLater
	}
	c := s.Claim.DeepCopy()
	delete(c.Annotations, api.SelectedNode)
	_, err := l.cfg.Client.Update(ctx, api.PersistentVolumeClaims, c, api.WriteOptions{})
	return err
}

// forget drops what is known of claims that are not here any more.
func (l *Loop) forget(claims []*corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume) {
	here := map[string]bool{}
	for _, c := range claims {
		here[api.VolumeFor(c)] = true
	}
	for _, v := range volumes {
		here[v.Name] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.said, func(name string, _ string) bool { return !here[name] && l.backAt[name].IsZero() })
	maps.DeleteFunc(l.backAt, func(name string, at time.Time) bool { return !here[name] && time.Since(at) > backAgain })
}

// offer tells the control plane of a directory that was made for a claim.
func (l *Loop) offer(ctx context.Context, shelf *Shelf, class *storagev1.StorageClass, s Step) error {
	c := s.Claim
	mode := corev1.PersistentVolumeFilesystem
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Name,
		Annotations: map[string]string{api.ProvisionedBy: api.CardProvisioner},
		Finalizers:  []string{api.VolumeProtection, api.CardFinalizer}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: *c.Spec.Resources.Requests.Storage()},
			AccessModes:      c.Spec.AccessModes,
			MountOptions:     class.MountOptions,
			StorageClassName: class.Name,
			VolumeMode:       &mode,
			NodeAffinity:     api.OnlyOn(l.cfg.Node),
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name,
				UID: c.UID, ResourceVersion: c.ResourceVersion},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: shelf.Path(s.Name)}},
		}}
	if class.ReclaimPolicy != nil {
		v.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	_, err := l.cfg.Client.Create(ctx, api.PersistentVolumes, v, api.WriteOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // by an earlier look
	}
	if err != nil {
		return err
	}
	l.cfg.Events.Event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume "+s.Name)
	if s.Why != "" {
		l.cfg.Events.Event(c, corev1.EventTypeWarning, string(SizeNotEnforced), unsized(s.Why))
	}
	l.unsay(s.Name)
	return nil
}

// tell tells the owner of a claim why it waits.
func (l *Loop) tell(s Step, err error) {
	switch {
	case s.Claim != nil:
		l.say(s.Name, s.Claim, "ProvisioningFailed", fmt.Sprintf("failed to %s volume %s: %v", s.Do, s.Name, err))
	case s.Volume != nil:
		l.say(s.Name, s.Volume, "VolumeFailedDelete", fmt.Sprintf("failed to %s: %v", s.Do, err))
	}
}

// say says something once. false: it was said before.
func (l *Loop) say(name string, about api.Object, reason, message string) bool {
	l.mu.Lock()
	before := l.said[name] == message
	l.said[name] = message
	l.mu.Unlock()
	if !before {
		l.cfg.Events.Event(about, corev1.EventTypeWarning, reason, message)
	}
	return !before
}

func (l *Loop) unsay(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.said, name)
}
