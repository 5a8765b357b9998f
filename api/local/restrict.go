package local

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/networking"
	"ledge/storage"
)

// nodeIdentity is the name of the node whose agent makes this request (N-1.36). An agent may touch what belongs to its node
// and nothing else, so that a thief of one board gets one board.
func nodeIdentity(ctx context.Context) (node string, ok bool) {
	u, ok := api.UserFrom(ctx)
	if !ok || !slices.Contains(u.Groups, api.NodesGroup) {
		return "", false
	}
	name, ok := strings.CutPrefix(u.Name, api.NodeUserPrefix)
	if !ok {
		return "", true // in the group without a name: a node that owns nothing
	}
	return name, true
}

// right has a function for each verb that the agent of a node may use on objects of one kind; nil: not that verb.
type right struct {
	create func(tx *storage.Tx, node string, obj api.Object) error
	update func(node string, obj, old api.Object, sub string) error
	delete func(node string, obj api.Object) error
}

// nodeRights are N-1.36 to N-1.40.
func nodeRights(kind *api.Kind) right {
	switch kind {
	case api.Nodes:
		return right{ownNodeCreate, ownNodeUpdate, func(node string, obj api.Object) error { return ownNode(node, obj.GetName()) }}
	case coordination.Leases:
		return right{
			func(_ *storage.Tx, node string, obj api.Object) error { return ownLease(node, obj) },
			func(node string, obj, _ api.Object, _ string) error { return ownLease(node, obj) },
			ownLease}
	case api.Pods:
		return right{ownMirror, ownPodUpdate, ownPodDelete}
	case api.Events:
		return right{
			func(_ *storage.Tx, node string, obj api.Object) error { return ownEvent(node, obj) },
			func(node string, obj, old api.Object, _ string) error {
				return cmp.Or(ownEvent(node, old), ownEvent(node, obj))
			},
			nil}
	case api.PersistentVolumes:
		return right{ownVolume, ownVolumeUpdate, nil}
	case api.PersistentVolumeClaims:
		return right{nil, ownClaimUpdate, nil}
	}
	return right{}
}

func notNodes(kind *api.Kind, obj api.Object, node, verb string) error {
	return forbidden(kind, obj.GetName(), "node %q is not allowed to %s %s", node, verb, kind)
}

// aboutIngress holds the pods that take requests in, and face strangers, to events about Ingresses.
func aboutIngress(ctx context.Context, kind *api.Kind, objs ...api.Object) error {
	u, ok := api.UserFrom(ctx)
	if !ok || kind != api.Events || u.Name != api.AccountUser(metav1.NamespaceSystem, networking.Pods).Name {
		return nil
	}
	for _, o := range objs {
		if e := o.(*corev1.Event); e.InvolvedObject.Kind != networking.Ingresses.Name {
			return forbidden(kind, e.Name, "the ingress pods can only write events about ingresses")
		}
	}
	return nil
}

func restrictCreate(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if err := aboutIngress(ctx, kind, obj); err != nil {
		return err
	}
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	if may := nodeRights(kind).create; may != nil {
		return may(tx, node, obj)
	}
	return notNodes(kind, obj, node, "modify")
}

func ownNodeCreate(_ *storage.Tx, node string, obj api.Object) error {
	if err := ownNode(node, obj.GetName()); err != nil {
		return err
	}
	if err := ownNetwork(node, obj.(*corev1.Node), &corev1.Node{}); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(obj.GetLabels())) {
		if !nodeMaySet(key) {
			return forbidden(api.Nodes, obj.GetName(), "node %q is not allowed to set the following labels: %s", node, key)
		}
	}
	return nil
}

// ownEvent lets a node write events that name it as their source, and change no others.
func ownEvent(node string, obj api.Object) error {
	e := obj.(*corev1.Event)
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

// ownNetwork refuses an agent that changes the pod network of its Node. It could name the network of another board, and get the packets
// for that board's pods.
func ownNetwork(node string, n, old *corev1.Node) error {
	if n.Spec.PodCIDR == old.Spec.PodCIDR && slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		return nil
	}
	return forbidden(api.Nodes, n.Name, "node %q is not allowed to set its pod network: the control plane gives it (--allocate-node-cidrs)",
		node)
}

func ownLease(node string, l api.Object) error {
	if l.GetNamespace() != corev1.NamespaceNodeLease {
		return forbidden(coordination.Leases, l.GetName(), "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if l.GetName() != node {
		return forbidden(coordination.Leases, l.GetName(), "can only access node lease with the same name as the requesting node")
	}
	return nil
}

// ownMirror lets a node show its static pods, and create no other.
func ownMirror(tx *storage.Tx, node string, obj api.Object) error {
	p := obj.(*corev1.Pod)
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
		if api.ClaimName(p, v) != "" {
			return refuse("node %q can not create pods that reference persistentvolumeclaims", node)
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
			func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return refuse("node %q can not create pods that reference a service account", node)
		}
	}
	return nil
}

func restrictUpdate(ctx context.Context, kind *api.Kind, obj, old api.Object, sub string) error {
	if err := aboutIngress(ctx, kind, obj, old); err != nil {
		return err
	}
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	if may := nodeRights(kind).update; may != nil {
		return may(node, obj, old, sub)
	}
	return notNodes(kind, obj, node, "modify")
}

func ownPodUpdate(node string, obj, old api.Object, sub string) error {
	refuse := func(why string) error { return forbidden(api.Pods, obj.GetName(), "node %q "+why, node) }
	switch {
	case sub != api.StatusSub:
		return refuse("is not allowed to modify pods beside their status")
	case old.(*corev1.Pod).Spec.NodeName != node:
		return refuse("can only update pod status for pods with spec.nodeName set to itself")
	case !maps.Equal(obj.GetLabels(), old.GetLabels()):
		return refuse("cannot update labels through pod status")
	}
	return nil
}

func ownNodeUpdate(node string, obj, before api.Object, _ string) error {
	n, old := obj.(*corev1.Node), before.(*corev1.Node)
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
		back := k == corev1.LabelNodeExcludeBalancers && was && !is // into traffic, with the keys that this takes
		if (is != was || now != before) && !nodeMaySet(k) || back {
			return forbidden(api.Nodes, n.Name, "is not allowed to modify labels: %s", k)
		}
	}
	return nil
}

// restrictDelete is for eviction too.
func restrictDelete(ctx context.Context, kind *api.Kind, obj api.Object) error {
	node, ok := nodeIdentity(ctx)
	if !ok {
		return nil
	}
	if may := nodeRights(kind).delete; may != nil {
		return may(node, obj)
	}
	return notNodes(kind, obj, node, "delete")
}

func ownPodDelete(node string, obj api.Object) error {
	if obj.(*corev1.Pod).Spec.NodeName != node {
		return forbidden(api.Pods, obj.GetName(), "node %q can only delete pods with spec.nodeName set to itself", node)
	}
	return nil
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

// nodeMaySet says whether an agent may set a label on its own Node (N-1.37). It may not set labels by which people choose
// the boards for trusted work.
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
