package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
	"ledge/controller/jobs"
)

// jobRest is how long a Job is left alone after something was written for it: what happens to its pods meanwhile is written at
// once. Only another spec does not wait. For each restText bytes of indexes in its status, which can be 300 KB, it rests so long again:
// they are written anew whenever one of its pods ends, and wear the card.
const (
	jobRest  = time.Second
	restText = 4 << 10
)

func restOf(s *batchv1.JobStatus) time.Duration {
	text := len(s.CompletedIndexes)
	if s.FailedIndexes != nil {
		text += len(*s.FailedIndexes)
	}
	return jobRest * time.Duration(1+text/restText)
}

// jobDoubt is how long a Job that may be older than it seems is left before the clock is asked again.
const jobDoubt = 10 * time.Second

// Jobs makes the pods of Jobs and counts how they end.
type Jobs struct {
	w        *World
	all      Of[*batchv1.Job]
	pods     Of[*corev1.Pod]
	believed func() bool
	events   Recorder
	changed  <-chan struct{}
	saw      latest[*batchv1.Job]
	made     latest[*corev1.Pod] // pods that we made or changed
	gone     map[types.UID]bool  // pods that went by our doing, and that the view still shows
	of       map[types.UID]*job
	rests    rests
	grumble  grumble
}

// job is what is remembered of a Job, in its present generation.
type job struct {
	kept
	watch jobs.Watch // from one generation to the next
	wrote bool       // since it was left alone
	rest  time.Time  // it is, until then
}

// NewJobs prepares the loop; call it before the World runs.
func NewJobs(w *World, believed func() bool, events Recorder) *Jobs {
	if believed == nil {
		believed = func() bool { return true }
	}
	d := &Jobs{w: w, all: Of[*batchv1.Job]{w.view(batch.Jobs, api.Selection{})}, pods: w.pods(), believed: believed, events: events,
		saw: latest[*batchv1.Job]{}, made: latest[*corev1.Pod]{}, gone: map[types.UID]bool{}, of: map[types.UID]*job{}, rests: rests{}}
	d.changed = listen(d.all, d.pods)
	return d
}

// Run runs Jobs until ctx ends.
func (d *Jobs) Run(ctx context.Context) error { return loop(ctx, d.changed, d.pass, d.all, d.pods) }

func (d *Jobs) pass(ctx context.Context, now time.Time) time.Duration {
	all := d.all.List()
	present := map[types.UID]*batchv1.Job{}
	for _, j := range all {
		present[j.UID] = j
	}
	for uid := range d.of {
		if present[uid] == nil {
			delete(d.of, uid)
			delete(d.saw, uid)
			delete(d.rests, uid)
		}
	}
	owned, free := d.look(ctx, now)
	wake, failed := idle, error(nil)
	for _, j := range d.saw.over(all, nil, now) {
		pods := around(j, owned, free)
		saw := see(j) + see(pods...)
		again, ok := d.rests.left(j.UID, saw, now)
		if !ok {
			var err error
			again, ok, err = d.settle(ctx, j, pods, now)
			failed = errors.Join(failed, err)
			if ok {
				d.rests[j.UID] = rest{saw, now.Add(again)}
			}
		}
		wake = min(wake, again)
	}
	failed = errors.Join(failed, d.letGo(ctx, all, owned, free, now))
	if len(d.made) > 0 {
		wake = min(wake, madeDoubt)
	}
	if failed != nil {
		wake = min(wake, firstAttempt)
	}
	d.grumble.about(ctx, "cannot run a job", failed)
	return wake
}

