package apps

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func validDeployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
	defaultDeployment(d)
	return d
}

// What somebody wrote is not replaced by a default.
func TestDefaults(t *testing.T) {
	two, none := intstr.FromInt32(2), int32(0)
	d := validDeployment()
	d.Spec.Replicas, d.Spec.RevisionHistoryLimit = &none, &none
	d.Spec.Strategy = appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &two}}
	defaultDeployment(d)
	s := d.Spec
	if *s.Replicas != 0 || *s.RevisionHistoryLimit != 0 || s.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType ||
		s.Strategy.RollingUpdate.MaxSurge.String() != "2" || s.Strategy.RollingUpdate.MaxUnavailable.String() != "25%" {
		t.Errorf("%+v", s)
	}
	if errs := validateDeployment(&s); len(errs) > 0 {
		t.Error(errs)
	}
	odd := validDeployment()
	odd.Spec.Strategy.RollingUpdate.MaxSurge = nil // somebody has gone round the defaults
	if errs := validateDeployment(&odd.Spec); len(errs) != 1 || errs[0].Field != "spec.strategy.rollingUpdate" {
		t.Error(errs)
	}
}

// TestWarnings: a name that is no DNS label, and what the template will not get as it is written.
func TestWarnings(t *testing.T) {
	d := validDeployment()
	if w := Deployments.Warnings(d); len(w) > 0 {
		t.Errorf("an ordinary one: %q", w)
	}
	d.Name = "web.example"
	d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("100m")}
	w := Deployments.Warnings(d)
	if len(w) != 2 || !strings.HasPrefix(w[0], "metadata.name: ") || !strings.HasPrefix(w[1], "spec.template.spec.containers[0].resources: ") {
		t.Errorf("%q", w)
	}
	rs := &appsv1.ReplicaSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.ReplicaSetSpec{Template: d.Spec.Template}}
	if again := ReplicaSets.Warnings(rs); !slices.Equal(again, w) {
		t.Errorf("of a ReplicaSet: %q", again)
	}
}
