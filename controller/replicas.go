package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/scheduler"
)

const (
	mostAtOnce = 500 // pods made or deleted in one look
	// How long after a write that failed the next one is tried: doubled each time.
	firstAttempt, latestAttempt = time.Second, 5 * time.Minute
	// How long no pod takes the place of one that failed, when as many failed before as there are to be: doubled for each
	// such round of the last hour. Kubernetes makes the next one at once, and boards that refuse their pods fill with them.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	failureMemory            = time.Hour
	// madeDoubt is when the server is asked for a pod that it made and that does not show up.
	madeDoubt = time.Second
)

// Replicas keeps as many pods of each replication controller as it is to have.
type Replicas struct {
	w       *World
	events  Recorder
	changed <-chan struct{}
	made    map[types.UID]made      // pods that we made and have not seen yet
	going   map[types.UID]bool      // pods that we deleted and have not seen go yet
	failing map[types.UID]*attempts // controllers whose last write failed
	grumble grumble
}

type made struct {
	pod *corev1.Pod
	at  time.Time
}

// attempts are those to make or delete pods of one controller.
type attempts struct {
	reason, message string // of the condition
	tries           int
	next            time.Time
	generation      int64 // of the controller: another one is tried at once
}

// NewReplicas prepares the loop; call it before the World runs.
func NewReplicas(w *World, events Recorder) *Replicas {
	return &Replicas{w: w, events: events, changed: listen(w.Controllers, w.Pods), made: map[types.UID]made{}, going: map[types.UID]bool{},
		failing: map[types.UID]*attempts{}}
}

// Run makes and deletes pods until ctx ends.
func (r *Replicas) Run(ctx context.Context) error { return loop(ctx, r.w, r.changed, r.pass) }

func (r *Replicas) pass(ctx context.Context, now time.Time) time.Duration {
	controllers := r.w.Controllers.List()
	if len(controllers) == 0 {
		clear(r.made)
		clear(r.going)
		clear(r.failing)
		return idle
	}
	pods, wake := r.pods(ctx, now)
	present := map[types.UID]bool{}
	var failed error
	for _, rc := range controllers {
		present[rc.UID] = true
		again, err := r.settle(ctx, rc, pods[rc.Namespace], now)
		failed, wake = errors.Join(failed, err), min(wake, again)
	}
	for uid := range r.failing {
		if !present[uid] {
			delete(r.failing, uid)
		}
	}
	r.grumble.about(ctx, "cannot keep the number of a controller's pods", failed)
	return wake
}

// pods are those of each namespace as they are: with those that were just made, and without those that were just deleted.
func (r *Replicas) pods(ctx context.Context, now time.Time) (of map[string][]*corev1.Pod, wake time.Duration) {
	of, wake = map[string][]*corev1.Pod{}, idle
	unseen := map[types.UID]bool{}
	for _, p := range r.w.Pods.List() {
		delete(r.made, p.UID)
		if r.going[p.UID] && p.DeletionTimestamp == nil {
			unseen[p.UID] = true
			continue
		}
		of[p.Namespace] = append(of[p.Namespace], p)
	}
	r.going = unseen
	for uid, m := range r.made {
		if now.Sub(m.at) >= madeDoubt { // it may have come and gone between two looks
			p, err := r.w.Client.Get(ctx, api.Pods, m.pod.Namespace, m.pod.Name)
			if apierrors.IsNotFound(err) || err == nil && p.GetUID() != uid {
				delete(r.made, uid)
				continue
			}
		}
		of[m.pod.Namespace] = append(of[m.pod.Namespace], m.pod)
		wake = madeDoubt
	}
	return of, wake
}

