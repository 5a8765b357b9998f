package workload

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// N-12.14: the claims of a StatefulSet's pods are made before them, found again by name, and go with whom the retention policy says.
func TestAttach(t *testing.T) {
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web", UID: "set"}}
	two := int32(2)
	set.Spec.Replicas, set.Spec.Selector = &two, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data",
		Labels: map[string]string{"a": "b"}}}}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "pod",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}},
			Spec: corev1.PodSpec{NodeName: "x"}}
	}
	fresh := pod("web-0")
	fresh.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "other"}}
	withClaims(set, fresh, 0)
	if v := fresh.Spec.Volumes; len(v) != 2 || v[0].Name != "other" || v[1].PersistentVolumeClaim.ClaimName != "data-web-0" {
		t.Errorf("volumes %+v", v)
	}
	for what, test := range map[string]struct {
		scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType
		ordinal         string
		want            string // the kind of who has it
	}{
		"kept":                {retain, retain, "0", ""},
		"with the set":        {retain, remove, "0", "StatefulSet"},
		"with the set, above": {retain, remove, "5", "StatefulSet"},
		"with the pod":        {remove, retain, "5", "Pod"},
		"not with the pod":    {remove, retain, "1", ""},
		"either":              {remove, remove, "1", "StatefulSet"},
		"either, above":       {remove, remove, "5", "Pod"},
	} {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: test.scaled, WhenDeleted: test.deleted}
		p := pod("web-" + test.ordinal)
		have := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "data-" + p.Name}}
		find := func(string) *corev1.PersistentVolumeClaim { return have }
		owner := func() string {
			for range 2 {
				c := &Course{}
				c.Attach(set, []*corev1.Pod{p}, find)
				for _, s := range c.Claims {
					have = s.Claim
				}
				if len(c.Claims) == 0 {
					break
				}
			}
			if len(have.OwnerReferences) == 0 {
				return ""
			}
			return have.OwnerReferences[0].Kind
		}
		if got := owner(); got != test.want || len(have.OwnerReferences) > 1 {
			t.Errorf("%s: it goes with %q, want %q", what, got, test.want)
		}
	}

	c := &Course{Pods: []PodStep{{Do: Create, Pod: fresh, Place: fresh.Name}}}
	c.Attach(set, nil, func(string) *corev1.PersistentVolumeClaim { return nil })
	if len(c.Pods) != 1 || len(c.Claims) != 1 || c.Claims[0].Do != Create || c.Claims[0].Claim.Name != "data-web-0" ||
		c.Claims[0].Claim.Labels["app"] != "web" || c.Claims[0].Claim.Labels["a"] != "b" {
		t.Errorf("a new pod: %+v", c)
	}
	going := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	c = &Course{Pods: []PodStep{{Do: Create, Pod: fresh, Place: fresh.Name}}}
	c.Attach(set, nil, func(string) *corev1.PersistentVolumeClaim { return going })
	if len(c.Pods) != 0 || c.Again == 0 {
		t.Errorf("its claim is going: %+v", c)
	}
	theirs := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}, corev1.SchemeGroupVersion.WithKind("Pod"))}}}
	if refs := owners(theirs, set, pod("web-0"), 0); !slices.EqualFunc(refs, theirs.OwnerReferences,
		func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		t.Errorf("somebody else's: %v", refs)
	}
}
