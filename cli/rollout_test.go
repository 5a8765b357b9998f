package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/local"
	"ledge/controller/workload"
	"ledge/storage"
)

func TestDeploymentStatus(t *testing.T) {
	for want, tc := range map[string]struct {
		edit func(d *appsv1.Deployment)
		done bool
	}{
		"the change has not been looked at yet": {func(d *appsv1.Deployment) { d.Generation = 5 }, false},
		"1 of 3 pods are new":                   {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }, false},
		"1 of 3 pods are new, and the rollout is paused: ledge rollout resume deployment web": {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1; d.Spec.Paused = true }, false},
		"2 old pods are left":                                       {func(d *appsv1.Deployment) { d.Status.Replicas = 5 }, false},
		"2 of 3 new pods are available":                             {func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }, false},
		"deployment/web is rolled out":                              {func(*appsv1.Deployment) {}, true},
		"error: deployment/web makes no progress: it has timed out": {stuck, false},
	} {
		three := int32(3)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4}, Spec: appsv1.DeploymentSpec{Replicas: &three},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}}
		tc.edit(d)
		says, done, err := deploymentStatus(d)
		if err != nil {
			says = "error: " + err.Error()
		}
		if says != want || done != tc.done {
			t.Errorf("%q, done %t; want %q, done %t", says, done, want, tc.done)
		}
	}
}

func stuck(d *appsv1.Deployment) {
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
		Reason: workload.TimedOut, Message: "it has timed out"}}
}

// meddled is a Client under which somebody else changes what is about to be written, once.
type meddled struct {
	api.Client
	meddle func()
}

func (m *meddled) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	if m.meddle != nil {
		m.meddle()
		m.meddle = nil
	}
	return m.Client.Update(ctx, k, o, opts)
}

// TestRolloutUndo: a template comes back with what was said of it, whatever else was changed meanwhile.
func TestRolloutUndo(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	defer store.Close()
	cl, err := local.New(local.Config{Store: store})
	must(t, err)
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d, err := api.Create(t.Context(), cl, apps.Deployments, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
		Annotations: map[string]string{changeCause: "three"}}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template("i:3")}})
	must(t, err)
	for i, image := range []string{"i:1", "i:2", "i:3"} {
		tpl := template(image)
		tpl.Labels["pod-template-hash"] = image[2:]
		_, err := api.Create(t.Context(), cl, apps.ReplicaSets,
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-" + image[2:],
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, apps.Deployments.GVK())},
				Annotations:     map[string]string{workload.Revision: image[2:], changeCause: []string{"one", "", "three"}[i]}},
				Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: tpl}})
		must(t, err)
	}
	for _, tc := range []struct {
		revision          int64
		says, image, note string
	}{
		{0, "rolled back to revision 2", "i:2", ""},
		{1, "rolled back to revision 1", "i:1", "one"},
		{1, "is at revision 1", "i:1", "one"},
		{7, "error: deployment/web has no revision 7; there are 1, 2, 3", "i:1", "one"},
	} {
		var out bytes.Buffer
		d, err := api.Get[*appsv1.Deployment](t.Context(), cl, apps.Deployments, "default", "web")
		must(t, err)
		m := &meddled{Client: cl, meddle: func() {
			other := d.DeepCopy()
			other.Labels = map[string]string{"by": "another"}
			if tc.says[0] != 'e' {
				_, err := api.Update(t.Context(), cl, apps.Deployments, other)
				must(t, err)
			}
		}}
		r := &rolling{roller: rollers()[0], out: &out, opts: &rolloutOpts{revision: tc.revision}, cl: m, obj: d}
		if err := r.undo(t.Context()); err != nil {
			out.WriteString("error: " + err.Error())
		}
		d, err = api.Get[*appsv1.Deployment](t.Context(), cl, apps.Deployments, "default", "web")
		must(t, err)
		if !strings.Contains(out.String(), tc.says) || d.Spec.Template.Spec.Containers[0].Image != tc.image ||
			d.Annotations[changeCause] != tc.note ||
			d.Labels["by"] != "another" || len(d.Spec.Template.Labels) != 1 {
			t.Errorf("%d: %q, %+v", tc.revision, out.String(), d)
		}
	}
}

func TestRolloutWords(t *testing.T) {
	for words, want := range map[string]string{
		"rollout":                            "write status, history",
		"rollout start deployment web":       "write status, history",
		"rollout status":                     "write status, history",
		"rollout status deployment":          "name the deployment",
		"rollout status pod web":             "pods have no rollouts",
		"rollout status none web":            "there is no kind",
		"scale deployment web":               "say what, and how many",
		"scale deployment web --replicas -2": "say what, and how many",
		"scale deployment --replicas 2":      "name the deployment",
		"scale pod web --replicas 2":         "pods have no number of pods",
		"scale deployment web --replicas x":  "invalid value",
	} {
		var out, errs bytes.Buffer
		if code := Run(App{}, append([]string{"--run-dir", t.TempDir()}, strings.Fields(words)...), &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("%s: %d %s, want %q", words, code, errs.String(), want)
		}
	}
}
