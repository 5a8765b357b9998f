package scheduler

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/policy"
)

// Preemption is a way to make room: these pods leave that node. Without a Node there is no way.
type Preemption struct {
	Node    string
	Victims []*corev1.Pod // most important first
	// Violations is how many of them go although their budget does not allow it.
	Violations int
	// Why there is no way, in the words that follow FitError's in an event (N-10.23).
	Why string
	// Ineligible: no way was looked for, so that an earlier nomination stands.
	Ineligible bool
}

const (
	noVictims  = "No preemption victims found for incoming pod"
	notHelpful = "Preemption is not helpful for scheduling"
)

// Victims looks for lower pods whose end would let pod in, after Place answered fit (N-10.19 to N-10.22).
func (c *Cluster) Victims(pod *corev1.Pod, fit *FitError) Preemption {
	if p := pod.Spec.PreemptionPolicy; p != nil && *p == corev1.PreemptNever {
		return Preemption{Ineligible: true, Why: "preemption: not eligible due to preemptionPolicy=Never."}
	}
	if c.makingRoom(pod, fit) {
		return Preemption{Ineligible: true, Why: "preemption: not eligible due to terminating pod on the nominated node."}
	}
	l, budgets := c.look(pod), c.budgets()
	var ways []Preemption
	var reasons []string
	for _, n := range c.nodes {
		r := fit.refused[n.node.Name]
		if r == nil || !r.curable {
			reasons = append(reasons, notHelpful)
			continue
		}
		asked, seen := n.expecting(l)
		way, still := c.victimsOn(asked, seen, budgets)
		if len(way.Victims) == 0 {
			reasons = append(reasons, still...)
			continue
		}
		ways = append(ways, way)
	}
	switch {
	case len(ways) > 0:
		return slices.MinFunc(ways, cheaper)
	case len(c.nodes) == 0:
		return Preemption{}
	}
	return Preemption{Why: "preemption: " + unavailable(len(c.nodes), reasons)}
}

// makingRoom: an earlier choice is being carried out; choosing again would only kill more.
func (c *Cluster) makingRoom(pod *corev1.Pod, fit *FitError) bool {
	n := c.byName[pod.Status.NominatedNodeName]
	if n == nil {
		return false
	}
	if r := fit.refused[n.node.Name]; r != nil && !r.curable {
		return false // that node will not do any more
	}
	return slices.ContainsFunc(n.pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && Priority(p) < Priority(pod)
	})
}

// victimsOn takes all lower pods off one node and puts back as many as still fit: those that a budget holds before the
// others, and the most important first (N-10.20).
func (c *Cluster) victimsOn(n *nodeInfo, l *look, budgets []budget) (way Preemption, still []string) {
	way.Node = n.node.Name
	var lower []*corev1.Pod
	for _, p := range n.pods {
		if Priority(p) < Priority(l.pod) && !api.IsMirror(p) {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return way, []string{noVictims}
	}
	trial := n.clone()
	for _, p := range lower {
		trial.remove(p)
	}
	seen := l.with(l.relations.with(n, lower, -1))
	if r := c.filter(seen, trial); r != nil {
		return way, r.reasons
	}
	slices.SortFunc(lower, moreImportant)
	held, free := sortByBudget(lower, budgets)
	for i, p := range slices.Concat(held, free) {
		back := []*corev1.Pod{p}
		trial.add(p)
		seen.relations.change(n, back, 1)
		if c.filter(seen, trial) != nil {
			trial.remove(p)
			seen.relations.change(n, back, -1)
			way.Victims = append(way.Victims, p)
			if i < len(held) {
				way.Violations++
			}
		}
	}
	if len(way.Victims) == 0 {
		// All fit beside it after all; that cannot be, since Place refused the node.
		return way, []string{noVictims}
	}
	slices.SortFunc(way.Victims, moreImportant)
	return way, nil
}

// budget is a disruption budget as preemption sees it.
type budget struct {
	of       *policyv1.PodDisruptionBudget
	selector labels.Selector
}

// budgets are those that hold anybody. An empty selector holds nobody here, although it does for evictions: Kubernetes'
// scheduler has it so.
func (c *Cluster) budgets() []budget {
	var out []budget
	for _, b := range c.cfg.Budgets {
		if s := policy.BudgetSelector(b); !s.Empty() {
			out = append(out, budget{b, s})
		}
	}
	return out
}

// sortByBudget parts pods, in their order, into those whose end more would be disrupted by than their budgets allow, and
// the others.
func sortByBudget(pods []*corev1.Pod, budgets []budget) (held, free []*corev1.Pod) {
	spent := make([]int32, len(budgets))
	for _, p := range pods {
		over := false
		for i, b := range budgets {
			_, leaving := b.of.Status.DisruptedPods[p.Name] // and counted already
			if len(p.Labels) == 0 || b.of.Namespace != p.Namespace || leaving || !b.selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			spent[i]++
			over = over || spent[i] > b.of.Status.DisruptionsAllowed
		}
		if over {
			held = append(held, p)
		} else {
			free = append(free, p)
		}
	}
	return held, free
}

// moreImportant orders higher priority first, then the one that has run longer, then by name.
func moreImportant(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(Priority(b), Priority(a)), started(a).Compare(started(b)),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// started is when a pod began to run; one that has not is younger than all others.
func started(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<40, 0)
	}
	return p.Status.StartTime.Time
}

// cheaper orders ways by what they cost, in the order of N-10.21.
func cheaper(a, b Preemption) int {
	return cmp.Or(
		cmp.Compare(a.Violations, b.Violations),
		cmp.Compare(Priority(a.Victims[0]), Priority(b.Victims[0])),
		cmp.Compare(weight(a), weight(b)),
		cmp.Compare(len(a.Victims), len(b.Victims)),
		earliestTop(b).Compare(earliestTop(a)), // the one whose important victims are youngest
		cmp.Compare(a.Node, b.Node),
	)
}

// weight adds 2^31 to each priority so that more victims weigh more even when priorities are negative.
func weight(p Preemption) int64 {
	var sum int64
	for _, v := range p.Victims {
		sum += int64(Priority(v)) + 1<<31
	}
	return sum
}

// earliestTop is the start of the longest running victim among those of the highest priority: the first one, since
// victims are sorted that way.
func earliestTop(p Preemption) time.Time { return started(p.Victims[0]) }
