package httpd

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/kinds"
)

// What each identity may do without any binding, as resource: verbs on its own things / verbs on those of others. What is not here
// is forbidden. "own" is the node's own name, its lease, its pods (by field selector), or one named object.
var mayDo = map[string]map[string][2]string{
	"node": {
		"nodes":                 {"get list watch create update patch", "create"},
		"nodes/status":          {"get update patch", ""},
		"leases":                {"get create update patch", ""},
		"pods":                  {"get list watch create delete", "get create delete"},
		"pods/status":           {"get update patch", "get update patch"},
		"pods/eviction":         {"create", "create"},
		"configmaps":            {"get list watch", "get"},
		"secrets":               {"get list watch", "get"},
		"events":                {"create update patch", "create update patch"},
		"serviceaccounts/token": {"create", "create"},
		"runtimeclasses":        {"get list watch", "get list watch"},
		"services":              {"get list watch", "get list watch"},
		"endpointslices":        {"get list watch", "get list watch"},
		"namespaces":            {"list watch", "list watch"},
		"networkpolicies":       {"get list watch", "get list watch"},
		// What of these is its own, reads.go and admission know.
		"persistentvolumeclaims":        {"get list watch update patch", "get update patch"},
		"persistentvolumeclaims/status": {"get update patch", "get update patch"},
		"persistentvolumes":             {"get list watch create update patch", "get create update patch"},
		"storageclasses":                {"get list watch", "get list watch"},
		"review":                        {"create", "create"},
		"path":                          {"get", "get"},
	},
	"ingress": {
		"ingresses":      {"get list watch", "get list watch"},
		"ingressclasses": {"get list watch", "get list watch"},
		"services":       {"get list watch", "get list watch"},
		"endpointslices": {"get list watch", "get list watch"},
		"secrets":        {"get", "get"}, // of these, what reads.go lets through
		"events":         {"create update patch", "create update patch"},
		"review":         {"create", "create"},
		"path":           {"get", "get"},
	},
	// A node's name without the group, the group without the name, and somebody else.
	"impostor": {"review": {"create", "create"}, "path": {"get", "get"}},
	"stranded": {"review": {"create", "create"}, "path": {"get", "get"}},
	"stranger": {"review": {"create", "create"}, "path": {"get", "get"}},
	// A pod with a token: who it is, what there is, and nothing else.
	"account": {"review": {"create", "create"}, "path": {"get", "get"}},
}

var identities = map[string]api.User{
	"admin":    {Name: "someone", Groups: []string{"x", api.AdminGroup}},
	"node":     {Name: "system:node:a", Groups: []string{"system:nodes"}},
	"impostor": {Name: "system:node:a", Groups: []string{"system:authenticated"}},
	"stranded": {Name: "a", Groups: []string{"system:nodes"}},
	"stranger": {Name: "bob"},
	"ingress":  api.AccountUser("kube-system", "ledge-ingress"),
	"account": {Name: "system:serviceaccount:default:default",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}},
}

var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// question makes the attributes of a verb on a resource, on one's own thing or another's.
func question(verb string, k *api.Kind, sub string, own bool) attributes {
	a := attributes{verb: verb, group: k.Group, resource: k.Resource, sub: sub}
	if k.Namespaced {
		a.namespace = "default"
	}
	name, of := "a", "a"
	if !own {
		name, of = "b", "b"
	}
	switch verb {
	case "list", "watch", "deletecollection":
		switch {
		case k == api.Pods:
			a.fields = "spec.nodeName=" + of
		case own:
			a.fields = "metadata.name=" + name
		case k == api.Nodes || k == coordination.Leases:
			a.fields = "metadata.name=" + of
		}
	case "create":
		if sub != "" {
			a.name = name
		}
	default:
		a.name = name
	}
	if k == coordination.Leases {
		a.namespace = "default"
		if own {
			a.namespace = leaseNamespace
		}
	}
	return a
}

