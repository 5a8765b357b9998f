package httpd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/networking"
	"ledge/api/node"
	apistorage "ledge/api/storage"
)

// Who a node is: its user name carries the node's name, and it is a member of the group.
const (
	leaseNamespace = "kube-node-lease"
)

// attributes is one question to authorisation. resource is empty for paths that are no object's.
type attributes struct {
	verb, group, resource, sub, namespace, name string
	path                                        string
	fields                                      string // the field selector, unparsed
}

// rule is something a node identity may do, as far as the request line shows it. Which pods are the node's own, and
// what they refer to, reads.go looks up; that a node creates only its own Node and changes only its own pods is
// admission's part, inside the transaction (N-1.36 to N-1.40, api/local).
type rule struct {
	kind  *api.Kind
	sub   string
	verbs []string
	where where
}

// where narrows a rule to the node's own things, as far as the request line shows them.
type where int

const (
	anywhere  where = iota
	ownName         // the object has the node's name, or a list selects that name
	ownLease        // the same, in the namespace of node leases
	ownPods         // a list selects spec.nodeName of this node
	peerPods        // a list selects pods with a network of their own
	namedOnly       // a list selects one name: no browsing
	ownField        // a list selects one name, or what is this node's (api.NodeField)
)

// nodeRules is everything a node may do with objects. An administrator may do everything, others what bindings say.
var nodeRules = []rule{
	{api.Nodes, "", []string{"get", "list", "watch", "create", "update", "patch"}, ownName},
	{api.Nodes, "status", []string{"get", "update", "patch"}, ownName},
	{coordination.Leases, "", []string{"get", "create", "update", "patch"}, ownLease},
	{api.Pods, "", []string{"get", "create", "delete"}, anywhere},
	{api.Pods, "", []string{"list", "watch"}, ownPods},
	{api.Pods, "", []string{"list", "watch"}, peerPods}, // what policies name: peers.go shows little of them
	{api.Namespaces, "", []string{"list", "watch"}, anywhere},
	{networking.NetworkPolicies, "", []string{"get", "list", "watch"}, anywhere},
	{api.Pods, "status", []string{"get", "update", "patch"}, anywhere},
	{api.Pods, "eviction", []string{"create"}, anywhere},
	{api.ConfigMaps, "", []string{"get", "list", "watch"}, namedOnly},
	{api.Secrets, "", []string{"get", "list", "watch"}, namedOnly},
	{api.Events, "", []string{"create", "update", "patch"}, anywhere},
	{api.Services, "", []string{"get", "list", "watch"}, anywhere}, // what each board forwards, and answers the names of
	{discovery.EndpointSlices, "", []string{"get", "list", "watch"}, anywhere},
	{node.RuntimeClasses, "", []string{"get", "list", "watch"}, anywhere},
	{api.PersistentVolumeClaims, "", []string{"get", "list", "watch", "update", "patch"}, ownField},
	{api.PersistentVolumeClaims, "status", []string{"get", "update", "patch"}, anywhere},
	{api.PersistentVolumes, "", []string{"get", "list", "watch", "create", "update", "patch"}, ownField},
	{apistorage.StorageClasses, "", []string{"get", "list", "watch"}, anywhere},
	{api.ServiceAccounts, "token", []string{"create"}, anywhere}, // for pods on it: api/local looks
}

// ingressRules is what the pods may do that take requests in for Ingresses. They face strangers: of Secrets they read those that an
// Ingress of their class names (reads.go), and of Events they write those about Ingresses (api/local). Nobody can widen that for all by
// a role, or take it away.
var ingressRules = []rule{
	{networking.Ingresses, "", []string{"get", "list", "watch"}, anywhere},
	{networking.IngressClasses, "", []string{"get", "list", "watch"}, anywhere},
	{api.Services, "", []string{"get", "list", "watch"}, anywhere},
	{discovery.EndpointSlices, "", []string{"get", "list", "watch"}, anywhere},
	{api.Secrets, "", []string{"get"}, namedOnly},
	{api.Events, "", []string{"create", "update", "patch"}, anywhere},
}

// isIngress says that a user is the account of those pods.
func isIngress(u api.User) bool {
	namespace, name, ok := api.AccountOf(u.Name)
	return ok && namespace == metav1.NamespaceSystem && name == networking.Pods
}

// authorizer knows who may do what: by who he is (nodeRules, ingressRules), by bindings (rbac.go), and as whom else (impersonate.go).
type authorizer struct{ client api.Client }

