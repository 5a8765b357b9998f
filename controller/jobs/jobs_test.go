package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api/batch"
)

var now = time.Unix(1e9, 0).UTC()

// work is a Job as the server makes it.
func work(edit ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work", UID: "job", Generation: 1}}
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{{Name: "i"}},
		Containers: []corev1.Container{{Name: "c"}}}
	for _, f := range edit {
		f(j)
	}
	batch.Select(j)
	batch.Jobs.Default(j)
	return j
}

func indexed(n int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions, j.Spec.Parallelism = pointer(batchv1.IndexedCompletion), &n, &n
	}
}

// watched is what one knows of a Job who has watched it all along.
func watched(j *batchv1.Job) (w Watch) {
	w.Look(j, now, func() bool { return true })
	return w
}

func pointer[T any](v T) *T { return &v }

// podsOf makes pods of words: what a pod is, "name: running ready index=1 ...".
func podsOf(j *batchv1.Job, lines ...string) (out []*corev1.Pod) {
	for _, line := range lines {
		name, words, _ := strings.Cut(line, ":")
		p := batch.Jobs.PodOf(j)
		p.Name, p.UID, p.CreationTimestamp = name, types.UID(name), metav1.NewTime(now.Add(-time.Hour))
		p.Spec.NodeName, p.Finalizers = "n", []string{batchv1.JobTrackingFinalizer}
		p.Annotations = map[string]string{}
		p.Status.Phase = corev1.PodPending
		for word := range strings.FieldsSeq(words) {
			key, value, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(value)
			switch key {
			case "running", "succeeded", "failed":
				p.Status.Phase = corev1.PodPhase(strings.ToUpper(key[:1]) + key[1:])
			case "off":
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Terminated"
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
			case "ready":
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			case "going":
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = pointer(metav1.NewTime(now)), new(int64)
			case "free":
				p.Finalizers = nil
			case "orphan":
				p.OwnerReferences = nil
			case "stranger":
				p.Labels = nil
			case "waiting":
				p.Spec.NodeName = ""
			case "index":
				p.Annotations[batchv1.JobCompletionIndexAnnotation] = value
			case "fails":
				p.Annotations[batchv1.JobIndexFailureCountAnnotation] = value
			case "ignored":
				p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = value
			case "code", "ago":
				if len(p.Status.ContainerStatuses) == 0 {
					p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
						State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
				}
				end := p.Status.ContainerStatuses[0].State.Terminated
				if key == "code" {
					end.ExitCode = int32(n)
				} else {
					d, _ := time.ParseDuration(value)
					end.FinishedAt = metav1.NewTime(now.Add(-d))
				}
			case "restarts":
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: int32(n)}}
			default:
				panic(word)
			}
		}
		out = append(out, p)
	}
	return out
}

// told is a plan in words.
func told(j *batchv1.Job, p *Plan) string {
	var out []string
	for what, list := range map[string][]*corev1.Pod{"adopt": p.Adopt, "release": p.Release, "delete": p.Delete, "drop": p.Drop,
		"free": p.Free} {
		if len(list) > 0 {
			var names []string
			for _, it := range list {
				names = append(names, it.Name)
			}
			slices.Sort(names)
			out = append(out, what+"="+strings.Join(names, ","))
		}
	}
	if n := len(p.Make); n > 0 && !batch.IsIndexed(&j.Spec) {
		out = append(out, fmt.Sprintf("make=%d", n))
	} else if n > 0 {
		var of []string
		for _, it := range p.Make {
			of = append(of, it.Labels[batchv1.JobCompletionIndexAnnotation])
		}
		out = append(out, "make="+strings.Join(of, ","))
	}
	s := &p.Status
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		out = append(out, fmt.Sprintf("uncounted=%d/%d", len(u.Succeeded), len(u.Failed)))
	}
	if s.Succeeded+s.Failed > 0 {
		out = append(out, fmt.Sprintf("counted=%d/%d", s.Succeeded, s.Failed))
	}
	if s.CompletedIndexes != "" {
		out = append(out, "done="+s.CompletedIndexes)
	}
	if s.FailedIndexes != nil && *s.FailedIndexes != "" {
		out = append(out, "broken="+*s.FailedIndexes)
	}
	for _, c := range s.Conditions {
		out = append(out, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
	}
	if p.Again > 0 {
		out = append(out, "again="+p.Again.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func spec(edit func(*batchv1.JobSpec)) func(*batchv1.Job) {
	return func(j *batchv1.Job) { edit(&j.Spec) }
}

func status(edit func(*batchv1.JobStatus)) func(*batchv1.Job) {
	return func(j *batchv1.Job) { edit(&j.Status) }
}

func verdict(t batchv1.JobConditionType) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.StartTime = pointer(metav1.NewTime(now))
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: "Why"})
	}
}

