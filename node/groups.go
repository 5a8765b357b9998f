package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/internal/grumble"
	"ledge/runtime"
)

// groupsEvery is how often the cgroups above the pods are set anew (N-7.43): whoever changed them behind our back is
// overruled.
const groupsEvery = time.Minute

// groups are the cgroups that pods stand in.
type groups struct{ a *Agent }

// tendGroups keeps the cgroups that pods stand in: at once when the pods change, and in any case from time to time.
func (gs groups) tendGroups(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{gs.a.poster.Looked(), gs.a.engine.met} {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	var trouble grumble.Once
	for anew := true; ctx.Err() == nil; {
		err := gs.setGroups(ctx, anew)
		if errors.Is(err, runtime.ErrUnavailable) {
			err = nil // we are poked when it is back
		}
		if ctx.Err() == nil {
			trouble.About("cannot bound the pods as a whole; each still has its own limits", err)
		}
		select {
		case <-ctx.Done():
		case <-gs.a.groupsCh:
			anew = false
		case <-time.After(groupsEvery):
			anew = true
		}
	}
	return nil
}

// setGroups bounds each group, or, unless anew, those whose bounds are not what this engine was told last: pods change
// some ten times while one of them starts, and what they ask for in all seldom.
func (gs groups) setGroups(ctx context.Context, anew bool) error {
	var active []*corev1.Pod
	for _, p := range gs.a.bound() {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			active = append(active, p)
		}
	}
	var errs []error
	for _, g := range gs.a.limits().Groups(active) {
		if last, ok := gs.a.engine.group(g.Name); ok && !anew && reflect.DeepEqual(last, g.Want) {
			continue
		}
		if err := gs.a.engine.limit(ctx, g.Name, g.Want); err != nil {
			errs = append(errs, fmt.Errorf("cgroup %s: %w", g.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) pokeGroups() {
	nudge(a.groupsCh)
}
