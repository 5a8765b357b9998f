package keeper

import (
	"context"
	"fmt"
	"path/filepath"

	"ledge/runtime"
)

var _ runtime.Limiter = (*Engine)(nil)

// Limit implements runtime.Limiter. It records the limit, so that a restarted brain or keeper knows it.
func (e *Engine) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	end, err := e.works.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := at.Check(); err != nil {
		return err
	}
	switch {
	case at.Group != "":
		return e.cfg.Runner.LimitGroup(at.Group, r)
	case at.Pod != "":
		return e.limitPod(ctx, at.Pod, r)
	}
	return e.limitContainer(ctx, at.Container, r)
}

func (e *Engine) limitPod(ctx context.Context, uid string, r runtime.Resources) error {
	unlock, err := e.pods.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, ok := e.held.pod(uid)
	if !ok {
		return fmt.Errorf("limit pod %s: %w", uid, runtime.ErrNotFound)
	}
	if err := e.cfg.Runner.Limit(rec.Status.Pod, "", r); err != nil {
		return fmt.Errorf("limit pod %s: %w", uid, err)
	}
	rec.Status.Pod.Resources = rec.Status.Pod.Resources.With(r)
	if err := writeJSON(filepath.Join(e.podDir(uid), "pod.json"), rec); err != nil {
		return fmt.Errorf("limit pod %s: %w", uid, err)
	}
	e.held.setPod(uid, rec)
	return nil
}

func (e *Engine) limitContainer(ctx context.Context, id string, r runtime.Resources) error {
	c, ok := e.held.container(id)
	if !ok {
		return fmt.Errorf("limit container %s: %w", id, runtime.ErrNotFound)
	}
	unlock, err := e.pods.lock(ctx, c.rec.Container.PodUID)
	if err != nil {
		return err
	}
	defer unlock()
	if !c.alive() {
		return nil
	}
	if err := e.cfg.Runner.Limit(c.rec.Pod, id, r); err != nil {
		if !c.alive() {
			return nil // it ended meanwhile, and its cgroup with it
		}
		return fmt.Errorf("limit container %s: %w", id, err)
	}
	rec := c.limited(r)
	e.held.changed(id)
	if err := writeJSON(filepath.Join(c.dir, "container.json"), rec); err != nil {
		return fmt.Errorf("limit container %s: %w", id, err)
	}
	return nil
}
