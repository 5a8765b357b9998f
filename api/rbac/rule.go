package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Ask is what somebody wants to do: with a resource, or, where Resource is empty, with a path.
type Ask struct {
	Verb                  string
	Group                 string
	Resource, Subresource string
	Namespace, Name       string
	Path                  string
}

// ruleAllows says whether a rule lets its holder do something. The namespace is the binding's business.
func ruleAllows(r *rbacv1.PolicyRule, a *Ask) bool {
	if !has(r.Verbs, a.Verb, rbacv1.VerbAll) {
		return false
	}
	if a.Resource == "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return pathCovers(url, a.Path) })
	}
	return has(r.APIGroups, a.Group, rbacv1.APIGroupAll) && resourceAllows(r.Resources, a) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

func has(list []string, what, all string) bool {
	for _, s := range list {
		if s == what || s == all {
			return true
		}
	}
	return false
}

// resourceAllows: "pods" is the resource alone, "pods/log" one subresource, "*/scale" that of every resource, and "*" all of these.
func resourceAllows(resources []string, a *Ask) bool {
	for _, r := range resources {
		if r == rbacv1.ResourceAll {
			return true
		}
		if a.Subresource == "" {
			if r == a.Resource {
				return true
			}
			continue
		}
		of, sub, found := strings.Cut(r, "/")
		if found && sub == a.Subresource && (of == a.Resource || of == rbacv1.ResourceAll) {
			return true
		}
	}
	return false
}

// pathCovers: a rule's path is one path, or ends in * and is all that begin so.
func pathCovers(rule, path string) bool {
	if rule == path {
		return true
	}
	return strings.HasSuffix(rule, "*") && strings.HasPrefix(path, strings.TrimRight(rule, "*"))
}
