package apitest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/apps"
)

var placedCases = []Case{
	{"StatefulSet", testStatefulSet},
	{"StatefulSetRefused", testStatefulSetRefused},
	{"StatefulSetStatus", testStatefulSetStatus},
	{"StatefulSetScale", testStatefulSetScale},
	{"DaemonSet", testDaemonSet},
	{"DaemonSetRefused", testDaemonSetRefused},
	{"DaemonSetStatus", testDaemonSetStatus},
	{"ControllerRevision", testControllerRevision},
	{"TemplateReplaced", testTemplateReplaced},
}

// statefulSet is one that wants no pods: where controllers run, they only keep its template.
func (e *env) statefulSet(name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32), Selector: webSelector(), Template: *e.replication("").Spec.Template}}
}

// daemonSet is one that picks no board.
func (e *env) daemonSet(name string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: webSelector(), Template: *e.replication("").Spec.Template}}
	d.Spec.Template.Spec.NodeSelector = map[string]string{"nowhere": "yes"}
	return d
}

func (e *env) revision(name string) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Revision: 1}
	r.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace"}}}`)
	return r
}

func testStatefulSet(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.statefulSet("s")
	in.Status.Replicas = 7
	in.Spec.Template.Spec.Hostname, in.Spec.Template.Spec.Subdomain = "Not a name", "nor this" // the pods get names of their own
	s := e.create(in).(*appsv1.StatefulSet)
	roll, claims := s.Spec.UpdateStrategy.RollingUpdate, s.Spec.PersistentVolumeClaimRetentionPolicy
	if s.Kind != "StatefulSet" || s.APIVersion != "apps/v1" || s.Generation != 1 || s.Status.Replicas != 0 {
		t.Errorf("made %+v", s)
	}
	if s.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement ||
		s.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType ||
		roll == nil || *roll.Partition != 0 || roll.MaxUnavailable == nil || roll.MaxUnavailable.IntValue() != 1 ||
		*s.Spec.RevisionHistoryLimit != 10 ||
		claims == nil || claims.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType ||
		claims.WhenScaled != appsv1.RetainPersistentVolumeClaimRetentionPolicyType ||
		s.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("defaults: %+v", s.Spec)
	}
	got, err := c.Patch(e.ctx, apps.StatefulSets, e.ns, "s", api.Patch{Type: types.MergePatchType,
		Data: []byte(`{"metadata":{"annotations":{"a":"b"}},"spec":{"minReadySeconds":3,"ordinals":{"start":5},"updateStrategy":{"rollingUpdate":{"partition":2}},"revisionHistoryLimit":-1}}`)}, api.WriteOptions{})
	e.must(err)
	if s = got.(*appsv1.StatefulSet); s.Generation != 2 || s.Spec.Ordinals.Start != 5 || *s.Spec.UpdateStrategy.RollingUpdate.Partition != 2 ||
		*s.Spec.RevisionHistoryLimit != -1 {
		t.Errorf("changed to %+v", s)
	}
	plain := e.statefulSet("plain")
	plain.Spec.Replicas, plain.Spec.UpdateStrategy.Type = nil, appsv1.RollingUpdateStatefulSetStrategyType
	got, err = c.Create(e.ctx, apps.StatefulSets, plain, api.WriteOptions{DryRun: true})
	e.must(err)
	if s := got.(*appsv1.StatefulSet).Spec; *s.Replicas != 1 || s.UpdateStrategy.RollingUpdate != nil {
		t.Errorf("with a strategy and no settings of it: %+v", s)
	}
	e.delete(s, api.DeleteOptions{})
	e.gone(s)
}

func testStatefulSetRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	roll := func(partition int32, out intstr.IntOrString) func(*appsv1.StatefulSetSpec) {
		return func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &out}
		}
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(s *appsv1.StatefulSetSpec)
	}{
		"fewer than none":   {"spec.replicas", func(s *appsv1.StatefulSetSpec) { *s.Replicas = -1 }},
		"no selector":       {"spec.selector", func(s *appsv1.StatefulSetSpec) { s.Selector = nil }},
		"an empty selector": {"spec.selector", func(s *appsv1.StatefulSetSpec) { s.Selector = &metav1.LabelSelector{} }},
		"another selector":  {"spec.template.metadata.labels", func(s *appsv1.StatefulSetSpec) { s.Selector.MatchLabels["app"] = "other" }},
		"pods that end":     {"spec.template.spec.restartPolicy", func(s *appsv1.StatefulSetSpec) { s.Template.Spec.RestartPolicy = "Never" }},
		"a deadline of pods": {"spec.template.spec.activeDeadlineSeconds",
			func(s *appsv1.StatefulSetSpec) { s.Template.Spec.ActiveDeadlineSeconds = pointer(int64(9)) }},
		"another order":    {"spec.podManagementPolicy", func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = "Sometimes" }},
		"another strategy": {"spec.updateStrategy", func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.Type = "Sometimes" }},
		"OnDelete with more": {"spec.updateStrategy.rollingUpdate", func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "OnDelete", RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{}}
		}},
		"a negative part":      {"spec.updateStrategy.rollingUpdate.partition", roll(-1, intstr.FromInt32(1))},
		"no step":              {"spec.updateStrategy.rollingUpdate.maxUnavailable", roll(0, intstr.FromString("0%"))},
		"more than all":        {"spec.updateStrategy.rollingUpdate.maxUnavailable", roll(0, intstr.FromString("101%"))},
		"a part of a word":     {"spec.updateStrategy.rollingUpdate.maxUnavailable", roll(0, intstr.FromString("half"))},
		"ready before it is":   {"spec.minReadySeconds", func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = -1 }},
		"no name of a service": {"spec.serviceName", func(s *appsv1.StatefulSetSpec) { s.ServiceName = "Not a name" }},
		"claims at some time": {"spec.persistentVolumeClaimRetentionPolicy.whenScaled", func(s *appsv1.StatefulSetSpec) {
			s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: "Sometimes"}
		}},
	} {
		s := e.statefulSet("s")
		tc.edit(&s.Spec)
		_, err := c.Create(e.ctx, apps.StatefulSets, s, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	_, err := c.Create(e.ctx, apps.StatefulSets, e.statefulSet("no.label"), api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.name")

	s := e.create(e.statefulSet("s")).(*appsv1.StatefulSet)
	for field, edit := range map[string]func(s *appsv1.StatefulSetSpec){
		"spec.selector":            func(s *appsv1.StatefulSetSpec) { s.Selector.MatchLabels["tier"], s.Template.Labels["tier"] = "a", "a" },
		"spec.serviceName":         func(s *appsv1.StatefulSetSpec) { s.ServiceName = "other" },
		"spec.podManagementPolicy": func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = appsv1.ParallelPodManagement },
	} {
		e.eventually("a change of "+field+" is refused", func() bool {
			other := e.get(s).(*appsv1.StatefulSet)
			edit(&other.Spec)
			_, err := c.Update(e.ctx, apps.StatefulSets, other, api.WriteOptions{})
			if apierrors.IsConflict(err) { // its status was written meanwhile
				return false
			}
			e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
			return true
		})
	}
}

func testStatefulSetStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	s := e.create(e.statefulSet("s")).(*appsv1.StatefulSet)
	for field, edit := range map[string]func(s *appsv1.StatefulSetStatus){
		"status.replicas":           func(s *appsv1.StatefulSetStatus) { s.Replicas = -1 },
		"status.readyReplicas":      func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 4 },
		"status.currentReplicas":    func(s *appsv1.StatefulSetStatus) { s.CurrentReplicas = 4 },
		"status.updatedReplicas":    func(s *appsv1.StatefulSetStatus) { s.UpdatedReplicas = 4 },
		"status.availableReplicas":  func(s *appsv1.StatefulSetStatus) { s.AvailableReplicas = 3 },
		"status.observedGeneration": func(s *appsv1.StatefulSetStatus) { s.ObservedGeneration = -1 },
		"status.collisionCount":     func(s *appsv1.StatefulSetStatus) { s.CollisionCount = pointer(int32(-1)) },
	} {
		e.eventually(field+" is refused", func() bool {
			bad := e.get(s).(*appsv1.StatefulSet)
			bad.Status.Replicas, bad.Status.ReadyReplicas, bad.Status.AvailableReplicas = 3, 2, 1
			edit(&bad.Status)
			_, err := c.Update(e.ctx, apps.StatefulSets, bad, api.WriteOptions{Subresource: api.StatusSub})
			if apierrors.IsConflict(err) {
				return false
			}
			e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
			return true
		})
	}
}

