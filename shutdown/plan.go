// Package shutdown stops the pods of a board in order, in the time there really is.
//
//	event (signal, logind, ...) -> close admission, Ready=False -> Make a Plan from the pods
//	   -> stage of the lowest priority: stop its pods in parallel -> ... -> stage of the highest
//	   -> final statuses durable -> the event's Done (release the lock, exit, power off)
//
// Making a plan is pure. Carrying it out needs five things of a node, which Node declares; this package never sees
// the agent itself. A cancelled shutdown stops the killing at once and opens the node again.
//
// It may import api and nothing else of ledge.
package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// criticalPriority is where critical pods begin (N-10.15).
const criticalPriority int32 = 2000000000

// Config says how much time pods get. Either the pair or the list is given. The zero value asks for no graceful
// shutdown at all (N-5.1).
type Config struct {
	GracePeriod             time.Duration // shutdownGracePeriod: for all pods together
	GracePeriodCriticalPods time.Duration // the part of it that is kept for critical pods
	ByPodPriority           []Period      // shutdownGracePeriodByPodPriority
}

// Period is the time for pods of a priority from this one up to the next entry's (N-5.8).
type Period struct {
	Priority int32
	Grace    time.Duration
}

// Default is what a board gets that was given no configuration and is told to stop its pods all the same.
var Default = Config{GracePeriod: 30 * time.Second, GracePeriodCriticalPods: 10 * time.Second}

// Validate holds a configuration to N-5.2.
func (c Config) Validate() error {
	for what, d := range map[string]time.Duration{
		"shutdownGracePeriod": c.GracePeriod, "shutdownGracePeriodCriticalPods": c.GracePeriodCriticalPods} {
		if d != 0 && d < time.Second {
			return fmt.Errorf("%s: %s must be 0 or at least 1s", what, d)
		}
	}
	if c.GracePeriodCriticalPods > c.GracePeriod {
		return fmt.Errorf("shutdownGracePeriodCriticalPods: %s is longer than shutdownGracePeriod %s", c.GracePeriodCriticalPods, c.GracePeriod)
	}
	if len(c.ByPodPriority) == 0 {
		return nil
	}
	if c.GracePeriod != 0 || c.GracePeriodCriticalPods != 0 {
		return errors.New("shutdownGracePeriodByPodPriority: cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
	}
	seen := map[int32]bool{}
	for _, p := range c.ByPodPriority {
		if p.Grace < 0 {
			return fmt.Errorf("shutdownGracePeriodByPodPriority: priority %d has a negative period", p.Priority)
		}
		if seen[p.Priority] {
			return fmt.Errorf("shutdownGracePeriodByPodPriority: priority %d is listed twice", p.Priority)
		}
		seen[p.Priority] = true
	}
	return nil
}

// Periods is the configuration as a list, lowest priority first (N-5.5, N-5.6); empty when nothing is asked for.
func (c Config) Periods() []Period {
	if len(c.ByPodPriority) > 0 {
		out := slices.Clone(c.ByPodPriority)
		sort.Slice(out, func(i, j int) bool { return out[i].Priority < out[j].Priority })
		return out
	}
	total, critical := c.GracePeriod.Truncate(time.Second), c.GracePeriodCriticalPods.Truncate(time.Second)
	if total == 0 || critical > total {
		return nil
	}
	return []Period{{0, total - critical}, {criticalPriority, critical}}
}

// Total is the time to ask for: the sum of all periods (N-5.6).
func (c Config) Total() time.Duration {
	var sum time.Duration
	for _, p := range c.Periods() {
		sum += p.Grace
	}
	return sum
}

// Unlimited is the budget of somebody who can wait.
const Unlimited = time.Duration(math.MaxInt64)

// Plan says who stops when. Stages run one after the other, lowest priority first; inside one all pods stop together.
type Plan struct {
	Stages []Stage
	// Wanted is what the stages would take if there were enough time. More than the budget means the plan was cut.
	Wanted time.Duration
	Budget time.Duration
}

// Stage is the pods of one period. Empty ones are left out: they cost no time (N-5.10).
type Stage struct {
	Priority int32 // the period's
	Period   time.Duration
	Pods     []PodStop
}

// PodStop is one pod and the time it gets.
type PodStop struct {
	Namespace, Name string
	UID             types.UID
	Priority        int32
	Grace           time.Duration
}

// Short says whether the budget is less than the configuration wants.
func (p *Plan) Short() bool { return p.Wanted > p.Budget }

// Total is the longest the plan can take; never more than its budget.
func (p *Plan) Total() time.Duration {
	var sum time.Duration
	for _, s := range p.Stages {
		sum += s.Period
	}
	return sum
}

// slack is what a stage may need beyond its slowest pod, to unmount volumes, when every second counts.
const slack = time.Second

// Make plans a shutdown of these pods within a budget (N-5.8 to N-5.10, N-5.23). The order of pods does not matter.
//
// When the budget is less than the configuration wants, the highest stage keeps its time, then the next below, and
// whoever is lowest gets what is left, even nothing: then its pods are told to stop and not waited for. Time that no
// pod of a stage could use is not kept for it.
func Make(pods []*corev1.Pod, cfg Config, budget time.Duration) Plan {
	periods := cfg.Periods()
	plan := Plan{Budget: max(budget, 0)}
	if len(periods) == 0 {
		return plan
	}
	groups := make([][]PodStop, len(periods))
	for _, p := range pods {
		i := groupOf(periods, priority(p))
		groups[i] = append(groups[i], PodStop{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Priority: priority(p),
			Grace: grace(p, periods[i].Grace)})
	}
	for i, g := range groups {
		if len(g) == 0 {
			continue
		}
		sort.Slice(g, func(i, j int) bool {
			a, b := g[i], g[j]
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) < 0
		})
		plan.Stages = append(plan.Stages, Stage{Priority: periods[i].Priority, Period: periods[i].Grace, Pods: g})
	}
	plan.Wanted = plan.Total()
	if plan.Short() {
		plan.shrink()
	}
	return plan
}

func (p *Plan) shrink() {
	left := p.Budget
	for i := len(p.Stages) - 1; i >= 0; i-- {
		s := &p.Stages[i]
		slowest := slices.MaxFunc(s.Pods, func(a, b PodStop) int { return cmp.Compare(a.Grace, b.Grace) }).Grace
		s.Period = min(s.Period, slowest+slack, left)
		left -= s.Period
		for j := range s.Pods {
			s.Pods[j].Grace = min(s.Pods[j].Grace, s.Period)
		}
	}
}

// groupOf is the entry with the greatest priority not above p; below all of them, the lowest.
func groupOf(periods []Period, p int32) int {
	i, found := slices.BinarySearchFunc(periods, p, func(e Period, p int32) int { return cmp.Compare(e.Priority, p) })
	if !found {
		i--
	}
	return max(i, 0)
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// grace is the pod's own, or what is left to it by a deletion, but no more than the period (N-5.23, N-7.26).
func grace(p *corev1.Pod, period time.Duration) time.Duration {
	out := period
	for _, seconds := range []*int64{p.Spec.TerminationGracePeriodSeconds, p.DeletionGracePeriodSeconds} {
		if seconds != nil && *seconds < int64(out/time.Second) {
			out = time.Duration(max(*seconds, 0)) * time.Second
		}
	}
	return out
}
