package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// term is a pod affinity term made ready to be asked: which pods, and what of a node they share.
type term struct {
	pods       labels.Selector
	namespaces []string
	nsLabels   labels.Selector // nil: only the namespaces above
	key        string
	weight     int64
}

// pair is a place that nodes may share: zone=attic.
type pair struct{ key, value string }

// selectorOf reads a label selector. None selects nothing, an empty one everything, one that cannot be read nothing.
func selectorOf(s *metav1.LabelSelector, from *corev1.Pod, same, differ []string) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || s == nil {
		return labels.Nothing()
	}
	// matchLabelKeys: pods that agree with this one in these labels, mismatchLabelKeys: that do not.
	for _, list := range []struct {
		keys []string
		op   metav1.LabelSelectorOperator
	}{{same, metav1.LabelSelectorOpIn}, {differ, metav1.LabelSelectorOpNotIn}} {
		for _, key := range list.keys {
			v, ok := from.Labels[key]
			if !ok {
				continue
			}
			one, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: list.op, Values: []string{v}}}})
			if err != nil {
				return labels.Nothing()
			}
			more, _ := one.Requirements()
			sel = sel.Add(more...)
		}
	}
	return sel
}

func termOf(t *corev1.PodAffinityTerm, of *corev1.Pod, weight int64) term {
	out := term{pods: selectorOf(t.LabelSelector, of, t.MatchLabelKeys, t.MismatchLabelKeys), namespaces: t.Namespaces,
		key: t.TopologyKey, weight: weight}
	if t.NamespaceSelector != nil {
		out.nsLabels = selectorOf(t.NamespaceSelector, of, nil, nil)
	} else if len(t.Namespaces) == 0 {
		out.namespaces = []string{of.Namespace}
	}
	return out
}

func termsOf(list []corev1.PodAffinityTerm, of *corev1.Pod) []term {
	var out []term
	for i := range list {
		out = append(out, termOf(&list[i], of, 1))
	}
	return out
}

func weightedOf(list []corev1.WeightedPodAffinityTerm, of *corev1.Pod, sign int64) []term {
	var out []term
	for i := range list {
		out = append(out, termOf(&list[i].PodAffinityTerm, of, sign*int64(list[i].Weight)))
	}
	return out
}

// covers says whether a pod is one of those that the term speaks of.
func (c *Cluster) covers(t *term, p *corev1.Pod) bool {
	if !slices.Contains(t.namespaces, p.Namespace) &&
		(t.nsLabels == nil || !t.nsLabels.Empty() && !t.nsLabels.Matches(c.namespaceLabels(p.Namespace))) {
		return false
	}
	return t.pods.Matches(labels.Set(p.Labels))
}

// namespaceLabels are asked for once, and only when a term needs them.
func (c *Cluster) namespaceLabels(name string) labels.Set {
	if c.namespaces == nil {
		c.namespaces = map[string]labels.Set{}
		if c.cfg.Namespaces != nil {
			c.namespaces = c.cfg.Namespaces()
		}
	}
	return c.namespaces[name]
}

// wishes are a pod's own words about others.
type wishes struct {
	near, apart         []term // required
	liked               []term // preferred, those to keep away from with a negative weight
	spread, spreadLiked []spread
}

func wishesOf(p *corev1.Pod) *wishes {
	w := &wishes{}
	if a := p.Spec.Affinity; a != nil {
		if x := a.PodAffinity; x != nil {
			w.near = termsOf(x.RequiredDuringSchedulingIgnoredDuringExecution, p)
			w.liked = weightedOf(x.PreferredDuringSchedulingIgnoredDuringExecution, p, 1)
		}
		if x := a.PodAntiAffinity; x != nil {
			w.apart = termsOf(x.RequiredDuringSchedulingIgnoredDuringExecution, p)
			w.liked = append(w.liked, weightedOf(x.PreferredDuringSchedulingIgnoredDuringExecution, p, -1)...)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		t := &p.Spec.TopologySpreadConstraints[i]
		s := spread{c: t, pods: selectorOf(t.LabelSelector, p, t.MatchLabelKeys, nil)}
		if t.WhenUnsatisfiable == corev1.DoNotSchedule {
			w.spread = append(w.spread, s)
		} else {
			w.spreadLiked = append(w.spreadLiked, s)
		}
	}
	return w
}

func hasPodTerms(p *corev1.Pod) bool {
	a := p.Spec.Affinity
	return a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil)
}
