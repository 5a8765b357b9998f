// Package autoscale decides how many pods an autoscaler wants: from what its pods use, what it asked for before, and the time. It is
// pure, and means what Kubernetes' controller means.
//
//	samples -> of each metric how many pods it wants (usage.go) -> the most of these
//	        -> steadied by what was wanted lately (steady.go) -> limited by policies -> within minReplicas and maxReplicas
//
// Where nothing was measured nothing is scaled. Where only a part was, what is not known counts against the change: it neither adds
// pods nor takes any away.
package autoscale

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/autoscaling"
)

// Every is how often an autoscaler is to be asked: as often as pods are measured.
const Every = 15 * time.Second

// Target is what an autoscaler scales.
type Target struct {
	Replicas int32             // that are wanted of it now
	Selector string            // of its pods; "" where it says none
	Pods     []*corev1.Pod     // that the selector picks
	Rivals   []string          // other autoscalers that pick one of these too
	Usage    []*api.PodMetrics // of pods of its namespace, as measured last
}

// Plan is what is to be done.
type Plan struct {
	Replicas int32 // to set, where Rescale
	Rescale  bool
	From     int32
	Reason   string // of a rescale
	Status   autoscalingv2.HorizontalPodAutoscalerStatus
	Events   []Event
}

// Event is to be told about the autoscaler.
type Event struct{ Type, Reason, Message string }

// look is one decision on its way.
type look struct {
	h    *autoscalingv2.HorizontalPodAutoscaler
	now  time.Time
	plan Plan
}

// Lost is the plan where the target cannot be found or asked.
func Lost(h *autoscalingv2.HorizontalPodAutoscaler, why error, now time.Time) Plan {
	l := look{h: h, now: now, plan: Plan{Status: *h.Status.DeepCopy()}}
	l.warn("FailedGetScale", why.Error())
	l.set(autoscalingv2.AbleToScale, false, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+why.Error())
	return l.plan
}