// settle does for one controller what there is to do, and tells when it should be looked at again.
func (r *Replicas) settle(ctx context.Context, rc *corev1.ReplicationController, pods []*corev1.Pod, now time.Time) (again time.Duration, failed error) {
	todo, last := replicate(rc, pods, now), r.failing[rc.UID]
	switch {
	case !todo.any():
		delete(r.failing, rc.UID)
	case last != nil && last.generation == rc.Generation && now.Before(last.next):
		todo.again = min(todo.again, last.next.Sub(now))
	default:
		var reason string
		if reason, failed = r.act(ctx, rc, todo, now); failed != nil {
			todo.again = min(todo.again, r.failed(rc, reason, failed, now))
		} else {
			delete(r.failing, rc.UID)
		}
	}
	_, _, err := amend(ctx, r.w.Client, rc, "status", func(fresh *corev1.ReplicationController) bool {
		was := fresh.Status.DeepCopy()
		todo.status.Conditions = fresh.Status.Conditions
		fresh.Status = todo.status
		setFailure(&fresh.Status, r.failing[rc.UID], now)
		return !apiequality.Semantic.DeepEqual(&fresh.Status, was)
	})
	if err != nil {
		todo.again = min(todo.again, firstAttempt)
	}
	return todo.again, errors.Join(failed, err)
}

// failed notes a write that failed, and says when to try again.
func (r *Replicas) failed(rc *corev1.ReplicationController, reason string, err error, now time.Time) time.Duration {
	f := r.failing[rc.UID]
	if f == nil || f.generation != rc.Generation {
		f = &attempts{generation: rc.Generation}
		r.failing[rc.UID] = f
	}
	wait := min(firstAttempt<<min(f.tries, 9), latestAttempt)
	f.reason, f.message, f.next = reason, err.Error(), now.Add(wait)
	f.tries++
	return wait
}

