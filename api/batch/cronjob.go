package batch

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// CronJobs make Jobs at the times of a schedule.
var CronJobs = api.Define(api.Kind{Group: "batch", Version: "v1", Name: "CronJob", Resource: "cronjobs", Singular: "cronjob",
	Short:      []string{"cj"},
	Categories: []string{"all"}, Namespaced: true, Generation: true},
	api.Rules[*batchv1.CronJob]{
		New:      func() *batchv1.CronJob { return &batchv1.CronJob{} },
		NewList:  func() api.ListObject { return &batchv1.CronJobList{} },
		Default:  defaultCronJob,
		Fresh:    func(c *batchv1.CronJob) { c.Status = batchv1.CronJobStatus{} },
		Validate: validateCronJob,
		ValidateUpdate: func(c, old *batchv1.CronJob, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return nil
			}
			return validateCronJobSpec(&c.Spec, &old.Spec)
		},
		Warn:     cronJobWarnings,
		Spec:     func(c *batchv1.CronJob) any { return &c.Spec },
		Status:   func(c *batchv1.CronJob) any { return &c.Status },
		Template: func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
		Columns:  cronJobColumns,
		Cells:    cronJobCells,
	})

func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	if s.ConcurrencyPolicy == "" {
		s.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	setDefault(&s.Suspend, false)
	setDefault(&s.SuccessfulJobsHistoryLimit, 3)
	setDefault(&s.FailedJobsHistoryLimit, 1)
	defaultJobSpec(&s.JobTemplate.Spec)
}

// longestCron leaves room for the 11 characters that the name of a Job has more.
const longestCron = validation.DNS1035LabelMaxLength - 11

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	errs := validateCronJobSpec(&c.Spec, nil)
	if len(c.Name) > longestCron {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name,
			fmt.Sprintf("must be no more than %d characters", longestCron)))
	}
	return errs
}

// validateCronJobSpec looks at a time zone only when it is new: one that another release does not know any more keeps nobody from
// changing the rest.
func validateCronJobSpec(s, old *batchv1.CronJobSpec) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if s.Schedule == "" {
		errs = append(errs, field.Required(at.Child("schedule"), ""))
	} else if _, err := ParseSchedule(s.Schedule, nil); err != nil {
		errs = append(errs, field.Invalid(at.Child("schedule"), s.Schedule, err.Error()))
	}
	if zone := s.TimeZone; zone != nil && (old == nil || old.TimeZone == nil || *old.TimeZone != *zone) {
		if _, err := parseZone(*zone); err != nil {
			errs = append(errs, field.Invalid(at.Child("timeZone"), *zone, err.Error()))
		}
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(or(s.StartingDeadlineSeconds, 0), at.Child("startingDeadlineSeconds"))...)
	errs = append(errs, valid.OneOf(s.ConcurrencyPolicy, at.Child("concurrencyPolicy"),
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, valid.NotNegative(or(s.SuccessfulJobsHistoryLimit, 0), at.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, valid.NotNegative(or(s.FailedJobsHistoryLimit, 0), at.Child("failedJobsHistoryLimit"))...)

	in, job := at.Child("jobTemplate", "spec"), &s.JobTemplate.Spec
	errs = append(errs, validateJobSpec(job, in)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(in.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if or(job.ManualSelector, false) {
		errs = append(errs, field.NotSupported(in.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	return errs
}

func cronJobWarnings(c *batchv1.CronJob) []string {
	var out []string
	if msgs := validation.IsDNS1123Label(c.Name); len(msgs) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: pods and their host names are called by it, and it is no DNS label: %s",
			strings.Join(msgs, "; ")))
	}
	return append(out, api.TemplateWarnings(&c.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template"))...)
}

var cronJobColumns = table.Columns{
	table.Name,
	table.Column("Schedule", "string", "When Jobs are made."),
	table.Column("Timezone", "string", "In which time zone that is."),
	table.Column("Suspend", "boolean", "Whether none is made for now."),
	table.Column("Active", "integer", "How many of its Jobs have not ended."),
	table.Column("Last Schedule", "string", "The time since a Job was last due and made."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods the Jobs count."),
}

func cronJobCells(c *batchv1.CronJob, l table.Look) []any {
	names, images := table.Containers(&c.Spec.JobTemplate.Spec.Template.Spec)
	last, suspend := table.None, "<unset>"
	if at := c.Status.LastScheduleTime; at != nil {
		last = l.Since(at.Time)
	}
	if c.Spec.Suspend != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*c.Spec.Suspend]
	}
	return []any{c.Name, c.Spec.Schedule, or(c.Spec.TimeZone, table.None), suspend, int64(len(c.Status.Active)), last, l.AgeOf(c), names,
		images,
		metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector)}
}
