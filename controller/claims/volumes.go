package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// volume settles one volume: its phase, and whether it may go.
func (w *world) volume(v *corev1.PersistentVolume) {
	if w.letGo(v) {
		return
	}
	r := v.Spec.ClaimRef
	if r == nil || r.UID == "" {
		w.volumePhase(v, corev1.VolumeAvailable, nil)
		return
	}
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	c := w.claims[key]
	switch {
	case c == nil || c.UID != r.UID:
		w.released(v, &Absent{Kind: api.PersistentVolumeClaims, Namespace: r.Namespace, Name: r.Name, UID: r.UID})
	case c.Spec.VolumeName == "" && v.DeletionTimestamp != nil: // its claim will have another one
		w.volumePhase(v, corev1.VolumeAvailable, nil)
	case c.Spec.VolumeName == "": // its claim has not looked at it yet
	case c.Spec.VolumeName == v.Name:
		w.volumePhase(v, corev1.VolumeBound, nil)
	case made(v): // the claim has another one by now
		w.released(v, nil)
	default:
		next := v.DeepCopy()
		if v.Annotations[api.BoundByController] != "" {
			next.Spec.ClaimRef = nil
			annotate(next, api.BoundByController, "")
		} else {
			next.Spec.ClaimRef.UID, next.Spec.ClaimRef.ResourceVersion = "", ""
		}
		w.do(Update, next, nil)
	}
}

// made says whether a volume was made for its claim and goes with it.
func made(v *corev1.PersistentVolume) bool {
	return v.Annotations[api.ProvisionedBy] != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// released settles a volume whose claim is gone.
func (w *world) released(v *corev1.PersistentVolume, unless *Absent) {
	switch {
	case v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed:
		w.volumePhase(v, corev1.VolumeReleased, unless)
	case v.DeletionTimestamp != nil || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
	case v.Annotations[api.ProvisionedBy] == api.CardProvisioner:
		w.do(Delete, v, unless)
	case v.Annotations[api.ProvisionedBy] == "" && v.Spec.CSI == nil && v.Status.Phase != corev1.VolumeFailed:
		next := v.DeepCopy()
		next.Status.Phase, next.Status.LastPhaseTransitionTime = corev1.VolumeFailed, &w.now
		next.Status.Message = "error getting deleter volume plugin for volume \"" + v.Name + "\": no deletable volume plugin matched"
		w.do(UpdateStatus, next, unless)
		w.tell(v, corev1.EventTypeWarning, "VolumeFailedDelete", "%s", next.Status.Message)
	}
}

func (w *world) volumePhase(v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, unless *Absent) {
	if v.Status.Phase == phase {
		return
	}
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message, next.Status.Reason, next.Status.LastPhaseTransitionTime = phase, "", "", &w.now
	w.do(UpdateStatus, next, unless)
}

// letGo takes the finalizers off a volume that is being deleted and that nothing holds. It says whether there was one to take off.
func (w *world) letGo(v *corev1.PersistentVolume) bool {
	if v.DeletionTimestamp == nil {
		return false
	}
	next := v.DeepCopy()
	var unless *Absent
	free := v.Status.Phase != corev1.VolumeBound
	if free {
		next.Finalizers = without(next.Finalizers, api.VolumeProtection)
	}
	node := api.NodeOfVolume(v)
	if slices.Contains(v.Finalizers, api.CardFinalizer) && node != "" && !w.nodes[node] && free {
		next.Finalizers = without(next.Finalizers, api.CardFinalizer) // its card is gone with its board
		unless = &Absent{Kind: api.Nodes, Name: node}
	}
	if len(next.Finalizers) == len(v.Finalizers) {
		return false
	}
	w.do(Update, next, unless)
	return true
}
