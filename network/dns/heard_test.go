package dns

import (
	"testing"
	"testing/synctest"
	"time"

	"ledge/network/service"
)

// Whoever waits for what there is waits for both kinds, and not for long.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t)
		for kinds, want := range []time.Duration{2 * time.Second, 2 * time.Second, 0} {
			for what := range kinds {
				z.heard.Told(what)
				z.heard.Told(what)
			}
			began := time.Now()
			z.Heard(t.Context(), 2*time.Second)
			if took := time.Since(began); took != want || z.heard.Whole() != (kinds > service.OfSlices) {
				t.Errorf("with %d kinds known: waited %v, want %v", kinds, took, want)
			}
		}
	})
}