func TestAuthorizationMatrix(t *testing.T) {
	checked := 0
	for who, u := range identities {
		for _, verb := range allVerbs {
			for i, own := range []bool{true, false} {
				check := func(resource string, a attributes) {
					t.Helper()
					checked++
					want := who == "admin" || strings.Contains(" "+mayDo[who][resource][i]+" ", " "+verb+" ")
					if got := allowed(u, a); got != want {
						t.Errorf("%s: %s %s (own %v): allowed %v, want %v", who, verb, resource, own, got, want)
					}
				}
				for _, k := range kinds.All.Kept {
					for _, sub := range append(subsOf(k), "", "exec", "proxy") {
						resource := k.Resource
						if sub != "" {
							resource += "/" + sub
						}
						check(resource, question(verb, k, sub, own))
					}
				}
				check("deployments", attributes{verb: verb, group: "apps", resource: "deployments", namespace: "default", name: "a"})
				check("review", attributes{verb: verb, group: "authorization.k8s.io", resource: "selfsubjectaccessreviews"})
				check("path", attributes{verb: verb, path: "/version"})
				check("others", attributes{verb: verb, group: "authentication.k8s.io", resource: "tokenreviews"})
				check("others", attributes{verb: verb, path: "/apisx"})
			}
		}
	}
	t.Logf("%d combinations", checked)
	if checked < 1000 {
		t.Errorf("only %d combinations were checked", checked)
	}
}

// What must not open the rules of a node by the way the question is put.
func TestNodeCannotTrickItsRules(t *testing.T) {
	node := identities["node"]
	for name, a := range map[string]attributes{
		"all pods":                      {verb: "list", resource: "pods"},
		"pods, but not only its own":    {verb: "list", resource: "pods", fields: "spec.nodeName!=a"},
		"pods of no node":               {verb: "list", resource: "pods", fields: "spec.nodeName="},
		"pods, selector broken":         {verb: "list", resource: "pods", fields: "spec.nodeName"},
		"all nodes":                     {verb: "watch", resource: "nodes"},
		"all secrets of a namespace":    {verb: "list", resource: "secrets", namespace: "x"},
		"a secret name everywhere":      {verb: "list", resource: "secrets", fields: "metadata.name=s"},
		"secrets by another field":      {verb: "list", resource: "secrets", namespace: "x", fields: "type=Opaque"},
		"its lease in another place":    {verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: "default", name: "a"},
		"another's lease":               {verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: leaseNamespace, name: "b"},
		"all leases":                    {verb: "list", group: "coordination.k8s.io", resource: "leases", namespace: leaseNamespace},
		"its own node, deleted":         {verb: "delete", resource: "nodes", name: "a"},
		"pod specs":                     {verb: "patch", resource: "pods", namespace: "x", name: "p"},
		"binding":                       {verb: "create", resource: "pods", sub: "binding", namespace: "x", name: "p"},
		"logs":                          {verb: "get", resource: "pods", sub: "log", namespace: "x", name: "p"},
		"its node in another API group": {verb: "get", group: "evil.io", resource: "nodes", name: "a"},
		"a selector on a get":           {verb: "get", resource: "nodes", name: "b", fields: "metadata.name=a"},
		"namespaces":                    {verb: "get", resource: "namespaces", name: "x"},
		"priority classes":              {verb: "delete", group: "scheduling.k8s.io", resource: "priorityclasses", name: "x"},
	} {
		if allowed(node, a) {
			t.Errorf("%s: allowed", name)
		}
	}
}

func TestForbiddenSaysWhat(t *testing.T) {
	err := forbidden(identities["stranger"], attributes{verb: "list", resource: "pods", namespace: "default"}, "")
	want := `pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"`
	if fmt.Sprint(err) != want || !apierrors.IsForbidden(err) {
		t.Errorf("%v, want %s", err, want)
	}
}