func policy(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
	return spec(func(s *batchv1.JobSpec) { s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} })
}

func onCode(action batchv1.PodFailurePolicyAction, codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
		Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes}}
}

func onDisruption(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
}

func TestNext(t *testing.T) {
	type edits = []func(*batchv1.Job)
	many := func(completions, parallelism int32) func(*batchv1.Job) {
		return spec(func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = &completions, &parallelism })
	}
	queue := spec(func(s *batchv1.JobSpec) { s.Parallelism = pointer(int32(2)) })
	limit := func(n int32) func(*batchv1.Job) { return spec(func(s *batchv1.JobSpec) { s.BackoffLimit = &n }) }
	perIndex := func(n int32) func(*batchv1.Job) {
		return spec(func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = &n })
	}
	suspended := spec(func(s *batchv1.JobSpec) { s.Suspend = pointer(true) })
	onlyFailed := spec(func(s *batchv1.JobSpec) { s.PodReplacementPolicy = pointer(batchv1.Failed) })
	success := func(r batchv1.SuccessPolicyRule) func(*batchv1.Job) {
		return spec(func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{r}}
		})
	}
	deadline := spec(func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = pointer(int64(60)) })
	started := func(ago time.Duration) func(*batchv1.Job) {
		return status(func(s *batchv1.JobStatus) { s.StartTime = pointer(metav1.NewTime(now.Add(-ago))) })
	}
	uncounted := func(uids ...types.UID) func(*batchv1.Job) {
		return status(func(s *batchv1.JobStatus) { s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: uids} })
	}
	onFailure := spec(func(s *batchv1.JobSpec) { s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
	for _, tc := range []struct {
		name string
		job  edits
		pods string
		want string
	}{
		{"a new one", edits{many(3, 2)}, "", "make=2"},
		{"not more than are left to do", edits{many(3, 5), status(func(s *batchv1.JobStatus) { s.Succeeded = 2 })}, "", "counted=2/0 make=1"},
		{"one at work", edits{many(3, 1)}, "a: running", ""},
		{"too many", edits{many(3, 1)}, "a: running; b: waiting", "drop=b"},
		{"none at once", edits{many(3, 0)}, "a: running", "drop=a"},
		{"a pod succeeds", edits{many(3, 1)}, "a: succeeded", "free=a make=1 uncounted=1/0"},
		{"the last one succeeds", edits{many(1, 1)}, "a: succeeded", "SuccessCriteriaMet=True(CompletionsReached) free=a uncounted=1/0"},
		{"it is counted", edits{many(1, 1), verdict(batchv1.JobSuccessCriteriaMet), status(func(s *batchv1.JobStatus) {
			s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}}
		})}, "a: succeeded free", "Complete=True(Why) SuccessCriteriaMet=True(Why) counted=1/0"},
		{"nothing to do", edits{many(0, 1)}, "", "Complete=True(CompletionsReached) SuccessCriteriaMet=True(CompletionsReached)"},
		{"a queue", edits{queue}, "a: running", "make=1"},
		{"a queue is empty", edits{queue}, "a: succeeded; b: running", "free=a uncounted=1/0"},
		{"a queue ends", edits{queue}, "a: succeeded; b: failed ago=1h", "SuccessCriteriaMet=True(CompletionsReached) free=a,b uncounted=1/1"},

		{"a pod fails", edits{}, "a: failed ago=4s", "again=6s free=a uncounted=0/1"},
		{"longer after the second", edits{}, "a: failed free ago=1m; b: failed ago=4s", "again=16s free=b uncounted=0/1"},
		{"not after a success", edits{many(5, 1)}, "a: failed free ago=1m; b: succeeded free ago=5s; c: failed ago=4s",
			"again=6s free=c uncounted=0/1"},
		{"a failure that is to come", edits{}, "a: failed ago=-1h", "again=10s free=a uncounted=0/1"},
		{"too many failures", edits{limit(0)}, "a: failed ago=1h; b: running",
			"FailureTarget=True(BackoffLimitExceeded) delete=b free=a,b uncounted=0/2"},
		{"failed, and its pods go", edits{verdict(batchv1.JobFailureTarget), uncounted("a", "b")}, "a: failed free; b: running going free",
			"FailureTarget=True(Why) counted=0/2"},
		{"failed, and its pods are gone", edits{verdict(batchv1.JobFailureTarget), uncounted("b")}, "",
			"Failed=True(Why) FailureTarget=True(Why) counted=0/1"},
		{"restarts in place", edits{onFailure, limit(3)}, "a: running restarts=2", ""},
		{"too many restarts", edits{onFailure, limit(3)}, "a: running restarts=3",
			"FailureTarget=True(BackoffLimitExceeded) delete=a free=a uncounted=0/1"},
		{"a deadline", edits{deadline, started(20 * time.Second)}, "a: running", "again=40s"},
		{"a deadline is over", edits{deadline, started(time.Minute)}, "a: running",
			"FailureTarget=True(DeadlineExceeded) delete=a free=a uncounted=0/1"},

		{"a pod is deleted", edits{}, "a: running going", "again=10s free=a uncounted=0/1"},
		{"a pod is deleted, and has to end first", edits{onlyFailed}, "a: running going", ""},
		{"a power-off", edits{limit(0)}, "a: off", "free=a make=1"},
		{"after a power-off", edits{}, "a: off free; b: running", "delete=a"},
		{"a power-off as a rule has it", edits{limit(0), policy(onDisruption(batchv1.PodFailurePolicyActionCount))}, "a: off",
			"FailureTarget=True(BackoffLimitExceeded) free=a uncounted=0/1"},
		{"ignored", edits{limit(0), policy(onCode(batchv1.PodFailurePolicyActionIgnore, 7))}, "a: failed code=7 ago=1h", "free=a make=1"},
		{"counted by the first rule", edits{limit(9),
			policy(onCode(batchv1.PodFailurePolicyActionCount, 7), onCode(batchv1.PodFailurePolicyActionFailJob, 7))},
			"a: failed code=7 ago=1h", "free=a make=1 uncounted=0/1"},
		{"a bug", edits{policy(onCode(batchv1.PodFailurePolicyActionFailJob, 3, 7))}, "a: failed code=7 ago=1h; b: running",
			"FailureTarget=True(PodFailurePolicy) delete=b free=a,b uncounted=0/2"},

		{"suspended", edits{suspended}, "a: running", "Suspended=True(JobSuspended) drop=a"},
		{"it goes on", edits{verdict(batchv1.JobSuspended)}, "", "Suspended=False(JobResumed) make=1"},
		{"what others left", edits{}, "a: running orphan", "adopt=a"},
		{"who took the finalizer died", edits{}, "a: running free", "adopt=a"},
		{"no longer its own", edits{}, "a: running stranger", "release=a"},
		{"of somebody else", edits{}, "a: running orphan stranger", "make=1"},

		{"indexes", edits{indexed(4), spec(func(s *batchv1.JobSpec) { s.Parallelism = pointer(int32(3)) })}, "a: running index=1", "make=0,2"},
		{"an index succeeds", edits{indexed(2)}, "a: succeeded index=1; b: running index=0", "counted=1/0 done=1 free=a"},
		{"an index twice", edits{indexed(2)}, "a: running index=1; b: waiting index=1; c: running index=0", "drop=b"},
		{"no index", edits{indexed(1)}, "a: running; b: running index=0; c: running index=1", "drop=a,c"},
		{"success of an index that there is no more", edits{indexed(1)}, "a: succeeded index=3", "free=a make=0"},
		{"an index fails", edits{indexed(2), perIndex(1)}, "a: failed index=0 ago=4s; b: running index=1", "again=6s"},
		{"an index is tried again", edits{indexed(2), perIndex(1)}, "a: failed index=0 ago=10s; b: running index=1", "make=0"},
		{"the failure is counted then", edits{indexed(2), perIndex(1)},
			"a: failed index=0 ago=10s; b: running index=1; c: running index=0 fails=1", "free=a uncounted=0/1"},
		{"an index fails for good", edits{indexed(2), perIndex(1)}, "a: failed index=0 fails=1 ago=10s; b: running index=1",
			"broken=0 free=a uncounted=0/1"},
		{"all indexes have ended", edits{indexed(2), perIndex(0)}, "a: failed index=0; b: succeeded index=1",
			"FailureTarget=True(FailedIndexes) broken=0 counted=1/0 done=1 free=a,b uncounted=0/1"},
		{"too many indexes fail", edits{indexed(3), perIndex(0), spec(func(s *batchv1.JobSpec) { s.MaxFailedIndexes = new(int32) })},
			"a: failed index=0; b: running index=1",
			"FailureTarget=True(MaxFailedIndexesExceeded) broken=0 delete=b free=a,b uncounted=0/2"},
		{"a rule fails the index", edits{indexed(2), perIndex(5), policy(onCode(batchv1.PodFailurePolicyActionFailIndex, 7))},
			"a: failed index=0 code=7; b: running index=1",
			"broken=0 free=a uncounted=0/1"},
		{"enough", edits{indexed(3), success(batchv1.SuccessPolicyRule{SucceededIndexes: pointer("1-2"), SucceededCount: pointer(int32(1))})},
			"a: succeeded index=1; b: running index=2",
			"SuccessCriteriaMet=True(SuccessPolicy) counted=1/0 delete=b done=1 free=a,b"},
		{"not enough", edits{indexed(2), success(batchv1.SuccessPolicyRule{SucceededIndexes: pointer("1")})},
			"a: succeeded index=0; b: running index=1", "counted=1/0 done=0 free=a"},
		{"the end of a finished one", edits{verdict(batchv1.JobComplete)}, "a: succeeded; b: off free", "Complete=True(Why) delete=b free=a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := work(tc.job...)
			var lines []string
			for line := range strings.SplitSeq(tc.pods, ";") {
				if line = strings.TrimSpace(line); line != "" {
					lines = append(lines, line)
				}
			}
			plan := Next(j, podsOf(j, lines...), 0, watched(j), now)
			if got := told(j, &plan); got != tc.want {
				t.Errorf("\ngot  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestPod(t *testing.T) {
	j := work(indexed(12), spec(func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.Parallelism = pointer(int32(3)), pointer(int32(1))
		s.Template.Spec.Containers = append(s.Template.Spec.Containers,
			corev1.Container{Name: "own", Env: []corev1.EnvVar{{Name: indexVariable, Value: "x"}}})
	}))
	done := "0-9"
	j.Status.CompletedIndexes = done
	plan := Next(j, podsOf(j, "a: failed index=10 fails=1 ago=1h"), 0, watched(j), now)
	if len(plan.Make) != 1 {
		t.Fatal(told(j, &plan))
	}
	p := plan.Make[0]
	if p.GenerateName != "work-10-" || p.Spec.Hostname != "work-10" || p.Labels[batchv1.JobCompletionIndexAnnotation] != "10" ||
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] != "2" || !Tracked(p) || !metav1.IsControlledBy(p, j) {
		t.Errorf("%+v", p)
	}
	for _, c := range [][]corev1.EnvVar{p.Spec.InitContainers[0].Env, p.Spec.Containers[0].Env} {
		if len(c) != 1 || c[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
			t.Errorf("environment %+v", c)
		}
	}
	if own := p.Spec.Containers[1].Env; len(own) != 1 || own[0].Value != "x" {
		t.Errorf("its own variable: %+v", own)
	}
	if len(j.Spec.Template.Spec.Containers[0].Env) != 0 {
		t.Error("the template was changed")
	}
}

// What one look does is bounded, however large a Job is.
func TestBounds(t *testing.T) {
	j := work(spec(func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism = pointer(int32(1<<31-1)), pointer(int32(1<<31-1))
	}))
	if plan := Next(j, nil, 0, watched(j), now); len(plan.Make) != mostWaiting {
		t.Errorf("%d pods are made", len(plan.Make))
	}
	j = work(indexed(100_000))
	if plan := Next(j, podsOf(j, "a: waiting index=3"), 0, watched(j), now); len(plan.Make) != mostWaiting-1 {
		t.Errorf("%d pods are made", len(plan.Make))
	}
	var lines []string
	for i := range 700 {
		lines = append(lines, fmt.Sprintf("%d: succeeded", i))
	}
	j = work(spec(func(s *batchv1.JobSpec) { s.Completions = pointer(int32(1000)) }))
	if plan := Next(j, podsOf(j, lines...), 0, watched(j), now); len(plan.Status.UncountedTerminatedPods.Succeeded) != mostUncounted ||
		len(plan.Free) != mostUncounted {
		t.Errorf("%d pods are noted, %d let go", len(plan.Status.UncountedTerminatedPods.Succeeded), len(plan.Free))
	}
}

