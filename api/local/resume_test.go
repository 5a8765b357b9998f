package local_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/storage"
)

// Bare pods that a power-off stopped come back, others do not (architecture: Bare pods come back).
func TestResume(t *testing.T) {
	s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := local.New(local.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u", Controller: &yes}}
	messages := map[string]string{"Terminated": "Pod was terminated in response to imminent node shutdown.",
		"Shutdown": "Node is shutting, evicting pods", "Evicted": "Pod was terminated in response to imminent node shutdown."}
	uids := map[string]string{}
	for name, tc := range map[string]struct {
		node, reason string
		policy       corev1.RestartPolicy
		owner        []metav1.OwnerReference
	}{
		"always":    {"n", "Terminated", corev1.RestartPolicyAlways, nil},
		"onfailure": {"n", "Terminated", corev1.RestartPolicyOnFailure, nil},
		"as-1.21":   {"n", "Shutdown", corev1.RestartPolicyAlways, nil}, // N-5.37
		"never":     {"n", "Terminated", corev1.RestartPolicyNever, nil},
		"owned":     {"n", "Terminated", corev1.RestartPolicyAlways, owner},
		"elsewhere": {"m", "Terminated", corev1.RestartPolicyAlways, nil},
		"evicted":   {"n", "Evicted", corev1.RestartPolicyAlways, nil},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"a": "b"},
			OwnerReferences: tc.owner}}
		p.Spec.NodeName, p.Spec.RestartPolicy = tc.node, tc.policy
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		if p, err = api.Create(t.Context(), c, api.Pods, p); err != nil {
			t.Fatal(err)
		}
		uids[name] = string(p.UID)
		p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.PodIP = corev1.PodFailed, tc.reason, messages[tc.reason], "10.0.0.1"
		if _, err := api.UpdateStatus(t.Context(), c, api.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	for round, want := range []int{3, 0} {
		if n, err := c.Resume("n"); err != nil || n != want {
			t.Fatalf("round %d: %d resumed, %v", round, n, err)
		}
	}
	for name, uid := range uids {
		p, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		again := name == "always" || name == "onfailure" || name == "as-1.21"
		if (string(p.UID) != uid) != again || (p.Status.Phase == corev1.PodPending) != again {
			t.Errorf("%s: uid %s was %s, phase %s", name, p.UID, uid, p.Status.Phase)
		}
		if again && (p.Status.PodIP != "" || p.Spec.NodeName != "n" || p.Labels["a"] != "b" || p.Status.QOSClass == "") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
