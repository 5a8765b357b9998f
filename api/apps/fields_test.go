package apps

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// meant are the fields of specs that are honoured; templates are accounted for in package api.
var meant = map[reflect.Type][]string{
	reflect.TypeFor[appsv1.DeploymentSpec](): {"replicas", "selector", "strategy.type", "strategy.rollingUpdate.maxUnavailable",
		"strategy.rollingUpdate.maxSurge",
		"minReadySeconds", "revisionHistoryLimit", "paused", "progressDeadlineSeconds"},
	reflect.TypeFor[appsv1.ReplicaSetSpec](): {"replicas", "minReadySeconds", "selector"},
	reflect.TypeFor[appsv1.StatefulSetSpec](): {"replicas", "selector", "serviceName", "podManagementPolicy", "updateStrategy.type",
		"updateStrategy.rollingUpdate.partition",
		"updateStrategy.rollingUpdate.maxUnavailable", "revisionHistoryLimit", "minReadySeconds",
		"persistentVolumeClaimRetentionPolicy.whenDeleted",
		"persistentVolumeClaimRetentionPolicy.whenScaled", "ordinals.start", "volumeClaimTemplates"},
	reflect.TypeFor[appsv1.DaemonSetSpec](): {"selector", "updateStrategy.type", "updateStrategy.rollingUpdate.maxUnavailable",
		"updateStrategy.rollingUpdate.maxSurge",
		"minReadySeconds", "revisionHistoryLimit"},
}

// refused are those that are not, yet.
var refused []string

// TestEveryFieldIsAccountedFor: a field that Kubernetes adds is honoured or refused, and the author says which.
func TestEveryFieldIsAccountedFor(t *testing.T) {
	for spec, names := range meant {
		var has []string
		walk(spec, "", &has)
		for _, f := range has {
			if !slices.Contains(names, f) && !slices.Contains(refused, f) {
				t.Errorf("%s.%s is neither honoured nor refused", spec.Name(), f)
			}
		}
		for _, f := range names {
			if !slices.Contains(has, f) {
				t.Errorf("%s has no %s", spec.Name(), f)
			}
		}
	}
}

func walk(typ reflect.Type, at string, out *[]string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for f.Type.Kind() == reflect.Pointer {
			f.Type = f.Type.Elem()
		}
		switch {
		case f.Type == reflect.TypeFor[corev1.PodTemplateSpec]():
		case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[metav1.LabelSelector]() &&
			f.Type != reflect.TypeFor[intstr.IntOrString]():
			walk(f.Type, at+name+".", out)
		default:
			*out = append(*out, at+name)
		}
	}
}

// TestLastOrdinal: ordinals are numbers of 32 bits, as they are on Kubernetes.
func TestLastOrdinal(t *testing.T) {
	s := &appsv1.StatefulSetSpec{Ordinals: &appsv1.StatefulSetOrdinals{Start: 2147483646}}
	at := func(errs field.ErrorList) bool {
		return slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == "spec.ordinals.start" })
	}
	for n, bad := range map[int32]bool{0: false, 1: false, 2: true, 2147483647: true} {
		s.Replicas = &n
		if at(validateStatefulSet(s)) != bad {
			t.Errorf("%d pods: %v", n, validateStatefulSet(s))
		}
	}
}
