// Package scheduler decides which node a pod goes to, and which pods make way for a more important one.
//
// Everything here is pure: a Cluster is built from what a caller sees at one moment, questions are asked of it,
// and nothing is read from or written to anywhere else. The answer depends only on the objects, never on the
// order in which they were handed over. Writes (bind, delete, conditions) are controller's.
//
// It may import api and nothing else of ledge.
package scheduler

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// DefaultName is the scheduler name of pods that ledge places (N-10.1).
const DefaultName = "default-scheduler"

// Config changes how nodes are judged. The zero value is the default.
type Config struct {
	// AgainstCapacity sums requests against a node's capacity instead of its allocatable (N-10.8).
	AgainstCapacity bool
	// Closed names nodes that take no pods at all right now, whatever the pod tolerates, such as a board that is
	// shutting down and has not told the store yet (N-5.31). Nil closes none.
	Closed func(node string) bool
	// Namespaces gives the labels of namespaces, for affinity terms that select by them. It is asked once at most, and
	// only when there is such a term; nil: none has labels.
	Namespaces func() map[string]labels.Set
	// Budgets are what victims should not be taken from (N-10.20, N-10.21).
	Budgets []*policyv1.PodDisruptionBudget
	// Volumes are where the claims of pods are looked up.
	Volumes Volumes
}

// Cluster is what decisions are made from: nodes and the pods that hold resources on them. It is a snapshot of one
// moment, owned by one goroutine; Assume records decisions that were taken on it.
type Cluster struct {
	cfg    Config
	nodes  []*nodeInfo // by name
	byName map[string]*nodeInfo

	namespaces map[string]labels.Set // nil: not asked for
	wishes     map[types.UID]*wishes // of pods that are there, made when first asked for
	taken      map[string]bool       // volumes that were chosen
}

// nodeInfo is a node with the sums of the pods on it.
type nodeInfo struct {
	node        *corev1.Node
	allocatable amounts
	requested   amounts // what counts against allocatable (N-10.9)
	scored      amounts // the same with defaults for missing requests (N-10.12)
	pods        []*corev1.Pod
	related     []*corev1.Pod // those of pods that have a wish about others
	sizes       map[string]int64
	nominated   []*corev1.Pod // unbound pods that others made way for
}

// NewCluster takes a snapshot. Pods that are bound and not terminal count on their node, static ones too (N-10.10);
// unbound pods count only where they are nominated.
func NewCluster(nodes []*corev1.Node, pods []*corev1.Pod, cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, byName: make(map[string]*nodeInfo, len(nodes)), wishes: map[types.UID]*wishes{}, taken: map[string]bool{}}
	for _, n := range nodes {
		res := n.Status.Allocatable
		if cfg.AgainstCapacity {
			res = n.Status.Capacity
		}
		info := &nodeInfo{node: n, allocatable: amountsOf(res), requested: amounts{}, scored: amounts{}}
		c.nodes = append(c.nodes, info)
		c.byName[n.Name] = info
	}
	slices.SortFunc(c.nodes, func(a, b *nodeInfo) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for _, p := range pods {
		switch {
		case Terminal(p):
		case p.Spec.NodeName != "":
			if info := c.byName[p.Spec.NodeName]; info != nil {
				info.add(p)
			}
		case p.Status.NominatedNodeName != "" && p.DeletionTimestamp == nil:
			if info := c.byName[p.Status.NominatedNodeName]; info != nil {
				info.nominated = append(info.nominated, p)
			}
		}
	}
	return c
}

// Assume counts pod on node from now on, as if it were bound there.
func (c *Cluster) Assume(pod *corev1.Pod, node string) {
	for _, info := range c.nodes {
		info.nominated = slices.DeleteFunc(info.nominated, func(p *corev1.Pod) bool { return same(p, pod) })
	}
	if info := c.byName[node]; info != nil {
		info.add(pod)
	}
}

// Nominate keeps room for pod on node while its victims leave. It replaces an earlier nomination.
func (c *Cluster) Nominate(pod *corev1.Pod, node string) {
	for _, info := range c.nodes {
		info.nominated = slices.DeleteFunc(info.nominated, func(p *corev1.Pod) bool { return same(p, pod) })
	}
	if info := c.byName[node]; info != nil {
		info.nominated = append(info.nominated, pod)
	}
}

func (n *nodeInfo) add(pod *corev1.Pod) {
	n.requested.add(amountsOf(api.Held(pod)))
	n.scored.add(amountsOf(scoredRequests(pod)))
	n.pods = append(n.pods, pod)
	if hasPodTerms(pod) {
		n.related = append(n.related, pod)
	}
}

func (n *nodeInfo) remove(pod *corev1.Pod) {
	i := slices.IndexFunc(n.pods, func(p *corev1.Pod) bool { return same(p, pod) })
	if i < 0 {
		return
	}
	n.requested.sub(amountsOf(api.Held(pod)))
	n.scored.sub(amountsOf(scoredRequests(pod)))
	n.pods = slices.Delete(n.pods, i, i+1)
	n.related = slices.DeleteFunc(n.related, func(p *corev1.Pod) bool { return same(p, pod) })
}

// wishesOf is made once for each pod that is there.
func (c *Cluster) wishesOf(p *corev1.Pod) *wishes {
	w := c.wishes[p.UID]
	if w == nil {
		w = wishesOf(p)
		c.wishes[p.UID] = w
	}
	return w
}

// clone copies what add and remove change.
func (n *nodeInfo) clone() *nodeInfo {
	out := *n
	out.requested, out.scored = n.requested.clone(), n.scored.clone()
	out.pods, out.related = slices.Clone(n.pods), slices.Clone(n.related)
	return &out
}

// expecting is the node as pod must see it: with the room that is kept for others of its own or a higher priority. look
// is what the pod sees there.
func (n *nodeInfo) expecting(l *look) (*nodeInfo, *look) {
	var guests []*corev1.Pod
	for _, p := range n.nominated {
		if !same(p, l.pod) && Priority(p) >= Priority(l.pod) {
			guests = append(guests, p)
		}
	}
	if len(guests) == 0 {
		return n, l
	}
	out := n.clone()
	for _, p := range guests {
		out.add(p)
	}
	return out, l.with(l.relations.with(n, guests, 1))
}

// look is one pod's view of the cluster, made once for all nodes.
type look struct {
	pod       *corev1.Pod
	requests  amounts
	names     []corev1.ResourceName // of requests, sorted
	relations *relations
	demand    *demand // nil: it has no claims
	why       string  // no node will do
}

func (c *Cluster) look(pod *corev1.Pod) *look {
	l := &look{pod: pod, requests: amountsOf(api.Requests(pod)), relations: c.relate(pod)}
	l.demand, l.why = c.demandOf(pod)
	l.names = sortedNames(l.requests)
	return l
}

// with is the same look with others there.
func (l *look) with(r *relations) *look {
	out := *l
	out.relations = r
	return &out
}

// Priority is a pod's priority; none means 0.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Terminal says whether a pod has ended for good.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func same(a, b *corev1.Pod) bool {
	return a == b || (a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name)
}
