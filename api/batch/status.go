package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// validateJobStatus holds whoever runs a Job to what its readers rely on: what has ended stays so, and no count goes back. What
// the status does not change is not looked at: a change of the spec may have made it wrong.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	at, s, was := field.NewPath("status"), &j.Status, &old.Status
	errs := valid.NotNegative(s.Active, at.Child("active"))
	errs = append(errs, valid.NotNegative(s.Succeeded, at.Child("succeeded"))...)
	errs = append(errs, valid.NotNegative(s.Failed, at.Child("failed"))...)
	errs = append(errs, valid.NotNegative(or(s.Ready, 0), at.Child("ready"))...)
	errs = append(errs, valid.NotNegative(or(s.Terminating, 0), at.Child("terminating"))...)
	errs = append(errs, validateUncounted(s.UncountedTerminatedPods, at.Child("uncountedTerminatedPods"))...)
	errs = append(errs, validateVerdicts(j, was, at.Child("conditions"))...)
	errs = append(errs, validateTimes(j, was, at)...)
	errs = append(errs, validateIndexStatus(j, was, at)...)
	return append(errs, validateCounters(j, was, at)...)
}

func validateUncounted(u *batchv1.UncountedTerminatedPods, at *field.Path) field.ErrorList {
	if u == nil {
		return nil
	}
	var errs field.ErrorList
	seen := map[types.UID]bool{}
	look := func(list []types.UID, at *field.Path) {
		for i, uid := range list {
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at.Index(i), uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at.Index(i), uid))
			}
			seen[uid] = true
		}
	}
	look(u.Succeeded, at.Child("succeeded"))
	look(u.Failed, at.Child("failed"))
	return errs
}

// validateVerdicts: a Job succeeds or fails, not both, says first that it is about to, and keeps to it.
func validateVerdicts(j *batchv1.Job, was *batchv1.JobStatus, at *field.Path) field.ErrorList {
	s := &j.Status
	var errs field.ErrorList
	refuse := func(when bool, why string) {
		if when {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, why))
		}
	}
	complete, failed := Is(s, batchv1.JobComplete), Is(s, batchv1.JobFailed)
	met, target := Is(s, batchv1.JobSuccessCriteriaMet), Is(s, batchv1.JobFailureTarget)
	completes, fails := complete != Is(was, batchv1.JobComplete), failed != Is(was, batchv1.JobFailed)
	meets, targets := met != Is(was, batchv1.JobSuccessCriteriaMet), target != Is(was, batchv1.JobFailureTarget)
	refuse((completes || fails) && complete && failed, "cannot set Complete=True and Failed=true conditions")
	refuse((completes || targets) && complete && target, "cannot set Complete=True and FailureTarget=true conditions")
	refuse((fails || !samePointer(s.FailedIndexes, was.FailedIndexes)) && failed && !target,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	refuse((completes || meets) && complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget,
		batchv1.JobSuccessCriteriaMet} {
		refuse(Is(was, t) && !Is(s, t), fmt.Sprintf("cannot disable the terminal %s=True condition", t))
	}
	return errs
}