// act claims pods and lets go of others, makes those that are missing, or deletes those that are too many. The first failure
// ends it: the next would fail too. The reason is that of a condition; "": there is none for it.
func (r *Replicas) act(ctx context.Context, rc *corev1.ReplicationController, todo todo, now time.Time) (reason string, err error) {
	// It may be gone, going or another one by now, and its pods would go with it. Then that will be heard soon.
	fresh, err := api.Get[*corev1.ReplicationController](ctx, r.w.Client, api.ReplicationControllers, rc.Namespace, rc.Name)
	if apierrors.IsNotFound(err) || err == nil && (fresh.UID != rc.UID || fresh.Generation != rc.Generation) {
		return "", nil
	}
	if err == nil {
		err = r.claim(ctx, rc, todo)
	}
	if err != nil {
		return "", err
	}
	for range todo.missing {
		p, err := api.Create(ctx, r.w.Client, api.Pods, api.PodOf(rc))
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return "", nil // the controller goes with it
		case err != nil:
			r.events.Event(rc, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			return "FailedCreate", err
		}
		r.made[p.UID] = made{p, now}
		r.events.Event(rc, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+p.Name)
	}
	for _, p := range todo.surplus {
		if err := remove(ctx, r.w.Client, p, api.DeleteOptions{}); err != nil {
			r.events.Event(rc, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
			return "FailedDelete", err
		}
		r.going[p.UID] = true
		delete(r.made, p.UID)
		r.events.Event(rc, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	}
	return "", nil
}

// claim makes pods that nobody has the controller's own, and lets go of those that it no longer selects.
func (r *Replicas) claim(ctx context.Context, rc *corev1.ReplicationController, todo todo) error {
	selector := labels.SelectorFromSet(rc.Spec.Selector)
	for _, p := range todo.adopt {
		_, _, err := amend(ctx, r.w.Client, p, "", func(p *corev1.Pod) bool {
			if metav1.GetControllerOf(p) != nil || p.DeletionTimestamp != nil || !selector.Matches(labels.Set(p.Labels)) {
				return false
			}
			p.OwnerReferences = append(p.OwnerReferences, *metav1.NewControllerRef(rc, api.ReplicationControllers.GVK()))
			return true
		})
		if err != nil {
			return err
		}
	}
	for _, p := range todo.release {
		_, _, err := amend(ctx, r.w.Client, p, "", func(p *corev1.Pod) bool {
			if selector.Matches(labels.Set(p.Labels)) {
				return false
			}
			had := len(p.OwnerReferences)
			p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == rc.UID })
			return len(p.OwnerReferences) < had
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// todo is what there is to do for a controller.
type todo struct {
	adopt, release []*corev1.Pod
	missing        int           // pods to make
	surplus        []*corev1.Pod // pods to delete
	status         corev1.ReplicationControllerStatus
	again          time.Duration // when to look again
}

func (t *todo) any() bool {
	return t.missing > 0 || len(t.surplus) > 0 || len(t.adopt) > 0 || len(t.release) > 0
}

// replicate compares the pods of a controller's namespace with what it wants.
func replicate(rc *corev1.ReplicationController, pods []*corev1.Pod, now time.Time) todo {
	t := todo{again: idle, status: corev1.ReplicationControllerStatus{ObservedGeneration: rc.Generation}}
	selector, going := labels.SelectorFromSet(rc.Spec.Selector), rc.DeletionTimestamp != nil
	var own, failed []*corev1.Pod
	for _, p := range pods {
		of, selected := metav1.GetControllerOf(p), selector.Matches(labels.Set(p.Labels))
		mine := of != nil && of.UID == rc.UID
		switch {
		case of != nil && !mine, of == nil && !selected, p.DeletionTimestamp != nil:
		case scheduler.Terminal(p):
			if mine && p.Status.Phase == corev1.PodFailed {
				failed = append(failed, p)
			}
		case mine && (selected || going):
			own = append(own, p)
		case mine:
			t.release = append(t.release, p)
		case !going:
			t.adopt, own = append(t.adopt, p), append(own, p)
		}
	}
	t.count(rc, own, now)
	want := int(api.Replicas(rc))
	switch more := len(own) - want; {
	case going:
	case more < 0:
		if wait := pause(failed, want, now); wait > 0 {
			t.again = min(t.again, wait)
			break
		}
		t.missing = min(-more, mostAtOnce)
	case more > 0:
		inOrderOfWorth(own)
		t.surplus = own[:min(more, mostAtOnce)]
	}
	return t
}

// count fills in the status: how far the pods are.
func (t *todo) count(rc *corev1.ReplicationController, own []*corev1.Pod, now time.Time) {
	template := labels.SelectorFromSet(rc.Spec.Template.Labels)
	t.status.Replicas = int32(len(own))
	for _, p := range own {
		if template.Matches(labels.Set(p.Labels)) {
			t.status.FullyLabeledReplicas++
		}
		since, ready := readySince(p)
		if !ready {
			continue
		}
		t.status.ReadyReplicas++
		least := time.Duration(rc.Spec.MinReadySeconds) * time.Second
		if left := since.Add(least).Sub(now); left > 0 && left <= least {
			t.again = min(t.again, left)
		} else { // or ready since a moment that is still to come: the clock was wrong
			t.status.AvailableReplicas++
		}
	}
}

// pause is how long still no pod is made in the place of those that failed.
func pause(failed []*corev1.Pod, want int, now time.Time) time.Duration {
	recent, last := 0, time.Time{}
	for _, p := range failed {
		at := p.CreationTimestamp.Time
		if age := now.Sub(at); age >= 0 && age < failureMemory { // one from the future was made when the clock was wrong
			recent++
			if at.After(last) {
				last = at
			}
		}
	}
	rounds := recent / max(want, 1)
	if rounds == 0 {
		return 0
	}
	return last.Add(min(firstPause<<min(rounds-1, 9), longestPause)).Sub(now)
}

func readySince(p *corev1.Pod) (time.Time, bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// setFailure says in the status that pods cannot be made or deleted, and why, or that they can.
func setFailure(s *corev1.ReplicationControllerStatus, f *attempts, now time.Time) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.ReplicationControllerCondition) bool {
		return c.Type == corev1.ReplicationControllerReplicaFailure
	})
	switch {
	case f == nil || f.reason == "":
		if i >= 0 {
			s.Conditions = slices.Delete(slices.Clone(s.Conditions), i, i+1)
		}
	case i < 0 || s.Conditions[i].Reason != f.reason || s.Conditions[i].Message != f.message:
		c := corev1.ReplicationControllerCondition{Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue,
			Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(now)}
		if i < 0 {
			s.Conditions = append(slices.Clone(s.Conditions), c)
			return
		}
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		s.Conditions = slices.Clone(s.Conditions)
		s.Conditions[i] = c
	}
}
