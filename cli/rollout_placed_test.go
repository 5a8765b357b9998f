package cli

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/local"
	"ledge/storage"
)

func TestPlacedStatus(t *testing.T) {
	for want, tc := range map[string]struct {
		edit func(s *appsv1.StatefulSet)
		done bool
	}{
		"the change has not been looked at yet": {func(s *appsv1.StatefulSet) { s.Generation = 5 }, false},
		"2 of 3 pods are ready":                 {func(s *appsv1.StatefulSet) { s.Status.ReadyReplicas = 2 }, false},
		"1 of 3 pods are new":                   {func(s *appsv1.StatefulSet) { s.Status.UpdatedReplicas = 1 }, false},
		"0 of 1 pods are new": {func(s *appsv1.StatefulSet) {
			*s.Spec.UpdateStrategy.RollingUpdate.Partition, s.Status.UpdatedReplicas = 2, 0
		}, false},
		"statefulset/web is rolled out but for its first 2 pods, which its partition keeps": {func(s *appsv1.StatefulSet) {
			*s.Spec.UpdateStrategy.RollingUpdate.Partition, s.Status.UpdatedReplicas = 2, 1
		}, true},
		"2 of 3 pods are available":     {func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 2 }, false},
		"statefulset/web is rolled out": {func(*appsv1.StatefulSet) {}, true},
		"error: statefulset/web replaces no pods itself: its update strategy is OnDelete": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}, false},
	} {
		three, part := int32(3), int32(0)
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4}, Spec: appsv1.StatefulSetSpec{Replicas: &three,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &part}}},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}}
		tc.edit(s)
		holds(t, want, tc.done)(statefulSetStatus(s))
	}
	for want, tc := range map[string]struct {
		edit func(d *appsv1.DaemonSet)
		done bool
	}{
		"the change has not been looked at yet": {func(d *appsv1.DaemonSet) { d.Generation = 5 }, false},
		"1 of 3 boards have a new pod":          {func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 1 }, false},
		"on 2 of 3 boards it is available":      {func(d *appsv1.DaemonSet) { d.Status.NumberAvailable = 2 }, false},
		"daemonset/web is rolled out":           {func(*appsv1.DaemonSet) {}, true},
	} {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: 4, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3}}
		tc.edit(d)
		holds(t, want, tc.done)(daemonSetStatus(d))
	}
}

func holds(t *testing.T, want string, wantDone bool) func(says string, done bool, err error) {
	return func(says string, done bool, err error) {
		t.Helper()
		if err != nil {
			says = "error: " + err.Error()
		}
		if says != want || done != wantDone {
			t.Errorf("%q, done %t; want %q, done %t", says, done, want, wantDone)
		}
	}
}

// TestPlacedHistory: former templates are read from ControllerRevisions, of which anybody may have written some.
func TestPlacedHistory(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	defer store.Close()
	cl, err := local.New(local.Config{Store: store})
	must(t, err)
	labels := map[string]string{"app": "web"}
	d, err := api.Create(t.Context(), cl, apps.DaemonSets, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:2"}}}}}})
	must(t, err)
	const former = `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"IMAGE"}]}}}}`
	for i, data := range []string{strings.Replace(former, "IMAGE", "i:2", 1), strings.Replace(former, "IMAGE", "i:1", 1), "{}"} {
		r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-" + string(rune('a'+i)),
			Annotations:     map[string]string{changeCause: "why"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, apps.DaemonSets.GVK())}}, Revision: int64(2 - i%2)}
		r.Data.Raw = []byte(data)
		_, err := api.Create(t.Context(), cl, apps.ControllerRevisions, r)
		must(t, err)
	}
	var out bytes.Buffer
	r := &rolling{roller: rollers()[2], out: &out, opts: &rolloutOpts{}, cl: cl, obj: d}
	must(t, r.history(t.Context()))
	must(t, r.undo(t.Context()))
	now, err := api.Get[*appsv1.DaemonSet](t.Context(), cl, apps.DaemonSets, "default", "web")
	must(t, err)
	if got := out.String(); strings.Join(strings.Fields(got),
		" ") != "REVISION CHANGE-CAUSE 1 why 2 why daemonset/web rolled back to revision 1" ||
		now.Spec.Template.Spec.Containers[0].Image != "i:1" {
		t.Errorf("%s\n%+v", got, now.Spec.Template.Spec.Containers)
	}
	if err := r.hold(t.Context(), true); err == nil ||
		!strings.Contains(err.Error(), "those of daemonsets cannot be paused") {
		t.Errorf("paused: %v", err)
	}
}
