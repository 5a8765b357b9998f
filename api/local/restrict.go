package local

import (
	"context"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/storage"
)

const (
	nodeUserPrefix = "system:node:"
	nodeGroup      = "system:nodes"
)

// nodeIdentity is the node that asks, if it is a node that asks (N-1.36). Its agent may touch what belongs to
// it and nothing else, so that one stolen board is one lost board.
func nodeIdentity(ctx context.Context) (node string, ok bool) {
	u, ok := api.UserFrom(ctx)
	if !ok || !slices.Contains(u.Groups, nodeGroup) {
		return "", false
	}
	name, ok := strings.CutPrefix(u.Name, nodeUserPrefix)
	if !ok {
		return "", true // in the group without a name: a node that owns nothing
	}
	return name, true
}

// restrictCreate is N-1.36, N-1.37, N-1.39 and N-1.40.
func restrictCreate(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	switch o := obj.(type) {
	case *corev1.Node:
		if err := ownNode(node, o.Name); err != nil {
			return err
		}
		if err := ownNetwork(node, o, &corev1.Node{}); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
			if !nodeMaySet(key) {
				return forbidden(kind, o.Name, "node %q is not allowed to set the following labels: %s", node, key)
			}
		}
		return nil
	case *coordinationv1.Lease:
		return ownLease(node, o)
	case *corev1.Pod:
		return ownMirror(tx, node, o)
	case *corev1.Event:
		return ownEvent(node, o)
	}
	return forbidden(kind, obj.GetName(), "node %q is not allowed to modify %s", node, kind)
}

// ownEvent lets a node say what it says in its own name, and leaves what others have said as it is.
func ownEvent(node string, e *corev1.Event) error {
	if e.Source.Host == node || e.ReportingInstance == node {
		return nil
	}
	return forbidden(api.Events, e.Name, "node %q can only write events with source.host or reportingInstance set to itself", node)
}

func ownNode(node, name string) error {
	if node == name {
		return nil
	}
	return forbidden(api.Nodes, name, "node %q is not allowed to modify node %q", node, name)
}

// ownNetwork refuses a node that says itself where its pods are: others would send it what is for another board's pods.
func ownNetwork(node string, n, old *corev1.Node) error {
	if n.Spec.PodCIDR == old.Spec.PodCIDR && slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		return nil
	}
	return forbidden(api.Nodes, n.Name, "node %q is not allowed to set its pod network: the control plane gives it (--allocate-node-cidrs)", node)
}

