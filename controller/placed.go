package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
)

// Placed keeps the pods of a kind whose controllers have a place for each pod, an ordinal or a board, and remember the templates that
// they have had: StatefulSets or DaemonSets.
type Placed struct {
	w         *World
	kind      *placed
	pods      Of[*corev1.Pod]
	revisions Of[*appsv1.ControllerRevision]
	sees      []follow
	changed   <-chan struct{}
	saw       latest[api.Object]
	kept      latest[*appsv1.ControllerRevision]
	own       ownPods
	of        map[types.UID]*places
	rests     rests
	grumble   grumble
}

// placed is what such a kind has of its own.
type placed struct {
	kind     *api.Kind
	all      Of[api.Object]
	nodes    *Of[*corev1.Node]                  // nil: it does not look at them
	claims   *Of[*corev1.PersistentVolumeClaim] // the same
	events   Recorder
	selector func(api.Object) *metav1.LabelSelector
	// decide says what to do, and what the status becomes.
	decide func(obj api.Object, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (workload.Course, any)
	// report puts a status into an object, and tells whether it is another one.
	report func(api.Object, any) bool
	// collisions is where the status counts that a name for a revision was taken.
	collisions func(api.Object) **int32
}

// places is what is remembered of one controller, in its present generation.
type places struct {
	kept                  // its writes
	at   map[string]*kept // its pods
}

// statefulSets are those of the group apps.
func statefulSets(w *World, events Recorder) *placed {
	claims := w.claims()
	return &placed{kind: apps.StatefulSets, all: Of[api.Object]{w.view(apps.StatefulSets, api.Selection{})}, claims: &claims, events: events,
		selector: func(obj api.Object) *metav1.LabelSelector { return obj.(*appsv1.StatefulSet).Spec.Selector },
		decide: func(obj api.Object, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (workload.Course, any) {
			set := obj.(*appsv1.StatefulSet)
			course, status := workload.Order(set, revisions, pods, now)
			course.Attach(set, pods, func(name string) *corev1.PersistentVolumeClaim {
				c, _ := claims.Get(set.Namespace, name)
				return c
			})
			return course, status
		},
		report:     func(obj api.Object, s any) bool { return put(&obj.(*appsv1.StatefulSet).Status, s) },
		collisions: func(obj api.Object) **int32 { return &obj.(*appsv1.StatefulSet).Status.CollisionCount },
	}
}

// daemonSets are those of the group apps.
func daemonSets(w *World, events Recorder) *placed {
	nodes := w.nodes()
	return &placed{kind: apps.DaemonSets, all: Of[api.Object]{w.view(apps.DaemonSets, api.Selection{})}, nodes: &nodes, events: events,
		selector: func(obj api.Object) *metav1.LabelSelector { return obj.(*appsv1.DaemonSet).Spec.Selector },
		decide: func(obj api.Object, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (workload.Course, any) {
			course, status := workload.Cover(obj.(*appsv1.DaemonSet), revisions, pods, nodes.List(), now)
			return course, status
		},
		report:     func(obj api.Object, s any) bool { return put(&obj.(*appsv1.DaemonSet).Status, s) },
		collisions: func(obj api.Object) **int32 { return &obj.(*appsv1.DaemonSet).Status.CollisionCount },
	}
}

// NewPlaced prepares the loop for one kind; call it before the World runs.
func NewPlaced(w *World, kind *placed) *Placed {
	p := &Placed{w: w, kind: kind, pods: w.pods(),
		revisions: Of[*appsv1.ControllerRevision]{w.view(apps.ControllerRevisions, api.Selection{})},
		saw:       latest[api.Object]{}, kept: latest[*appsv1.ControllerRevision]{}, own: newOwnPods(), of: map[types.UID]*places{},
		rests: rests{}}
	p.sees = []follow{kind.all, p.pods, p.revisions}
	if kind.nodes != nil {
		p.sees = append(p.sees, kind.nodes)
	}
	if kind.claims != nil {
		p.sees = append(p.sees, kind.claims)
	}
	p.changed = listen(p.sees...)
	return p
}

// Run makes and deletes pods until ctx ends.
func (p *Placed) Run(ctx context.Context) error { return loop(ctx, p.changed, p.pass, p.sees...) }

func (p *Placed) pass(ctx context.Context, now time.Time) time.Duration {
	all := p.kind.all.List()
	if len(all) == 0 {
		clear(p.saw)
		clear(p.kept)
		clear(p.of)
		clear(p.rests)
		p.own.clear()
		return idle
	}
	present := map[types.UID]bool{}
	for _, obj := range all {
		present[obj.GetUID()] = true
	}
	maps.DeleteFunc(p.saw, func(uid types.UID, _ wrote[api.Object]) bool { return !present[uid] })
	maps.DeleteFunc(p.of, func(uid types.UID, _ *places) bool { return !present[uid] })
	maps.DeleteFunc(p.rests, func(uid types.UID, _ rest) bool { return !present[uid] })
	revisions := map[string][]*appsv1.ControllerRevision{}
	for _, r := range p.kept.over(p.revisions.List(), unknown[*appsv1.ControllerRevision](ctx, p.w.Client, apps.ControllerRevisions), now) {
		revisions[r.Namespace] = append(revisions[r.Namespace], r)
	}
	list, wake := p.own.over(ctx, p.w.Client, p.pods, now)
	pods := herded(list, nil)
	var boards sight
	if p.kind.nodes != nil {
		boards = see(p.kind.nodes.List()...)
	}
	claims := map[string]sight{}
	if p.kind.claims != nil {
		p.kind.claims.Each(func(c api.Object) { claims[c.GetNamespace()] += see(c) })
	}
	var failed error
	for _, obj := range p.saw.over(all, nil, now) {
		kept, its := revisions[obj.GetNamespace()], pods.around(obj, nil)
		saw := see(obj) + see(kept...) + see(its...) + boards + claims[obj.GetNamespace()]
		again, ok := p.rests.left(obj.GetUID(), saw, now)
		if !ok {
			var err error
			again, ok, err = p.settle(ctx, obj, kept, its, now)
			if failed = errors.Join(failed, err); ok {
				p.rests[obj.GetUID()] = rest{saw, now.Add(again)}
			}
		}
		wake = min(wake, again)
	}
	if len(p.kept) > 0 {
		wake = min(wake, madeDoubt)
	}
	p.grumble.about(ctx, "cannot keep the pods of a "+p.kind.kind.Singular, failed)
	return wake
}

// settle does what one controller needs, and returns when to look at it again. quiet: there is nothing to do until then, or until
// something that it looks at changes.
func (p *Placed) settle(ctx context.Context, obj api.Object, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (
	again time.Duration, quiet bool, failed error) {
	course, status := p.kind.decide(obj, revisions, pods, now)
	k := p.of[obj.GetUID()]
	if k == nil || k.generation != obj.GetGeneration() { // what is wanted is another thing now
		k = &places{kept: kept{generation: obj.GetGeneration()}, at: map[string]*kept{}}
		p.of[obj.GetUID()] = k
	}
	k.look(course.Places, now)
	next, changed := obj.DeepCopyObject().(api.Object), false
	again, failed = p.act(ctx, obj, k, &course, now)
	var not *unmade
	switch {
	case failed == nil, errors.As(failed, &not):
		changed = p.kind.report(next, status)
	case errors.Is(failed, errTaken): // the next look finds another name
		changed, failed = true, nil
		n := p.kind.collisions(next)
		count := int32(1)
		if *n != nil {
			count += **n
		}
		*n = &count
	case errors.Is(failed, errGoing), outdated(failed):
		failed = nil
	}
	if course.Again > 0 {
		again = min(again, course.Again)
	}
	if !changed {
		return again, failed == nil && len(course.Pods)+len(course.Revisions)+len(course.Claims) == 0, failed
	}
	out, err := p.w.Client.Update(ctx, p.kind.kind, next, api.WriteOptions{Subresource: api.StatusSub})
	switch {
	case outdated(err):
		return min(again, firstAttempt), false, failed
	case err != nil:
		return min(again, firstAttempt), false, errors.Join(failed, fmt.Errorf("update %s %s: %w", p.kind.kind.Singular, api.Key(obj), err))
	}
	p.saw.note(out, now)
	return again, false, failed
}

// look sees which pods have ended or gone since the last look, place by place: where one refuses its pods, others do not wait.
func (k *places) look(pods map[string][]*corev1.Pod, now time.Time) {
	for place := range pods {
		if k.at[place] == nil {
			k.at[place] = &kept{}
		}
	}
	for place, at := range k.at {
		at.look(pods[place], now)
		if len(at.pods) == 0 && now.Sub(at.lastLoss) >= young {
			delete(k.at, place)
		}
	}
}

// made notes a pod that was made for a place.
func (k *places) made(place string, uid types.UID, now time.Time) {
	if k.at[place] == nil {
		k.at[place] = &kept{}
	}
	if k.at[place].pods == nil {
		k.at[place].pods = map[types.UID]time.Time{}
	}
	k.at[place].pods[uid] = now
}

// removed forgets a pod of a place: it goes because it is to.
func (k *places) removed(place string, uid types.UID) {
	if at := k.at[place]; at != nil {
		delete(at.pods, uid)
	}
}

// pause is how long still no pod is made for a place.
func (k *places) pause(place string, now time.Time) time.Duration {
	if at := k.at[place]; at != nil {
		return at.pause(1, now)
	}
	return 0
}

// act does what has been decided, or waits: after a failure with everything, and where pods die young with those.
func (p *Placed) act(ctx context.Context, obj api.Object, k *places, course *workload.Course, now time.Time) (time.Duration, error) {
	again, steps := idle, []workload.PodStep{}
	for _, s := range course.Pods {
		if wait := k.pause(s.Place, now); wait > 0 && (s.Do == workload.Create || s.Do == workload.Replace) {
			again = min(again, wait)
			continue
		}
		steps = append(steps, s)
	}
	if len(steps)+len(course.Revisions)+len(course.Claims) == 0 {
		k.failing = nil
		return again, nil
	}
	if wait := k.retry(now); wait > 0 {
		if again = min(again, wait); len(course.Revisions) > 0 {
			return again, errOutdated // the status would speak of what is not there
		}
		return again, nil
	}
	err := p.carryOut(ctx, obj, k, course, steps, now)
	switch {
	case err == nil:
		k.failing = nil
		return again, nil
	case errors.Is(err, errTaken), outdated(err):
		return min(again, firstAttempt), err
	case errors.Is(err, errGoing):
		return again, err
	}
	return min(again, k.failed("", err, now)), err
}

// carryOut takes steps until one fails.
func (p *Placed) carryOut(ctx context.Context, obj api.Object, k *places, course *workload.Course, pods []workload.PodStep,
	now time.Time) error {
	fresh, err := p.w.Client.Get(ctx, p.kind.kind, obj.GetNamespace(), obj.GetName())
	switch {
	case err != nil:
		return err
	case fresh.GetUID() != obj.GetUID() || fresh.GetGeneration() != obj.GetGeneration():
		return errOutdated
	}
	selector, err := metav1.LabelSelectorAsSelector(p.kind.selector(obj))
	if err != nil {
		return err
	}
	for _, s := range course.Revisions {
		if err := p.keep(ctx, obj, selector, s, now); err != nil {
			return err
		}
	}
	for _, s := range course.Claims {
		if err := p.attach(ctx, obj, s); err != nil {
			return err
		}
	}
	for _, s := range pods {
		if err := p.pod(ctx, obj, k, selector, s, now); err != nil {
			return err
		}
	}
	return nil
}

// keep writes one revision.
func (p *Placed) keep(ctx context.Context, obj api.Object, selector labels.Selector, s workload.RevisionStep, now time.Time) (err error) {
	next := s.Revision.DeepCopy()
	switch s.Do {
	case workload.Create:
		return p.record(ctx, next, now)
	case workload.Delete:
		_, err = p.w.Client.Delete(ctx, apps.ControllerRevisions, next.Namespace, next.Name,
			api.DeleteOptions{UID: &next.UID, Revision: &next.ResourceVersion})
		return err
	case workload.Adopt:
		adopt(next, obj, p.kind.kind, selector)
	case workload.Release:
		release(next, obj, selector)
	}
	out, err := api.Update(ctx, p.w.Client, apps.ControllerRevisions, next)
	if err != nil {
		return fmt.Errorf("%s controllerrevision %s: %w", s.Do, api.Key(next), err)
	}
	p.kept.note(out, now)
	return nil
}

// attach writes one claim. One that is there already was made before, and has not been seen.
func (p *Placed) attach(ctx context.Context, obj api.Object, s workload.ClaimStep) error {
	if s.Do == workload.Update {
		_, err := p.w.Client.Update(ctx, api.PersistentVolumeClaims, s.Claim, api.WriteOptions{})
		return err
	}
	about := fmt.Sprintf("create Claim %s Pod %s in StatefulSet %s", s.Claim.Name, s.For, obj.GetName())
	_, err := p.w.Client.Create(ctx, api.PersistentVolumeClaims, s.Claim, api.WriteOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errGoing
	case err != nil:
		p.kind.events.Event(obj, corev1.EventTypeWarning, "FailedCreate", about+" failed error: "+err.Error())
		return &unmade{"create claim " + s.Claim.Name, err}
	}
	p.kind.events.Event(obj, corev1.EventTypeNormal, "SuccessfulCreate", about+" success")
	return nil
}

// record makes a revision. Its name may be taken: by itself, since its maker died before it was seen, or by another one.
func (p *Placed) record(ctx context.Context, want *appsv1.ControllerRevision, now time.Time) error {
	out, err := api.Create(ctx, p.w.Client, apps.ControllerRevisions, want)
	switch {
	case err == nil:
		p.kept.note(out, now)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errGoing
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create controllerrevision %s: %w", api.Key(want), err)
	}
	is, err := api.Get[*appsv1.ControllerRevision](ctx, p.w.Client, apps.ControllerRevisions, want.Namespace, want.Name)
	switch {
	case err != nil:
		return err
	case !workload.Recorded(want, is):
		return errTaken
	case is.DeletionTimestamp == nil:
		p.kept.note(is, now)
	}
	return errOutdated
}

// pod writes one pod.
func (p *Placed) pod(ctx context.Context, obj api.Object, k *places, selector labels.Selector, s workload.PodStep, now time.Time) error {
	var err error
	switch s.Do {
	case workload.Create:
		return p.create(ctx, obj, k, s, now)
	case workload.Delete, workload.Replace:
		return p.remove(ctx, obj, k, s)
	case workload.Adopt:
		_, _, err = amend(ctx, p.w.Client, api.Pods, s.Pod, "", func(pod *corev1.Pod) bool { return adopt(pod, obj, p.kind.kind, selector) })
	case workload.Release:
		_, _, err = amend(ctx, p.w.Client, api.Pods, s.Pod, "", func(pod *corev1.Pod) bool { return release(pod, obj, selector) })
	case workload.Update:
		_, _, err = amend(ctx, p.w.Client, api.Pods, s.Pod, "", func(pod *corev1.Pod) bool {
			labels := maps.Clone(pod.Labels)
			pod.Labels = s.Pod.Labels
			return !maps.Equal(labels, pod.Labels)
		})
	}
	return err
}

func (p *Placed) create(ctx context.Context, obj api.Object, k *places, s workload.PodStep, now time.Time) error {
	out, err := api.Create(ctx, p.w.Client, api.Pods, s.Pod)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errGoing
	case err != nil:
		p.kind.events.Event(obj, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
		return &unmade{"create pod for " + s.Place, err}
	}
	p.own.note(out, now)
	k.made(s.Place, out.UID, now)
	p.kind.events.Event(obj, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+out.Name)
	return nil
}

func (p *Placed) remove(ctx context.Context, obj api.Object, k *places, s workload.PodStep) error {
	if err := remove(ctx, p.w.Client, s.Pod, api.DeleteOptions{}); err != nil {
		p.kind.events.Event(obj, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
		return &unmade{"delete pod " + s.Pod.Name, err}
	}
	p.own.left(s.Pod)
	said := "Deleted pod: " + s.Pod.Name
	if s.Do == workload.Replace {
		said = fmt.Sprintf("Deleted pod: %s, which had ended: %s %s", s.Pod.Name, s.Pod.Status.Phase, s.Pod.Status.Reason)
	}
	k.removed(s.Place, s.Pod.UID)
	p.kind.events.Event(obj, corev1.EventTypeNormal, "SuccessfulDelete", said)
	return nil
}

// put sets a status, and tells whether it is another one.
func put[T any](status *T, to any) bool {
	next := to.(T)
	if workload.Same(status, &next) {
		return false
	}
	*status = next
	return true
}
