package rbac

import (
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate is what an aggregated role holds: the rules of all roles that its selectors pick, each once. What it picks may be aggregated
// too, and then counts as what that picks, not as what stands in it now: so roles that pick one another agree at once, and for good.
func Aggregate(r *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) []rbacv1.PolicyRule {
	roles = slices.SortedFunc(slices.Values(roles), func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	out, has, seen := []rbacv1.PolicyRule{}, map[string]bool{}, map[string]bool{r.Name: true}
	var gather func(*rbacv1.ClusterRole)
	gather = func(r *rbacv1.ClusterRole) {
		if r.AggregationRule == nil {
			for _, rule := range r.Rules {
				if key := ruleKey(&rule); !has[key] {
					out, has[key] = append(out, rule), true
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

// Narrowed gives the rules that are in both lists. It is for a role that has no room for new rules: what was taken from it goes all the
// same.
func Narrowed(rules, to []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	stays := map[string]bool{}
	for i := range to {
		stays[ruleKey(&to[i])] = true
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return !stays[ruleKey(&r)] })
}

// ruleKey is the same for rules that say the same in the same words. There may be tens of thousands, too many to compare each with each.
func ruleKey(r *rbacv1.PolicyRule) string {
	return fmt.Sprintf("%q", [...][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs})
}