func ownLease(node string, l *coordinationv1.Lease) error {
	if l.Namespace != corev1.NamespaceNodeLease {
		return forbidden(api.Leases, l.Name, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if l.Name != node {
		return forbidden(api.Leases, l.Name, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

// ownMirror lets a node show its static pods, and create no other.
func ownMirror(tx *storage.Tx, node string, p *corev1.Pod) error {
	refuse := func(why string, args ...any) error { return forbidden(api.Pods, p.Name, why, args...) }
	if !api.IsMirror(p) {
		return refuse("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if p.Spec.NodeName != node {
		return refuse("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(p.OwnerReferences) != 1 {
		return refuse("node %q can only create pods with a single owner reference set to itself", node)
	}
	owner := p.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return refuse("node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return refuse("node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return refuse("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	found, err := tx.Get(api.Nodes, "", node)
	if err != nil || found.GetUID() != owner.UID {
		return refuse("node %q is not known under the UID %s", node, owner.UID)
	}
	if p.Spec.ServiceAccountName != "" {
		return refuse("node %q can not create pods that reference a service account", node)
	}
	// A node may read what its pods name: it must not name anything itself.
	switch configMaps, secrets := api.References(p); {
	case len(secrets) > 0:
		return refuse("node %q can not create pods that reference secrets", node)
	case len(configMaps) > 0:
		return refuse("node %q can not create pods that reference configmaps", node)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil {
			return refuse("node %q can not create pods that reference persistentvolumeclaims", node)
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return refuse("node %q can not create pods that reference a service account", node)
		}
	}
	return nil
}

// restrictUpdate is N-1.36, N-1.38, N-1.39 and N-1.40.
func restrictUpdate(ctx context.Context, kind *api.Kind, obj, old api.Object, sub string) error {
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	switch o := obj.(type) {
	case *corev1.Node:
		return ownNodeUpdate(node, o, old.(*corev1.Node))
	case *coordinationv1.Lease:
		return ownLease(node, o)
	case *corev1.Pod:
		if sub != subStatus {
			return forbidden(kind, o.Name, "node %q is not allowed to modify pods beside their status", node)
		}
		if old.(*corev1.Pod).Spec.NodeName != node {
			return forbidden(kind, o.Name, "node %q can only update pod status for pods with spec.nodeName set to itself", node)
		}
		if !maps.Equal(o.Labels, old.GetLabels()) {
			return forbidden(kind, o.Name, "node %q cannot update labels through pod status", node)
		}
		return nil
	case *corev1.Event:
		if err := ownEvent(node, old.(*corev1.Event)); err != nil {
			return err
		}
		return ownEvent(node, o)
	}
	return forbidden(kind, obj.GetName(), "node %q is not allowed to modify %s", node, kind)
}

func ownNodeUpdate(node string, n, old *corev1.Node) error {
	if err := ownNode(node, n.Name); err != nil {
		return err
	}
	if err := ownNetwork(node, n, old); err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(n.Spec.Taints, old.Spec.Taints) {
		return forbidden(api.Nodes, n.Name, "node %q is not allowed to modify taints", node)
	}
	if !apiequality.Semantic.DeepEqual(n.OwnerReferences, old.OwnerReferences) {
		return forbidden(api.Nodes, n.Name, "node %q is not allowed to modify ownerReferences", node)
	}
	keys := slices.Collect(maps.Keys(n.Labels))
	for k := range old.Labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		now, is := n.Labels[k]
		before, was := old.Labels[k]
		if (is != was || now != before) && !nodeMaySet(k) {
			return forbidden(api.Nodes, n.Name, "is not allowed to modify labels: %s", k)
		}
	}
	return nil
}

// restrictDelete is N-1.36, N-1.39 and N-1.40, for eviction too.
func restrictDelete(ctx context.Context, kind *api.Kind, obj api.Object) error {
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	switch o := obj.(type) {
	case *corev1.Node:
		return ownNode(node, o.Name)
	case *coordinationv1.Lease:
		return ownLease(node, o)
	case *corev1.Pod:
		if o.Spec.NodeName != node {
			return forbidden(kind, o.Name, "node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return forbidden(kind, obj.GetName(), "node %q is not allowed to delete %s", node, kind)
}

func restrictBind(ctx context.Context, p *corev1.Pod) error {
	if node, ok := nodeIdentity(ctx); ok {
		return forbidden(api.Pods, p.Name, "node %q is not allowed to bind pods", node)
	}
	return nil
}

// ownLabels are the reserved labels that an agent sets on its Node (N-1.24).
var ownLabels = map[string]bool{
	corev1.LabelHostname: true, corev1.LabelTopologyZone: true, corev1.LabelTopologyRegion: true,
	corev1.LabelFailureDomainBetaZone: true, corev1.LabelFailureDomainBetaRegion: true,
	corev1.LabelInstanceType: true, corev1.LabelInstanceTypeStable: true,
	corev1.LabelOSStable: true, corev1.LabelArchStable: true,
	"beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
}

// nodeMaySet says whether an agent may set a label on its own Node (N-1.37): none that says where trusted
// work may run.
func nodeMaySet(key string) bool {
	if ownLabels[key] {
		return true
	}
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	in := func(root string) bool { return domain == root || strings.HasSuffix(domain, "."+root) }
	if in("kubelet.kubernetes.io") || in("node.kubernetes.io") {
		return true
	}
	return !in("kubernetes.io") && !in("k8s.io") // node-restriction.kubernetes.io is one of these
}
