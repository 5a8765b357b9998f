package local

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	apistorage "ledge/api/storage"
	"ledge/storage"
)

// admitClaim gives a claim the default class where it names none, and has it stay as long as a pod uses it (N-13.8).
func admitClaim(_ *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	c := a.obj.(*corev1.PersistentVolumeClaim)
	if !slices.Contains(c.Finalizers, api.ClaimProtection) {
		c.Finalizers = append(c.Finalizers, api.ClaimProtection)
	}
	if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; named || c.Spec.StorageClassName != nil {
		return nil
	}
	objs, err := list(tx, apistorage.StorageClasses, "")
	if err != nil {
		return err
	}
	all := make([]*storagev1.StorageClass, len(objs))
	for i, o := range objs {
		all[i] = o.(*storagev1.StorageClass)
	}
	if class := apistorage.Default(all); class != nil {
		c.Spec.StorageClassName = &class.Name
	}
	return nil
}

// admitGrowth refuses to have a claim grow that cannot (N-13.9).
func admitGrowth(_ *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	c, old := a.obj.(*corev1.PersistentVolumeClaim), a.old.(*corev1.PersistentVolumeClaim)
	wants, had := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if a.sub != "" || wants.Cmp(had) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return forbidden(api.PersistentVolumeClaims, c.Name, "Only bound persistent volume claims can be expanded")
	}
	if name := api.ClassOfClaim(c); name != "" {
		found, err := tx.Get(apistorage.StorageClasses, "", name)
		switch {
		case err == nil && apistorage.Grows(found.(*storagev1.StorageClass)):
			return nil
		case err != nil && !errors.Is(err, storage.ErrNotFound):
			return storeError(err, apistorage.StorageClasses, "", name)
		}
	}
	return forbidden(api.PersistentVolumeClaims, c.Name,
		"only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}

// admitVolume has a volume stay as long as a claim is bound to it.
func admitVolume(in *inTx, _ context.Context, _ *storage.Tx, a admission) error {
	v, now := a.obj.(*corev1.PersistentVolume), in.now()
	if !slices.Contains(v.Finalizers, api.VolumeProtection) {
		v.Finalizers = append(v.Finalizers, api.VolumeProtection)
	}
	v.Status.LastPhaseTransitionTime = &now
	return nil
}

// timePhase notes when the phase of a volume became another one, where the writer does not.
func timePhase(in *inTx, _ context.Context, _ *storage.Tx, a admission) error {
	v, old := &a.obj.(*corev1.PersistentVolume).Status, &a.old.(*corev1.PersistentVolume).Status
	switch at := v.LastPhaseTransitionTime; {
	case a.sub != api.StatusSub:
	case v.Phase == old.Phase && at == nil:
		v.LastPhaseTransitionTime = old.LastPhaseTransitionTime
	case v.Phase != old.Phase && (at == nil || at.Equal(old.LastPhaseTransitionTime)):
		now := in.now()
		v.LastPhaseTransitionTime = &now
	}
	return nil
}

// classMade is an annotation of the namespace kube-system: the class of the boards' cards was made once. If somebody deletes the class
// after that, it stays deleted.
const classMade = "ledge.local/class-made"

// ensureClass makes the class of the boards' cards once for each store: when it is new, or when it first meets a version that knows
// claims. It says whether it has to, and writes only where it is told to.
func ensureClass(in *inTx, tx *storage.Tx, write bool) (lacks bool, err error) {
	if !slices.Contains(in.store.Kinds().Kept, apistorage.StorageClasses) {
		return false, nil
	}
	found, err := tx.Get(api.Namespaces, "", metav1.NamespaceSystem)
	if err != nil {
		return false, storeError(err, api.Namespaces, "", metav1.NamespaceSystem)
	}
	if found.GetAnnotations()[classMade] != "" {
		return false, nil
	}
	if !write {
		return true, nil
	}
	class := apistorage.Card()
	if _, err := tx.Get(apistorage.StorageClasses, "", class.Name); errors.Is(err, storage.ErrNotFound) {
		if err := in.makeSystem(tx, class); err != nil {
			return true, err
		}
	} else if err != nil {
		return true, storeError(err, apistorage.StorageClasses, "", class.Name)
	}
	ns := clone(found)
	metav1.SetMetaDataAnnotation(&ns.(*corev1.Namespace).ObjectMeta, classMade, class.Name)
	return true, put(tx, api.Namespaces, ns, false)
}
