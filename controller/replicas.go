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
	mostAtOnce  = 500 // pods deleted in one look
	mostWaiting = 100 // pods of one controller without a node: more of them would only fill the card
	// Back-off after a failed write: from firstAttempt, doubling up to latestAttempt.
	firstAttempt, latestAttempt = time.Second, 5 * time.Minute
	// Back-off after losing young pods: once max(freeLosses, replicas) are lost, wait firstPause before the next,
	// doubling up to longestPause; forget all that when no pod was lost for the time young. Kubernetes makes the next
	// pod at once, and a board that refuses its pods fills with their records.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	freeLosses               = 4
	young                    = 2 * longestPause
	// madeDoubt is how long a created pod may be missing from the watch before the server is asked for it.
	madeDoubt = time.Second
)

// Replicas keeps as many pods of each replication controller as it is to have.
type Replicas struct {
	w           *World
	controllers Of[*corev1.ReplicationController]
	pods        Of[*corev1.Pod]
	events      Recorder
	changed     <-chan struct{}
	made        map[types.UID]made  // pods that we made and have not seen yet
	going       map[types.UID]bool  // pods that we deleted and have not seen go yet
	of          map[types.UID]*kept // controllers
	grumble     grumble
}

type made struct {
	pod *corev1.Pod
	at  time.Time
}

// kept is what is remembered of a controller, in its present generation.
type kept struct {
	generation int64
	pods       map[types.UID]time.Time // its pods, since when they have been seen
	losses     int                     // young pods that ended or went, and not by us
	lastLoss   time.Time
	failing    *attempts // nil: its last write did not fail
}

// attempts are those to make or delete pods of one controller.
type attempts struct {
	reason, message string // of the condition
	tries           int
	next            time.Time
}

// NewReplicas prepares the loop; call it before the World runs.
func NewReplicas(w *World, events Recorder) *Replicas {
	return &Replicas{w: w, controllers: w.controllers(), pods: w.pods(), events: events, changed: listen(w.controllers(), w.pods()), made: map[types.UID]made{}, going: map[types.UID]bool{},
		of: map[types.UID]*kept{}}
}

// Run makes and deletes pods until ctx ends.
func (r *Replicas) Run(ctx context.Context) error {
	return loop(ctx, r.changed, r.pass, r.controllers, r.pods)
}

func (r *Replicas) pass(ctx context.Context, now time.Time) time.Duration {
	controllers := r.controllers.List()
	if len(controllers) == 0 {
		clear(r.made)
		clear(r.going)
		clear(r.of)
		return idle
	}
	pods, wake := r.byNamespace(ctx, now)
	present := map[types.UID]bool{}
	var failed error
	for _, rc := range controllers {
		present[rc.UID] = true
		again, err := r.settle(ctx, rc, pods[rc.Namespace], now)
		failed, wake = errors.Join(failed, err), min(wake, again)
	}
	for uid := range r.of {
		if !present[uid] {
			delete(r.of, uid)
		}
	}
	r.grumble.about(ctx, "cannot keep the number of a controller's pods", failed)
	return wake
}

