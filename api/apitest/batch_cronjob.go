package apitest

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/batch"
)

// cronJob is one that makes nothing.
func (e *env) cronJob(name string) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	c.Spec.Schedule, c.Spec.Suspend, c.Spec.JobTemplate.Spec = "*/5 * * * *", pointer(true), e.job("").Spec
	return c
}

func testCronJob(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.cronJob("c")
	in.Status.Active = []corev1.ObjectReference{{Name: "j"}}
	j := e.create(in).(*batchv1.CronJob)
	s := &j.Spec
	if j.Kind != "CronJob" || j.APIVersion != "batch/v1" || j.Generation != 1 || len(j.Status.Active) != 0 {
		t.Errorf("made %+v", j)
	}
	if s.ConcurrencyPolicy != batchv1.AllowConcurrent || *s.SuccessfulJobsHistoryLimit != 3 || *s.FailedJobsHistoryLimit != 1 ||
		s.TimeZone != nil ||
		s.StartingDeadlineSeconds != nil || s.JobTemplate.Spec.Selector != nil || s.JobTemplate.Spec.Completions != nil ||
		s.JobTemplate.Spec.Template.Spec.DNSPolicy != corev1.DNSClusterFirst || len(s.JobTemplate.Spec.Template.Labels) != 0 {
		t.Errorf("defaults: %+v", s)
	}
	for _, schedule := range []string{"0 0 * * *", "15-45/10 1,3,5 1 jan-MAR mon", "* * ? * sun", "@hourly", "@midnight", "@every 90s",
		"0 0 31 2 *"} {
		j.Spec.Schedule = schedule
		j = e.update(j).(*batchv1.CronJob)
	}
	j.Spec.TimeZone = pointer("Europe/Berlin")
	j = e.update(j).(*batchv1.CronJob)
	if j.Generation != 9 {
		t.Errorf("generation %d", j.Generation)
	}
	at := metav1.NewTime(time.Now()).Rfc3339Copy()
	j.Spec.Schedule, j.Status.LastScheduleTime, j.Status.Active = "@daily", &at,
		[]corev1.ObjectReference{{Kind: "Job", Namespace: e.ns, Name: "j"}}
	j, err := api.UpdateStatus(e.ctx, c, batch.CronJobs, j)
	e.must(err)
	if j.Spec.Schedule == "@daily" || j.Generation != 9 || !j.Status.LastScheduleTime.Equal(&at) || len(j.Status.Active) != 1 {
		t.Errorf("after the status: %+v", j)
	}
	e.delete(j, api.DeleteOptions{})
	e.gone(j)
}

func testCronJobRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	type spec = batchv1.CronJobSpec
	at := func(schedule string) func(*spec) { return func(s *spec) { s.Schedule = schedule } }
	zone := func(name string) func(*spec) { return func(s *spec) { s.TimeZone = &name } }
	for name, tc := range map[string]struct {
		field string
		edit  func(s *spec)
	}{
		"never":                  {"spec.schedule", at("")},
		"four fields":            {"spec.schedule", at("* * * *")},
		"six fields":             {"spec.schedule", at("0 * * * * *")},
		"minute 60":              {"spec.schedule", at("60 * * * *")},
		"month 0":                {"spec.schedule", at("* * * 0 *")},
		"back and fro":           {"spec.schedule", at("30-10 * * * *")},
		"steps of none":          {"spec.schedule", at("*/0 * * * *")},
		"no name of a month":     {"spec.schedule", at("* * * january *")},
		"no macro":               {"spec.schedule", at("@reboot")},
		"a zone in it":           {"spec.schedule", at("TZ=UTC 0 0 * * *")},
		"a zone of cron's in it": {"spec.schedule", at("CRON_TZ=UTC 0 0 * * *")},
		"a zone alone":           {"spec.schedule", at("TZ=UTC")},
		"no zone":                {"spec.timeZone", zone("")},
		"the board's zone":       {"spec.timeZone", zone("Local")},
		"a zone of nowhere":      {"spec.timeZone", zone("Europe/Atlantis")},
		"a file":                 {"spec.timeZone", zone("../../etc/passwd")},
		"too late before":        {"spec.startingDeadlineSeconds", func(s *spec) { s.StartingDeadlineSeconds = pointer(int64(-1)) }},
		"another policy":         {"spec.concurrencyPolicy", func(s *spec) { s.ConcurrencyPolicy = "Sometimes" }},
		"fewer than none":        {"spec.successfulJobsHistoryLimit", func(s *spec) { s.SuccessfulJobsHistoryLimit = pointer(int32(-1)) }},
		"failures":               {"spec.failedJobsHistoryLimit", func(s *spec) { s.FailedJobsHistoryLimit = pointer(int32(-1)) }},
		"a selector":             {"spec.jobTemplate.spec.selector", func(s *spec) { s.JobTemplate.Spec.Selector = webSelector() }},
		"its own selector":       {"spec.jobTemplate.spec.manualSelector", func(s *spec) { s.JobTemplate.Spec.ManualSelector = pointer(true) }},
		"pods that never end": {"spec.jobTemplate.spec.template.spec.restartPolicy",
			func(s *spec) { s.JobTemplate.Spec.Template.Spec.RestartPolicy = "Always" }},
		"a negative limit": {"spec.jobTemplate.spec.backoffLimit", func(s *spec) { s.JobTemplate.Spec.BackoffLimit = pointer(int32(-1)) }},
	} {
		j := e.cronJob("c")
		tc.edit(&j.Spec)
		_, err := c.Create(e.ctx, batch.CronJobs, j, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
	_, err := c.Create(e.ctx, batch.CronJobs, e.cronJob(strings.Repeat("a", 53)), api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.name")
	j := e.create(e.cronJob("c")).(*batchv1.CronJob)
	j.Spec.Schedule = "often"
	_, err = c.Update(e.ctx, batch.CronJobs, j, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.schedule")
}
