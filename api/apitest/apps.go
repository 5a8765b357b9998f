package apitest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/apps"
)

var appsCases = []Case{
	{"Deployment", testDeployment},
	{"DeploymentRefused", testDeploymentRefused},
	{"DeploymentStatus", testDeploymentStatus},
	{"DeploymentPatch", testDeploymentPatch},
	{"DeploymentApplied", testDeploymentApplied},
	{"DeploymentScale", testDeploymentScale},
	{"ReplicaSet", testReplicaSet},
	{"ReplicaSetRefused", testReplicaSetRefused},
	{"ReplicaSetStatus", testReplicaSetStatus},
}

// deployment is one that wants no pods: where controllers run, nothing but the API acts on it.
func (e *env) deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32), Selector: webSelector(), Template: *e.replication("").Spec.Template}}
}

func (e *env) replicaSet(name string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32), Selector: webSelector(), Template: *e.replication("").Spec.Template}}
}

func webSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func testDeployment(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.deployment("d")
	in.Status.Replicas = 7
	d := e.create(in).(*appsv1.Deployment)
	if d.Kind != "Deployment" || d.APIVersion != "apps/v1" || d.Generation != 1 || d.Status.Replicas != 0 {
		t.Errorf("made %+v", d)
	}
	roll := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || roll == nil || roll.MaxSurge.String() != "25%" ||
		roll.MaxUnavailable.String() != "25%" ||
		*d.Spec.RevisionHistoryLimit != 10 || *d.Spec.ProgressDeadlineSeconds != 600 || len(d.Labels) != 0 ||
		d.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		d.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("defaults: %+v, labels %v", d.Spec, d.Labels)
	}
	d.Spec.Paused = true
	d.Status.Replicas = 3
	d = e.update(d).(*appsv1.Deployment)
	if d.Generation != 2 || d.Status.Replicas != 0 || !d.Spec.Paused {
		t.Errorf("changed to %+v", d)
	}
	d.Labels = map[string]string{"mine": "1"}
	if d = e.update(d).(*appsv1.Deployment); d.Generation != 2 {
		t.Errorf("a label was changed, and the generation is %d", d.Generation)
	}
	d.Annotations = map[string]string{"mine": "1"}
	if d = e.update(d).(*appsv1.Deployment); d.Generation != 3 {
		t.Errorf("an annotation was changed, which ReplicaSets take over, and the generation is %d", d.Generation)
	}
	again := e.deployment("recreated")
	again.Spec.Replicas, again.Spec.Strategy.Type = nil, appsv1.RecreateDeploymentStrategyType
	got, err := c.Create(e.ctx, apps.Deployments, again, api.WriteOptions{DryRun: true})
	e.must(err)
	if s := got.(*appsv1.Deployment).Spec; *s.Replicas != 1 || s.Strategy.RollingUpdate != nil {
		t.Errorf("without a number: %+v", s)
	}
	e.delete(d, api.DeleteOptions{}) // what is made of it goes along: there is nothing to say
	e.gone(d)
}

func testDeploymentRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for name, tc := range map[string]struct {
		field string
		edit  func(s *appsv1.DeploymentSpec)
	}{
		"fewer than none":   {"spec.replicas", func(s *appsv1.DeploymentSpec) { *s.Replicas = -1 }},
		"no selector":       {"spec.selector", func(s *appsv1.DeploymentSpec) { s.Selector = nil }},
		"an empty selector": {"spec.selector", func(s *appsv1.DeploymentSpec) { s.Selector = &metav1.LabelSelector{} }},
		"a bad selector":    {"spec.selector.matchLabels", func(s *appsv1.DeploymentSpec) { s.Selector.MatchLabels["b"] = "not a value" }},
		"another selector":  {"spec.template.metadata.labels", func(s *appsv1.DeploymentSpec) { s.Selector.MatchLabels["app"] = "other" }},
		"no containers":     {"spec.template.spec.containers", func(s *appsv1.DeploymentSpec) { s.Template.Spec.Containers = nil }},
		"pods that end":     {"spec.template.spec.restartPolicy", func(s *appsv1.DeploymentSpec) { s.Template.Spec.RestartPolicy = "Never" }},
		"a deadline of pods": {"spec.template.spec.activeDeadlineSeconds",
			func(s *appsv1.DeploymentSpec) { s.Template.Spec.ActiveDeadlineSeconds = pointer(int64(9)) }},
		"another strategy": {"spec.strategy", func(s *appsv1.DeploymentSpec) { s.Strategy.Type = "Sometimes" }},
		"Recreate with more": {"spec.strategy.rollingUpdate", func(s *appsv1.DeploymentSpec) {
			s.Strategy = appsv1.DeploymentStrategy{Type: "Recreate", RollingUpdate: &appsv1.RollingUpdateDeployment{}}
		}},
		"no step":            {"spec.strategy.rollingUpdate.maxUnavailable", rolling(intstr.FromInt32(0), intstr.FromString("0%"))},
		"a part of a word":   {"spec.strategy.rollingUpdate.maxUnavailable", rolling(intstr.FromString("half"), intstr.FromInt32(1))},
		"more than all":      {"spec.strategy.rollingUpdate.maxUnavailable", rolling(intstr.FromString("101%"), intstr.FromInt32(1))},
		"a negative surge":   {"spec.strategy.rollingUpdate.maxSurge", rolling(intstr.FromInt32(1), intstr.FromInt32(-1))},
		"ready before it is": {"spec.minReadySeconds", func(s *appsv1.DeploymentSpec) { s.MinReadySeconds = -1 }},
		"a negative history": {"spec.revisionHistoryLimit", func(s *appsv1.DeploymentSpec) { s.RevisionHistoryLimit = pointer(int32(-1)) }},
		"a deadline too early": {"spec.progressDeadlineSeconds",
			func(s *appsv1.DeploymentSpec) { s.MinReadySeconds, s.ProgressDeadlineSeconds = 9, pointer(int32(9)) }},
	} {
		d := e.deployment("d")
		tc.edit(&d.Spec)
		_, err := c.Create(e.ctx, apps.Deployments, d, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	double := e.deployment("double") // more than there are to be may be added
	rolling(intstr.FromInt32(0), intstr.FromString("200%"))(&double.Spec)
	_, err := c.Create(e.ctx, apps.Deployments, double, api.WriteOptions{DryRun: true})
	e.must(err)

	d := e.create(e.deployment("d")).(*appsv1.Deployment)
	d.Spec.Selector.MatchLabels = map[string]string{"app": "other"}
	d.Spec.Template.Labels = map[string]string{"app": "other"}
	_, err = c.Update(e.ctx, apps.Deployments, d, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.selector")
}

func rolling(out, more intstr.IntOrString) func(*appsv1.DeploymentSpec) {
	return func(s *appsv1.DeploymentSpec) {
		s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &out, MaxSurge: &more}
	}
}

func pointer[T any](v T) *T { return &v }

func testDeploymentStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	d := e.create(e.deployment("d")).(*appsv1.Deployment)
	d.Spec.MinReadySeconds = 9
	d.Labels = map[string]string{"mine": "1"}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 1,
		UnavailableReplicas: 2,
		CollisionCount:      pointer(int32(2)),
		Conditions:          []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue}}}
	d, err := api.UpdateStatus(e.ctx, c, apps.Deployments, d)
	e.must(err)
	if d.Spec.MinReadySeconds != 0 || len(d.Labels) != 0 || d.Generation != 1 || d.Status.Replicas != 3 || *d.Status.CollisionCount != 2 ||
		len(d.Status.Conditions) != 1 {
		t.Errorf("after the status: %+v", d)
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(s *appsv1.DeploymentStatus)
	}{
		"observed":    {"status.observedGeneration", func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = -1 }},
		"none":        {"status.replicas", func(s *appsv1.DeploymentStatus) { s.Replicas = -1 }},
		"updated":     {"status.updatedReplicas", func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 4 }},
		"ready":       {"status.readyReplicas", func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 4 }},
		"available":   {"status.availableReplicas", func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 3 }},
		"unavailable": {"status.unavailableReplicas", func(s *appsv1.DeploymentStatus) { s.UnavailableReplicas = -1 }},
		"ending":      {"status.terminatingReplicas", func(s *appsv1.DeploymentStatus) { s.TerminatingReplicas = pointer(int32(-1)) }},
		"collisions":  {"status.collisionCount", func(s *appsv1.DeploymentStatus) { s.CollisionCount = pointer(int32(1)) }},
		"forgotten":   {"status.collisionCount", func(s *appsv1.DeploymentStatus) { s.CollisionCount = nil }},
	} {
		bad := d.DeepCopy()
		tc.edit(&bad.Status)
		_, err := c.Update(e.ctx, apps.Deployments, bad, api.WriteOptions{Subresource: api.StatusSub})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
}

