package rbac

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate is what an aggregated role holds: the rules of all roles that its selectors pick, each once. What it picks may be aggregated
// too, and then counts as what that picks, not as what stands in it now: so roles that pick one another agree at once, and for good.
func Aggregate(r *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) []rbacv1.PolicyRule {
	roles = slices.SortedFunc(slices.Values(roles), func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	out, seen := []rbacv1.PolicyRule{}, map[string]bool{r.Name: true}
	var gather func(*rbacv1.ClusterRole)
	gather = func(r *rbacv1.ClusterRole) {
		if r.AggregationRule == nil {
			for _, rule := range r.Rules {
				if !slices.ContainsFunc(out, func(have rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(have, rule) }) {
					out = append(out, rule)
				}
			}
			return
		}
		for i := range r.AggregationRule.ClusterRoleSelectors {
			picks, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
			if err != nil {
				continue // refused by validation
			}
			for _, other := range roles {
				if !seen[other.Name] && picks.Matches(labels.Set(other.Labels)) {
					seen[other.Name] = true
					gather(other)
				}
			}
		}
	}
	gather(r)
	return out
}
