package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/valid"
)

// Kubernetes' bounds for Indexed Jobs: they hold the length of the indexes in a status.
const (
	mostIndexed   = 100_000 // pods at once, failed indexes, and completions beyond which the others are less
	mostOfTooMany = 10_000
	longestOwner  = 63 // managedBy
)

func validateJob(j *batchv1.Job) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateJobSpec(&j.Spec, at)
	errs = append(errs, validateSelector(j, at)...)
	return append(errs, validateHostnames(j)...)
}

// validateSelector: a selector must be there and find the pods of the template and, where the server chose it, no others.
func validateSelector(j *batchv1.Job, at *field.Path) field.ErrorList {
	s, inTemplate := j.Spec.Selector, at.Child("template", "metadata", "labels")
	if s == nil {
		return field.ErrorList{field.Required(at.Child("selector"), "")}
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return errs // they say so
	}
	if !selector.Matches(labels.Set(j.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(inTemplate, j.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	if or(j.Spec.ManualSelector, false) {
		return errs
	}
	for key, want := range generated(j) {
		if is := j.Spec.Template.Labels[key]; is != want {
			errs = append(errs, field.Invalid(inTemplate.Key(key), is, fmt.Sprintf("must be %q: manualSelector is not set", want)))
		}
	}
	if !selector.Matches(labels.Set(generated(j))) {
		errs = append(errs, field.Invalid(at.Child("selector"), s, "`selector` not auto-generated"))
	}
	return errs
}

// validateHostnames: the pods of an Indexed Job have host names, of its name and their index.
func validateHostnames(j *batchv1.Job) field.ErrorList {
	if n := or(j.Spec.Completions, 0); IsIndexed(&j.Spec) && n > 0 {
		last := fmt.Sprintf("%s-%d", j.Name, n-1)
		if len(validation.IsDNS1123Label(last)) > 0 {
			return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), j.Name,
				"will not able to create pod with invalid DNS label: "+last)}
		}
	}
	return nil
}

// validateJobSpec looks at all that stands in the template of a CronJob, too.
func validateJobSpec(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name string
		v    *int32
	}{{"parallelism", s.Parallelism}, {"completions", s.Completions}, {"backoffLimit", s.BackoffLimit},
		{"ttlSecondsAfterFinished", s.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", s.BackoffLimitPerIndex},
		{"maxFailedIndexes", s.MaxFailedIndexes}} {
		errs = append(errs, valid.NotNegative(or(n.v, 0), at.Child(n.name))...)
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(or(s.ActiveDeadlineSeconds, 0), at.Child("activeDeadlineSeconds"))...)
	if s.ManagedBy != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(at.Child("managedBy"), *s.ManagedBy)...)
		if len(*s.ManagedBy) > longestOwner {
			errs = append(errs, field.TooLong(at.Child("managedBy"), "", longestOwner))
		}
	}
	errs = append(errs, validateMode(s, at)...)
	errs = append(errs, validateFailurePolicy(s, at)...)
	errs = append(errs, validateSuccessPolicy(s, at.Child("successPolicy"))...)
	if how := s.PodReplacementPolicy; how != nil {
		allowed := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
		if s.PodFailurePolicy != nil {
			allowed = allowed[:1]
		}
		errs = append(errs, valid.OneOf(*how, at.Child("podReplacementPolicy"), allowed...)...)
	}
	errs = append(errs, api.ValidateTemplate(&s.Template, at.Child("template"))...)
	errs = append(errs, validateRestarts(s, at.Child("template", "spec", "restartPolicy"))...)
	for _, err := range valid.Refuse(s, refusals()) {
		err.Field = at.String() + "." + err.Field
		errs = append(errs, err)
	}
	return errs
}

// validateRestarts: pods of a Job end.
func validateRestarts(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	switch how := s.Template.Spec.RestartPolicy; {
	case how == "" || how == corev1.RestartPolicyAlways: // as it is by default
		return field.ErrorList{field.Required(at, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case how != corev1.RestartPolicyOnFailure && how != corev1.RestartPolicyNever:
		return field.ErrorList{field.NotSupported(at, how, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever})}
	case s.PodFailurePolicy != nil && how != corev1.RestartPolicyNever:
		return field.ErrorList{field.Invalid(at, how,
			fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))}
	}
	return nil
}

