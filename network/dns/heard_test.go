package dns

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Whoever waits for what there is waits for both kinds, and not for long.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kinds, want := range []time.Duration{2 * time.Second, 2 * time.Second, 0} {
			z, err := NewZone("cluster.local", "here", netip.MustParseAddr("192.0.2.1"))
			if err != nil {
				t.Fatal(err)
			}
			services, slices := follower[*corev1.Service]{heard: z.heardServices}, follower[*discoveryv1.EndpointSlice]{heard: z.heardSlices}
			if kinds > 0 {
				services.told()
				services.told()
			}
			if kinds > 1 {
				slices.told()
			}
			began := time.Now()
			z.Heard(t.Context(), 2*time.Second)
			if took := time.Since(began); took != want {
				t.Errorf("with %d kinds known: waited %v, want %v", kinds, took, want)
			}
		}
	})
}