func testStatefulSetScale(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.statefulSet("s"))
	got, err := c.Update(e.ctx, apps.StatefulSets,
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "s"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}},
		api.WriteOptions{Subresource: api.Scale, DryRun: true}) // where controllers run, no pods are made
	e.must(err)
	if s, ok := got.(*autoscalingv1.Scale); !ok || s.Spec.Replicas != 3 || s.Status.Selector != "app=web" {
		t.Errorf("scaled to %+v", got)
	}
}

func testDaemonSet(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.daemonSet("d")
	in.Status.NumberReady = 7
	d := e.create(in).(*appsv1.DaemonSet)
	roll := d.Spec.UpdateStrategy.RollingUpdate
	if d.Kind != "DaemonSet" || d.APIVersion != "apps/v1" || d.Generation != 1 || d.Status.NumberReady != 0 {
		t.Errorf("made %+v", d)
	}
	if d.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || roll == nil || roll.MaxUnavailable.IntValue() != 1 ||
		roll.MaxSurge.IntValue() != 0 ||
		*d.Spec.RevisionHistoryLimit != 10 || d.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("defaults: %+v", d.Spec)
	}
	got, err := c.Patch(e.ctx, apps.DaemonSets, e.ns, "d",
		api.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"annotations":{"a":"b"}},"spec":{"minReadySeconds":3}}`)},
		api.WriteOptions{})
	e.must(err)
	if d = got.(*appsv1.DaemonSet); d.Generation != 2 || d.Spec.MinReadySeconds != 3 {
		t.Errorf("changed to %+v", d)
	}
	e.delete(d, api.DeleteOptions{})
	e.gone(d)
}

func testDaemonSetRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	roll := func(out, more intstr.IntOrString) func(*appsv1.DaemonSetSpec) {
		return func(s *appsv1.DaemonSetSpec) {
			s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
			s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &out, MaxSurge: &more}
		}
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(s *appsv1.DaemonSetSpec)
	}{
		"no selector":       {"spec.template.metadata.labels", func(s *appsv1.DaemonSetSpec) { s.Selector = nil }},
		"an empty selector": {"spec.selector", func(s *appsv1.DaemonSetSpec) { s.Selector = &metav1.LabelSelector{} }},
		"another selector":  {"spec.template.metadata.labels", func(s *appsv1.DaemonSetSpec) { s.Selector.MatchLabels["app"] = "other" }},
		"pods that end":     {"spec.template.spec.restartPolicy", func(s *appsv1.DaemonSetSpec) { s.Template.Spec.RestartPolicy = "OnFailure" }},
		"a deadline of pods": {"spec.template.spec.activeDeadlineSeconds",
			func(s *appsv1.DaemonSetSpec) { s.Template.Spec.ActiveDeadlineSeconds = pointer(int64(9)) }},
		"another strategy":   {"spec.updateStrategy", func(s *appsv1.DaemonSetSpec) { s.UpdateStrategy.Type = "Sometimes" }},
		"no step":            {"spec.updateStrategy.rollingUpdate.maxUnavailable", roll(intstr.FromInt32(0), intstr.FromString("0%"))},
		"both":               {"spec.updateStrategy.rollingUpdate.maxSurge", roll(intstr.FromInt32(1), intstr.FromInt32(1))},
		"more than all":      {"spec.updateStrategy.rollingUpdate.maxSurge", roll(intstr.FromInt32(0), intstr.FromString("101%"))},
		"a part of a word":   {"spec.updateStrategy.rollingUpdate.maxUnavailable", roll(intstr.FromString("half"), intstr.FromInt32(0))},
		"a negative history": {"spec.revisionHistoryLimit", func(s *appsv1.DaemonSetSpec) { s.RevisionHistoryLimit = pointer(int32(-1)) }},
		"ready before it is": {"spec.minReadySeconds", func(s *appsv1.DaemonSetSpec) { s.MinReadySeconds = -1 }},
	} {
		d := e.daemonSet("d")
		tc.edit(&d.Spec)
		_, err := c.Create(e.ctx, apps.DaemonSets, d, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	d := e.create(e.daemonSet("d")).(*appsv1.DaemonSet)
	e.eventually("another selector is refused", func() bool {
		other := e.get(d).(*appsv1.DaemonSet)
		other.Spec.Selector.MatchLabels["tier"], other.Spec.Template.Labels["tier"] = "a", "a"
		_, err := c.Update(e.ctx, apps.DaemonSets, other, api.WriteOptions{})
		if apierrors.IsConflict(err) {
			return false
		}
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.selector")
		return true
	})
}

func testDaemonSetStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	d := e.create(e.daemonSet("d")).(*appsv1.DaemonSet)
	for field, edit := range map[string]func(s *appsv1.DaemonSetStatus){
		"status.currentNumberScheduled": func(s *appsv1.DaemonSetStatus) { s.CurrentNumberScheduled = -1 },
		"status.desiredNumberScheduled": func(s *appsv1.DaemonSetStatus) { s.DesiredNumberScheduled = -1 },
		"status.numberMisscheduled":     func(s *appsv1.DaemonSetStatus) { s.NumberMisscheduled = -1 },
		"status.numberReady":            func(s *appsv1.DaemonSetStatus) { s.NumberReady = -1 },
		"status.numberAvailable":        func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = -1 },
		"status.numberUnavailable":      func(s *appsv1.DaemonSetStatus) { s.NumberUnavailable = -1 },
		"status.updatedNumberScheduled": func(s *appsv1.DaemonSetStatus) { s.UpdatedNumberScheduled = -1 },
		"status.observedGeneration":     func(s *appsv1.DaemonSetStatus) { s.ObservedGeneration = -1 },
		"status.collisionCount":         func(s *appsv1.DaemonSetStatus) { s.CollisionCount = pointer(int32(-1)) },
	} {
		e.eventually(field+" is refused", func() bool {
			bad := e.get(d).(*appsv1.DaemonSet)
			edit(&bad.Status)
			_, err := c.Update(e.ctx, apps.DaemonSets, bad, api.WriteOptions{Subresource: api.StatusSub})
			if apierrors.IsConflict(err) {
				return false
			}
			e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
			return true
		})
	}
}

func testControllerRevision(t *testing.T, c api.Client) {
	e := begin(t, c)
	r := e.create(e.revision("r")).(*appsv1.ControllerRevision)
	if r.Kind != "ControllerRevision" || r.Generation != 0 || string(r.Data.Raw) != `{"spec":{"template":{"$patch":"replace"}}}` {
		t.Errorf("made %+v", r)
	}
	r.Revision = 2
	if r = e.update(r).(*appsv1.ControllerRevision); r.Revision != 2 {
		t.Errorf("changed to %+v", r)
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(r *appsv1.ControllerRevision)
	}{
		"no data":           {"data", func(r *appsv1.ControllerRevision) { r.Data.Raw = nil }},
		"nothing":           {"data", func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte("null") }},
		"no object":         {"data", func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte("7") }},
		"a negative number": {"revision", func(r *appsv1.ControllerRevision) { r.Revision = -1 }},
	} {
		bad := e.revision("other")
		tc.edit(bad)
		_, err := c.Create(e.ctx, apps.ControllerRevisions, bad, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	r.Data.Raw = []byte(`{"spec":{}}`)
	_, err := c.Update(e.ctx, apps.ControllerRevisions, r, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "data")
}

// What a revision keeps brings its template back, whole: kubectl rollout undo sends it so.
func testTemplateReplaced(t *testing.T, c api.Client) {
	e := begin(t, c)
	s := e.statefulSet("s")
	s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, corev1.Container{Name: "more", Image: "i"})
	e.create(s)
	got, err := c.Patch(e.ctx, apps.StatefulSets, e.ns, "s", api.Patch{Type: types.StrategicMergePatchType,
		Data: []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"former"}]}}}}`)}, api.WriteOptions{})
	e.must(err)
	if back := got.(*appsv1.StatefulSet).Spec.Template; len(back.Spec.Containers) != 1 || back.Spec.Containers[0].Image != "former" ||
		len(back.Annotations) != 0 {
		t.Errorf("brought back to %+v", back)
	}
}
