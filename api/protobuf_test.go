package api_test

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
)

func TestProtobuf(t *testing.T) {
	holder, seconds, at := "n", int32(40), metav1.NewMicroTime(time.Date(2030, 1, 2, 3, 4, 5, 678901000, time.UTC))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n", UID: "u", ResourceVersion: "7",
		CreationTimestamp: metav1.NewTime(at.Truncate(time.Second)),
		OwnerReferences:   []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: "x"}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at}}
	data, err := api.ToProtobuf(coordination.Leases, lease)
	if err != nil {
		t.Fatal(err)
	}
	got, err := api.FromProtobuf(coordination.Leases, data)
	coordination.Leases.Stamp(lease)
	if err != nil || !equality.Semantic.DeepEqual(got, lease) {
		t.Errorf("there and back: %+v, %v", got, err)
	}
	for what, bad := range map[string][]byte{"protobuf mark": []byte(`{"kind":"Lease"}`), "envelope": data[:9],
		"unexpected EOF": data[:len(data)-20]} {
		if _, err := api.FromProtobuf(coordination.Leases, bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	pod, err := api.ToProtobuf(api.Pods, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.FromProtobuf(coordination.Leases, pod); err == nil ||
		!strings.Contains(err.Error(), "a Lease of coordination.k8s.io/v1 was expected") {
		t.Errorf("a pod for a lease: %v", err)
	}
}
