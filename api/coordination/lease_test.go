package coordination

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/valid"
)

func ptr[T any](v T) *T { return &v }

func TestLease(t *testing.T) {
	for text, edit := range map[string]func(*coordinationv1.LeaseSpec){
		"spec.leaseDurationSeconds":                               func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr(int32(0)) },
		"spec.leaseTransitions":                                   func(s *coordinationv1.LeaseSpec) { s.LeaseTransitions = ptr(int32(-1)) },
		`spec.preferredHolder: Forbidden: "x" is ` + valid.NotYet: func(s *coordinationv1.LeaseSpec) { s.PreferredHolder = ptr("x") },
		"": func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr("n") },
	} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
		edit(&l.Spec)
		err := Leases.Validate(l)
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
