package sim

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// clocked gives one party a clock of its own. A bubble has one clock for all; what another clock is to others are the times
// in what the party writes, and what others' clocks are to it are the times that it reads. So what it writes is moved by how
// far its clock is ahead, and what it reads is moved back. Between a jump and the next reading it may hold times from before.
type clocked struct {
	api.Client
	ahead *atomic.Int64
}

func (c clocked) out(o api.Object) api.Object { return moved(o, time.Duration(c.ahead.Load())) }
func (c clocked) in(o api.Object) api.Object  { return moved(o, -time.Duration(c.ahead.Load())) }

// Get implements api.Client.
func (c clocked) Get(ctx context.Context, kind *api.Kind, namespace, name string) (api.Object, error) {
	o, err := c.Client.Get(ctx, kind, namespace, name)
	return c.in(o), err
}

// List implements api.Client.
func (c clocked) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	l, err := c.Client.List(ctx, kind, opts)
	for i := range l.Items {
		l.Items[i] = c.in(l.Items[i])
	}
	return l, err
}

// Watch implements api.Client.
func (c clocked) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	w, err := c.Client.Watch(ctx, kind, opts)
	if err != nil {
		return nil, err
	}
	return clockedWatch{w, c}, nil
}

type clockedWatch struct {
	api.Watch
	c clocked
}

func (w clockedWatch) Next() (api.Event, error) {
	e, err := w.Watch.Next()
	e.Object = w.c.in(e.Object)
	return e, err
}

// Create implements api.Client.
func (c clocked) Create(ctx context.Context, kind *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	o, err := c.Client.Create(ctx, kind, c.out(o), opts)
	return c.in(o), err
}

// Update implements api.Client.
func (c clocked) Update(ctx context.Context, kind *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	o, err := c.Client.Update(ctx, kind, c.out(o), opts)
	return c.in(o), err
}

// Delete implements api.Client.
func (c clocked) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	o, err := c.Client.Delete(ctx, kind, namespace, name, opts)
	return c.in(o), err
}

// moved is an object with every time in it moved, and the object itself when there is nothing to move.
func moved(o api.Object, by time.Duration) api.Object {
	if by == 0 || o == nil || reflect.ValueOf(o).IsNil() {
		return o
	}
	o = o.DeepCopyObject().(api.Object)
	eachTime(reflect.ValueOf(o), func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	})
	return o
}

// timeless is an object without its times. A loop that wrote what it had read before its clock jumped has changed no more than those.
func timeless(o api.Object) api.Object {
	o = o.DeepCopyObject().(api.Object)
	eachTime(reflect.ValueOf(o), func(t *time.Time) { *t = time.Time{} })
	return o
}

func eachTime(v reflect.Value, do func(*time.Time)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachTime(v.Elem(), do)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachTime(v.Index(i), do)
		}
	case reflect.Struct:
		switch t := v.Addr().Interface().(type) {
		case *metav1.Time:
			do(&t.Time)
			return
		case *metav1.MicroTime:
			do(&t.Time)
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachTime(v.Field(i), do)
			}
		}
	}
}

func TestMoved(t *testing.T) {
	at := time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC)
	begun := metav1.NewTime(at)
	pod := &corev1.Pod{Status: corev1.PodStatus{StartTime: &begun, Conditions: []corev1.PodCondition{{LastTransitionTime: begun}},
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}}}}}}
	back := moved(moved(pod, time.Hour), -time.Hour).(*corev1.Pod)
	on := moved(pod, -time.Hour).(*corev1.Pod)
	for what, got := range map[string]metav1.Time{"start": *on.Status.StartTime, "condition": on.Status.Conditions[0].LastTransitionTime,
		"container": on.Status.ContainerStatuses[0].State.Running.StartedAt} {
		if !got.Time.Equal(at.Add(-time.Hour)) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if !reflect.DeepEqual(back, pod) || !pod.Status.StartTime.Time.Equal(at) || !on.CreationTimestamp.IsZero() {
		t.Errorf("there and back: %+v", back)
	}
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	if got := moved(l, time.Minute).(*coordinationv1.Lease); got.Spec.RenewTime.Sub(at) != time.Minute {
		t.Errorf("lease: %s", got.Spec.RenewTime)
	}
	if moved(pod, 0) != api.Object(pod) {
		t.Error("copied for nothing")
	}
}