// byNamespace returns the pods of each namespace, with the pods just created and without those just deleted, though the
// watch does not show either yet.
func (r *Replicas) byNamespace(ctx context.Context, now time.Time) (of map[string][]*corev1.Pod, wake time.Duration) {
	of, wake = map[string][]*corev1.Pod{}, idle
	unseen := map[types.UID]bool{}
	for _, p := range r.pods.List() {
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

// settle creates, adopts, releases and deletes pods of one controller as needed, and returns when to look at it
// again.
func (r *Replicas) settle(ctx context.Context, rc *corev1.ReplicationController, pods []*corev1.Pod, now time.Time) (again time.Duration, failed error) {
	k := r.of[rc.UID]
	if k == nil || k.generation != rc.Generation { // what is wanted is another thing now
		k = &kept{generation: rc.Generation, pods: map[types.UID]time.Time{}}
		r.of[rc.UID] = k
	}
	todo := replicate(rc, pods, now)
	k.look(todo, now)
	wait := k.pause(int(api.ReplicationControllers.Replicas(rc)), now)
	if k.failing != nil {
		wait = max(wait, k.failing.next.Sub(now))
	}
	switch {
	case !todo.any():
		k.failing = nil
	case wait > 0 && (todo.missing > 0 || k.failing != nil):
		todo.again = min(todo.again, wait)
	default:
		var reason string
		if reason, failed = r.act(ctx, rc, k, todo, now); failed != nil {
			todo.again = min(todo.again, k.failed(reason, failed, now))
		} else {
			k.failing = nil
		}
	}
	_, _, err := amend(ctx, r.w.Client, api.ReplicationControllers, rc, "status", func(fresh *corev1.ReplicationController) bool {
		was := fresh.Status.DeepCopy()
		todo.status.Conditions = fresh.Status.Conditions
		fresh.Status = todo.status
		setFailure(&fresh.Status, k.failing, now)
		return !apiequality.Semantic.DeepEqual(&fresh.Status, was)
	})
	if err != nil {
		todo.again = min(todo.again, firstAttempt)
	}
	return todo.again, errors.Join(failed, err)
}

// look sees which of the pods have ended or gone since the last look, and counts the young ones.
func (k *kept) look(todo todo, now time.Time) {
	seen := map[types.UID]time.Time{}
	for _, p := range slices.Concat(todo.own, todo.release) {
		since, ok := k.pods[p.UID]
		if !ok {
			since = now
		}
		seen[p.UID] = since
		delete(k.pods, p.UID)
	}
	if now.Sub(k.lastLoss) >= young {
		k.losses = 0
	}
	for _, since := range k.pods {
		if now.Sub(since) < young {
			k.losses, k.lastLoss = k.losses+1, now
		}
	}
	k.pods = seen
}

// pause is how long still no pod is made in the place of those that were lost.
func (k *kept) pause(want int, now time.Time) time.Duration {
	beyond := k.losses - max(want, freeLosses)
	if beyond <= 0 {
		return 0
	}
	return k.lastLoss.Add(min(firstPause<<min((beyond-1)/max(want, 1), 9), longestPause)).Sub(now)
}

// failed notes a write that failed, and says when to try again.
func (k *kept) failed(reason string, err error, now time.Time) time.Duration {
	if k.failing == nil {
		k.failing = &attempts{}
	}
	f := k.failing
	wait := min(firstAttempt<<min(f.tries, 9), latestAttempt)
	f.reason, f.message, f.next = reason, err.Error(), now.Add(wait)
	f.tries++
	return wait
}

// act claims pods and lets go of others, makes those that are missing, or deletes those that are too many. The first failure
// ends it: the next would fail too. The reason is that of a condition; "": there is none for it.
func (r *Replicas) act(ctx context.Context, rc *corev1.ReplicationController, k *kept, todo todo, now time.Time) (reason string, err error) {
	// It may be gone, going or another one by now, and its pods would go with it. Then that will be heard soon.
	fresh, err := api.Get[*corev1.ReplicationController](ctx, r.w.Client, api.ReplicationControllers, rc.Namespace, rc.Name)
	if apierrors.IsNotFound(err) || err == nil && (fresh.UID != rc.UID || fresh.Generation != rc.Generation) {
		return "", nil
	}
	if err == nil {
		err = r.claim(ctx, rc, k, todo)
	}
	if err != nil {
		return "", err
	}
	for range todo.missing {
		p, err := api.Create(ctx, r.w.Client, api.Pods, api.ReplicationControllers.PodOf(rc))
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return "", nil // the controller goes with it
		case err != nil:
			r.events.Event(rc, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			return "FailedCreate", err
		}
		r.made[p.UID], k.pods[p.UID] = made{p, now}, now
		r.events.Event(rc, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+p.Name)
	}
	for _, p := range todo.surplus {
		if err := remove(ctx, r.w.Client, p, api.DeleteOptions{}); err != nil {
			r.events.Event(rc, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
			return "FailedDelete", err
		}
		r.going[p.UID] = true
		delete(r.made, p.UID)
		delete(k.pods, p.UID)
		r.events.Event(rc, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	}
	return "", nil
}

// claim adopts matching pods without an owner, and releases pods that the selector no longer matches.
func (r *Replicas) claim(ctx context.Context, rc *corev1.ReplicationController, k *kept, todo todo) error {
	selector := labels.SelectorFromSet(rc.Spec.Selector)
	for _, p := range todo.adopt {
		_, _, err := amend(ctx, r.w.Client, api.Pods, p, "", func(p *corev1.Pod) bool {
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
		_, _, err := amend(ctx, r.w.Client, api.Pods, p, "", func(p *corev1.Pod) bool {
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
		delete(k.pods, p.UID)
	}
	return nil
}

// todo is what one controller needs.
type todo struct {
	own            []*corev1.Pod // its pods, that have not ended and are not going
	adopt, release []*corev1.Pod // before anything else is done: others may want the same pods
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
	waiting := 0
	for _, p := range pods {
		of, selected := metav1.GetControllerOf(p), selector.Matches(labels.Set(p.Labels))
		mine := of != nil && of.UID == rc.UID
		switch {
		case of != nil && !mine, of == nil && !selected, p.DeletionTimestamp != nil, scheduler.Terminal(p):
		case mine && (selected || going):
			t.own = append(t.own, p)
			if p.Spec.NodeName == "" {
				waiting++
			}
		case mine:
			t.release = append(t.release, p)
		case !going:
			t.adopt = append(t.adopt, p)
		}
	}
	t.count(rc, t.own, now)
	switch more := len(t.own) - int(api.ReplicationControllers.Replicas(rc)); {
	case going, len(t.adopt) > 0, len(t.release) > 0:
	case more < 0:
		t.missing = max(min(-more, mostWaiting-waiting), 0)
	case more > 0:
		inOrderOfWorth(t.own, now)
		t.surplus = t.own[:min(more, mostAtOnce)]
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
		since, ready := api.ReadySince(p)
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
	case i < 0 || s.Conditions[i].Reason != f.reason: // the message of each try names another pod
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