func samePointer[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func validateTimes(j *batchv1.Job, was *batchv1.JobStatus, at *field.Path) field.ErrorList {
	s := &j.Status
	var errs field.ErrorList
	complete := Is(s, batchv1.JobComplete)
	ended := Finished(s) != Finished(was)
	started, completed := !s.StartTime.Equal(was.StartTime), !s.CompletionTime.Equal(was.CompletionTime)
	if complete != Is(was, batchv1.JobComplete) || completed {
		switch in := at.Child("completionTime"); {
		case complete && s.CompletionTime == nil:
			errs = append(errs, field.Required(in, "completionTime is required for Complete jobs"))
		case !complete && s.CompletionTime != nil:
			errs = append(errs, field.Invalid(in, s.CompletionTime, "cannot set completionTime when there is no Complete=True condition"))
		}
	}
	if (started || completed) && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(at.Child("completionTime"), s.CompletionTime, "must be equal to or after `startTime`"))
	}
	if completed && s.CompletionTime != nil && was.CompletionTime != nil {
		errs = append(errs, field.Invalid(at.Child("completionTime"), s.CompletionTime, "field is immutable"))
	}
	suspended := or(j.Spec.Suspend, false)
	if nothing := suspended && j.Spec.Completions != nil && *j.Spec.Completions == 0; (ended || started) && !nothing && Finished(s) &&
		s.StartTime == nil {
		errs = append(errs, field.Required(at.Child("startTime"), "startTime is required for finished job"))
	}
	resumes := Is(was, batchv1.JobSuspended) && has(s, batchv1.JobSuspended, corev1.ConditionFalse)
	if started && was.StartTime != nil && !suspended && !resumes {
		errs = append(errs, field.Invalid(at.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set"))
	}
	return errs
}

func validateIndexStatus(j *batchv1.Job, was *batchv1.JobStatus, at *field.Path) field.ErrorList {
	s, n := &j.Status, j.Spec.Completions
	completes, fails := s.CompletedIndexes != was.CompletedIndexes, !samePointer(s.FailedIndexes, was.FailedIndexes)
	if !completes && !fails {
		return nil
	}
	var errs field.ErrorList
	read := func(name, text string, changed bool) Indexes {
		if n == nil {
			return nil
		}
		out, err := indexesBelow(text, *n)
		if err != nil && changed {
			errs = append(errs, field.Invalid(at.Child(name), text, fmt.Sprintf("error parsing %s: %s", name, err)))
		}
		return out
	}
	done := read("completedIndexes", s.CompletedIndexes, completes)
	if completes && s.CompletedIndexes != "" && !IsIndexed(&j.Spec) {
		errs = append(errs, field.Invalid(at.Child("completedIndexes"), s.CompletedIndexes,
			"cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if s.FailedIndexes == nil {
		return errs
	}
	in := at.Child("failedIndexes")
	if fails && j.Spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(in, *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	}
	if both := done.Common(read("failedIndexes", *s.FailedIndexes, fails)); len(both) > 0 {
		errs = append(errs, field.Invalid(in, *s.FailedIndexes,
			fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", both[0].First)))
	}
	return errs
}

func validateCounters(j *batchv1.Job, was *batchv1.JobStatus, at *field.Path) field.ErrorList {
	s := &j.Status
	var errs field.ErrorList
	if s.Failed < was.Failed {
		errs = append(errs, field.Invalid(at.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	}
	shrinks := IsIndexed(&j.Spec) && samePointer(j.Spec.Completions, j.Spec.Parallelism)
	if s.Succeeded < was.Succeeded && !shrinks {
		errs = append(errs, field.Invalid(at.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter"))
	}
	if (s.Active != was.Active || !samePointer(s.Ready, was.Ready)) && or(s.Ready, 0) > s.Active {
		errs = append(errs, field.Invalid(at.Child("ready"), *s.Ready, "cannot set more ready pods than active"))
	}
	if !Finished(s) {
		return errs
	}
	ended := !Finished(was)
	if s.Active > 0 && (ended || s.Active != was.Active) {
		errs = append(errs, field.Invalid(at.Child("active"), s.Active, "active>0 is invalid for finished job"))
	}
	if or(s.Terminating, 0) > 0 && (ended || !samePointer(s.Terminating, was.Terminating)) {
		errs = append(errs, field.Invalid(at.Child("terminating"), *s.Terminating, "terminating>0 is invalid for finished job"))
	}
	u := s.UncountedTerminatedPods
	if u != nil && len(u.Succeeded)+len(u.Failed) > 0 && (ended || !apiequality.Semantic.DeepEqual(u, was.UncountedTerminatedPods)) {
		errs = append(errs, field.Invalid(at.Child("uncountedTerminatedPods"), u, "must be empty for finished job"))
	}
	return errs
}
