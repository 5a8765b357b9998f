// Package batch has the kinds of the group batch.
package batch

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// Jobs run pods until enough of them have succeeded. Who deletes one without a word about its pods leaves them, as on
// Kubernetes; kubectl does say something.
var Jobs = api.Define(api.Kind{Group: "batch", Version: "v1", Name: "Job", Resource: "jobs", Singular: "job", Categories: []string{"all"},
	Namespaced: true, Generation: true, Propagation: metav1.DeletePropagationOrphan},
	api.Rules[*batchv1.Job]{
		New:      func() *batchv1.Job { return &batchv1.Job{} },
		NewList:  func() api.ListObject { return &batchv1.JobList{} },
		Default:  defaultJob,
		Fresh:    func(j *batchv1.Job) { j.Status = batchv1.JobStatus{} },
		Validate: validateJob,
		ValidateUpdate: func(j, old *batchv1.Job, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateJobStatus(j, old)
			}
			return validateJobChange(j, old)
		},
		Warn:     jobWarnings,
		Spec:     func(j *batchv1.Job) any { return &j.Spec },
		Status:   func(j *batchv1.Job) any { return &j.Status },
		Beat:     jobBeat,
		Template: func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
		Fields: []api.Field[*batchv1.Job]{
			{Name: "status.successful", Get: func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) }}},
		Computed: []string{"status.successful"},
		Columns:  jobColumns,
		Cells:    jobCells,
	})

// jobBeat: who is at work is found anew after a power cut. What is counted is not.
func jobBeat(j, was *batchv1.Job) *batchv1.Job {
	out := *j
	out.Status.Active, out.Status.Ready, out.Status.Terminating = was.Status.Active, was.Status.Ready, was.Status.Terminating
	return &out
}

// unsupported are the fields of a Job's spec, beside those of its template, that ledge does not honour: pods that are placed
// together or not at all.
var unsupported = []valid.Refusal{{Path: "scheduling"}}

var refusals = sync.OnceValue(func() []valid.Lookup { return valid.Resolve(reflect.TypeFor[batchv1.JobSpec](), unsupported) })

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	if len(j.Labels) == 0 && s.Selector != nil { // else Select does it
		j.Labels = maps.Clone(s.Template.Labels)
	}
	if s.Completions == nil && s.Parallelism == nil {
		setDefault(&s.Completions, 1)
	}
	setDefault(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		setDefault(&s.BackoffLimit, math.MaxInt32)
	}
	setDefault(&s.BackoffLimit, 6)
	setDefault(&s.CompletionMode, batchv1.NonIndexedCompletion)
	setDefault(&s.Suspend, false)
	if s.PodFailurePolicy != nil {
		setDefault(&s.PodReplacementPolicy, batchv1.Failed)
	}
	setDefault(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	setDefault(&s.ManualSelector, false)
	defaultJobSpec(s)
}

// defaultJobSpec fills what is filled in the template of a CronJob, too.
func defaultJobSpec(s *batchv1.JobSpec) {
	if s.PodFailurePolicy != nil {
		for i := range s.PodFailurePolicy.Rules {
			for k := range s.PodFailurePolicy.Rules[i].OnPodConditions {
				if c := &s.PodFailurePolicy.Rules[i].OnPodConditions[k]; c.Status == "" {
					c.Status = corev1.ConditionTrue
				}
			}
		}
	}
	api.DefaultTemplate(&s.Template)
}

// Select gives a Job that has its name and uid the selector and labels by which its pods are told from all others, unless its
// maker chose some. Labels that say something else are left for validation to refuse.
func Select(j *batchv1.Job) {
	if or(j.Spec.ManualSelector, false) {
		return
	}
	labels := maps.Clone(j.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range generated(j) {
		if _, ok := labels[key]; !ok {
			labels[key] = value
		}
	}
	j.Spec.Template.Labels = labels
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(labels)
	}
	selector := j.Spec.Selector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	if _, ok := selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
	j.Spec.Selector = selector
}

// generated are the labels of the pods of a Job: by today's names and by those of old.
func generated(j *batchv1.Job) map[string]string {
	return map[string]string{batchv1.JobNameLabel: j.Name, batchv1.ControllerUidLabel: string(j.UID),
		"job-name": j.Name, "controller-uid": string(j.UID)}
}

// IsIndexed says that each pod of a Job does the work of one index.
func IsIndexed(s *batchv1.JobSpec) bool {
	return or(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// Is says that a condition of a Job is true.
func Is(s *batchv1.JobStatus, t batchv1.JobConditionType) bool {
	return has(s, t, corev1.ConditionTrue)
}

func has(s *batchv1.JobStatus, t batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t && s.Conditions[i].Status == status {
			return true
		}
	}
	return false
}

// Finished says that a Job has succeeded or failed, and that nothing more comes of it.
func Finished(s *batchv1.JobStatus) bool {
	return Is(s, batchv1.JobComplete) || Is(s, batchv1.JobFailed)
}

func jobWarnings(j *batchv1.Job) []string {
	var out []string
	if msgs := validation.IsDNS1123Label(j.Name); len(msgs) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: pods and their host names are called by it, and it is no DNS label: %v", msgs))
	}
	return append(out, api.TemplateWarnings(&j.Spec.Template, field.NewPath("spec", "template"))...)
}

var jobColumns = table.Columns{
	table.Name,
	table.Column("Status", "string", "How far it is."),
	table.Column("Completions", "string", "How many pods have succeeded, of how many that are to."),
	table.Column("Duration", "string", "How long it has taken."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods are counted."),
}

func jobCells(j *batchv1.Job, l table.Look) []any {
	names, images := table.Containers(&j.Spec.Template.Spec)
	took := ""
	switch start, end := j.Status.StartTime, j.Status.CompletionTime; {
	case start == nil:
	case end == nil:
		took = l.Since(start.Time)
	default:
		took = duration.HumanDuration(end.Sub(start.Time))
	}
	return []any{j.Name, jobState(j), completions(j), took, l.AgeOf(j), names, images, metav1.FormatLabelSelector(j.Spec.Selector)}
}

func completions(j *batchv1.Job) string {
	done, at := j.Status.Succeeded, or(j.Spec.Parallelism, 0)
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", done, *j.Spec.Completions)
	case at > 1:
		return fmt.Sprintf("%d/1 of %d", done, at)
	}
	return fmt.Sprintf("%d/1", done)
}

func jobState(j *batchv1.Job) string {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if Is(&j.Status, t) {
			return string(t)
		}
	}
	if j.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if Is(&j.Status, t) {
			return string(t)
		}
	}
	return "Running"
}
