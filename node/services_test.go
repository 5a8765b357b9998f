package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A container waits a little to hear of Services, and where nobody follows them it begins without.
func TestServicesOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := time.After(patience + time.Second)
		needs := specNeeds{a: &Agent{cfg: Config{Services: func(ctx context.Context, namespace string) ([]*corev1.Service, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-late:
				s := &corev1.Service{}
				s.Namespace = namespace
				return []*corev1.Service{s}, nil
			}
		}}}}
		if _, err := needs.Services(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "not yet been read") {
			t.Errorf("before anything was heard: %v", err)
		}
		if list, err := needs.Services(t.Context(), "shop"); err != nil || len(list) != 1 || list[0].Namespace != "shop" {
			t.Errorf("heard while this one waits: %v, %v", list, err)
		}
		if list, err := (specNeeds{a: &Agent{}}).Services(t.Context(), "shop"); err != nil || list != nil {
			t.Errorf("where nobody follows them: %v, %v", list, err)
		}
	})
}
