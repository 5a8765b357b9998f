package api

import (
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one API object: a pointer to a Kubernetes type.
type Object interface {
	metav1.Object
	k8sruntime.Object
}

// ListObject is the list type that belongs to a kind, such as *corev1.PodList.
type ListObject interface {
	metav1.ListInterface
	k8sruntime.Object
}

// Kind describes one kind of object: how it is named, addressed and made.
type Kind struct {
	Group, Version string
	Name           string // CamelCase singular: Pod
	Resource       string // plural, as in URLs: pods
	Singular       string
	Short          []string
	Categories     []string
	Namespaced     bool
	HasStatus      bool // has a status subresource
	// ServerOnly: only the server makes such objects; others read them.
	ServerOnly bool
	// Later: there are no such objects yet. Lists answer empty, so that clients that look find nothing, and writes are
	// refused. New and NewList are nil.
	Later bool
	// Propagation is what becomes of the objects that belong to one of these when who deletes it says nothing of them; ""
	// is that they go soon after.
	Propagation metav1.DeletionPropagation

	// View is set when the objects are those of another kind in another form.
	View *Form

	New     func() Object
	NewList func() ListObject
}

// The kinds ledge keeps. A pointer to one of these is the kind's identity.
var (
	Nodes = &Kind{Version: "v1", Name: "Node", Resource: "nodes", Singular: "node", Short: []string{"no"},
		HasStatus: true,
		New:       func() Object { return &corev1.Node{} }, NewList: func() ListObject { return &corev1.NodeList{} }}
	Pods = &Kind{Version: "v1", Name: "Pod", Resource: "pods", Singular: "pod", Short: []string{"po"},
		Categories: []string{"all"}, Namespaced: true, HasStatus: true,
		New: func() Object { return &corev1.Pod{} }, NewList: func() ListObject { return &corev1.PodList{} }}
	Namespaces = &Kind{Version: "v1", Name: "Namespace", Resource: "namespaces", Singular: "namespace", Short: []string{"ns"},
		HasStatus: true,
		New:       func() Object { return &corev1.Namespace{} }, NewList: func() ListObject { return &corev1.NamespaceList{} }}
	Events = &Kind{Version: "v1", Name: "Event", Resource: "events", Singular: "event", Short: []string{"ev"},
		Namespaced: true,
		New:        func() Object { return &corev1.Event{} }, NewList: func() ListObject { return &corev1.EventList{} }}
	ConfigMaps = &Kind{Version: "v1", Name: "ConfigMap", Resource: "configmaps", Singular: "configmap", Short: []string{"cm"},
		Namespaced: true,
		New:        func() Object { return &corev1.ConfigMap{} }, NewList: func() ListObject { return &corev1.ConfigMapList{} }}
	Secrets = &Kind{Version: "v1", Name: "Secret", Resource: "secrets", Singular: "secret",
		Namespaced: true,
		New:        func() Object { return &corev1.Secret{} }, NewList: func() ListObject { return &corev1.SecretList{} }}
	Leases = &Kind{Group: "coordination.k8s.io", Version: "v1", Name: "Lease", Resource: "leases", Singular: "lease",
		Namespaced: true,
		New:        func() Object { return &coordinationv1.Lease{} }, NewList: func() ListObject { return &coordinationv1.LeaseList{} }}
	PriorityClasses = &Kind{Group: "scheduling.k8s.io", Version: "v1", Name: "PriorityClass", Resource: "priorityclasses",
		Singular: "priorityclass", Short: []string{"pc"},
		New:     func() Object { return &schedulingv1.PriorityClass{} },
		NewList: func() ListObject { return &schedulingv1.PriorityClassList{} }}
)

// The kinds that come in a group of their own, and those that the server alone writes.
var (
	PodTemplates = &Kind{Version: "v1", Name: "PodTemplate", Resource: "podtemplates", Singular: "podtemplate",
		Namespaced: true,
		New:        func() Object { return &corev1.PodTemplate{} }, NewList: func() ListObject { return &corev1.PodTemplateList{} }}
	// Services has one object, default/kubernetes: where this API is.
	Services = &Kind{Version: "v1", Name: "Service", Resource: "services", Singular: "service", Short: []string{"svc"},
		Categories: []string{"all"}, Namespaced: true, ServerOnly: true,
		New: func() Object { return &corev1.Service{} }, NewList: func() ListObject { return &corev1.ServiceList{} }}
	ServiceAccounts = &Kind{Version: "v1", Name: "ServiceAccount", Resource: "serviceaccounts", Singular: "serviceaccount", Short: []string{"sa"},
		Namespaced: true,
		New:        func() Object { return &corev1.ServiceAccount{} }, NewList: func() ListObject { return &corev1.ServiceAccountList{} }}
	RuntimeClasses = &Kind{Group: "node.k8s.io", Version: "v1", Name: "RuntimeClass", Resource: "runtimeclasses",
		Singular: "runtimeclass",
		New:      func() Object { return &nodev1.RuntimeClass{} },
		NewList:  func() ListObject { return &nodev1.RuntimeClassList{} }}
)

// Kinds lists every kind that has objects, in the order discovery shows them.
var Kinds = []*Kind{ConfigMaps, Events, Namespaces, Nodes, Pods, PodTemplates, ReplicationControllers, Secrets, ServiceAccounts, Services, Leases, RuntimeClasses,
	PodDisruptionBudgets, ClusterRoleBindings, ClusterRoles, RoleBindings, PriorityClasses}

// GVK is the kind's group, version and kind.
func (k *Kind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Name}
}

