package batch

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// honoured are the fields of a Job's spec that are made true: controller/jobs, and those of the server.
var honoured = []string{"parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy", "successPolicy", "backoffLimit",
	"backoffLimitPerIndex", "maxFailedIndexes", "selector", "manualSelector", "template", "ttlSecondsAfterFinished", "completionMode",
	"suspend",
	"podReplacementPolicy", "managedBy"}

// Every field of a Job's spec is honoured or refused. A field that a new version of Kubernetes brings has to be one of these.
func TestEveryFieldIsAccountedFor(t *testing.T) {
	refused := map[string]bool{}
	for _, r := range unsupported {
		refused[r.Path] = true
	}
	typ := reflect.TypeFor[batchv1.JobSpec]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if slices.Contains(honoured, name) == refused[name] {
			t.Errorf("%s: honoured or refused, one of them", name)
		}
	}
}

// Every field of a CronJob's spec is honoured.
func TestEveryFieldOfACronJob(t *testing.T) {
	honoured := []string{"schedule", "timeZone", "startingDeadlineSeconds", "concurrencyPolicy", "suspend", "jobTemplate",
		"successfulJobsHistoryLimit",
		"failedJobsHistoryLimit"}
	typ := reflect.TypeFor[batchv1.CronJobSpec]()
	for i := range typ.NumField() {
		if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); !slices.Contains(honoured, name) {
			t.Errorf("%s is not honoured", name)
		}
	}
	c := &batchv1.CronJob{}
	c.Spec.JobTemplate.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{}
	if !slices.ContainsFunc(validateCronJob(c), func(err *field.Error) bool { return err.Field == "spec.jobTemplate.spec.scheduling" }) {
		t.Error("spec.jobTemplate.spec.scheduling is taken")
	}
}

func TestRefusals(t *testing.T) {
	s := &batchv1.JobSpec{Scheduling: &batchv1.JobSchedulingConfiguration{}}
	errs := validateJobSpec(s, field.NewPath("spec"))
	if !slices.ContainsFunc(errs, func(err *field.Error) bool {
		return err.Field == "spec.scheduling" && strings.Contains(err.Error(), valid.NotYet)
	}) {
		t.Errorf("%v", errs)
	}
}
