package autoscaling

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// meant are the fields of autoscalers and of budgets that are honoured; those of a metric that are refused have "!" in front (TestRefused
// tries them).
var meant = map[reflect.Type][]string{
	reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerSpec](): {"scaleTargetRef.kind", "scaleTargetRef.name", "scaleTargetRef.apiVersion",
		"minReplicas", "maxReplicas", "metrics.type", "!metrics.object", "!metrics.pods", "!metrics.external", "metrics.resource.name",
		"metrics.resource.target.type", "!metrics.resource.target.value", "metrics.resource.target.averageValue",
		"metrics.resource.target.averageUtilization", "metrics.containerResource.name", "metrics.containerResource.container",
		"metrics.containerResource.target.type", "!metrics.containerResource.target.value", "metrics.containerResource.target.averageValue",
		"metrics.containerResource.target.averageUtilization",
		"behavior.scaleUp.stabilizationWindowSeconds", "behavior.scaleUp.selectPolicy", "behavior.scaleUp.policies.type",
		"behavior.scaleUp.policies.value", "behavior.scaleUp.policies.periodSeconds", "behavior.scaleUp.tolerance",
		"behavior.scaleDown.stabilizationWindowSeconds", "behavior.scaleDown.selectPolicy", "behavior.scaleDown.policies.type",
		"behavior.scaleDown.policies.value", "behavior.scaleDown.policies.periodSeconds", "behavior.scaleDown.tolerance"},
	reflect.TypeFor[policyv1.PodDisruptionBudgetSpec](): {"minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy"},
}

// TestEveryFieldIsAccountedFor: a field that Kubernetes adds is honoured or refused, and the author says which.
func TestEveryFieldIsAccountedFor(t *testing.T) {
	for spec, names := range meant {
		var has []string
		walk(spec, "", &has)
		for _, f := range has {
			if !slices.Contains(names, f) && !slices.ContainsFunc(names, func(n string) bool {
				n, no := strings.CutPrefix(n, "!")
				return no && (f == n || strings.HasPrefix(f, n+"."))
			}) {
				t.Errorf("%s.%s is neither honoured nor refused", spec.Name(), f)
			}
		}
		for _, n := range names {
			f := strings.TrimPrefix(n, "!")
			if !slices.ContainsFunc(has, func(h string) bool { return h == f || strings.HasPrefix(h, f+".") }) {
				t.Errorf("%s has no %s", spec.Name(), f)
			}
		}
	}
}

func walk(typ reflect.Type, at string, out *[]string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Slice {
			f.Type = f.Type.Elem()
		}
		whole := []reflect.Type{reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[intstr.IntOrString](),
			reflect.TypeFor[resource.Quantity]()}
		if f.Type.Kind() == reflect.Struct && !slices.Contains(whole, f.Type) {
			walk(f.Type, at+name+".", out)
		} else {
			*out = append(*out, at+name)
		}
	}
}
