package scheduler

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// companyOf scores nodes by the pods on them: the preferred affinity of the new pod to them, and theirs to the new
// pod. A required affinity of theirs counts as a preference of weight 1, as on Kubernetes.
func (c *Cluster) companyOf(r *relations, nodes []*nodeInfo) []int64 {
	likes := map[pair]int64{}
	note := func(t *term, n *corev1.Node, other *corev1.Pod, weight int64) {
		if v, ok := n.Labels[t.key]; ok && c.covers(t, other) {
			likes[pair{t.key, v}] += weight
		}
	}
	for _, n := range c.nodes {
		for _, p := range n.related {
			w := c.wishesOf(p)
			for i := range w.liked {
				note(&w.liked[i], n.node, r.pod, w.liked[i].weight)
			}
			for i := range w.near {
				note(&w.near[i], n.node, r.pod, 1)
			}
		}
		if len(r.liked) == 0 {
			continue
		}
		for _, p := range n.pods {
			for i := range r.liked {
				note(&r.liked[i], n.node, p, r.liked[i].weight)
			}
		}
	}
	out := make([]int64, len(nodes))
	if len(likes) == 0 {
		return out
	}
	for i, n := range nodes {
		for at, weight := range likes {
			if v, ok := n.node.Labels[at.key]; ok && v == at.value {
				out[i] += weight
			}
		}
	}
	scale(out)
	return out
}

// scale maps values to 0..maxScore between the smallest and the largest.
func scale(v []int64) {
	if len(v) == 0 {
		return
	}
	least, most := v[0], v[0]
	for _, x := range v {
		least, most = min(least, x), max(most, x)
	}
	for i := range v {
		if most == least {
			v[i] = 0
		} else {
			v[i] = maxScore * (v[i] - least) / (most - least)
		}
	}
}

// evenness scores nodes by the spread constraints that are only wishes: few of its kind is good, and more so where there
// are many domains.
func (c *Cluster) evenness(r *relations, nodes []*nodeInfo) []int64 {
	out := make([]int64, len(nodes))
	if len(r.spreadLiked) == 0 {
		return out
	}
	ignored := make([]bool, len(nodes))
	for _, s := range r.spreadLiked {
		count := map[string]int{}
		for _, n := range nodes {
			if v, ok := n.node.Labels[s.c.TopologyKey]; ok {
				count[v] = 0
			}
		}
		for _, n := range c.nodes {
			v, ok := n.node.Labels[s.c.TopologyKey]
			if _, asked := count[v]; !ok || !asked || !eligible(s.c, r.pod, n.node) {
				continue
			}
			for _, p := range n.pods {
				if p.Namespace == r.pod.Namespace && p.DeletionTimestamp == nil && s.pods.Matches(labels.Set(p.Labels)) {
					count[v]++
				}
			}
		}
		weight := math.Log(float64(len(count) + 2))
		for i, n := range nodes {
			v, ok := n.node.Labels[s.c.TopologyKey]
			if ignored[i] = ignored[i] || !ok; ok {
				out[i] += int64(math.Round(float64(count[v])*weight)) + int64(s.c.MaxSkew-1)
			}
		}
	}
	least, most := int64(math.MaxInt64), int64(0)
	for i, v := range out {
		if !ignored[i] {
			least, most = min(least, v), max(most, v)
		}
	}
	for i := range out {
		switch {
		case ignored[i]:
			out[i] = 0
		case most == 0:
			out[i] = maxScore
		default:
			out[i] = maxScore * (most + least - out[i]) / most
		}
	}
	return out
}

// Images below the first size are not worth going to a node for; above the second, per container, more is not better.
const (
	imageLeast = 23 << 20
	imageMost  = 1000 << 20
)

// imagesPresent scores nodes by how much of the pod's images they have, less where few nodes do: else all pods of an
// image would go to the one node that has it.
func (c *Cluster) imagesPresent(pod *corev1.Pod, nodes []*nodeInfo) []int64 {
	out := make([]int64, len(nodes))
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			name := imageName(list[i].Image)
			have := int64(0)
			for _, n := range c.nodes {
				if n.images()[name] > 0 {
					have++
				}
			}
			if have == 0 {
				continue
			}
			for j, n := range nodes {
				out[j] += n.images()[name] * have / int64(len(c.nodes))
			}
		}
	}
	for i := range out {
		most := imageMost * max(containers, 1)
		out[i] = maxScore * (min(max(out[i], imageLeast), most) - imageLeast) / (most - imageLeast)
	}
	return out
}

// images are the node's, by name, with their sizes: made when first asked for.
func (n *nodeInfo) images() map[string]int64 {
	if n.sizes == nil {
		n.sizes = map[string]int64{}
		for _, img := range n.node.Status.Images {
			for _, name := range img.Names {
				n.sizes[imageName(name)] = img.SizeBytes
			}
		}
	}
	return n.sizes
}

// imageName spells a name as others may have: without the default registry, with the default tag.
func imageName(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		name += ":latest"
	}
	return name
}
