package api

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// TestVersionOf: clients can read it, and it orders as the release of Kubernetes does.
func TestVersionOf(t *testing.T) {
	for own, want := range map[string]string{
		"v0.0.0-dev":             Kubernetes + "+ledge.0.0.0-dev",
		"v1.2.3":                 Kubernetes + "+ledge.1.2.3",
		"v1.2.3-4-g0a1b2c-dirty": Kubernetes + "+ledge.1.2.3-4-g0a1b2c-dirty",
	} {
		got := VersionOf(own)
		if got != want {
			t.Errorf("%s is %s, want %s", own, got, want)
		}
		v, err := version.ParseSemantic(got)
		if err != nil || !v.EqualTo(version.MustParseSemantic(Kubernetes)) {
			t.Errorf("%s: %v %v", got, v, err)
		}
	}
}
