package autoscale

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/api/autoscaling"
)

const (
	// cpuStart is how long after its start a pod's CPU tells nothing, as long as it is not ready: it starts.
	cpuStart = 5 * time.Minute
	// firstReady is how soon after its start a pod that is not ready may have become so: later it has been ready before.
	firstReady = 30 * time.Second
	// tolerance is how far from the target, as a part of it, is near enough.
	tolerance = 0.1
)

type tolerances struct{ down, up float64 }

func tolerancesOf(h *autoscalingv2.HorizontalPodAutoscaler) tolerances {
	t := tolerances{tolerance, tolerance}
	if b := h.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

func (t tolerances) near(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// proposal is what one metric wants.
type proposal struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// propose computes what one metric wants.
func propose(m autoscalingv2.MetricSpec, t Target, near tolerances, now time.Time) (proposal, error) {
	name, container, target := autoscaling.Source(m)
	fail := func(what string, err error) (proposal, error) {
		return proposal{}, fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	what, label := "usage", string(name)+" resource"
	if target.AverageValue == nil {
		if what, label = "utilization", fmt.Sprintf("%s resource utilization (percentage of request)", name); container != "" {
			label = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
		}
	}
	samples, err := samplesOf(t, name, container)
	if err != nil {
		return fail(what, fmt.Errorf("unable to get metrics for resource %s: %w", name, err))
	}
	var g gauge
	switch {
	case target.AverageValue != nil:
		g = value{thousandths(*target.AverageValue)}
	case target.AverageUtilization != nil:
		requests, err := requestsOf(t.Pods, name, container)
		if err != nil {
			return fail(what, err)
		}
		g = part{requests, *target.AverageUtilization}
	default:
		return proposal{}, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	n, r, err := count(t, samples, g, name, near, now)
	if err != nil {
		return fail(what, err)
	}
	return proposal{n, label, statusOf(m, r)}, nil
}

func statusOf(m autoscalingv2.MetricSpec, r reading) autoscalingv2.MetricStatus {
	name, container, _ := autoscaling.Source(m)
	format := resource.DecimalSI
	if name == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	current := autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(r.average, format), AverageUtilization: r.percent}
	if container != "" {
		return autoscalingv2.MetricStatus{Type: m.Type,
			ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: name, Container: container, Current: current}}
	}
	return autoscalingv2.MetricStatus{Type: m.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: name, Current: current}}
}

// sample is what one pod uses, in thousandths.
type sample struct {
	at     time.Time
	window time.Duration
	milli  int64
}

// samplesOf are those of the pods by name. What a board says below nothing is as if it said nothing.
func samplesOf(t Target, name corev1.ResourceName, container string) (map[string]sample, error) {
	known := map[string]*corev1.Pod{}
	for _, p := range t.Pods {
		known[p.Name] = p
	}
	out := map[string]sample{}
	any := false
	for _, m := range t.Usage {
		if p := known[m.Name]; p == nil || p.Namespace != m.Namespace {
			continue
		}
		any = true
		if milli, ok := usageOf(m, name, container); ok {
			out[m.Name] = sample{m.Timestamp.Time, m.Window.Duration, milli}
		}
	}
	if !any {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	return out, nil
}

// usageOf adds up what the containers use, or tells what one of them does; ok is false where that is not known.
func usageOf(m *api.PodMetrics, name corev1.ResourceName, container string) (milli int64, ok bool) {
	for _, c := range m.Containers {
		if container != "" && c.Name != container {
			continue
		}
		q, there := c.Usage[name]
		if !there || q.Sign() < 0 {
			return 0, false
		}
		milli, ok = sum(milli, thousandths(q)), true
	}
	return milli, ok
}

// thousandths is a quantity that is not negative as MilliValue is, which turns over: what is beyond the largest number is that.
func thousandths(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// sum adds what is not negative, up to the largest number there is.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// requestsOf is what each pod asks for of a resource, in thousandths: a part can only be told of what is asked for.
func requestsOf(pods []*corev1.Pod, name corev1.ResourceName, container string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, p := range pods {
		n, err := requestOf(p, name, container)
		if err != nil {
			return nil, err
		}
		out[p.Name] = n
	}
	return out, nil
}

func requestOf(p *corev1.Pod, name corev1.ResourceName, container string) (int64, error) {
	if r := p.Spec.Resources; r != nil && container == "" && len(r.Requests) > 0 {
		q, ok := api.Requests(p)[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, p.Name)
		}
		return thousandths(q), nil
	}
	total, found := int64(0), container == ""
	add := func(c *corev1.Container) error {
		if container != "" && c.Name != container {
			return nil
		}
		q, ok := c.Resources.Requests[name]
		if !ok {
			return fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, p.Name)
		}
		total, found = sum(total, thousandths(q)), true
		return nil
	}
	for i := range p.Spec.Containers {
		if err := add(&p.Spec.Containers[i]); err != nil {
			return 0, err
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		if err := add(c); err != nil {
			return 0, err
		}
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
	}
	return total, nil
}

// reading is what all pods use on average, in thousandths, and as a part of what they ask for.
type reading struct {
	average int64
	percent *int32
}

// gauge compares usage with a target.
type gauge interface {
	// read says how usage stands to the target: above 1 it is more.
	read(usage map[string]int64) (ratio float64, r reading, err error)
	// full is what a pod counts as of which nothing is known, where pods are to be taken away.
	full(pod string) int64
}

// value goes by what pods use on average.
type value struct{ target int64 }

func (v value) read(usage map[string]int64) (float64, reading, error) {
	total := int64(0)
	for _, n := range usage {
		total = sum(total, n)
	}
	average := total / int64(len(usage))
	return float64(average) / float64(v.target), reading{average: average}, nil
}

func (v value) full(string) int64 { return v.target }

// part goes by the part of what pods ask for that they use, in per cent.
type part struct {
	requests map[string]int64
	target   int32
}

func (p part) read(usage map[string]int64) (float64, reading, error) {
	total, asked := int64(0), int64(0)
	for pod, n := range usage {
		total, asked = sum(total, n), sum(asked, p.requests[pod])
	}
	if asked == 0 {
		return 0, reading{}, errors.New("no metrics returned matched known pods")
	}
	percent := clamp(float64(total) * 100 / float64(asked))
	return float64(percent) / float64(p.target), reading{total / int64(len(usage)), &percent}, nil
}

func (p part) full(pod string) int64 {
	return int64(min(float64(p.requests[pod])*float64(max(100, p.target))/100, math.MaxInt64/2))
}

// clamp is the whole part of what is not negative.
func clamp(v float64) int32 { return int32(min(v, math.MaxInt32)) }

// up is how many pods it takes.
func up(v float64) int32 { return clamp(math.Ceil(v)) }

// count is how many pods there are to be. Pods that start do not count, and where their number matters they count as using nothing. Of
// pods that nothing is known of the worst is taken: nothing is used where more pods would be made, and all they may where some would go.
func count(t Target, samples map[string]sample, g gauge, name corev1.ResourceName, near tolerances, now time.Time) (int32, reading, error) {
	usage, unready, missing := sort(t.Pods, samples, name, now)
	if len(usage) == 0 {
		return 0, reading{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	ready := len(usage)
	ratio, r, err := g.read(usage)
	if err != nil {
		return 0, r, err
	}
	starting := len(unready) > 0 && ratio > 1
	if !starting && len(missing) == 0 {
		if near.near(ratio) {
			return t.Replicas, r, nil
		}
		return up(ratio * float64(ready)), r, nil
	}
	for _, pod := range missing {
		switch {
		case ratio < 1:
			usage[pod] = g.full(pod)
		case ratio > 1:
			usage[pod] = 0
		}
	}
	if starting {
		for _, pod := range unready {
			usage[pod] = 0
		}
	}
	again, _, err := g.read(usage)
	if err != nil {
		return 0, r, err
	}
	turned := ratio < 1 && again > 1 || ratio > 1 && again < 1
	n := up(again * float64(len(usage)))
	if near.near(again) || turned || again < 1 && n > t.Replicas || again > 1 && n < t.Replicas {
		return t.Replicas, r, nil
	}
	return n, r, nil
}

// sort tells pods by what is known of them: what they use, or that they start, or nothing. Pods that go or have failed are left out.
func sort(pods []*corev1.Pod, samples map[string]sample, name corev1.ResourceName, now time.Time) (usage map[string]int64, unready,
	missing []string) {
	usage = map[string]int64{}
	for _, p := range pods {
		s, ok := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
		case p.Status.Phase == corev1.PodPending:
			unready = append(unready, p.Name)
		case !ok:
			missing = append(missing, p.Name)
		case name == corev1.ResourceCPU && starts(p, s, now):
			unready = append(unready, p.Name)
		default:
			usage[p.Name] = s.milli
		}
	}
	return usage, unready, missing
}

// starts: a pod that starts uses CPU for that alone. Soon after its start that is a pod which is not ready, or was not for all of the
// time that was measured; later one that never was. A start that lies further ahead than any of that was told by a clock that is wrong,
// its board's or ours: it could be so for years, and only whether the pod is ready counts.
func starts(p *corev1.Pod, s sample, now time.Time) bool {
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady || p.Status.StartTime == nil {
			continue
		}
		unready, since := c.Status == corev1.ConditionFalse, p.Status.StartTime
		if since.Add(-cpuStart).After(now) {
			return unready
		}
		if since.Add(cpuStart).After(now) {
			return unready || s.at.Before(c.LastTransitionTime.Add(s.window))
		}
		return unready && since.Add(firstReady).After(c.LastTransitionTime.Time)
	}
	return true
}