// GR is the kind's group and resource, as error details name it.
func (k *Kind) GR() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// APIVersion is "v1" for the core group, "group/version" otherwise.
func (k *Kind) APIVersion() string { return k.GVK().GroupVersion().String() }

func (k *Kind) String() string { return k.Resource }

// Stamp sets kind and apiVersion on an object or list item, which Go types leave empty.
func (k *Kind) Stamp(obj k8sruntime.Object) { obj.GetObjectKind().SetGroupVersionKind(k.GVK()) }

// KindOf finds the kind of an object by its Go type.
func KindOf(obj k8sruntime.Object) (*Kind, error) {
	switch obj.(type) {
	case *corev1.Node:
		return Nodes, nil
	case *corev1.Pod:
		return Pods, nil
	case *corev1.Namespace:
		return Namespaces, nil
	case *corev1.Event:
		return Events, nil
	case *corev1.ConfigMap:
		return ConfigMaps, nil
	case *corev1.Secret:
		return Secrets, nil
	case *corev1.ServiceAccount:
		return ServiceAccounts, nil
	case *coordinationv1.Lease:
		return Leases, nil
	case *schedulingv1.PriorityClass:
		return PriorityClasses, nil
	case *corev1.PodTemplate:
		return PodTemplates, nil
	case *corev1.ReplicationController:
		return ReplicationControllers, nil
	case *corev1.Service:
		return Services, nil
	case *nodev1.RuntimeClass:
		return RuntimeClasses, nil
	case *policyv1.PodDisruptionBudget:
		return PodDisruptionBudgets, nil
	case *rbacv1.ClusterRole:
		return ClusterRoles, nil
	case *rbacv1.ClusterRoleBinding:
		return ClusterRoleBindings, nil
	case *rbacv1.RoleBinding:
		return RoleBindings, nil
	}
	if k := viewOf(obj); k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("no kind for %T", obj)
}

// KindFor finds a kind by group, version and plural resource, also one that comes later; nil when there is none.
func KindFor(group, version, resource string) *Kind {
	for _, k := range slices.Concat(Kinds, Views, LaterKinds, AbsentKinds) {
		if k.Group == group && k.Version == version && k.Resource == resource {
			return k
		}
	}
	return nil
}

// KindByGVK finds a kind by group, version and kind name; nil when there is none.
func KindByGVK(gvk schema.GroupVersionKind) *Kind {
	for _, k := range Kinds {
		if k.GVK() == gvk {
			return k
		}
	}
	return nil
}

// KindByAnyName finds a kind by what a person types: plural, singular, short name or Kind.
func KindByAnyName(name string) *Kind {
	for _, k := range Kinds {
		if name == k.Resource || name == k.Singular || name == k.Name {
			return k
		}
		for _, s := range k.Short {
			if name == s {
				return k
			}
		}
	}
	return nil
}
