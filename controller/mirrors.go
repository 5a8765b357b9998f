//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/controller/endpoints"
)

// Mirrors shows Endpoints that somebody wrote, for a Service without a selector, as slices: nobody else reads Endpoints here.
type Mirrors struct {
	w        *World
	services Of[*corev1.Service]
	all      Of[*corev1.Endpoints]
	book     sliceBook
	events   Recorder
	changed  <-chan struct{}
	of       map[types.UID]*kept
	rests    rests
	grumble  grumble
}

// NewMirrors prepares the loop; call it before the World runs.
func NewMirrors(w *World, events Recorder) *Mirrors {
	m := &Mirrors{w: w, services: w.services(), all: w.endpoints(), book: newSliceBook(w, endpoints.Mirrorer), events: events,
		of: map[types.UID]*kept{}, rests: rests{}}
	m.changed = listen(m.services, m.all, m.book.all)
	return m
}

// Run mirrors until ctx ends.
func (m *Mirrors) Run(ctx context.Context) error {
	return loop(ctx, m.changed, m.pass, m.services, m.all, m.book.all)
}

func (m *Mirrors) pass(ctx context.Context, now time.Time) time.Duration {
	slices, wake := m.book.ofServices(ctx, now), idle
	present := map[types.UID]bool{}
	var failed error
	for _, it := range m.all.List() {
		key := api.Key(it)
		svc, is := m.services.Get(key.Namespace, key.Name)
		if !is || len(svc.Spec.Selector) > 0 || !endpoints.Mirrored(it) {
			continue
		}
		present[it.UID] = true
		saw := see(it) + see(slices[key]...)
		again, ok := m.rests.left(it.UID, saw, now)
		if !ok {
			var err error
			again, ok, err = m.settle(ctx, it, endpoints.Mirror(it, slices[key]), now)
			failed = errors.Join(failed, err)
			if ok {
				m.rests[it.UID] = rest{saw, now.Add(again)}
			}
		}
		wake = min(wake, again)
		delete(slices, key)
	}
	for _, list := range slices { // of nobody, or of Endpoints that are not to be mirrored any more
		failed = errors.Join(failed, m.book.remove(ctx, list))
	}
	for uid := range m.of {
		if !present[uid] {
			delete(m.of, uid)
			delete(m.rests, uid)
		}
	}
	if failed != nil {
		wake = min(wake, firstAttempt)
	}
	m.grumble.about(ctx, "cannot write endpoints as slices", failed)
	return min(wake, m.book.wake())
}

// settle writes what one Endpoints object needs, and returns when to look at it again. quiet: there is nothing to do until then, or until
// something changes.
func (m *Mirrors) settle(ctx context.Context, it *corev1.Endpoints, plan endpoints.Plan, now time.Time) (
	again time.Duration, quiet bool, err error) {
	k := m.of[it.UID]
	if k == nil {
		k = &kept{}
		m.of[it.UID] = k
	}
	if wait := k.retry(now); wait > 0 {
		return wait, false, nil
	}
	if plan.Empty() {
		k.failing = nil
		return idle, true, nil
	}
	err = m.book.write(ctx, plan, now)
	switch {
	case err == nil:
		k.failing = nil
		return idle, false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return idle, false, nil
	case outdated(err):
		return firstAttempt, false, nil
	}
	if k.failing == nil {
		m.events.Event(it, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			fmt.Sprintf("Error updating Endpoint Slices for Endpoints %s: %v", api.Key(it), err))
	}
	return k.failed("", err, now), false, fmt.Errorf("endpoints %s: %w", api.Key(it), err)
}

func (w *World) endpoints() Of[*corev1.Endpoints] {
	return Of[*corev1.Endpoints]{w.view(api.Endpoints, api.Selection{})}
}