// validateMode looks at what indexes need and allow.
func validateMode(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.CompletionMode != nil {
		errs = valid.OneOf(*s.CompletionMode, at.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	}
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(at.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if IsIndexed(s) {
		return append(errs, validateIndexed(s, at)...)
	}
	const needs = "requires indexed completion mode"
	if s.BackoffLimitPerIndex != nil {
		errs = append(errs, field.Invalid(at.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, needs))
	}
	if s.MaxFailedIndexes != nil {
		errs = append(errs, field.Invalid(at.Child("maxFailedIndexes"), *s.MaxFailedIndexes, needs))
	}
	if s.SuccessPolicy != nil {
		errs = append(errs, field.Invalid(at.Child("successPolicy"), *s.SuccessPolicy, needs))
	}
	return errs
}

func validateIndexed(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	atMost := func(name string, v *int32, most int32, why string) {
		if v != nil && *v > most {
			errs = append(errs, field.Invalid(at.Child(name), *v, why))
		}
	}
	atMost("parallelism", s.Parallelism, mostIndexed,
		fmt.Sprintf("must be less than or equal to %d when completion mode is %s", mostIndexed, batchv1.IndexedCompletion))
	atMost("maxFailedIndexes", s.MaxFailedIndexes, mostIndexed, fmt.Sprintf("must be less than or equal to %d", mostIndexed))
	if s.Completions == nil {
		return append(errs, field.Required(at.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	atMost("maxFailedIndexes", s.MaxFailedIndexes, *s.Completions, "must be less than or equal to completions")
	if *s.Completions <= mostIndexed || s.BackoffLimitPerIndex == nil {
		return errs
	}
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(at.Child("maxFailedIndexes"),
			fmt.Sprintf("must be specified when completions is above %d", mostIndexed)))
	}
	why := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff limit per index", mostOfTooMany,
		mostIndexed)
	atMost("parallelism", s.Parallelism, mostOfTooMany, why)
	atMost("maxFailedIndexes", s.MaxFailedIndexes, mostOfTooMany, why)
	return errs
}

// validateJobChange: what pods were made from stays, but for what says where they go while there are none.
func validateJobChange(j, old *batchv1.Job) field.ErrorList {
	at := field.NewPath("spec")
	s, was := &j.Spec, &old.Spec
	errs := validateJob(j)
	same := func(name string, a, b any) {
		errs = append(errs, apivalidation.ValidateImmutableField(a, b, at.Child(name))...)
	}
	switch inCompletions := at.Child("completions"); {
	case !IsIndexed(s):
		same("completions", s.Completions, was.Completions)
	case s.Completions == nil || apiequality.Semantic.DeepEqual(s.Completions, was.Completions):
	case *s.Completions != or(s.Parallelism, 1):
		errs = append(errs, field.Invalid(inCompletions, *s.Completions, "can only be modified in tandem with spec.parallelism"))
	}
	same("selector", s.Selector, was.Selector)
	if changeable(old) {
		same("template.spec", &s.Template.Spec, moved(&was.Template.Spec, &s.Template.Spec))
	} else {
		same("template", &s.Template, &was.Template)
	}
	same("completionMode", s.CompletionMode, was.CompletionMode)
	same("podFailurePolicy", s.PodFailurePolicy, was.PodFailurePolicy)
	same("backoffLimitPerIndex", s.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	same("managedBy", s.ManagedBy, was.ManagedBy)
	same("successPolicy", s.SuccessPolicy, was.SuccessPolicy)
	return errs
}

// changeable says that a Job is suspended and none of its pods is left: where its pods go, what they may use and what they are
// labelled with may become another thing.
func changeable(j *batchv1.Job) bool {
	at := &j.Status
	return or(j.Spec.Suspend, false) && at.Active == 0 && (at.StartTime == nil || Is(at, batchv1.JobSuspended))
}

// moved is the spec that the template of a changeable Job had, with what of the new one may be another thing.
func moved(was, next *corev1.PodSpec) *corev1.PodSpec {
	s := was.DeepCopy()
	s.NodeSelector, s.Tolerations, s.SchedulingGates = next.NodeSelector, next.Tolerations, next.SchedulingGates
	switch to := next.Affinity; {
	case to != nil && s.Affinity != nil:
		s.Affinity.NodeAffinity = to.NodeAffinity
	case to != nil:
		s.Affinity = &corev1.Affinity{NodeAffinity: to.NodeAffinity}
	case s.Affinity != nil && s.Affinity.PodAffinity == nil && s.Affinity.PodAntiAffinity == nil:
		s.Affinity = nil
	}
	resources(s.Containers, next.Containers)
	resources(s.InitContainers, next.InitContainers)
	return s
}

func resources(of, next []corev1.Container) {
	for i := range min(len(of), len(next)) {
		if of[i].Name == next[i].Name {
			of[i].Resources = next[i].Resources
		}
	}
}
