//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/controller/endpoints"
)

// Endpoints keeps what is behind each Service that picks pods: its slices, and an Endpoints object for older programs.
type Endpoints struct {
	w        *World
	services Of[*corev1.Service]
	pods     Of[*corev1.Pod]
	nodes    Of[*corev1.Node]
	legacy   Of[*corev1.Endpoints]
	book     sliceBook
	wrote    latest[*corev1.Endpoints]
	events   Recorder
	own      string // the board that runs this
	changed  <-chan struct{}
	known    map[types.NamespacedName]bool // Services that there were: their Endpoints go with them
	of       map[types.UID]*kept
	rests    rests
	grumble  grumble
}

// NewEndpoints prepares the loop; call it before the World runs. own is the board that runs it.
func NewEndpoints(w *World, own string, events Recorder) *Endpoints {
	e := &Endpoints{w: w, own: own, services: w.services(), pods: w.pods(), nodes: w.nodes(), legacy: w.endpoints(),
		book: newSliceBook(w, endpoints.Manager), wrote: latest[*corev1.Endpoints]{}, events: events,
		known: map[types.NamespacedName]bool{}, of: map[types.UID]*kept{}, rests: rests{}}
	e.changed = listen(e.services, e.pods, e.nodes, e.legacy, e.book.all)
	return e
}

// Run writes endpoints until ctx ends.
func (e *Endpoints) Run(ctx context.Context) error {
	return loop(ctx, e.changed, e.pass, e.services, e.pods, e.nodes, e.legacy, e.book.all)
}

func (e *Endpoints) pass(ctx context.Context, now time.Time) time.Duration {
	services := e.present()
	slices, legacy := e.book.ofServices(ctx, now), map[types.NamespacedName]*corev1.Endpoints{}
	for _, it := range e.wrote.over(e.legacy.List(), unknown[*corev1.Endpoints](ctx, e.w.Client, api.Endpoints), now) {
		legacy[api.Key(it)] = it
	}
	failed := e.clear(ctx, services, slices, legacy)
	picked, wake := e.pick(services), idle
	for key, svc := range services {
		if !endpoints.Wanted(svc) {
			continue
		}
		b := behind{svc, picked[key], slices[key], legacy[key]}
		saw := b.sight(e.where)
		again, ok := e.rests.left(svc.UID, saw, now)
		if !ok {
			var err error
			again, ok, err = e.settle(ctx, b, now)
			failed = errors.Join(failed, err)
			if ok {
				e.rests[svc.UID] = rest{saw, now.Add(again)}
			}
		}
		wake = min(wake, again)
	}
	if failed != nil {
		wake = min(wake, firstAttempt)
	}
	e.grumble.about(ctx, "cannot write what is behind a service", failed)
	if len(e.wrote) > 0 {
		wake = min(wake, madeDoubt)
	}
	return min(wake, e.book.wake())
}

// present are the Services there are; of others nothing is remembered.
func (e *Endpoints) present() map[types.NamespacedName]*corev1.Service {
	out, is := map[types.NamespacedName]*corev1.Service{}, map[types.UID]bool{}
	e.services.Each(func(obj api.Object) {
		out[api.Key(obj)], is[obj.GetUID()] = obj.(*corev1.Service), true
	})
	maps.DeleteFunc(e.of, func(uid types.UID, _ *kept) bool { return !is[uid] })
	maps.DeleteFunc(e.rests, func(uid types.UID, _ rest) bool { return !is[uid] })
	return out
}

// where is an endpoints.Where.
func (e *Endpoints) where(node string) (zone string, ok bool) {
	n, ok := e.nodes.Get("", node)
	if !ok {
		return "", false
	}
	return n.Labels[corev1.LabelTopologyZone], true
}

// pick finds the pods of each Service. It looks at each pod once, whatever the number of Services: those that may pick it are found by one
// of their labels. Static pods of other boards are none of them: what these show of themselves, under any label in any namespace, is their
// own word, and a stolen one would be sent what is meant for others.
func (e *Endpoints) pick(services map[types.NamespacedName]*corev1.Service) map[types.NamespacedName][]*corev1.Pod {
	type label struct{ namespace, key, value string }
	by, out := map[label][]*corev1.Service{}, map[types.NamespacedName][]*corev1.Pod{}
	for _, svc := range services {
		var first label
		for k, v := range svc.Spec.Selector {
			if first.namespace == "" || k < first.key {
				first = label{svc.Namespace, k, v}
			}
		}
		if endpoints.Wanted(svc) {
			by[first] = append(by[first], svc)
		}
	}
	if len(by) == 0 {
		return nil
	}
	e.pods.Each(func(obj api.Object) {
		p := obj.(*corev1.Pod)
		if api.IsMirror(p) && p.Spec.NodeName != e.own {
			return
		}
		for k, v := range p.Labels {
			for _, svc := range by[label{p.Namespace, k, v}] {
				if contains(p.Labels, svc.Spec.Selector) {
					key := api.Key(svc)
					out[key] = append(out[key], p)
				}
			}
		}
	})
	return out
}

