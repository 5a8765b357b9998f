package httpd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
)

var serviceColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Type", "string", "How the service is exposed."),
	column("Cluster-IP", "string", "The address of the service."),
	column("External-IP", "string", "The addresses it has outside."),
	column("Port(s)", "string", "The ports of the service."),
	ageColumn,
	wide("Selector", "string", "Which pods are behind it."),
}

func serviceRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	s := obj.(*corev1.Service)
	ports := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return []any{s.Name, string(s.Spec.Type), orNone(s.Spec.ClusterIP), none, orNone(strings.Join(ports, ",")),
		age(s.CreationTimestamp, now), selectorText(s.Spec.Selector)}, nil
}

var serviceAccountColumns = []metav1.TableColumnDefinition{nameColumn, ageColumn}

func serviceAccountRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	s := obj.(*corev1.ServiceAccount)
	return []any{s.Name, age(s.CreationTimestamp, now)}, nil
}

var podTemplateColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Containers", "string", "The names of the containers."),
	column("Images", "string", "The images of the containers."),
	column("Pod Labels", "string", "The labels of pods made from it."),
}

func podTemplateRow(obj api.Object, _ time.Time) ([]any, []metav1.TableRowCondition) {
	t := obj.(*corev1.PodTemplate)
	names, images := containersText(&t.Template.Spec)
	return []any{t.Name, names, images, selectorText(t.Template.Labels)}, nil
}

// containersText is the names and the images of a template's containers.
func containersText(s *corev1.PodSpec) (names, images string) {
	for i, c := range s.Containers {
		if i > 0 {
			names, images = names+",", images+","
		}
		names, images = names+c.Name, images+c.Image
	}
	return names, images
}

var replicationColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Desired", "integer", "How many pods there are to be."),
	column("Current", "integer", "How many pods there are."),
	column("Ready", "integer", "How many of them are ready."),
	ageColumn,
	wide("Containers", "string", "The names of the containers."),
	wide("Images", "string", "The images of the containers."),
	wide("Selector", "string", "Which pods are counted."),
}

func replicationRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	rc := obj.(*corev1.ReplicationController)
	var names, images string
	if t := rc.Spec.Template; t != nil {
		names, images = containersText(&t.Spec)
	}
	return []any{rc.Name, int64(api.Replicas(rc)), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), age(rc.CreationTimestamp, now),
		names, images, selectorText(rc.Spec.Selector)}, nil
}

var runtimeClassColumns = []metav1.TableColumnDefinition{
	nameColumn, column("Handler", "string", "What runs pods of this class."), ageColumn,
}

func runtimeClassRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	c := obj.(*nodev1.RuntimeClass)
	return []any{c.Name, c.Handler, age(c.CreationTimestamp, now)}, nil
}

var budgetColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Min Available", "string", "How many pods must go on."),
	column("Max Unavailable", "string", "How many pods may be missing."),
	column("Allowed Disruptions", "integer", "How many pods may be evicted now."),
	ageColumn,
}

func budgetRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	b := obj.(*policyv1.PodDisruptionBudget)
	amount := func(v *intstr.IntOrString) string {
		if v == nil {
			return "N/A"
		}
		return v.String()
	}
	return []any{b.Name, amount(b.Spec.MinAvailable), amount(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed),
		age(b.CreationTimestamp, now)}, nil
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// selectorText is how kubectl shows a set of labels.
func selectorText(set map[string]string) string {
	if len(set) == 0 {
		return none
	}
	parts := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, labels.Set{k: set[k]}.String())
	}
	return strings.Join(parts, ",")
}
