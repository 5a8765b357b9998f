package storage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
)

// IsFor says whether a volume is bound to a claim, or kept for it.
func IsFor(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	r := v.Spec.ClaimRef
	return r != nil && r.Namespace == c.Namespace && r.Name == c.Name && (r.UID == "" || r.UID == c.UID)
}

// IsBound says whether a claim has its volume for good.
func IsBound(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && c.Annotations[api.BindCompleted] != ""
}

// Mismatch is why a claim cannot have a volume that it names, in Kubernetes' words; "" is that it can.
func Mismatch(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	has, wants := v.Spec.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case has.Cmp(wants) < 0:
		return "requested PV is too small"
	case api.ClassOfVolume(v) != api.ClassOfClaim(c):
		return "storageClassName does not match"
	case modeOf(v.Spec.VolumeMode) != modeOf(c.Spec.VolumeMode):
		return "incompatible volumeMode"
	case !covers(v, c):
		return "incompatible accessMode"
	}
	return ""
}

// Reaches says whether a volume can be used on a node.
func Reaches(v *corev1.PersistentVolume, node *corev1.Node) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	return slices.ContainsFunc(v.Spec.NodeAffinity.Required.NodeSelectorTerms,
		func(t corev1.NodeSelectorTerm) bool { return api.MatchesTerm(&t, node) })
}

// Match is the volume that a claim should have of those that are there: the one that is kept for it, else the smallest that is large
// enough, and of those the first by name. With a node it has to be reached from there; without one, a claim that waits for its first pod
// gets what is kept for it only. taken are others' already.
func Match(c *corev1.PersistentVolumeClaim, all []*corev1.PersistentVolume, node *corev1.Node, waits bool,
	taken map[string]bool) (best *corev1.PersistentVolume) {
	selector := labels.Everything()
	if c.Spec.Selector != nil {
		s, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
		if err != nil {
			return nil
		}
		selector = s
	}
	wants := c.Spec.Resources.Requests[corev1.ResourceStorage]
	for _, v := range all {
		has := v.Spec.Capacity[corev1.ResourceStorage]
		mine := IsFor(v, c)
		switch {
		case v.Spec.ClaimRef != nil && !mine, taken[v.Name], v.DeletionTimestamp != nil, has.Cmp(wants) < 0,
			modeOf(v.Spec.VolumeMode) != modeOf(c.Spec.VolumeMode), node != nil && !Reaches(v, node):
			continue
		case mine:
			return v
		case node == nil && waits, v.Status.Phase != corev1.VolumeAvailable, !selector.Matches(labels.Set(v.Labels)),
			api.ClassOfVolume(v) != api.ClassOfClaim(c), !covers(v, c):
			continue
		}
		if best == nil {
			best = v
			continue
		}
		least := best.Spec.Capacity[corev1.ResourceStorage]
		if d := has.Cmp(least); d < 0 || d == 0 && v.Name < best.Name {
			best = v
		}
	}
	return best
}

// covers: a volume can be used in all the ways that a claim asks for.
func covers(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(c.Spec.AccessModes,
		func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) })
}

func modeOf(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// NoProvisioner is the provisioner of classes whose volumes somebody makes by hand.
const NoProvisioner = "kubernetes.io/no-provisioner"

// MayBeMadeFor says whether a class may have a volume made for a pod on a node.
func MayBeMadeFor(c *storagev1.StorageClass, node *corev1.Node) bool {
	if c.Provisioner == NoProvisioner {
		return false
	}
	if len(c.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(c.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		for _, r := range t.MatchLabelExpressions {
			if value, ok := node.Labels[r.Key]; !ok || !slices.Contains(r.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}