func contains(all, some map[string]string) bool {
	for k, v := range some {
		if has, ok := all[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// behind is a Service and what stands behind it.
type behind struct {
	svc    *corev1.Service
	pods   []*corev1.Pod
	slices []*discoveryv1.EndpointSlice
	legacy *corev1.Endpoints
}

// sight is that of all that counts for a Service. Nodes count by their zones only: each writes its Node several times a minute.
func (b *behind) sight(where endpoints.Where) sight {
	s := see(b.svc) + see(b.pods...) + see(b.slices...)
	if b.legacy != nil {
		s += see(b.legacy)
	}
	type place struct {
		node, zone string
		is         bool
	}
	for _, p := range b.pods {
		zone, is := where(p.Spec.NodeName)
		s += sight(maphash.Comparable(sights, place{p.Spec.NodeName, zone, is}))
	}
	return s
}

// settle writes what one Service needs, and returns when to look at it again. quiet: there is nothing to do until then, or until something
// changes.
func (e *Endpoints) settle(ctx context.Context, b behind, now time.Time) (again time.Duration, quiet bool, failed error) {
	k := e.of[b.svc.UID]
	if k == nil || k.generation != b.svc.Generation {
		k = &kept{generation: b.svc.Generation}
		e.of[b.svc.UID] = k
	}
	if wait := k.retry(now); wait > 0 {
		return wait, false, nil
	}
	plan := endpoints.Slices(b.svc, b.pods, e.where, b.slices)
	next := endpoints.Legacy(b.svc, b.pods, b.legacy)
	if plan.Empty() && next == nil {
		k.failing = nil
		return idle, true, nil
	}
	err := e.book.write(ctx, plan, now)
	if next != nil && err == nil {
		err = e.writeLegacy(ctx, next, now)
	}
	switch {
	case err == nil:
		k.failing = nil
		return idle, false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // it goes, and the Service with it
		return idle, false, nil
	case outdated(err) || apierrors.IsAlreadyExists(err): // there is something newer, which will be heard of
		return firstAttempt, false, nil
	}
	if k.failing == nil {
		e.events.Event(b.svc, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			fmt.Sprintf("Error updating Endpoint Slices for Service %s: %v", api.Key(b.svc), err))
	}
	return k.failed("", err, now), false, fmt.Errorf("service %s: %w", api.Key(b.svc), err)
}

func (e *Endpoints) writeLegacy(ctx context.Context, next *corev1.Endpoints, now time.Time) error {
	put := api.Update[*corev1.Endpoints]
	if next.UID == "" {
		put = api.Create[*corev1.Endpoints]
	}
	out, err := put(ctx, e.w.Client, api.Endpoints, next)
	if err == nil {
		e.wrote.note(out, now)
	}
	return err
}

// clear deletes what is left of Services that are gone, or pick no pods any more. Endpoints of a Service that has lost its selector stay as
// they are, for somebody to write them; those of a Service that goes go with it, whoever made them.
func (e *Endpoints) clear(ctx context.Context, services map[types.NamespacedName]*corev1.Service,
	slices map[types.NamespacedName][]*discoveryv1.EndpointSlice, legacy map[types.NamespacedName]*corev1.Endpoints) error {
	var errs []error
	for key, list := range slices {
		if svc := services[key]; svc == nil || svc.DeletionTimestamp == nil && !endpoints.Wanted(svc) {
			errs = append(errs, e.book.remove(ctx, list))
		}
	}
	for key, it := range legacy {
		svc := services[key]
		made := it.Labels[endpoints.LegacyManaged] == endpoints.LegacyManager
		left := svc == nil && (made || e.known[key]) || svc != nil && made && svc.Spec.Type == corev1.ServiceTypeExternalName
		if !left || it.DeletionTimestamp != nil {
			continue
		}
		_, err := e.w.Client.Delete(ctx, api.Endpoints, it.Namespace, it.Name, api.DeleteOptions{UID: &it.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, err)
			continue
		}
		delete(e.wrote, it.UID)
	}
	if err := errors.Join(errs...); err != nil {
		return err // who is known stays known: it is tried again
	}
	clear(e.known)
	for key := range services {
		e.known[key] = true
	}
	return nil
}