// authorize says whether a user may do something; the error is a 403 that names all of it.
func (auth *authorizer) authorize(ctx context.Context, u api.User, a attributes) error {
	if allowed(u, a) {
		return nil
	}
	if isPage(u) {
		return forbidden(u, a, "")
	}
	_, ok, err := auth.granted(ctx, u, a)
	if err == nil && !ok {
		err = forbidden(u, a, "")
	}
	return err
}

// forbidden is a 403, worded as Kubernetes words it. why is added where there is more to say.
func forbidden(u api.User, a attributes, why string, args ...any) error {
	what := fmt.Sprintf("path %q", a.path)
	if a.resource != "" {
		resource := a.resource
		if a.sub != "" {
			resource += "/" + a.sub
		}
		what = fmt.Sprintf("resource %q in API group %q", resource, a.group)
		if a.namespace != "" {
			what += fmt.Sprintf(" in the namespace %q", a.namespace)
		} else {
			what += " at the cluster scope"
		}
	}
	if why != "" {
		what += ": " + fmt.Sprintf(why, args...)
	}
	gr := schema.GroupResource{Group: a.group, Resource: a.resource}
	message := fmt.Sprintf("User %q cannot %s %s", u.Name, a.verb, what)
	return apierrors.NewForbidden(gr, a.name, errors.New(message))
}

// allowed is what users may do without a binding.
func allowed(u api.User, a attributes) bool {
	if slices.Contains(u.Groups, api.AdminGroup) {
		return true
	}
	if isAnonymous(u) {
		return a.resource == "" && a.verb == verbRead && slices.Contains(publicPaths, a.path)
	}
	if isPage(u) && pageMay(u, a) {
		return true
	}
	if a.resource == "" {
		return a.verb == verbRead && isOpen(a.path)
	}
	if isReview(a) {
		return true // questions about oneself
	}
	if isIngress(u) {
		return slices.ContainsFunc(ingressRules, func(r rule) bool { return r.allows("", a) })
	}
	node, ok := nodeName(u)
	return ok && slices.ContainsFunc(nodeRules, func(r rule) bool { return r.allows(node, a) })
}

// openPaths are what whoever is known may read: versions, health, discovery. What is below them is open too.
var openPaths = []string{"/version", "/healthz", "/livez", "/readyz", "/api", "/apis", "/openapi"}

func isOpen(path string) bool {
	return slices.ContainsFunc(openPaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

func isReview(a attributes) bool {
	return a.verb == "create" && slices.ContainsFunc(reviews, func(v review) bool {
		return !v.admin && v.gvk.Group == a.group && v.resource() == a.resource && a.sub == ""
	})
}

// nodeName is the node that a user is, if it is one.
func nodeName(u api.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, api.NodeUserPrefix)
	return name, ok && name != "" && slices.Contains(u.Groups, api.NodesGroup)
}

func (r rule) allows(node string, a attributes) bool {
	if r.kind.Group != a.group || r.kind.Resource != a.resource || r.sub != a.sub || !slices.Contains(r.verbs, a.verb) {
		return false
	}
	switch r.where {
	case ownLease:
		return a.namespace == leaseNamespace && a.names(node)
	case ownName:
		return a.names(node)
	case ownPods:
		return a.selects("spec.nodeName", node)
	case peerPods:
		return a.selects("spec.hostNetwork", "false")
	case namedOnly:
		return a.namespace != "" && a.one() != ""
	case ownField:
		return !slices.Contains([]string{"list", "watch"}, a.verb) || a.selects(api.NodeField, node) ||
			a.one() != "" && (a.namespace != "") == r.kind.Namespaced
	}
	return true
}

// names says whether the request is about one name. A create has none on its request line.
func (a attributes) names(name string) bool { return a.verb == "create" || a.one() == name }

// one is the name of the one object that the request is about, "" when it may be about several: who watches one by a field selector
// needs the right to that one only.
func (a attributes) one() string {
	if a.name != "" {
		return a.name
	}
	return a.selected("metadata.name")
}

// selects says whether the field selector pins a field to a value.
func (a attributes) selects(field, value string) bool {
	return value != "" && a.selected(field) == value
}

// selected is the one value that the field selector pins a field to; "" is none. Elsewhere than here a selector means nothing.
func (a attributes) selected(field string) string {
	if a.fields == "" || !slices.Contains([]string{"list", "watch", "deletecollection"}, a.verb) {
		return ""
	}
	sel, err := fields.ParseSelector(a.fields)
	if err != nil {
		return ""
	}
	got, _ := sel.RequiresExactMatch(field)
	return got
}
