package jobs

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// judge says whether the Job has succeeded or failed. What was said once stays.
func (l *look) judge() {
	s := &l.Plan.Status
	if s.StartTime == nil && !l.suspended() {
		now := l.stamp()
		s.StartTime = &now
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if (c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue {
			l.verdict = c
			return
		}
	}
	t, reason, message := l.sentence()
	if reason == "" {
		return
	}
	l.set(t, corev1.ConditionTrue, reason, message)
	c := l.condition(t, reason, message)
	l.verdict = &c
}

// sentence is a verdict on a Job that has none; an empty reason: it goes on.
func (l *look) sentence() (t batchv1.JobConditionType, reason, message string) {
	if reason, message = l.failure(); reason != "" {
		return batchv1.JobFailureTarget, reason, message
	}
	if i := l.successRule(); i >= 0 {
		return batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", i)
	}
	if n := l.Spec.Completions; len(l.active) == 0 && (n == nil && l.succeeded > 0 || n != nil && l.succeeded >= *n) {
		return batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"
	}
	return "", "", ""
}

// failure says why the Job has failed, if it has.
func (l *look) failure() (reason, message string) {
	for _, p := range l.pods {
		if l.hasFailed(p) {
			if r, i := l.rule(p); r != nil && r.Action == batchv1.PodFailurePolicyActionFailJob {
				return batchv1.JobReasonPodFailurePolicy, failed(p, r, i)
			}
		}
	}
	limit := *l.Spec.BackoffLimit
	if n := l.restarts(); l.failed > limit || n > 0 && n >= limit {
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	}
	if left, ok := l.watch.left(l.Job, l.now); ok && !l.suspended() {
		if left <= 0 {
			return batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
		}
		l.again(left)
	}
	if !l.indexed || !l.perIndex {
		return "", ""
	}
	switch n := l.broken.Len(); {
	case l.Spec.MaxFailedIndexes != nil && n > int(*l.Spec.MaxFailedIndexes):
		return batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case n > 0 && n+l.done.Len() >= int(*l.Spec.Completions):
		return batchv1.JobReasonFailedIndexes, "Job has failed indexes"
	}
	return "", ""
}

// restarts are those of the containers of pods that go on, where the containers are started again in their pods.
func (l *look) restarts() (n int32) {
	if l.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return 0
	}
	for _, p := range l.pods {
		if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending {
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				n += c.RestartCount
			}
		}
	}
	return n
}

// successRule is the first rule that the indexes that have succeeded meet; -1: none.
func (l *look) successRule() int {
	if l.Spec.SuccessPolicy == nil || !l.indexed || len(l.done) == 0 {
		return -1
	}
	return slices.IndexFunc(l.Spec.SuccessPolicy.Rules, func(r batchv1.SuccessPolicyRule) bool {
		if r.SucceededIndexes == nil {
			return r.SucceededCount != nil && l.done.Len() >= int(*r.SucceededCount)
		}
		wanted := indexesOf(*r.SucceededIndexes).Below(int(*l.Spec.Completions))
		n := l.done.Common(wanted).Len()
		return len(wanted) > 0 && (n == wanted.Len() || r.SucceededCount != nil && n >= int(*r.SucceededCount))
	})
}

// rule is the first rule of the Job's policy that a failed pod meets, and its number.
func (l *look) rule(p *corev1.Pod) (*batchv1.PodFailurePolicyRule, int) {
	if l.Spec.PodFailurePolicy == nil {
		return nil, -1
	}
	rules := l.Spec.PodFailurePolicy.Rules
	for i := range rules {
		if exit(p, rules[i].OnExitCodes) != nil || condition(p, rules[i].OnPodConditions) != nil {
			return &rules[i], i
		}
	}
	return nil, -1
}

// action is what follows from the failure of a pod. A pod that an orderly power-off of its board ended is no failure of what
// runs in it: unless a rule says something else, it does not count.
func (l *look) action(p *corev1.Pod) batchv1.PodFailurePolicyAction {
	switch r, _ := l.rule(p); {
	case r != nil:
		return r.Action
	case api.PoweredOff(p):
		return batchv1.PodFailurePolicyActionIgnore
	}
	return batchv1.PodFailurePolicyActionCount
}

func (l *look) counts(p *corev1.Pod) bool { return l.action(p) != batchv1.PodFailurePolicyActionIgnore }

// exit is the container whose end meets a rule.
func exit(p *corev1.Pod, r *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	if r == nil {
		return nil
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			end := list[i].State.Terminated
			if end == nil || end.ExitCode == 0 || r.ContainerName != nil && *r.ContainerName != list[i].Name {
				continue
			}
			if slices.Contains(r.Values, end.ExitCode) == (r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return &list[i]
			}
		}
	}
	return nil
}

// condition is the one of a pod that meets a rule.
func condition(p *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if slices.ContainsFunc(patterns, func(r batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return r.Type == c.Type && r.Status == c.Status
		}) {
			return c
		}
	}
	return nil
}

// failed says in Kubernetes' words, which programs read, how a pod met a rule.
func failed(p *corev1.Pod, r *batchv1.PodFailurePolicyRule, i int) string {
	if c := exit(p, r.OnExitCodes); c != nil {
		return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
			c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode, r.Action, i)
	}
	return fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", p.Namespace, p.Name, condition(p, r.OnPodConditions).Type,
		r.Action, i)
}
