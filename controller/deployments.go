package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
)

// Deployments keeps the ReplicaSets of each Deployment: one for each of its templates, today's with the pods. It makes no pod
// and deletes none: that is Replicas' business.
type Deployments struct {
	w       *World
	all     Of[*appsv1.Deployment]
	sets    Of[*appsv1.ReplicaSet]
	pods    Of[*corev1.Pod]
	events  Recorder
	changed <-chan struct{}
	saw     latest[*appsv1.Deployment]
	made    latest[*appsv1.ReplicaSet]
	of      map[types.UID]*kept
	rests   rests
	grumble grumble
}

// Why the steps of a plan are not all taken, without anything being wrong.
var (
	errOutdated = errors.New("there is something newer, which will be heard of")
	errTaken    = errors.New("the name of the new replica set is another one's")
	errGoing    = errors.New("the namespace goes, and the deployment with it")
)

// NewDeployments prepares the loop; call it before the World runs.
func NewDeployments(w *World, events Recorder) *Deployments {
	d := &Deployments{w: w, all: Of[*appsv1.Deployment]{w.view(apps.Deployments, api.Selection{})},
		sets: Of[*appsv1.ReplicaSet]{w.view(apps.ReplicaSets, api.Selection{})}, pods: w.pods(), events: events,
		saw: latest[*appsv1.Deployment]{}, made: latest[*appsv1.ReplicaSet]{}, of: map[types.UID]*kept{}, rests: rests{}}
	d.changed = listen(d.all, d.sets, d.pods)
	return d
}

// Run rolls out until ctx ends.
func (d *Deployments) Run(ctx context.Context) error {
	return loop(ctx, d.changed, d.pass, d.all, d.sets, d.pods)
}

func (d *Deployments) pass(ctx context.Context, now time.Time) time.Duration {
	all := d.all.List()
	if len(all) == 0 {
		clear(d.saw)
		clear(d.made)
		clear(d.of)
		clear(d.rests)
		return idle
	}
	present := map[types.UID]bool{}
	for _, it := range all {
		present[it.UID] = true
	}
	maps.DeleteFunc(d.saw, func(uid types.UID, _ wrote[*appsv1.Deployment]) bool { return !present[uid] })
	maps.DeleteFunc(d.of, func(uid types.UID, _ *kept) bool { return !present[uid] })
	maps.DeleteFunc(d.rests, func(uid types.UID, _ rest) bool { return !present[uid] })
	owned, free := map[types.UID][]*appsv1.ReplicaSet{}, map[string][]*appsv1.ReplicaSet{}
	for _, rs := range d.made.over(d.sets.List(), unknown[*appsv1.ReplicaSet](ctx, d.w.Client, apps.ReplicaSets), now) {
		if of := metav1.GetControllerOfNoCopy(rs); of != nil {
			owned[of.UID] = append(owned[of.UID], rs)
		} else {
			free[rs.Namespace] = append(free[rs.Namespace], rs)
		}
	}
	pods := sync.OnceValue(d.pods.List)
	wake, failed := idle, error(nil)
	for _, it := range d.saw.over(all, nil, now) {
		sets := slices.Concat(owned[it.UID], free[it.Namespace])
		saw := see(it) + see(sets...)
		again, ok := d.rests.left(it.UID, saw, now)
		if !ok {
			var err error
			again, ok, err = d.settle(ctx, it, sets, pods, now)
			failed = errors.Join(failed, err)
			if ok {
				d.rests[it.UID] = rest{saw, now.Add(again)}
			}
		}
		wake = min(wake, again)
	}
	if len(d.made) > 0 {
		wake = min(wake, madeDoubt)
	}
	d.grumble.about(ctx, "cannot roll out a deployment", failed)
	return wake
}

// settle does what one Deployment needs, and returns when to look at it again. quiet: there is nothing to do until then, or
// until it or its sets change.
func (d *Deployments) settle(ctx context.Context, it *appsv1.Deployment, sets []*appsv1.ReplicaSet, pods func() []*corev1.Pod,
	now time.Time) (again time.Duration, quiet bool, failed error) {
	plan := workload.Roll(it, sets, pods, now)
	ok, again, failed := d.act(ctx, it, &plan, now)
	if plan.Again > 0 {
		again = min(again, plan.Again)
	}
	next := it.DeepCopy()
	if !ok || !plan.Change(next) {
		return again, ok && len(plan.Steps) == 0 && !plan.Waits, failed
	}
	out, err := api.UpdateStatus(ctx, d.w.Client, apps.Deployments, next)
	switch {
	case outdated(err):
		return min(again, firstAttempt), false, failed
	case err != nil:
		return min(again, firstAttempt), false, errors.Join(failed, fmt.Errorf("update deployment %s: %w", api.Key(it), err))
	}
	d.saw.note(out, now)
	return again, false, failed
}