// Containers are merged by their names, conditions by their types; a strategy of another type takes the settings of the
// old one along.
func testDeploymentPatch(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.deployment("d"))
	patch := func(body, sub string) *appsv1.Deployment {
		t.Helper()
		got, err := c.Patch(e.ctx, apps.Deployments, e.ns, "d", api.Patch{Type: types.StrategicMergePatchType, Data: []byte(body)},
			api.WriteOptions{Subresource: sub})
		e.must(err)
		return got.(*appsv1.Deployment)
	}
	d := patch(`{"spec":{"template":{"spec":{"containers":[{"name":"c","command":["pause"]},{"name":"d","image":"i"}]}}}}`, "")
	byName := map[string]corev1.Container{}
	for _, c := range d.Spec.Template.Spec.Containers {
		byName[c.Name] = c
	}
	if len(byName) != 2 || byName["c"].Image != "ledge.local/self:v1" || byName["c"].Command[0] != "pause" || byName["d"].Image != "i" ||
		d.Generation != 2 {
		t.Errorf("patched to %+v", d.Spec.Template.Spec.Containers)
	}
	d = patch(`{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`, "")
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate != nil {
		t.Errorf("the strategy is %+v", d.Spec.Strategy)
	}
	patch(`{"status":{"conditions":[{"type":"Progressing","status":"True"},{"type":"Available","status":"False"}]}}`, api.StatusSub)
	d = patch(`{"status":{"conditions":[{"type":"Available","status":"True"}]}}`, api.StatusSub)
	is := map[appsv1.DeploymentConditionType]corev1.ConditionStatus{}
	for _, c := range d.Status.Conditions {
		is[c.Type] = c.Status
	}
	if len(is) != 2 || is[appsv1.DeploymentAvailable] != corev1.ConditionTrue {
		t.Errorf("the conditions are %+v", d.Status.Conditions)
	}
}

// Who applies owns what they say, container by container; who scales owns the number.
func testDeploymentApplied(t *testing.T, c api.Client) {
	e := begin(t, c)
	apply := func(manager, spec string) (*appsv1.Deployment, error) {
		got, err := c.Patch(e.ctx, apps.Deployments, e.ns, "d", api.Patch{Type: types.ApplyPatchType,
			Data: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":` + spec + `}`)},
			api.WriteOptions{Manager: manager})
		if err != nil {
			return nil, err
		}
		return got.(*appsv1.Deployment), nil
	}
	const whole = `{"replicas":0,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
		{"name":"c","image":"ledge.local/self:v1"},{"name":"d","image":"i"}]}}}`
	_, err := apply("one", whole)
	e.must(err)
	d, err := apply("two", `{"template":{"spec":{"containers":[{"name":"e","image":"i"}]}}}`)
	e.must(err)
	if len(d.Spec.Template.Spec.Containers) != 3 {
		t.Errorf("two applied: %+v", d.Spec.Template.Spec.Containers)
	}
	_, err = apply("two", `{"replicas":1,"template":{"spec":{"containers":[{"name":"e","image":"i"}]}}}`)
	e.fails(err, metav1.StatusReasonConflict, 409)
	d, err = apply("one", `{"replicas":0,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
		{"name":"c","image":"ledge.local/self:v1"}]}}}`)
	e.must(err)
	if n := len(d.Spec.Template.Spec.Containers); n != 2 {
		t.Errorf("what one no longer says is there: %+v", d.Spec.Template.Spec.Containers)
	}
}

func testDeploymentScale(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.deployment("d"))
	e.create(e.replicaSet("rs"))
	for name, kind := range map[string]*api.Kind{"d": apps.Deployments, "rs": apps.ReplicaSets} {
		got, err := c.Update(e.ctx, kind, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
			Spec: autoscalingv1.ScaleSpec{Replicas: 3}},
			api.WriteOptions{Subresource: api.Scale, DryRun: true}) // where controllers run, no pods are made
		e.must(err)
		if s, ok := got.(*autoscalingv1.Scale); !ok || s.Spec.Replicas != 3 || s.Status.Selector != "app=web" {
			t.Errorf("%s scaled to %+v", kind, got)
		}
	}
}

