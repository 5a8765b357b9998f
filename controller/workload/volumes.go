package workload

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// A pod of a StatefulSet finds under its name what the one before it left: a claim for each template, named by template, set and ordinal.
// The set makes them before the pod, and deletes none: it says whose they are, by its retention policy, and they go with their owner.

// ClaimStep is one write to a claim.
type ClaimStep struct {
	Do    string
	Claim *corev1.PersistentVolumeClaim // as it is to be
	For   string                        // the pod
}

// claimFor is the name of a pod's claim.
func claimFor(set *appsv1.StatefulSet, template string, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template, set.Name, ordinal)
}

// withClaims puts the claims of a pod among its volumes, in the place of others of their names.
func withClaims(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) {
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		p.Spec.Volumes = slices.DeleteFunc(slices.Clone(p.Spec.Volumes), func(v corev1.Volume) bool { return v.Name == name })
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimFor(set, name, ordinal)}}})
	}
}

// Attach adds to a course of a StatefulSet what its pods' claims need. A pod whose claim is still going has to wait.
func (c *Course) Attach(set *appsv1.StatefulSet, pods []*corev1.Pod, claim func(name string) *corev1.PersistentVolumeClaim) {
	if len(set.Spec.VolumeClaimTemplates) == 0 || set.DeletionTimestamp != nil {
		return
	}
	for _, p := range pods {
		if metav1.IsControlledBy(p, set) && p.Namespace == set.Namespace && Ordinal(set, p) >= 0 && !ended(p) {
			c.attach(set, p, p.Spec.NodeName == "", claim)
		}
	}
	c.Pods = slices.DeleteFunc(c.Pods, func(s PodStep) bool {
		if s.Do != Create || c.attach(set, s.Pod, true, claim) {
			return false
		}
		c.again(claimsDoubt)
		return true
	})
}

// claimsDoubt is how long a pod waits at most for a claim that is going: its end is heard of.
const claimsDoubt = 10e9

// attach says what the claims of one pod need, and whether none of them is going.
func (c *Course) attach(set *appsv1.StatefulSet, p *corev1.Pod, missing bool, claim func(name string) *corev1.PersistentVolumeClaim) bool {
	ordinal, whole := Ordinal(set, p), true
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		have := claim(claimFor(set, t.Name, ordinal))
		switch {
		case have == nil && missing && p.DeletionTimestamp == nil:
			next := t.DeepCopy()
			next.ObjectMeta = metav1.ObjectMeta{Namespace: set.Namespace, Name: claimFor(set, t.Name, ordinal),
				Annotations: maps.Clone(t.Annotations), Labels: maps.Clone(t.Labels)}
			if next.Labels == nil {
				next.Labels = map[string]string{}
			}
			if set.Spec.Selector != nil {
				maps.Copy(next.Labels, set.Spec.Selector.MatchLabels)
			}
			next.OwnerReferences = owners(next, set, p, ordinal)
			c.Claims = append(c.Claims, ClaimStep{Create, next, p.Name})
		case have == nil:
		case have.DeletionTimestamp != nil:
			whole = false
		default:
			if refs := owners(have, set, p, ordinal); !apiequality.Semantic.DeepEqual(refs, have.OwnerReferences) {
				next := have.DeepCopy()
				next.OwnerReferences = refs
				c.Claims = append(c.Claims, ClaimStep{Update, next, p.Name})
			}
		}
	}
	return whole
}

// owners are those of a claim, by the retention policy: with whom it goes. A claim that is somebody else's is left to them.
func owners(claim *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.Kind == "StatefulSet" && r.Name == set.Name || r.Kind == "Pod" && r.Name == p.Name
	})
	if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }) {
		return refs
	}
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return refs
	}
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	surplus := ordinal < start || ordinal >= start+int(wanted(set.Spec.Replicas))
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	switch {
	case surplus && policy.WhenScaled == remove:
		return append(refs, *metav1.NewControllerRef(p, api.Pods.GVK()))
	case policy.WhenDeleted == remove:
		return append(refs, *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	}
	return refs
}