// look finds the pods that have an owner, and, in each namespace, those that have none, as they are by now.
func (d *Jobs) look(ctx context.Context, now time.Time) (owned map[types.UID][]*corev1.Pod, free map[string][]*corev1.Pod) {
	pods := d.made.over(d.pods.List(), func(p *corev1.Pod) bool {
		is, err := d.w.Client.Get(ctx, api.Pods, p.Namespace, p.Name)
		return apierrors.IsNotFound(err) || err == nil && is.GetUID() != p.UID
	}, now)
	owned, free = map[types.UID][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	unseen := map[types.UID]bool{}
	for _, p := range pods {
		of := metav1.GetControllerOfNoCopy(p)
		switch {
		case d.gone[p.UID]:
			unseen[p.UID] = true
		case of != nil:
			owned[of.UID] = append(owned[of.UID], p)
		default:
			free[p.Namespace] = append(free[p.Namespace], p)
		}
	}
	d.gone = unseen
	return owned, free
}

// around are the pods that a Job looks at: its own, and those that it may adopt. One that has ended adopts none; there may be hundreds
// of them, and each pass looks at all.
func around(j *batchv1.Job, owned map[types.UID][]*corev1.Pod, free map[string][]*corev1.Pod) []*corev1.Pod {
	if batch.Finished(&j.Status) {
		return owned[j.UID]
	}
	return slices.Concat(owned[j.UID], free[j.Namespace])
}

// settle does what one Job needs, and returns when to look at it again. quiet: there is nothing to do until then, or until it or its
// pods change.
func (d *Jobs) settle(ctx context.Context, j *batchv1.Job, pods []*corev1.Pod, now time.Time) (again time.Duration, quiet bool, err error) {
	k := d.remember(j)
	if !jobs.Ours(j) {
		return idle, true, nil
	}
	k.watch.Look(j, now, d.believed)
	if left, ok := k.watch.Expires(j, now); ok && left <= 0 {
		_, err := d.w.Client.Delete(ctx, batch.Jobs, j.Namespace, j.Name,
			api.DeleteOptions{UID: &j.UID, Revision: &j.ResourceVersion, Propagation: metav1.DeletePropagationForeground})
		if outdated(err) {
			err = nil
		}
		return firstAttempt, false, err
	}
	if left := k.rest.Sub(now); left > 0 {
		return left, false, nil
	}
	return d.step(ctx, j, k, pods, now)
}

// remember is what is remembered of a Job. With another spec it is tried anew.
func (d *Jobs) remember(j *batchv1.Job) *job {
	was := d.of[j.UID]
	if was != nil && was.generation == j.Generation {
		return was
	}
	k := &job{kept: kept{generation: j.Generation, pods: map[types.UID]time.Time{}}}
	if was != nil {
		k.watch = was.watch
	}
	d.of[j.UID] = k
	return k
}

// step carries out one plan. What it did is there for the next, which follows at once.
func (d *Jobs) step(ctx context.Context, j *batchv1.Job, k *job, pods []*corev1.Pod, now time.Time) (
	again time.Duration, quiet bool, err error) {
	k.look(lives(j, pods), now)
	wait := max(k.pause(int(*j.Spec.Parallelism), now), k.retry(now))
	plan := jobs.Next(j, pods, wait, k.watch, now)
	again = idle
	if k.watch.Doubts {
		again = jobDoubt
	}
	if plan.Again > 0 {
		again = min(again, plan.Again)
	}
	if left, ok := k.watch.Expires(j, now); ok {
		again = min(again, left)
	}
	if plan.Idle(j) {
		if k.wrote {
			k.wrote, k.rest = false, now.Add(restOf(&j.Status))
		}
		return again, true, nil
	}
	k.wrote = true
	switch err := d.act(ctx, j, k, &plan, now); {
	case err == nil:
		return 0, false, nil
	case errors.Is(err, errGoing):
		return again, false, nil
	case outdated(err):
		return firstAttempt, false, nil
	default:
		return min(again, k.failed("", err, now)), false, err
	}
}

// lives are the pods of a Job whose loss would be one: not those that are deleted, as it may have done itself.
func lives(j *batchv1.Job, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		of := metav1.GetControllerOf(p)
		return of == nil || of.UID != j.UID || p.DeletionTimestamp != nil || api.PoweredOff(p)
	})
}

// act carries out a plan in the order in which it may be broken off at any point (package jobs).
func (d *Jobs) act(ctx context.Context, j *batchv1.Job, k *job, plan *jobs.Plan, now time.Time) error {
	if err := d.claim(ctx, j, plan, now); err != nil || len(plan.Adopt)+len(plan.Release) > 0 {
		return err
	}
	if onlySize := len(plan.Drop)+len(plan.Make) > 0 && len(plan.Delete)+len(plan.Free) == 0; onlySize {
		return d.size(ctx, j, k, plan, now) // the status has to say what comes of it
	}
	if !plan.Same(j) {
		next := *j
		next.Status = plan.Status
		out, err := api.UpdateStatus(ctx, d.w.Client, batch.Jobs, &next)
		if err != nil {
			return fmt.Errorf("update job %s: %w", api.Key(j), err)
		}
		d.saw.note(out, now)
		for _, e := range plan.Says {
			d.events.Event(j, e.Type, e.Reason, e.Message)
		}
	}
	for _, p := range plan.Delete {
		if err := d.delete(ctx, j, k, p, now); err != nil {
			return err
		}
	}
	for _, p := range plan.Free {
		if err := d.untrack(ctx, p, now); err != nil {
			return err
		}
	}
	return d.size(ctx, j, k, plan, now)
}