// Whoever may change pods may write any number of failures into them, and whoever may make Jobs any deadline.
func TestHostileNumbers(t *testing.T) {
	const most = "2147483647"
	for _, line := range []string{"a: failed index=0 fails=1 ignored=" + most, "a: failed index=0 fails=" + most + " ignored=" + most,
		"a: failed index=0 fails=" + most + " ignored=1"} {
		j := work(indexed(1), spec(func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = pointer(int32(1<<31 - 1)) }))
		p := podsOf(j, line)
		p[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now)}}}}
		if plan := Next(j, p, 0, watched(j), now); len(plan.Make) > 0 || plan.Again > longestBackOff {
			t.Errorf("%s: %s", line, told(j, &plan))
		}
		plan := Next(j, p, 0, watched(j), now.Add(time.Hour))
		for _, p := range plan.Make {
			if failures(p, batchv1.JobIndexFailureCountAnnotation) == 0 || allFailures(p) <= 0 {
				t.Errorf("%s: the next pod has %v", line, p.Annotations)
			}
		}
	}
	for _, seconds := range []int64{1<<63 - 1, 1e18, 1e10} {
		j := work(spec(func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = &seconds }))
		if plan := Next(j, podsOf(j, "a: running"), 0, watched(j), now); len(plan.Delete) > 0 {
			t.Errorf("a deadline of %d s: %s", seconds, told(j, &plan))
		}
	}
}

// Times are written as they will be read: a status must not seem to change when it is written again.
func TestWholeSeconds(t *testing.T) {
	j := work(spec(func(s *batchv1.JobSpec) { s.Completions = new(int32) }))
	s := Next(j, nil, 0, watched(j), now.Add(time.Millisecond)).Status
	for _, at := range []metav1.Time{*s.StartTime, *s.CompletionTime, s.Conditions[0].LastTransitionTime} {
		if !at.Equal(pointer(metav1.NewTime(now))) {
			t.Errorf("%v", at.Time)
		}
	}
}
