package apitest

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
)

var batchCases = []Case{
	{"Job", testJob},
	{"JobRefused", testJobRefused},
	{"JobChanged", testJobChanged},
	{"JobStatus", testJobStatus},
	{"CronJob", testCronJob},
	{"CronJobRefused", testCronJobRefused},
}

// job is one that somebody else runs: where controllers run, nothing but the API acts on it.
func (e *env) job(name string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	j.Spec.ManagedBy = pointer("apitest.dev/nobody")
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "example.org/x:1"}}}
	return j
}

// indexed is a Job of three indexes.
func (e *env) indexed(name string) *batchv1.Job {
	j := e.job(name)
	j.Spec.CompletionMode, j.Spec.Completions = pointer(batchv1.IndexedCompletion), pointer(int32(3))
	return j
}

func testJob(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.job("j")
	in.Status.Succeeded = 7
	j := e.create(in).(*batchv1.Job)
	s := &j.Spec
	if j.Kind != "Job" || j.APIVersion != "batch/v1" || j.Generation != 1 || j.Status.Succeeded != 0 {
		t.Errorf("made %+v", j)
	}
	if *s.Completions != 1 || *s.Parallelism != 1 || *s.BackoffLimit != 6 || *s.CompletionMode != batchv1.NonIndexedCompletion || *s.Suspend ||
		*s.PodReplacementPolicy != batchv1.TerminatingOrFailed || *s.ManualSelector || s.Template.Spec.DNSPolicy != corev1.DNSClusterFirst {
		t.Errorf("defaults: %+v", s)
	}
	for key, want := range map[string]string{"batch.kubernetes.io/job-name": "j", "job-name": "j",
		"batch.kubernetes.io/controller-uid": string(j.UID),
		"controller-uid":                     string(j.UID)} {
		if s.Template.Labels[key] != want {
			t.Errorf("label %s is %q", key, s.Template.Labels[key])
		}
	}
	if len(s.Selector.MatchLabels) != 1 || s.Selector.MatchLabels["batch.kubernetes.io/controller-uid"] != string(j.UID) {
		t.Errorf("selector %v", s.Selector)
	}
	j.Spec.Parallelism = pointer(int32(4))
	j = e.update(j).(*batchv1.Job)
	if j.Generation != 2 || *j.Spec.Parallelism != 4 {
		t.Errorf("changed to %+v", j)
	}

	queue := e.job("queue") // one success is enough
	queue.Spec.Parallelism = pointer(int32(2))
	if q := e.create(queue).(*batchv1.Job); q.Spec.Completions != nil {
		t.Errorf("completions: %d", *q.Spec.Completions)
	}
	each := e.indexed("each")
	each.Spec.BackoffLimitPerIndex = pointer(int32(1))
	if i := e.create(each).(*batchv1.Job); *i.Spec.BackoffLimit != 1<<31-1 {
		t.Errorf("backoffLimit beside one for each index: %d", *i.Spec.BackoffLimit)
	}
	policy := e.job("policy")
	policy.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: "Ignore",
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget}}}}}
	if p := e.create(policy).(*batchv1.Job); *p.Spec.PodReplacementPolicy != batchv1.Failed ||
		p.Spec.PodFailurePolicy.Rules[0].OnPodConditions[0].Status != "True" {
		t.Errorf("with a policy: %+v", p.Spec)
	}
	manual := e.job("manual")
	manual.Spec.ManualSelector, manual.Spec.Selector, manual.Spec.Template.Labels = pointer(true), webSelector(), webSelector().MatchLabels
	if m := e.create(manual).(*batchv1.Job); len(m.Spec.Template.Labels) != 1 || len(m.Spec.Selector.MatchLabels) != 1 ||
		m.Labels["app"] != "web" {
		t.Errorf("with its own selector: %+v", m)
	}
	e.delete(j, api.DeleteOptions{Propagation: metav1.DeletePropagationBackground})
	e.gone(j)
}

func testJobRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	type spec = batchv1.JobSpec
	rule := func(r batchv1.PodFailurePolicyRule) func(*spec) {
		return func(s *spec) {
			s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{r}}
		}
	}
	codes := func(op string, values ...int32) func(*spec) {
		return rule(batchv1.PodFailurePolicyRule{Action: "Count", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOperator(op), Values: values}})
	}
	success := func(indexes *string, count *int32) func(*spec) {
		return func(s *spec) {
			s.CompletionMode, s.Completions = pointer(batchv1.IndexedCompletion), pointer(int32(3))
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: indexes, SucceededCount: count}}}
		}
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(s *spec)
	}{
		"fewer than none":     {"spec.parallelism", func(s *spec) { s.Parallelism = pointer(int32(-1)) }},
		"no end":              {"spec.completions", func(s *spec) { s.Completions = pointer(int32(-1)) }},
		"a negative limit":    {"spec.backoffLimit", func(s *spec) { s.BackoffLimit = pointer(int32(-1)) }},
		"a negative deadline": {"spec.activeDeadlineSeconds", func(s *spec) { s.ActiveDeadlineSeconds = pointer(int64(-1)) }},
		"gone before it ends": {"spec.ttlSecondsAfterFinished", func(s *spec) { s.TTLSecondsAfterFinished = pointer(int32(-1)) }},
		"nobody runs it":      {"spec.managedBy", func(s *spec) { s.ManagedBy = pointer("me") }},
		"another mode":        {"spec.completionMode", func(s *spec) { s.CompletionMode = pointer(batchv1.CompletionMode("Sometimes")) }},
		"indexes without end": {"spec.completions",
			func(s *spec) { s.CompletionMode, s.Parallelism = pointer(batchv1.IndexedCompletion), pointer(int32(1)) }},
		"limits of no index":  {"spec.backoffLimitPerIndex", func(s *spec) { s.BackoffLimitPerIndex = pointer(int32(1)) }},
		"a limit alone":       {"spec.backoffLimitPerIndex", func(s *spec) { s.MaxFailedIndexes = pointer(int32(1)) }},
		"pods that never end": {"spec.template.spec.restartPolicy", func(s *spec) { s.Template.Spec.RestartPolicy = "Always" }},
		"no word about it":    {"spec.template.spec.restartPolicy", func(s *spec) { s.Template.Spec.RestartPolicy = "" }},
		"no containers":       {"spec.template.spec.containers", func(s *spec) { s.Template.Spec.Containers = nil }},
		"another selector":    {"spec.selector", func(s *spec) { s.Selector = webSelector() }},
		"somebody else's label": {"spec.template.metadata.labels[job-name]",
			func(s *spec) { s.Template.Labels = map[string]string{"job-name": "other"} }},
		"replaced at once": {"spec.podReplacementPolicy", func(s *spec) {
			codes("In", 1)(s)
			s.PodReplacementPolicy = pointer(batchv1.TerminatingOrFailed)
		}},
		"a policy for restarts": {"spec.template.spec.restartPolicy",
			func(s *spec) { codes("In", 1)(s); s.Template.Spec.RestartPolicy = "OnFailure" }},
		"a rule of nothing":    {"spec.podFailurePolicy.rules[0]", rule(batchv1.PodFailurePolicyRule{Action: "Count"})},
		"no action":            {"spec.podFailurePolicy.rules[0].action", rule(batchv1.PodFailurePolicyRule{})},
		"success as a failure": {"spec.podFailurePolicy.rules[0].onExitCodes.values[0]", codes("In", 0)},
		"codes out of order":   {"spec.podFailurePolicy.rules[0].onExitCodes.values", codes("NotIn", 2, 1)},
		"a code twice":         {"spec.podFailurePolicy.rules[0].onExitCodes.values[1]", codes("NotIn", 1, 1)},
		"no codes":             {"spec.podFailurePolicy.rules[0].onExitCodes.values", codes("NotIn")},
		"success of no index": {"spec.successPolicy", func(s *spec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: pointer(int32(1))}}}
		}},
		"success of nothing":   {"spec.successPolicy.rules[0]", success(nil, nil)},
		"an index too large":   {"spec.successPolicy.rules[0].succeededIndexes", success(pointer("0,3"), nil)},
		"indexes back and fro": {"spec.successPolicy.rules[0].succeededIndexes", success(pointer("2,1"), nil)},
		"more than there are":  {"spec.successPolicy.rules[0].succeededCount", success(pointer("0-1"), pointer(int32(3)))},
	} {
		j := e.job("j")
		tc.edit(&j.Spec)
		_, err := c.Create(e.ctx, batch.Jobs, j, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	long := e.indexed("a-name-of-62-letters-which-is-a-good-one-but-for-the-index-ofit")
	_, err := c.Create(e.ctx, batch.Jobs, long, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.name")
}

func testJobChanged(t *testing.T, c api.Client) {
	e := begin(t, c)
	refused := func(j *batchv1.Job, at string, edit func(s *batchv1.JobSpec)) {
		t.Helper()
		next := j.DeepCopy()
		edit(&next.Spec)
		_, err := c.Update(e.ctx, batch.Jobs, next, api.WriteOptions{})
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), at)
	}
	type spec = batchv1.JobSpec
	j := e.create(e.job("j")).(*batchv1.Job)
	refused(j, "spec.completions", func(s *spec) { *s.Completions = 2 })
	refused(j, "spec.selector", func(s *spec) { s.Selector.MatchLabels["more"] = "1" })
	refused(j, "spec.template", func(s *spec) { s.Template.Spec.NodeSelector = map[string]string{"a": "b"} })
	refused(j, "spec.managedBy", func(s *spec) { s.ManagedBy = nil })

	i := e.create(e.indexed("i")).(*batchv1.Job)
	refused(i, "spec.completions", func(s *spec) { *s.Completions = 2 })
	refused(i, "spec.completionMode", func(s *spec) { *s.CompletionMode = batchv1.NonIndexedCompletion })
	*i.Spec.Completions, *i.Spec.Parallelism = 5, 5
	e.update(i)

	halted := e.job("halted")
	halted.Spec.Suspend = pointer(true)
	h := e.create(halted).(*batchv1.Job)
	refused(h, "spec.template.spec", func(s *spec) { s.Template.Spec.Containers[0].Image = "example.org/y:1" })
	h.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
	h.Spec.Template.Labels["more"] = "1"
	h.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	h.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a",
				Operator: corev1.NodeSelectorOpExists}}}}}}}
	if h = e.update(h).(*batchv1.Job); h.Spec.Template.Spec.NodeSelector["a"] != "b" {
		t.Errorf("after a change of where it goes: %+v", h.Spec.Template)
	}
	h.Spec.Template.Spec.Affinity = nil
	h = e.update(h).(*batchv1.Job)
	*h.Spec.Suspend = false
	h = e.update(h).(*batchv1.Job)
	refused(h, "spec.template", func(s *spec) { s.Template.Spec.NodeSelector = nil })
}

func testJobStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	start := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
	end := metav1.NewTime(time.Now()).Rfc3339Copy()
	yes := func(types ...batchv1.JobConditionType) (out []batchv1.JobCondition) {
		for _, t := range types {
			out = append(out, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: end, LastProbeTime: end})
		}
		return out
	}
	i := e.create(e.indexed("i")).(*batchv1.Job)
	i.Spec.Parallelism = pointer(int32(9))
	i.Status = batchv1.JobStatus{StartTime: &start, Active: 2, Ready: pointer(int32(1)), Succeeded: 1, Failed: 1, CompletedIndexes: "1",
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Failed: []types.UID{"a"}}}
	i, err := api.UpdateStatus(e.ctx, c, batch.Jobs, i)
	e.must(err)
	if *i.Spec.Parallelism != 1 || i.Generation != 1 || i.Status.CompletedIndexes != "1" {
		t.Errorf("after the status: %+v", i)
	}
	type status = batchv1.JobStatus
	for name, tc := range map[string]struct {
		field string
		edit  func(s *status)
	}{
		"fewer than none":       {"status.active", func(s *status) { s.Active = -1 }},
		"more ready than there": {"status.ready", func(s *status) { s.Ready = pointer(int32(3)) }},
		"a failure taken back":  {"status.failed", func(s *status) { s.Failed = 0 }},
		"a success taken back":  {"status.succeeded", func(s *status) { s.Succeeded = 0 }},
		"a pod twice": {"status.uncountedTerminatedPods.succeeded[0]", func(s *status) {
			s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{""}}
		}},
		"an index too large":       {"status.completedIndexes", func(s *status) { s.CompletedIndexes = "1-3" }},
		"failed indexes of none":   {"status.failedIndexes", func(s *status) { s.FailedIndexes = pointer("2") }},
		"another start":            {"status.startTime", func(s *status) { s.StartTime = &end }},
		"an end without a verdict": {"status.completionTime", func(s *status) { s.CompletionTime = &end }},
		"an end without a word":    {"status.conditions", func(s *status) { s.Conditions = yes(batchv1.JobFailed) }},
		"both ends": {"status.conditions", func(s *status) {
			s.Conditions = yes(batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet)
		}},
		"an end with pods": {"status.active", func(s *status) {
			s.UncountedTerminatedPods, s.Conditions = nil, yes(batchv1.JobFailureTarget, batchv1.JobFailed)
		}},
		"an end with a rest": {"status.uncountedTerminatedPods", func(s *status) {
			s.Active, s.Ready, s.Conditions = 0, nil, yes(batchv1.JobFailureTarget, batchv1.JobFailed)
		}},
	} {
		next := i.DeepCopy()
		tc.edit(&next.Status)
		_, err := api.UpdateStatus(e.ctx, c, batch.Jobs, next)
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	i.Status.Active, i.Status.Ready, i.Status.UncountedTerminatedPods, i.Status.Succeeded, i.Status.CompletedIndexes = 0, nil, nil, 3, "0-2"
	i.Status.Conditions, i.Status.CompletionTime = yes(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete), &end
	i, err = api.UpdateStatus(e.ctx, c, batch.Jobs, i)
	e.must(err)
	i.Status.Conditions, i.Status.CompletionTime = i.Status.Conditions[:1], nil
	_, err = api.UpdateStatus(e.ctx, c, batch.Jobs, i)
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "status.conditions")
}
