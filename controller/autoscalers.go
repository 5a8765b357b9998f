package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/autoscaling"
	"ledge/controller/autoscale"
)

// Usage is asked what the pods of all boards use.
type Usage interface {
	PodMetrics(ctx context.Context) ([]*api.PodMetrics, error)
}

// Autoscalers sets the scale of what HorizontalPodAutoscalers name. It looks at each as often as pods are measured, not at every change of
// a pod, and reads its target then.
type Autoscalers struct {
	w       *World
	all     Of[*autoscalingv2.HorizontalPodAutoscaler]
	pods    Of[*corev1.Pod]
	usage   Usage
	events  Recorder
	changed <-chan struct{}
	of      map[types.UID]*scaling
	grumble grumble
}

// scaling is what the loop remembers of one autoscaler.
type scaling struct {
	memory     autoscale.Memory
	generation int64
	due        time.Time
	warned     string // the warnings of the last look: each is told once
}

// NewAutoscalers prepares the loop; call it before the World runs. Without usage nothing is ever measured.
func NewAutoscalers(w *World, usage Usage, events Recorder) *Autoscalers {
	a := &Autoscalers{w: w, all: Of[*autoscalingv2.HorizontalPodAutoscaler]{w.view(autoscaling.HorizontalPodAutoscalers, api.Selection{})},
		pods: w.pods(), usage: usage, events: events, of: map[types.UID]*scaling{}}
	a.changed = listen(a.all)
	return a
}

// Run scales until ctx ends.
func (a *Autoscalers) Run(ctx context.Context) error {
	return loop(ctx, a.changed, a.pass, a.all, a.pods)
}

func (a *Autoscalers) pass(ctx context.Context, now time.Time) time.Duration {
	all := a.all.List()
	present, wake := map[types.UID]bool{}, idle
	var due []*autoscalingv2.HorizontalPodAutoscaler
	for _, h := range all {
		present[h.UID] = true
		s := a.of[h.UID]
		if s == nil {
			s = &scaling{}
			a.of[h.UID] = s
		}
		if s.generation != h.Generation || !s.due.After(now) {
			s.generation, s.due = h.Generation, now.Add(autoscale.Every)
			due = append(due, h)
		}
		wake = min(wake, s.due.Sub(now))
	}
	maps.DeleteFunc(a.of, func(uid types.UID, _ *scaling) bool { return !present[uid] })
	if len(due) == 0 {
		return wake
	}
	var failed error
	used := map[string][]*api.PodMetrics{}
	if a.usage != nil {
		list, err := a.usage.PodMetrics(ctx)
		failed = err
		for _, m := range list {
			used[m.Namespace] = append(used[m.Namespace], m)
		}
	}
	targets := a.targets(ctx, all, due)
	for _, h := range due {
		failed = errors.Join(failed, a.settle(ctx, h, targets, used[h.Namespace], now))
	}
	a.grumble.about(ctx, "cannot scale what an autoscaler names", failed)
	return wake
}

// target is what an autoscaler names.
type target struct {
	kind     *api.Kind
	obj      api.Object
	selector labels.Selector
	err      error
}

// targets reads what the autoscalers name that are to be looked at, and the others of their namespaces: two of them must not scale the
// same pods.
func (a *Autoscalers) targets(ctx context.Context, all, due []*autoscalingv2.HorizontalPodAutoscaler) map[types.NamespacedName]target {
	namespaces := map[string]bool{}
	for _, h := range due {
		namespaces[h.Namespace] = true
	}
	out := map[types.NamespacedName]target{}
	for _, h := range all {
		if namespaces[h.Namespace] {
			out[api.Key(h)] = a.target(ctx, h)
		}
	}
	return out
}

