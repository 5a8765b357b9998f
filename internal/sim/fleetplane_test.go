package sim

import (
	"context"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/batch"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/brain"
	"ledge/storage"
)

// The control plane of a fleet: the brain that boards run, whose API has a door for each board.

// pen is the scribe of a fleet: each field has one writer (architecture: One writer per field), whichever board it is.
type pen struct {
	scribe
	f *fleet
}

// Delete implements api.Client; what is left on a board is looked at when the fleet has settled.
func (p pen) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.plane.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	out, err := p.Client.Delete(ctx, kind, namespace, name, opts)
	if err == nil {
		p.judge(ctx, "delete "+kind.Resource)
	}
	return out, err
}

// Update implements api.Client. Of pods that no board will ever finish, the control plane says that they failed (N-3.47).
func (p pen) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.plane.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	if kind == coordination.Leases { // most of what is written: no need to look what of it has changed
		p.judge(ctx, "leases spec")
		return p.Client.Update(ctx, kind, obj, opts)
	}
	if opts.Subresource == api.Scale { // over whichever version
		out, err := p.Client.Update(ctx, kind, obj, opts)
		if scale, ok := obj.(*autoscalingv1.Scale); ok && err == nil {
			p.f.scaled.rescaled(p.f, obj.GetName(), scale.Spec.Replicas, time.Now())
		}
		return out, err
	}
	if pod, ok := obj.(*corev1.Pod); ok && writer(ctx) == byPlane && pod.Status.Phase == corev1.PodFailed {
		return p.Client.Update(ctx, kind, obj, opts)
	}
	return p.scribe.Update(ctx, kind, obj, opts)
}

// Create implements api.Client: it waits while the card stalls, as does every write.
func (p pen) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := stalled(ctx, &p.f.plane.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	return p.scribe.Create(ctx, kind, obj, opts)
}

// Patch implements api.Client.
func (p pen) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	if err := stalled(ctx, &p.f.plane.stall); err != nil {
		return nil, apierrors.NewTimeoutError(err.Error(), 1)
	}
	return p.scribe.Patch(ctx, kind, namespace, name, patch, opts)
}

// startPlane starts the control plane, over the store as it was left.
func (f *fleet) startPlane() {
	f.Helper()
	var doors []*httpd.Listener
	for _, m := range f.boards {
		l, dial := httpd.Pipe(api.User{Name: api.NodeUserPrefix + m.name, Groups: []string{api.NodesGroup}})
		doors = append(doors, l)
		m.dial.Store(&dial)
	}
	f.begin(f.plane, func(rims *brain.Rims) {
		rims.Doors = func(string) ([]*httpd.Listener, error) { return doors, nil }
		open := rims.Store
		rims.Store = func(ctx context.Context, dir string) (s *storage.Store, err error) {
			f.store, err = open(ctx, dir)
			return f.store, err
		}
		rims.Now = func() time.Time { return time.Now().Add(time.Duration(f.plane.ahead.Load())) }
		rims.Around = func(c api.Client) api.Client {
			f.local = c
			return pen{scribe{Client: c, b: &Board{t: f.T}, seen: timeless}, f}
		}
		rims.Usage = &f.scaled
		f.scaled.forget()
		rims.Loops = func(c api.Client) api.Client { return clocked{c, &f.plane.ahead} }
	})
	f.nodes = api.NewView[*corev1.Node](f.local, api.Nodes, api.Selection{})
	f.jobs = api.NewView[*batchv1.Job](f.local, batch.Jobs, api.Selection{})
	f.all = api.NewView[*corev1.Pod](f.local, api.Pods, api.Selection{})
	ctx, cancel := context.WithCancel(f.ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.nodes.Run(ctx) })
	g.Go(func() error { return f.all.Run(ctx) })
	g.Go(func() error { return f.jobs.Run(ctx) })
	synctest.Wait()
	f.unwatch = func() {
		cancel()
		f.must(g.Wait())
	}
}

// stopPlane ends the control plane as its service is stopped.
func (f *fleet) stopPlane() {
	f.Helper()
	f.unwatch()
	f.must(f.plane.life.stop())
}

// killPlane ends the control plane as a power cut does.
func (f *fleet) killPlane() {
	f.Helper()
	f.dies(f.plane)
	f.unwatch()
}