// Decide plans for one autoscaler. It notes in memory what it wanted, without limits.
func Decide(h *autoscalingv2.HorizontalPodAutoscaler, t Target, memory *Memory, now time.Time) Plan {
	l := look{h: h, now: now, plan: Plan{Status: *h.Status.DeepCopy(), From: t.Replicas}}
	l.set(autoscalingv2.AbleToScale, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	memory.begin(t.Replicas, now)
	least, most := int32(1), h.Spec.MaxReplicas
	if h.Spec.MinReplicas != nil {
		least = *h.Spec.MinReplicas
	}
	var measured []autoscalingv2.MetricStatus
	want := t.Replicas
	switch {
	case t.Replicas == 0: // by hand: that is how an autoscaler is stopped
		l.set(autoscalingv2.ScalingActive, false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
	case t.Replicas > most:
		want, l.plan.Reason = most, "Current number of replicas above Spec.MaxReplicas"
	case t.Replicas < least:
		want, l.plan.Reason = least, "Current number of replicas below Spec.MinReplicas"
	default:
		n, by, all, err := l.compute(t)
		measured = all
		if n < 0 {
			l.warn("FailedComputeMetricsReplicas", err.Error())
			l.finish(t.Replicas, h.Status.DesiredReplicas, measured)
			return l.plan
		}
		switch {
		case n > t.Replicas:
			l.plan.Reason = by + " above target"
		case n < t.Replicas:
			l.plan.Reason = "All metrics below target"
		}
		want = l.normalize(t.Replicas, n, least, memory)
	}
	l.plan.Replicas, l.plan.Rescale = want, want != t.Replicas
	l.finish(t.Replicas, want, measured)
	return l.plan
}

// Scaled is the plan once its number has been set, and Refused once it could not be.
func (p *Plan) Scaled(now time.Time) {
	l := look{now: now, plan: *p}
	l.set(autoscalingv2.AbleToScale, true, "SucceededRescale",
		fmt.Sprintf("the HPA controller was able to update the target scale to %d", p.Replicas))
	l.tell(corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", p.Replicas, p.Reason))
	*p = l.plan
	at := metav1.NewTime(now)
	p.Status.LastScaleTime = &at
}

// Refused is the plan where its number could not be set.
func (p *Plan) Refused(was autoscalingv2.HorizontalPodAutoscalerStatus, why error, now time.Time) {
	l := look{now: now, plan: *p}
	l.set(autoscalingv2.AbleToScale, false, "FailedUpdateScale", "the HPA controller was unable to update the target scale: "+why.Error())
	l.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", p.Replicas, p.Reason, why))
	*p = l.plan
	p.Status.DesiredReplicas = was.DesiredReplicas
}

// finish fills in the counts of a status.
func (l *look) finish(is, want int32, measured []autoscalingv2.MetricStatus) {
	s, seen := &l.plan.Status, l.h.Generation
	s.CurrentReplicas, s.DesiredReplicas, s.CurrentMetrics, s.ObservedGeneration = is, want, measured, &seen
}

func (l *look) tell(eventType, reason, message string) {
	l.plan.Events = append(l.plan.Events, Event{eventType, reason, message})
}

func (l *look) warn(reason, message string) { l.tell(corev1.EventTypeWarning, reason, message) }

func (l *look) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, is bool, reason, message string) {
	c := autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(l.now)}
	if is {
		c.Status = corev1.ConditionTrue
	}
	list := &l.plan.Status.Conditions
	i := slices.IndexFunc(*list, func(o autoscalingv2.HorizontalPodAutoscalerCondition) bool { return o.Type == kind })
	if i < 0 {
		*list = append(*list, c)
		return
	}
	if (*list)[i].Status == c.Status {
		c.LastTransitionTime = (*list)[i].LastTransitionTime
	}
	(*list)[i] = c
}

// compute is how many pods the metrics want, and which of them wants the most. It is negative where nothing can be done: none can be
// computed, or one cannot and the others want fewer pods.
func (l *look) compute(t Target) (want int32, by string, measured []autoscalingv2.MetricStatus, err error) {
	if err := l.checkSelector(t); err != nil {
		return -1, "", nil, err
	}
	var first error
	var reason, why string
	failed := 0
	measured = make([]autoscalingv2.MetricStatus, len(l.h.Spec.Metrics))
	for i, m := range l.h.Spec.Metrics {
		p, err := propose(m, t, tolerancesOf(l.h), l.now)
		if err != nil {
			l.warn("FailedGet"+string(m.Type)+"Metric", err.Error())
			if failed++; failed == 1 {
				name, container, _ := autoscaling.Source(m)
				what := string(name) + " resource metric"
				if container != "" {
					what = container + " container metric"
				}
				first, reason, why = fmt.Errorf("failed to get %s value: %w", what, err), "FailedGet"+string(m.Type)+"Metric", err.Error()
			}
			continue // its place stays empty: the order is that of the spec
		}
		measured[i] = p.status
		if p.replicas > want || by == "" {
			want, by = p.replicas, p.name
		}
	}
	if failed > 0 {
		err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(measured), first)
	}
	if failed == len(measured) || failed > 0 && want < t.Replicas {
		l.set(autoscalingv2.ScalingActive, false, reason, "the HPA was unable to compute the replica count: "+why)
		return -1, "", measured, err
	}
	l.set(autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+by)
	return want, by, measured, nil
}

// checkSelector: without one nobody knows which pods to count, and by two autoscalers pods would be made and deleted for ever.
func (l *look) checkSelector(t Target) error {
	if t.Selector == "" {
		const text = "selector is required"
		l.warn("SelectorRequired", text)
		l.set(autoscalingv2.ScalingActive, false, "InvalidSelector", "the HPA target's scale is missing a selector")
		return errors.New(text)
	}
	if len(t.Rivals) == 0 {
		return nil
	}
	text := fmt.Sprintf("pods by selector %v are controlled by more than one HPA (e.g. [%s])", t.Selector, strings.Join(t.Rivals, " "))
	l.warn("AmbiguousSelector", text)
	l.set(autoscalingv2.ScalingActive, false, "AmbiguousSelector", text)
	return errors.New(text)
}
