package scheduler

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// FitError says that no node takes a pod, and why, node by node.
type FitError struct {
	NumNodes int
	why      string              // none was asked: no node will do
	refused  map[string]*refusal // by node name
}

// Error is N-10.3's sentence. Equal reasons are counted together and sorted as text.
func (e *FitError) Error() string {
	if e.NumNodes == 0 {
		return "no nodes available to schedule pods"
	}
	if e.why != "" {
		return fmt.Sprintf("0/%d nodes are available: %s.", e.NumNodes, e.why)
	}
	var all []string
	for _, r := range e.refused {
		all = append(all, r.reasons...)
	}
	return unavailable(e.NumNodes, all)
}

// Reasons is why a node refused; nil for a node that was not asked.
func (e *FitError) Reasons(node string) []string {
	if r := e.refused[node]; r != nil {
		return slices.Clone(r.reasons)
	}
	return nil
}

func unavailable(nodes int, reasons []string) string {
	counts := map[string]int{}
	for _, r := range reasons {
		counts[r]++
	}
	parts := make([]string, 0, len(counts))
	for r, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, r))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(parts, ", "))
}

// Place picks the node for a pod: the best scored of those that take it (N-10.2). The error is a *FitError.
func (c *Cluster) Place(pod *corev1.Pod) (string, error) {
	l := c.look(pod)
	fit := &FitError{NumNodes: len(c.nodes), why: l.why, refused: map[string]*refusal{}}
	if l.why != "" {
		return "", fit
	}
	var feasible []*nodeInfo
	for _, n := range c.nodes {
		asked, seen := n.expecting(l)
		if r := c.filter(seen, asked); r != nil {
			fit.refused[n.node.Name] = r
		} else {
			feasible = append(feasible, n)
		}
	}
	if len(feasible) == 0 {
		return "", fit
	}
	// Room was made for this pod on its nominated node: others may be better now, but it is owed to this one.
	if i := slices.IndexFunc(feasible, func(n *nodeInfo) bool { return n.node.Name == pod.Status.NominatedNodeName }); i >= 0 {
		return feasible[i].node.Name, nil
	}
	return c.best(l, feasible), nil
}

// best is the node of the highest score. Among equals a hash of pod and node decides: as good as a random choice at
// spreading (N-10.2), and the same every time it is asked.
func (c *Cluster) best(l *look, nodes []*nodeInfo) string {
	scores := c.score(l, nodes)
	var winner string
	var top int64 = -1
	var topHash uint64
	for i, n := range nodes {
		h := tie(l.pod, n.node.Name)
		if scores[i] > top || (scores[i] == top && h > topHash) {
			winner, top, topHash = n.node.Name, scores[i], h
		}
	}
	return winner
}

func tie(pod *corev1.Pod, node string) uint64 {
	h := fnv.New64a()
	for _, s := range []string{string(pod.UID), pod.Namespace, pod.Name, node} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	// FNV's high bits hardly move with the last byte, which is all that names like n1 and n2 differ in.
	v := h.Sum64()
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	return v ^ v>>33
}