func (a *Autoscalers) target(ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler) (t target) {
	ref := h.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return target{err: err}
	}
	i := slices.IndexFunc(a.w.kinds.Kept, func(k *api.Kind) bool { return k.Group == gv.Group && k.Name == ref.Kind })
	if i < 0 || !a.w.kinds.Kept[i].HasScale() {
		return target{err: fmt.Errorf("no matches for kind %q in group %q with a scale", ref.Kind, gv.Group)}
	}
	t.kind = a.w.kinds.Kept[i]
	if t.obj, t.err = a.w.Client.Get(ctx, t.kind, h.Namespace, ref.Name); t.err != nil {
		return t
	}
	t.selector = labels.Nothing()
	if s, err := labels.Parse(t.kind.ScaleOf(t.obj).Status.Selector); err == nil && !s.Empty() {
		t.selector = s
	}
	return t
}

// settle looks at one autoscaler, and does what it wants.
func (a *Autoscalers) settle(ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler, targets map[types.NamespacedName]target,
	used []*api.PodMetrics, now time.Time) error {
	s, t := a.of[h.UID], targets[api.Key(h)]
	if t.err != nil {
		if apierrors.IsNotFound(t.err) || t.kind == nil {
			plan := autoscale.Lost(h, t.err, now)
			return a.write(ctx, h, s, &plan)
		}
		return fmt.Errorf("read what autoscaler %s names: %w", api.Key(h), t.err)
	}
	scale := t.kind.ScaleOf(t.obj)
	pods := a.picked(h.Namespace, t.selector)
	plan := autoscale.Decide(h, autoscale.Target{Replicas: scale.Spec.Replicas, Selector: scale.Status.Selector, Pods: pods,
		Rivals: rivals(h, targets, pods), Usage: used}, &s.memory, now)
	if plan.Rescale {
		scale.Spec.Replicas, scale.ResourceVersion = plan.Replicas, "" // a change of its status in between does not matter
		begun := time.Now()
		if _, err := a.w.Client.Update(ctx, t.kind, scale, api.WriteOptions{Subresource: api.Scale}); err != nil {
			plan.Refused(h.Status, err, now)
		} else {
			s.memory.Scaled(plan.From, plan.Replicas, now.Add(time.Since(begun))) // a card may let a write wait for long
			plan.Scaled(now)
		}
	}
	return a.write(ctx, h, s, &plan)
}

func (a *Autoscalers) picked(namespace string, selector labels.Selector) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range a.pods.List() {
		if p.Namespace == namespace && selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

// rivals are this autoscaler and the others that pick one of its pods; none where there are no others.
func rivals(h *autoscalingv2.HorizontalPodAutoscaler, targets map[types.NamespacedName]target, pods []*corev1.Pod) []string {
	var out []string
	for key, t := range targets {
		if key.Namespace != h.Namespace || key.Name == h.Name || t.err != nil {
			continue
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return t.selector.Matches(labels.Set(p.Labels)) }) {
			out = append(out, key.String())
		}
	}
	if len(out) > 0 {
		out = append(out, api.Key(h).String())
	}
	slices.Sort(out)
	return out
}

// write writes the status that a plan comes to, and tells its events: of warnings only what is news.
func (a *Autoscalers) write(ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler, s *scaling, plan *autoscale.Plan) error {
	var warned []string
	for _, e := range plan.Events {
		if e.Type == corev1.EventTypeWarning {
			warned = append(warned, e.Reason+" "+e.Message)
		}
	}
	news := strings.Join(warned, "\n")
	for _, e := range plan.Events {
		if e.Type != corev1.EventTypeWarning || news != s.warned {
			a.events.Event(h, e.Type, e.Reason, e.Message)
		}
	}
	s.warned = news
	_, _, err := amend(ctx, a.w.Client, autoscaling.HorizontalPodAutoscalers, h, api.StatusSub,
		func(fresh *autoscalingv2.HorizontalPodAutoscaler) bool {
			if apiequality.Semantic.DeepEqual(fresh.Status, plan.Status) {
				return false
			}
			fresh.Status = plan.Status
			return true
		})
	return err
}
