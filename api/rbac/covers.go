package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Missing says in words what of some rules others do not hold, one line each; none: they hold all of it. What is asked for is cut into
// its smallest parts, one verb on one resource, since several rules may hold together what none of them holds alone. The words of a
// role multiply when it is cut, so there is a bound: who is refused for it writes the same as several rules.
func Missing(have, want []rbacv1.PolicyRule) ([]string, error) {
	var words, work int64
	for i := range have {
		words += wordsOf(&have[i])
	}
	var out missing
	for i := range want {
		w := &want[i]
		if work += wordsOf(w) * words; work <= maxWork && slices.ContainsFunc(have, func(h rbacv1.PolicyRule) bool { return covers(&h, w) }) {
			continue
		}
		if work += partsOf(w) * max(words, 1); work > maxWork {
			return nil, fmt.Errorf("rule %d cannot be compared with what one holds: it says too much at once: write it as several rules, "+
				"of fewer verbs, groups and resources each, or as several roles", i)
		}
		eachPart(w, func(part *rbacv1.PolicyRule) {
			if !slices.ContainsFunc(have, func(h rbacv1.PolicyRule) bool { return covers(&h, part) }) {
				out.add(part)
			}
		})
	}
	return out.lines(), nil
}

// maxWork is how many words are compared for one role: some 50 ms on a slow board, which others wait for who write.
const maxWork = 4 << 20

func wordsOf(r *rbacv1.PolicyRule) int64 {
	return int64(1 + len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs))
}

// partsOf is how many parts a rule has, as far as it matters.
func partsOf(r *rbacv1.PolicyRule) int64 {
	n := int64(len(r.Verbs))
	paths := n * int64(len(r.NonResourceURLs))
	for _, list := range []int{len(r.APIGroups), len(r.Resources), max(len(r.ResourceNames), 1)} {
		n = min(n*int64(list), maxWork+1)
	}
	return n + paths
}

// eachPart cuts a rule. A part is good for the time of the call.
func eachPart(r *rbacv1.PolicyRule, do func(*rbacv1.PolicyRule)) {
	for i := range r.Verbs {
		part := rbacv1.PolicyRule{Verbs: r.Verbs[i : i+1]}
		for j := range r.NonResourceURLs {
			part.NonResourceURLs = r.NonResourceURLs[j : j+1]
			do(&part)
		}
		part.NonResourceURLs = nil
		for j := range r.APIGroups {
			for k := range r.Resources {
				part.APIGroups, part.Resources, part.ResourceNames = r.APIGroups[j:j+1], r.Resources[k:k+1], nil
				if len(r.ResourceNames) == 0 {
					do(&part)
				}
				for l := range r.ResourceNames {
					part.ResourceNames = r.ResourceNames[l : l+1]
					do(&part)
				}
			}
		}
	}
}

// covers says whether one rule alone holds all of another.
func covers(have, want *rbacv1.PolicyRule) bool {
	return all(want.Verbs, func(v string) bool { return has(have.Verbs, v, rbacv1.VerbAll) }) &&
		all(want.APIGroups, func(g string) bool { return has(have.APIGroups, g, rbacv1.APIGroupAll) }) &&
		all(want.Resources, func(r string) bool { return resourceCovers(have.Resources, r) }) &&
		all(want.NonResourceURLs, func(url string) bool {
			return slices.ContainsFunc(have.NonResourceURLs, func(h string) bool { return pathCovers(h, url) })
		}) &&
		(len(have.ResourceNames) == 0 || len(want.ResourceNames) > 0 &&
			all(want.ResourceNames, func(n string) bool { return slices.Contains(have.ResourceNames, n) }))
}

func all(list []string, is func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !is(s) })
}

func resourceCovers(have []string, resource string) bool {
	if has(have, resource, rbacv1.ResourceAll) {
		return true
	}
	_, sub, found := strings.Cut(resource, "/")
	return found && slices.Contains(have, rbacv1.ResourceAll+"/"+sub)
}

// missing collects parts into lines, in the order in which they came, with the verbs of the same thing in one.
type missing struct {
	order []string
	verbs map[string][]string
	more  bool
}

const maxMissing = 10

func (m *missing) add(part *rbacv1.PolicyRule) {
	var what string
	switch {
	case len(part.NonResourceURLs) > 0:
		what = fmt.Sprintf("NonResourceURLs:%q", part.NonResourceURLs)
	case len(part.ResourceNames) > 0:
		what = fmt.Sprintf("APIGroups:%q, Resources:%q, ResourceNames:%q", part.APIGroups, part.Resources, part.ResourceNames)
	default:
		what = fmt.Sprintf("APIGroups:%q, Resources:%q", part.APIGroups, part.Resources)
	}
	if m.verbs == nil {
		m.verbs = map[string][]string{}
	}
	if _, known := m.verbs[what]; !known {
		if len(m.order) == maxMissing {
			m.more = true
			return
		}
		m.order = append(m.order, what)
	}
	if verb := part.Verbs[0]; len(m.verbs[what]) < maxMissing && !slices.Contains(m.verbs[what], verb) {
		m.verbs[what] = append(m.verbs[what], verb)
	}
}

func (m *missing) lines() (out []string) {
	for _, what := range m.order {
		out = append(out, fmt.Sprintf("{%s, Verbs:%q}", what, m.verbs[what]))
	}
	if m.more {
		out = append(out, "and more")
	}
	return out
}