// act takes the steps of a plan, or waits after a failure. ok says that what the plan says of the Deployment is so.
func (d *Deployments) act(ctx context.Context, it *appsv1.Deployment, plan *workload.Plan, now time.Time) (
	ok bool, again time.Duration, err error) {
	k := d.of[it.UID]
	if k == nil || k.generation != it.Generation {
		k = &kept{generation: it.Generation}
		d.of[it.UID] = k
	}
	if len(plan.Steps) == 0 {
		k.failing = nil
		return true, idle, nil
	}
	if wait := k.retry(now); wait > 0 {
		if k.failing.reason != "" {
			plan.CannotCreate(it, k.failing.message, now)
		}
		return k.failing.reason != "", wait, nil
	}
	var not *unmade
	switch err := d.carryOut(ctx, it, plan.Steps, now); {
	case err == nil:
		k.failing = nil
		return true, idle, nil
	case errors.Is(err, errGoing):
		return false, idle, nil
	case outdated(err):
		return false, firstAttempt, nil
	case errors.Is(err, errTaken):
		plan.Collided(it)
		return true, firstAttempt, nil
	case errors.As(err, &not):
		again = k.failed(workload.CreateError, err, now)
		plan.CannotCreate(it, k.failing.message, now)
		d.events.Event(it, corev1.EventTypeWarning, workload.CreateError, k.failing.message)
		return true, again, err
	default:
		return false, k.failed("", err, now), err
	}
}

// outdated says that a write met a newer object, or none.
func outdated(err error) bool {
	return errors.Is(err, errOutdated) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// carryOut takes steps until one fails.
func (d *Deployments) carryOut(ctx context.Context, it *appsv1.Deployment, steps []workload.Step, now time.Time) error {
	fresh, err := d.w.Client.Get(ctx, apps.Deployments, it.Namespace, it.Name)
	switch {
	case err != nil:
		return err
	case fresh.GetUID() != it.UID || fresh.GetGeneration() != it.Generation:
		return errOutdated
	}
	for _, s := range steps {
		switch s.Do {
		case workload.Create:
			err = d.create(ctx, it, s.Set, now)
		case workload.Delete:
			_, err = d.w.Client.Delete(ctx, apps.ReplicaSets, s.Set.Namespace, s.Set.Name,
				api.DeleteOptions{UID: &s.Set.UID, Revision: &s.Set.ResourceVersion})
		default:
			err = d.update(ctx, it, s, now)
		}
		if err != nil {
			return err
		}
		if s.Says != "" {
			d.events.Event(it, corev1.EventTypeNormal, "ScalingReplicaSet", s.Says)
		}
	}
	return nil
}

// update writes a set as the step has it, over the version that was decided on.
func (d *Deployments) update(ctx context.Context, it *appsv1.Deployment, s workload.Step, now time.Time) error {
	next := s.Set.DeepCopy()
	selector, err := metav1.LabelSelectorAsSelector(it.Spec.Selector)
	if err != nil {
		return err
	}
	switch s.Do {
	case workload.Adopt:
		adopt(next, it, apps.Deployments, selector)
	case workload.Release:
		release(next, it, selector)
	}
	out, err := api.Update(ctx, d.w.Client, apps.ReplicaSets, next)
	if err != nil {
		return fmt.Errorf("%s replicaset %s: %w", s.Do, api.Key(next), err)
	}
	d.made.note(out, now)
	return nil
}

// unmade is that an object which was decided on could not be made, or deleted.
type unmade struct {
	what string
	error
}

func (e *unmade) Error() string { return e.what + ": " + e.error.Error() }

func (e *unmade) Unwrap() error { return e.error }

// create makes a set. Its name may be taken: by itself, since its maker died before it was seen, or by another one.
func (d *Deployments) create(ctx context.Context, it *appsv1.Deployment, set *appsv1.ReplicaSet, now time.Time) error {
	out, err := api.Create(ctx, d.w.Client, apps.ReplicaSets, set.DeepCopy())
	switch {
	case err == nil:
		d.made.note(out, now)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errGoing
	case !apierrors.IsAlreadyExists(err):
		return &unmade{fmt.Sprintf("Failed to create new replica set %q", set.Name), err}
	}
	is, err := api.Get[*appsv1.ReplicaSet](ctx, d.w.Client, apps.ReplicaSets, set.Namespace, set.Name)
	switch {
	case err != nil:
		return err
	case !workload.Made(it, is):
		return errTaken
	case is.DeletionTimestamp == nil:
		d.made.note(is, now)
	}
	return errOutdated
}
