package scheduler

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
)

// spread is one topology spread constraint with the count of the pods it looks at.
type spread struct {
	c     *corev1.TopologySpreadConstraint
	pods  labels.Selector
	count map[string]int // by value of the key; a domain without pods is there with 0
}

// relations has the affinities and anti-affinities between a pod and the pods already placed, counted once for all
// nodes.
type relations struct {
	cluster *Cluster
	pod     *corev1.Pod
	*wishes
	near     []map[string]int // pods that all of near cover, by the value of each term's key
	apart    []map[string]int // pods that each term covers
	repelled map[pair]int     // where pods are that want this one elsewhere
	spread   []spread
}

// relate counts. It costs nothing where nobody has a wish.
func (c *Cluster) relate(pod *corev1.Pod) *relations {
	r := &relations{cluster: c, pod: pod, wishes: wishesOf(pod), repelled: map[pair]int{}}
	r.near, r.apart = newCounts(len(r.wishes.near)), newCounts(len(r.wishes.apart))
	for _, s := range r.wishes.spread {
		s.count = map[string]int{}
		r.spread = append(r.spread, s)
	}
	for _, n := range c.nodes {
		counted := r.counted(n)
		for i := range r.spread {
			if v, ok := n.node.Labels[r.spread[i].c.TopologyKey]; ok && counted[i] {
				r.spread[i].count[v] += 0 // the domain exists
			}
		}
		if len(r.near)+len(r.apart)+len(r.spread) > 0 {
			for _, p := range n.pods {
				r.count(p, n, counted, 1)
			}
			continue
		}
		for _, p := range n.related {
			r.count(p, n, nil, 1)
		}
	}
	return r
}

func newCounts(n int) []map[string]int {
	out := make([]map[string]int, n)
	for i := range out {
		out[i] = map[string]int{}
	}
	return out
}

// counted says for each spread constraint whether a node's pods count: it has all the keys, and the pod could go there
// as far as the constraint's policies want that looked at.
func (r *relations) counted(n *nodeInfo) []bool {
	if len(r.spread) == 0 {
		return nil
	}
	out := make([]bool, len(r.spread))
	for i := range r.spread {
		if _, ok := n.node.Labels[r.spread[i].c.TopologyKey]; !ok {
			return make([]bool, len(r.spread))
		}
		out[i] = eligible(r.spread[i].c, r.pod, n.node)
	}
	return out
}

func eligible(c *corev1.TopologySpreadConstraint, pod *corev1.Pod, n *corev1.Node) bool {
	if p := c.NodeAffinityPolicy; (p == nil || *p == corev1.NodeInclusionPolicyHonor) && !api.MatchesNode(pod, n) {
		return false
	}
	p := c.NodeTaintsPolicy
	return p == nil || *p == corev1.NodeInclusionPolicyIgnore || toleratesAll(pod.Spec.Tolerations, n.Spec.Taints, hard)
}

// count adds one pod of a node, or takes it away.
func (r *relations) count(p *corev1.Pod, n *nodeInfo, counted []bool, by int) {
	if same(p, r.pod) {
		return
	}
	labelsOf := n.node.Labels
	if len(r.near) > 0 && r.allNear(p) {
		for i := range r.near {
			if v, ok := labelsOf[r.wishes.near[i].key]; ok {
				r.near[i][v] += by
			}
		}
	}
	for i := range r.apart {
		t := &r.wishes.apart[i]
		if v, ok := labelsOf[t.key]; ok && r.cluster.covers(t, p) {
			r.apart[i][v] += by
		}
	}
	for i := range r.spread {
		s := &r.spread[i]
		if counted[i] && p.Namespace == r.pod.Namespace && p.DeletionTimestamp == nil && s.pods.Matches(labels.Set(p.Labels)) {
			s.count[labelsOf[s.c.TopologyKey]] += by
		}
	}
	if hasPodTerms(p) {
		for _, t := range r.cluster.wishesOf(p).apart {
			if v, ok := labelsOf[t.key]; ok && r.cluster.covers(&t, r.pod) {
				r.repelled[pair{t.key, v}] += by
			}
		}
	}
}

func (r *relations) allNear(p *corev1.Pod) bool {
	for i := range r.wishes.near {
		if !r.cluster.covers(&r.wishes.near[i], p) {
			return false
		}
	}
	return true
}

// with is the relations as they are when pods come to a node or leave it.
func (r *relations) with(n *nodeInfo, pods []*corev1.Pod, by int) *relations {
	out := *r
	out.near, out.apart, out.repelled = clones(r.near), clones(r.apart), maps.Clone(r.repelled)
	out.spread = append([]spread(nil), r.spread...)
	for i := range out.spread {
		out.spread[i].count = maps.Clone(r.spread[i].count)
	}
	out.change(n, pods, by)
	return &out
}

func (r *relations) change(n *nodeInfo, pods []*corev1.Pod, by int) {
	counted := r.counted(n)
	for _, p := range pods {
		r.count(p, n, counted, by)
	}
}

func clones(in []map[string]int) []map[string]int {
	out := make([]map[string]int, len(in))
	for i := range in {
		out[i] = maps.Clone(in[i])
	}
	return out
}

// refuse says why the pods that are there keep this one from a node; nil when they do not.
func (r *relations) refuse(n *corev1.Node) *refusal {
	if out := r.unevenOn(n); out != nil {
		return out
	}
	if !r.nearOn(n) {
		return refuse(reasonNear)
	}
	for i := range r.apart {
		if v, ok := n.Labels[r.wishes.apart[i].key]; ok && r.apart[i][v] > 0 {
			return &refusal{reasons: []string{reasonApart}, curable: true}
		}
	}
	for at, pods := range r.repelled {
		if v, ok := n.Labels[at.key]; ok && v == at.value && pods > 0 {
			return &refusal{reasons: []string{reasonRepelled}, curable: true}
		}
	}
	return nil
}

func (r *relations) nearOn(n *corev1.Node) bool {
	met, anyone := true, false
	for i := range r.near {
		v, ok := n.Labels[r.wishes.near[i].key]
		if !ok {
			return false
		}
		met = met && r.near[i][v] > 0
		for _, pods := range r.near[i] {
			anyone = anyone || pods > 0
		}
	}
	// The first of a group that wants to be together goes anywhere.
	return met || !anyone && r.allNear(r.pod)
}

func (r *relations) unevenOn(n *corev1.Node) *refusal {
	for i := range r.spread {
		s := &r.spread[i]
		v, ok := n.Labels[s.c.TopologyKey]
		if !ok {
			return refuse(reasonNoDomain)
		}
		least := math.MaxInt
		for _, pods := range s.count {
			least = min(least, pods)
		}
		if d := s.c.MinDomains; len(s.count) == 0 || d != nil && len(s.count) < int(*d) {
			least = 0
		}
		self := 0
		if s.pods.Matches(labels.Set(r.pod.Labels)) {
			self = 1
		}
		if s.count[v]+self-least > int(s.c.MaxSkew) {
			return &refusal{reasons: []string{reasonSpread}, curable: true}
		}
	}
	return nil
}