func testReplicaSet(t *testing.T, c api.Client) {
	e := begin(t, c)
	rs := e.create(e.replicaSet("rs")).(*appsv1.ReplicaSet)
	if rs.Kind != "ReplicaSet" || rs.APIVersion != "apps/v1" || rs.Generation != 1 ||
		rs.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("made %+v", rs)
	}
	rs.Annotations = map[string]string{"mine": "1"}
	if rs = e.update(rs).(*appsv1.ReplicaSet); rs.Generation != 1 {
		t.Errorf("an annotation was changed, and the generation is %d", rs.Generation)
	}
	rs.Spec.MinReadySeconds = 5
	if rs = e.update(rs).(*appsv1.ReplicaSet); rs.Generation != 2 || rs.Spec.MinReadySeconds != 5 {
		t.Errorf("changed to %+v", rs)
	}
	e.delete(rs, api.DeleteOptions{})
	e.gone(rs)
}

func testReplicaSetRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for name, tc := range map[string]struct {
		field string
		edit  func(s *appsv1.ReplicaSetSpec)
	}{
		"fewer than none":   {"spec.replicas", func(s *appsv1.ReplicaSetSpec) { *s.Replicas = -1 }},
		"ready before":      {"spec.minReadySeconds", func(s *appsv1.ReplicaSetSpec) { s.MinReadySeconds = -1 }},
		"no selector":       {"spec.selector", func(s *appsv1.ReplicaSetSpec) { s.Selector = nil }},
		"an empty selector": {"spec.selector", func(s *appsv1.ReplicaSetSpec) { s.Selector = &metav1.LabelSelector{} }},
		"no labels":         {"spec.template.metadata.labels", func(s *appsv1.ReplicaSetSpec) { s.Template.Labels = nil }},
		"pods that end":     {"spec.template.spec.restartPolicy", func(s *appsv1.ReplicaSetSpec) { s.Template.Spec.RestartPolicy = "OnFailure" }},
	} {
		rs := e.replicaSet("rs")
		tc.edit(&rs.Spec)
		_, err := c.Create(e.ctx, apps.ReplicaSets, rs, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	rs := e.create(e.replicaSet("rs")).(*appsv1.ReplicaSet)
	rs.Spec.Selector.MatchLabels["tier"] = "front"
	rs.Spec.Template.Labels["tier"] = "front"
	_, err := c.Update(e.ctx, apps.ReplicaSets, rs, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.selector")
}

func testReplicaSetStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	rs := e.create(e.replicaSet("rs")).(*appsv1.ReplicaSet)
	rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1}
	rs, err := api.UpdateStatus(e.ctx, c, apps.ReplicaSets, rs)
	e.must(err)
	for field, edit := range map[string]func(s *appsv1.ReplicaSetStatus){
		"status.replicas":             func(s *appsv1.ReplicaSetStatus) { s.Replicas = -1 },
		"status.readyReplicas":        func(s *appsv1.ReplicaSetStatus) { s.ReadyReplicas = 4 },
		"status.availableReplicas":    func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 3 },
		"status.fullyLabeledReplicas": func(s *appsv1.ReplicaSetStatus) { s.FullyLabeledReplicas = 4 },
		"status.terminatingReplicas":  func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = pointer(int32(-1)) },
		"status.observedGeneration":   func(s *appsv1.ReplicaSetStatus) { s.ObservedGeneration = -1 },
	} {
		bad := rs.DeepCopy()
		edit(&bad.Status)
		_, err := c.Update(e.ctx, apps.ReplicaSets, bad, api.WriteOptions{Subresource: api.StatusSub})
		t.Log(field)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
}