// claim adopts pods, which are tracked from then on, and lets go of others.
func (d *Jobs) claim(ctx context.Context, j *batchv1.Job, plan *jobs.Plan, now time.Time) error {
	if len(plan.Adopt)+len(plan.Release) == 0 {
		return nil
	}
	if err := d.current(ctx, j); err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	for _, p := range plan.Adopt {
		err := d.change(ctx, p, now, func(p *corev1.Pod) bool {
			mine := metav1.IsControlledBy(p, j) && p.DeletionTimestamp == nil && !jobs.Tracked(p)
			if !mine && !adopt(p, j, batch.Jobs, selector) {
				return false
			}
			if !jobs.Tracked(p) {
				p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	for _, p := range plan.Release {
		err := d.change(ctx, p, now, func(p *corev1.Pod) bool {
			had := release(p, j, selector)
			if had {
				unfinalize(p)
			}
			return had
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// current says whether a Job is still what was looked at. If not, that will be heard of.
func (d *Jobs) current(ctx context.Context, j *batchv1.Job) error {
	fresh, err := d.w.Client.Get(ctx, batch.Jobs, j.Namespace, j.Name)
	if err == nil && (fresh.GetUID() != j.UID || fresh.GetGeneration() != j.Generation) {
		return errOutdated
	}
	return err
}

// size deletes the pods that are too many, and makes those that are missing.
func (d *Jobs) size(ctx context.Context, j *batchv1.Job, k *job, plan *jobs.Plan, now time.Time) error {
	if len(plan.Drop)+len(plan.Make) == 0 {
		return nil
	}
	if err := d.current(ctx, j); err != nil {
		return err
	}
	for _, p := range plan.Drop {
		if err := d.untrack(ctx, p, now); err != nil {
			return err
		}
		if err := d.delete(ctx, j, k, p, now); err != nil {
			return err
		}
	}
	for _, p := range plan.Make {
		out, err := api.Create(ctx, d.w.Client, api.Pods, p)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return errGoing
		case err != nil:
			d.events.Event(j, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			return err
		}
		d.made.note(out, now)
		d.events.Event(j, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+out.Name)
	}
	k.failing = nil
	return nil
}

// change writes a pod, and knows it until the view does. One that is not what it was decided on is left for the next look.
func (d *Jobs) change(ctx context.Context, p *corev1.Pod, now time.Time, how func(*corev1.Pod) bool) error {
	out, changed, err := amend(ctx, d.w.Client, api.Pods, p, "", how)
	switch {
	case err != nil:
		return err
	case !changed:
		return errOutdated
	}
	d.know(out, now)
	return nil
}

// know remembers a pod as a write left it, which may be gone.
func (d *Jobs) know(p *corev1.Pod, now time.Time) {
	grace := p.DeletionGracePeriodSeconds
	if p.DeletionTimestamp != nil && grace != nil && *grace == 0 && len(p.Finalizers) == 0 {
		d.gone[p.UID] = true
		delete(d.made, p.UID)
		return
	}
	d.made.note(p, now)
}

// unfinalize takes the finalizer off a pod.
func unfinalize(p *corev1.Pod) bool {
	had := len(p.Finalizers)
	p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	return len(p.Finalizers) < had
}

// untrack lets a pod go, if it has not ended since it was looked at: that is still to be counted.
func (d *Jobs) untrack(ctx context.Context, p *corev1.Pod, now time.Time) error {
	return d.change(ctx, p, now, func(is *corev1.Pod) bool { return is.Status.Phase == p.Status.Phase && unfinalize(is) })
}

func (d *Jobs) delete(ctx context.Context, j *batchv1.Job, k *job, p *corev1.Pod, now time.Time) error {
	out, err := d.w.Client.Delete(ctx, api.Pods, p.Namespace, p.Name, api.DeleteOptions{UID: &p.UID})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		d.gone[p.UID] = true
		delete(d.made, p.UID)
		return nil
	case err != nil:
		d.events.Event(j, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
		return fmt.Errorf("delete pod %s: %w", api.Key(p), err)
	}
	if left, ok := out.(*corev1.Pod); ok {
		d.know(left, now)
	}
	delete(k.pods, p.UID)
	d.events.Event(j, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	return nil
}

// letGo takes the finalizer off the pods of Jobs that are no more: nobody counts them.
func (d *Jobs) letGo(ctx context.Context, all []*batchv1.Job, owned map[types.UID][]*corev1.Pod, free map[string][]*corev1.Pod,
	now time.Time) error {
	known := map[types.UID]bool{}
	for _, j := range all {
		known[j.UID] = true
	}
	for uid, pods := range owned {
		for _, p := range pods {
			if known[uid] || !jobs.Tracked(p) {
				continue
			}
			if lost, err := d.lost(ctx, p); err != nil || !lost {
				if err != nil {
					return err
				}
				continue
			}
			if err := d.untrack(ctx, p, now); err != nil {
				return err
			}
		}
	}
	for _, pods := range free {
		for _, p := range pods {
			if jobs.Tracked(p) && !wantedBy(all, p) {
				if err := d.untrack(ctx, p, now); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lost says that the server does not know the Job that owns a pod. What other kinds own is theirs.
func (d *Jobs) lost(ctx context.Context, p *corev1.Pod) (bool, error) {
	of := metav1.GetControllerOf(p)
	if of.Kind != batch.Jobs.Name || of.APIVersion != batch.Jobs.APIVersion() {
		return false, nil
	}
	is, err := d.w.Client.Get(ctx, batch.Jobs, p.Namespace, of.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && is.GetUID() != of.UID, err
}

// wantedBy says that a Job will adopt a pod.
func wantedBy(all []*batchv1.Job, p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(all, func(j *batchv1.Job) bool {
		selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
		return err == nil && j.Namespace == p.Namespace && j.DeletionTimestamp == nil && !batch.Finished(&j.Status) &&
			selector.Matches(labels.Set(p.Labels))
	})
}
