package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOwners(t *testing.T) {
	of := owners()
	for what, want := range map[string]string{
		"k8s.io/api/batch/v1.CronJobSpec":                   "batch CronJob",
		"k8s.io/api/batch/v1.JobStatus":                     "batch Job",
		"k8s.io/api/batch/v1.JobSpec":                       "batch, several kinds",
		"k8s.io/api/core/v1.PodSpec":                        "several groups",
		"k8s.io/api/core/v1.NodeStatus":                     "core Node",
		"k8s.io/api/autoscaling/v1.HorizontalPodAutoscaler": "autoscaling HorizontalPodAutoscaler v1",
		"k8s.io/api/scheduling/v1alpha3":                    "batch, several kinds", // JobSpec alone speaks of it
		"ledge/api/apps/deployment.go":                      "apps Deployment",
		"ledge/api/pod.go":                                  "core Pod",
	} {
		if of[what] != want {
			t.Errorf("%s is of %q, want %q", what, of[what], want)
		}
	}
	whose := slices.Collect(maps.Values(of))
	for room, kind := range rooms {
		if _, err := os.Stat(filepath.Join("..", "..", strings.TrimPrefix(room, "ledge/"))); err != nil || !slices.Contains(whose, kind) {
			t.Errorf("%s of %s: there is no such room, or no such kind (%v)", room, kind, err)
		}
	}
}

func TestTypeOf(t *testing.T) {
	for symbol, want := range map[string]string{
		"k8s.io/api/apps/v1.(*Deployment).DeepCopyInto":  "k8s.io/api/apps/v1.Deployment",
		"k8s.io/api/apps/v1.DeploymentSpec.String":       "k8s.io/api/apps/v1.DeploymentSpec",
		"k8s.io/api/apps/v1.(*Deployment).Size-fm":       "k8s.io/api/apps/v1.Deployment",
		"k8s.io/api/apps/v1.addKnownTypes":               "",
		"type:.eq.k8s.io/api/core/v1.EnvVar":             "",
		"k8s.io/api/apps/v1.init":                        "",
		"seccomp_load":                                   "",
		"gopkg.in/inf%2ev0.(*Dec).Add":                   "gopkg.in/inf.v0.Dec",
		"ledge/api.Define[go.shape.*ledge/api/policy.X]": "",
	} {
		if got := typeOf(symbol); got != want {
			t.Errorf("%s is of %q, want %q", symbol, got, want)
		}
	}
}
