package apitest

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

var replicationCases = []Case{
	{"Replication", testReplication},
	{"ReplicationRefused", testReplicationRefused},
	{"ReplicationStatus", testReplicationStatus},
	{"ReplicationPatch", testReplicationPatch},
	{"Scale", testScale},
}

// replication is a controller that wants no pods: where controllers run, nothing but the API acts on it.
func (e *env) replication(name string) *corev1.ReplicationController {
	none := int32(0)
	return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: corev1.ReplicationControllerSpec{
		Replicas: &none, Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self:v1"}}}}}}
}

func testReplication(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.replication("rc")
	in.Status.Replicas = 7
	rc := e.create(in).(*corev1.ReplicationController)
	if rc.Kind != "ReplicationController" || rc.APIVersion != "v1" || rc.Generation != 1 || rc.Status.Replicas != 0 {
		t.Errorf("made %+v", rc)
	}
	if rc.Spec.Selector["app"] != "web" || rc.Labels["app"] != "web" || rc.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		rc.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("defaults: %+v, labels %v", rc.Spec, rc.Labels)
	}
	rc.Labels = map[string]string{"mine": "1"}
	rc.Spec.MinReadySeconds = 5
	rc.Status.Replicas = 3
	rc = e.update(rc).(*corev1.ReplicationController)
	if rc.Generation != 2 || rc.Status.Replicas != 0 || rc.Spec.MinReadySeconds != 5 || rc.Spec.Selector["app"] != "web" ||
		rc.Labels["app"] != "" {
		t.Errorf("changed to %+v", rc)
	}
	if rc = e.update(rc).(*corev1.ReplicationController); rc.Generation != 2 {
		t.Errorf("nothing changed, and the generation is %d", rc.Generation)
	}
	one := e.replication("one")
	one.Spec.Replicas = nil
	if got, err := c.Create(e.ctx, api.ReplicationControllers, one, api.WriteOptions{DryRun: true}); err != nil ||
		*got.(*corev1.ReplicationController).Spec.Replicas != 1 {
		t.Errorf("without a number: %+v, %v", got, err)
	}
	e.delete(rc, api.DeleteOptions{Propagation: metav1.DeletePropagationBackground})
	e.gone(rc)
}

func testReplicationRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for field, edit := range map[string]func(s *corev1.ReplicationControllerSpec){
		"spec.replicas":                 func(s *corev1.ReplicationControllerSpec) { *s.Replicas = -1 },
		"spec.minReadySeconds":          func(s *corev1.ReplicationControllerSpec) { s.MinReadySeconds = -1 },
		"spec.template":                 func(s *corev1.ReplicationControllerSpec) { s.Template = nil },
		"spec.selector":                 func(s *corev1.ReplicationControllerSpec) { s.Template.Labels = nil },
		"spec.template.metadata.labels": func(s *corev1.ReplicationControllerSpec) { s.Selector = map[string]string{"app": "other"} },
		"spec.template.spec.containers": func(s *corev1.ReplicationControllerSpec) { s.Template.Spec.Containers = nil },
		"spec.template.labels":          func(s *corev1.ReplicationControllerSpec) { s.Template.Labels["b"] = "not a value" },
		"spec.template.annotations[kubernetes.io/config.mirror]": func(s *corev1.ReplicationControllerSpec) {
			s.Template.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		},
		"spec.template.annotations[controller.kubernetes.io/pod-deletion-cost]": func(s *corev1.ReplicationControllerSpec) {
			s.Template.Annotations = map[string]string{corev1.PodDeletionCost: "01"}
		},
		"spec.template.spec.restartPolicy": func(s *corev1.ReplicationControllerSpec) {
			s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		},
		"spec.template.spec.activeDeadlineSeconds": func(s *corev1.ReplicationControllerSpec) {
			s.Template.Spec.ActiveDeadlineSeconds = new(int64)
			*s.Template.Spec.ActiveDeadlineSeconds = 9
		},
		"spec.template.spec.containers[0].name": func(s *corev1.ReplicationControllerSpec) { s.Template.Spec.Containers[0].Name = "No" },
	} {
		rc := e.replication("rc")
		edit(&rc.Spec)
		_, err := c.Create(e.ctx, api.ReplicationControllers, rc, api.WriteOptions{})
		t.Log(field)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
	rc := e.create(e.replication("rc")).(*corev1.ReplicationController)
	rc.Spec.Selector = map[string]string{"app": "other"}
	_, err := c.Update(e.ctx, api.ReplicationControllers, rc, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.template.metadata.labels")
}

func testReplicationStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	rc := e.create(e.replication("rc")).(*corev1.ReplicationController)
	rc.Spec.MinReadySeconds = 9
	rc.Status.Replicas, rc.Status.ReadyReplicas, rc.Status.ObservedGeneration = 3, 2, 1
	rc.Status.Conditions = []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure,
		Status: corev1.ConditionTrue, Reason: "FailedCreate"}}
	rc, err := api.UpdateStatus(e.ctx, c, api.ReplicationControllers, rc)
	e.must(err)
	if rc.Spec.MinReadySeconds != 0 || rc.Status.Replicas != 3 || rc.Generation != 1 || len(rc.Status.Conditions) != 1 {
		t.Errorf("after the status: %+v", rc)
	}
	list, err := c.List(e.ctx, api.ReplicationControllers,
		api.ListOptions{Selection: api.Selection{Namespace: e.ns, Fields: fieldSel("status.replicas=3").Fields}})
	e.must(err)
	if names(list.Items) != "rc" {
		t.Errorf("with three: %s", names(list.Items))
	}
	for field, edit := range map[string]func(s *corev1.ReplicationControllerStatus){
		"status.replicas":             func(s *corev1.ReplicationControllerStatus) { s.Replicas = -1 },
		"status.readyReplicas":        func(s *corev1.ReplicationControllerStatus) { s.ReadyReplicas = 4 },
		"status.availableReplicas":    func(s *corev1.ReplicationControllerStatus) { s.AvailableReplicas = 3 },
		"status.fullyLabeledReplicas": func(s *corev1.ReplicationControllerStatus) { s.FullyLabeledReplicas = 4 },
		"status.observedGeneration":   func(s *corev1.ReplicationControllerStatus) { s.ObservedGeneration = -1 },
	} {
		bad := rc.DeepCopy()
		edit(&bad.Status)
		_, err := c.Update(e.ctx, api.ReplicationControllers, bad, api.WriteOptions{Subresource: "status"})
		t.Log(field)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
}

