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
)

const (
	mostAtOnce = 500 // pods deleted in one look
	// madeDoubt is how long a created object may be missing from the watch before the server is asked for it.
	madeDoubt = time.Second
)

// Replicas keeps as many pods of each controller as it is to have.
type Replicas struct {
	w       *World
	kinds   []*replicated
	pods    Of[*corev1.Pod]
	sees    []follow
	changed <-chan struct{}
	own     ownPods
	of      map[types.UID]*kept // controllers
	rests   rests
	grumble grumble
}

// NewReplicas prepares the loop for controllers of these kinds; call it before the World runs.
func NewReplicas(w *World, kinds ...*replicated) *Replicas {
	r := &Replicas{w: w, kinds: kinds, pods: w.pods(), own: newOwnPods(), of: map[types.UID]*kept{}, rests: rests{}}
	r.sees = []follow{r.pods}
	for _, k := range kinds {
		r.sees = append(r.sees, k.all)
	}
	r.changed = listen(r.sees...)
	return r
}

// Run makes and deletes pods until ctx ends.
func (r *Replicas) Run(ctx context.Context) error { return loop(ctx, r.changed, r.pass, r.sees...) }

func (r *Replicas) pass(ctx context.Context, now time.Time) time.Duration {
	present, all := map[types.UID]bool{}, map[*replicated][]api.Object{}
	related := kin{}
	for _, k := range r.kinds {
		all[k] = k.all.List()
		for _, obj := range all[k] {
			present[obj.GetUID()] = true
			related.add(obj)
		}
	}
	for uid := range r.of {
		if !present[uid] {
			delete(r.of, uid)
			delete(r.rests, uid)
		}
	}
	if len(present) == 0 {
		r.own.clear()
		return idle
	}
	list, wake := r.own.over(ctx, r.w.Client, r.pods, now)
	pods := herded(list, related)
	var failed error
	for _, k := range r.kinds {
		for _, obj := range all[k] {
			its := pods.around(obj, related)
			saw := see(obj) + see(its...)
			again, ok := r.rests.left(obj.GetUID(), saw, now)
			if !ok {
				var err error
				again, ok, err = r.settle(ctx, k, obj, replicate(k.read(obj), its, related, now), now)
				failed = errors.Join(failed, err)
				if ok {
					r.rests[obj.GetUID()] = rest{saw, now.Add(again)}
				}
			}
			wake = min(wake, again)
		}
	}
	r.grumble.about(ctx, "cannot keep the number of a controller's pods", failed)
	return wake
}

// settle creates, adopts, releases and deletes pods of one controller as needed, and returns when to look at it
// again. quiet: there is nothing to do until then, or until it or its pods change.
func (r *Replicas) settle(ctx context.Context, kind *replicated, obj api.Object, todo todo, now time.Time) (
	again time.Duration, quiet bool, failed error) {
	k := r.of[obj.GetUID()]
	if k == nil || k.generation != obj.GetGeneration() { // what is wanted is another thing now
		k = &kept{generation: obj.GetGeneration(), pods: map[types.UID]time.Time{}}
		r.of[obj.GetUID()] = k
	}
	k.look(slices.Concat(todo.own, todo.release), now)
	wait := max(k.pause(int(kind.kind.Replicas(obj)), now), k.retry(now))
	switch {
	case !todo.any():
		k.failing = nil
	case wait > 0 && (todo.missing > 0 || k.failing != nil):
		todo.again = min(todo.again, wait)
	default:
		var reason string
		if reason, failed = r.act(ctx, kind, obj, k, todo, now); failed != nil {
			todo.again = min(todo.again, k.failed(reason, failed, now))
		} else {
			k.failing = nil
		}
	}
	_, changed, err := amend(ctx, r.w.Client, kind.kind, obj, "status", func(fresh api.Object) bool {
		was := kind.status(fresh)
		next := todo.status
		next.Conditions = withFailure(was.Conditions, k.failing, now)
		if apiequality.Semantic.DeepEqual(next, was) {
			return false
		}
		kind.setStatus(fresh, next)
		return true
	})
	if err != nil {
		todo.again = min(todo.again, firstAttempt)
	}
	return todo.again, !todo.any() && !changed && err == nil, errors.Join(failed, err)
}

// act claims pods and lets go of others, makes those that are missing, or deletes those that are too many. The first failure
// ends it: the next would fail too. The reason is that of a condition; "": there is none for it.
func (r *Replicas) act(ctx context.Context, kind *replicated, obj api.Object, k *kept, todo todo, now time.Time) (
	reason string, err error) {
	// It may be gone, going or another one by now, and its pods would go with it. Then that will be heard soon.
	fresh, err := r.w.Client.Get(ctx, kind.kind, obj.GetNamespace(), obj.GetName())
	if apierrors.IsNotFound(err) || err == nil && (fresh.GetUID() != obj.GetUID() || fresh.GetGeneration() != obj.GetGeneration()) {
		return "", nil
	}
	if err == nil {
		err = r.claim(ctx, kind, obj, k, todo)
	}
	if err != nil {
		return "", err
	}
	for range todo.missing {
		p, err := api.Create(ctx, r.w.Client, api.Pods, kind.kind.PodOf(obj))
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return "", nil // the controller goes with it
		case err != nil:
			kind.events.Event(obj, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			return "FailedCreate", err
		}
		r.own.note(p, now)
		k.pods[p.UID] = now
		kind.events.Event(obj, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+p.Name)
	}
	for _, p := range todo.surplus {
		if err := remove(ctx, r.w.Client, p, api.DeleteOptions{}); err != nil {
			kind.events.Event(obj, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
			return "FailedDelete", err
		}
		r.own.left(p)
		delete(k.pods, p.UID)
		kind.events.Event(obj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	}
	for _, p := range todo.replaced {
		if err := remove(ctx, r.w.Client, p, api.DeleteOptions{}); err != nil {
			return "", err
		}
		r.own.left(p)
	}
	return "", nil
}

// claim adopts matching pods without an owner, and releases pods that the selector no longer matches.
func (r *Replicas) claim(ctx context.Context, kind *replicated, obj api.Object, k *kept, todo todo) error {
	selector := kind.read(obj).selector
	for _, p := range todo.adopt {
		_, _, err := amend(ctx, r.w.Client, api.Pods, p, "", func(p *corev1.Pod) bool { return adopt(p, obj, kind.kind, selector) })
		if err != nil {
			return err
		}
	}
	for _, p := range todo.release {
		_, _, err := amend(ctx, r.w.Client, api.Pods, p, "", func(p *corev1.Pod) bool { return release(p, obj, selector) })
		if err != nil {
			return err
		}
		delete(k.pods, p.UID)
	}
	return nil
}

// adopt gives an object an owner, if it has none and is still what the owner looks for.
func adopt(it, owner api.Object, kind *api.Kind, selector labels.Selector) bool {
	if metav1.GetControllerOf(it) != nil || it.GetDeletionTimestamp() != nil || !selector.Matches(labels.Set(it.GetLabels())) {
		return false
	}
	it.SetOwnerReferences(append(it.GetOwnerReferences(), *metav1.NewControllerRef(owner, kind.GVK())))
	return true
}

// release takes an owner away from an object, if it still has it and is not what the owner looks for.
func release(it, owner api.Object, selector labels.Selector) bool {
	if selector.Matches(labels.Set(it.GetLabels())) {
		return false
	}
	had := it.GetOwnerReferences()
	left := slices.DeleteFunc(slices.Clone(had), func(o metav1.OwnerReference) bool { return o.UID == owner.GetUID() })
	it.SetOwnerReferences(left)
	return len(left) < len(had)
}
