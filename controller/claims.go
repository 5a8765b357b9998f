package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	apistorage "ledge/api/storage"
	"ledge/controller/claims"
)

// Claims binds claims to volumes, gives back what is not claimed any more, and keeps what is used.
type Claims struct {
	w       *World
	claims  Of[*corev1.PersistentVolumeClaim]
	volumes Of[*corev1.PersistentVolume]
	classes Of[*storagev1.StorageClass]
	pods    Of[*corev1.Pod]
	nodes   Of[*corev1.Node]
	events  Recorder
	changed <-chan struct{}
	bound   latest[*corev1.PersistentVolumeClaim]
	given   latest[*corev1.PersistentVolume]
	told    map[said]bool // at the last look
	disks   bool          // there may be classes of disks
	grumble grumble
}

// said is what was told of an object.
type said struct {
	about           types.UID
	reason, message string
}

// NewClaims prepares the loop; call it before the World runs.
func NewClaims(w *World, events Recorder) *Claims {
	c := &Claims{w: w, claims: w.claims(), volumes: w.volumes(), classes: w.classes(), pods: w.pods(), nodes: w.nodes(), events: events,
		bound: latest[*corev1.PersistentVolumeClaim]{}, given: latest[*corev1.PersistentVolume]{}, told: map[said]bool{}, disks: true}
	c.changed = listen(c.claims, c.volumes, c.classes, c.pods, c.nodes)
	return c
}

// Run settles claims and volumes until ctx ends.
func (c *Claims) Run(ctx context.Context) error {
	return loop(ctx, c.changed, c.pass, c.claims, c.volumes, c.classes, c.pods, c.nodes)
}

// claimRounds is more than the writes that settle a claim, each of which follows from the one before.
const claimRounds = 8

func (c *Claims) pass(ctx context.Context, now time.Time) time.Duration {
	s, failed := c.look(ctx, now)
	if failed == nil && len(s.Claims)+len(s.Volumes) == 0 && !ephemeral(s.Pods) && s.System == nil {
		clear(c.told)
		return idle
	}
	wake := idle
	if len(c.bound)+len(c.given) > 0 {
		wake = madeDoubt
	}
	var events []claims.Event
	for range claimRounds {
		var steps []claims.Step
		steps, events = claims.Next(s, metav1.NewTime(now).Rfc3339Copy())
		wrote := false
		for _, step := range steps {
			ok, err := c.do(ctx, step, now)
			wrote = wrote || ok
			failed = errors.Join(failed, err)
		}
		if !wrote || ctx.Err() != nil {
			break
		}
		var err error
		s, err = c.look(ctx, now)
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		wake = firstRetry
	}
	c.tell(events)
	c.grumble.about(ctx, "cannot settle claims and volumes", failed)
	return wake
}

// look is what there is, with what we have written since.
func (c *Claims) look(ctx context.Context, now time.Time) (claims.State, error) {
	s := claims.State{
		Claims:  c.bound.over(c.claims.List(), unknown[*corev1.PersistentVolumeClaim](ctx, c.w.Client, api.PersistentVolumeClaims), now),
		Volumes: c.given.over(c.volumes.List(), unknown[*corev1.PersistentVolume](ctx, c.w.Client, api.PersistentVolumes), now),
		Classes: c.classes.List(), Pods: c.pods.List(), Nodes: c.nodes.List()}
	if !c.disks && !slices.ContainsFunc(s.Nodes, claims.HasDisks) {
		return s, nil
	}
	o, err := c.w.Client.Get(ctx, api.Namespaces, "", metav1.NamespaceSystem)
	if err != nil {
		return s, fmt.Errorf("the classes of disks wait: %w", err)
	}
	system := o.(*corev1.Namespace)
	if c.disks = len(claims.MadeIn(system)) > 0; c.disks || slices.ContainsFunc(s.Nodes, claims.HasDisks) {
		s.System = system
	}
	return s, nil
}

// do carries out a step, and says whether it wrote something that others may follow from. What is another one by now will be heard of.
func (c *Claims) do(ctx context.Context, step claims.Step, now time.Time) (wrote bool, err error) {
	out, err := c.write(ctx, step)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil || out == nil || out.GetDeletionTimestamp() != nil && len(out.GetFinalizers()) == 0:
		return false, err
	}
	if o, ok := out.(*corev1.PersistentVolumeClaim); ok {
		c.bound.note(o, now)
	}
	if o, ok := out.(*corev1.PersistentVolume); ok {
		c.given.note(o, now)
	}
	return true, nil
}

// write is the write of a step; without an object nothing follows from it.
func (c *Claims) write(ctx context.Context, step claims.Step) (api.Object, error) {
	if u := step.Unless; u != nil {
		have, err := c.w.Client.Get(ctx, u.Kind, u.Namespace, u.Name)
		if err == nil && (u.UID == "" || u.UID == have.GetUID()) {
			return nil, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	kind, err := c.w.kinds.Of(step.Object)
	if err != nil {
		return nil, err
	}
	switch step.Verb {
	case claims.Create:
		return c.w.Client.Create(ctx, kind, step.Object, api.WriteOptions{})
	case claims.Delete:
		uid := step.Object.GetUID()
		return c.w.Client.Delete(ctx, kind, step.Object.GetNamespace(), step.Object.GetName(), api.DeleteOptions{UID: &uid})
	case claims.UpdateStatus:
		return c.w.Client.Update(ctx, kind, step.Object, api.WriteOptions{Subresource: api.StatusSub})
	}
	return c.w.Client.Update(ctx, kind, step.Object, api.WriteOptions{})
}

// tell says of each object what is the matter with it, when that was not so the last time.
func (c *Claims) tell(events []claims.Event) {
	now := make(map[said]bool, len(events))
	for _, e := range events {
		s := said{e.About.GetUID(), e.Reason, e.Message}
		if now[s] = true; !c.told[s] {
			c.events.Event(e.About, e.Type, e.Reason, e.Message)
		}
	}
	c.told = now
}

// ephemeral says whether a pod brings claims of its own.
func ephemeral(pods []*corev1.Pod) bool {
	for _, p := range pods {
		for i := range p.Spec.Volumes {
			if p.Spec.Volumes[i].Ephemeral != nil {
				return true
			}
		}
	}
	return false
}

func (w *World) claims() Of[*corev1.PersistentVolumeClaim] {
	return Of[*corev1.PersistentVolumeClaim]{w.view(api.PersistentVolumeClaims, api.Selection{})}
}

func (w *World) volumes() Of[*corev1.PersistentVolume] {
	return Of[*corev1.PersistentVolume]{w.view(api.PersistentVolumes, api.Selection{})}
}

func (w *World) classes() Of[*storagev1.StorageClass] {
	return Of[*storagev1.StorageClass]{w.view(apistorage.StorageClasses, api.Selection{})}
}