func testReplicationPatch(t *testing.T, c api.Client) {
	e := begin(t, c)
	rc := e.create(e.replication("rc"))
	got, err := c.Patch(e.ctx, api.ReplicationControllers, e.ns, rc.GetName(), api.Patch{Type: types.StrategicMergePatchType,
		Data: []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","command":["pause"]},{"name":"d","image":"i"}]}}}}`)},
		api.WriteOptions{})
	e.must(err)
	containers := got.(*corev1.ReplicationController).Spec.Template.Spec.Containers
	byName := map[string]corev1.Container{}
	for _, c := range containers {
		byName[c.Name] = c
	}
	if len(containers) != 2 || byName["c"].Image != "ledge.local/self:v1" || byName["c"].Command[0] != "pause" || byName["d"].Image != "i" ||
		got.GetGeneration() != 2 {
		t.Errorf("patched to %+v", containers)
	}
}

// The number of pods is set without a word about anything else, also over what somebody wrote in between.
func testScale(t *testing.T, c api.Client) {
	e := begin(t, c)
	rc := e.create(e.replication("rc")).(*corev1.ReplicationController)
	scale := api.ReplicationControllers.ScaleOf(rc)
	if scale.Spec.Replicas != 0 || scale.Status.Selector != "app=web" || scale.UID != rc.UID {
		t.Errorf("shown as %+v", scale)
	}
	set := func(n int32, edit func(*autoscalingv1.Scale)) (api.Object, error) {
		s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "rc"}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}
		edit(s)
		// where controllers run, no pods are made
		return c.Update(e.ctx, api.ReplicationControllers, s, api.WriteOptions{Subresource: api.Scale, DryRun: n > 0})
	}
	got, err := set(3, func(*autoscalingv1.Scale) {})
	e.must(err)
	if s, ok := got.(*autoscalingv1.Scale); !ok || s.Spec.Replicas != 3 || s.Kind != "Scale" || s.Status.Selector != "app=web" {
		t.Errorf("scaled to %+v", got)
	}
	_, err = set(0, func(*autoscalingv1.Scale) {})
	e.must(err)
	_, err = set(-1, func(*autoscalingv1.Scale) {})
	e.fails(err, metav1.StatusReasonInvalid, 422)
	_, err = set(1, func(s *autoscalingv1.Scale) { s.ResourceVersion = "1" })
	e.fails(err, metav1.StatusReasonConflict, 409)
	got, err = c.Patch(e.ctx, api.ReplicationControllers, e.ns, "rc",
		api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"replicas":2}}`)},
		api.WriteOptions{Subresource: api.Scale, DryRun: true})
	e.must(err)
	if s, ok := got.(*autoscalingv1.Scale); !ok || s.Spec.Replicas != 2 {
		t.Errorf("patched to %+v", got)
	}
	_, err = c.Update(e.ctx, api.ConfigMaps, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "none"}},
		api.WriteOptions{Subresource: api.Scale})
	e.fails(err, metav1.StatusReasonNotFound, 404)
}
