package local

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/storage"
)

// What the agent of a node may write about claims and volumes (N-13.1). It makes the volume of a claim that the scheduler gave to its node.
// It writes the size after an expansion, gives a claim back that its node cannot serve, and takes its finalizer off a volume that is
// being deleted.

// ownVolume lets a node make the volume that a claim waits for on it, and no other.
func ownVolume(tx *storage.Tx, node string, obj api.Object) error {
	v := obj.(*corev1.PersistentVolume)
	refuse := func(why string, args ...any) error { return forbidden(api.PersistentVolumes, v.Name, why, args...) }
	switch r := v.Spec.ClaimRef; {
	case api.NodeOfVolume(v) != node:
		return refuse("node %q can only create volumes with a node affinity to itself", node)
	case v.Annotations[api.ProvisionedBy] != api.CardProvisioner || !slices.Contains(v.Finalizers, api.CardFinalizer):
		return refuse("node %q can only create volumes that %s provisioned, with its finalizer", node, api.CardProvisioner)
	case v.Spec.Local == nil || r == nil:
		return refuse("node %q can only create local volumes for a claim", node)
	default:
		found, err := tx.Get(api.PersistentVolumeClaims, r.Namespace, r.Name)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return storeError(err, api.PersistentVolumeClaims, r.Namespace, r.Name)
		}
		claim, ok := found.(*corev1.PersistentVolumeClaim)
		if err != nil || !ok || claim.UID != r.UID || claim.Annotations[api.SelectedNode] != node || v.Name != api.VolumeFor(claim) ||
			v.Spec.StorageClassName != api.ClassOfClaim(claim) {
			return refuse("node %q can only create the volume of a claim that is selected for it", node)
		}
	}
	return nil
}

// ownVolumeUpdate: the size, and the finalizer of a volume that is going.
func ownVolumeUpdate(node string, obj, before api.Object, sub string) error {
	v, old := obj.(*corev1.PersistentVolume), before.(*corev1.PersistentVolume)
	refuse := func(why string) error { return forbidden(api.PersistentVolumes, v.Name, "node %q "+why, node) }
	if sub != "" || api.NodeOfVolume(old) != node || old.Annotations[api.ProvisionedBy] != api.CardProvisioner {
		return refuse("can only update volumes that it provisioned")
	}
	may := old.DeepCopy()
	may.Spec.Capacity, may.ManagedFields = v.Spec.Capacity, v.ManagedFields
	if old.DeletionTimestamp != nil {
		may.Finalizers = slices.DeleteFunc(may.Finalizers, func(f string) bool {
			return f == api.CardFinalizer && !slices.Contains(v.Finalizers, f)
		})
	}
	if !apiequality.Semantic.DeepEqual(may, v) {
		return refuse("can only update the capacity of a volume, and take its finalizer off one that is being deleted")
	}
	return nil
}

// ownClaimUpdate: what has become of a claim that is the node's own, and that it cannot be had there.
func ownClaimUpdate(node string, obj, before api.Object, sub string) error {
	c, old := obj.(*corev1.PersistentVolumeClaim), before.(*corev1.PersistentVolumeClaim)
	refuse := func(why string) error { return forbidden(api.PersistentVolumeClaims, c.Name, "node %q "+why, node) }
	if old.Annotations[api.SelectedNode] != node {
		return refuse("can only update claims that are selected for it")
	}
	may := old.DeepCopy()
	may.ManagedFields = c.ManagedFields
	switch {
	case sub == api.StatusSub:
		may.Status = c.Status
		may.Status.Phase, may.Status.AccessModes = old.Status.Phase, old.Status.AccessModes
		if old.Spec.VolumeName != api.VolumeFor(old) {
			may.Status.Capacity = old.Status.Capacity
		}
	case old.Spec.VolumeName == "":
		if _, still := c.Annotations[api.SelectedNode]; !still {
			delete(may.Annotations, api.SelectedNode)
		}
	}
	if !apiequality.Semantic.DeepEqual(may, c) {
		return refuse("can only update the size and conditions of a claim, and give back one that has no volume yet")
	}
	return nil
}
