package cronjobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api/batch"
)

// noon is when CronJobs of these tests are looked at, if nothing else is said.
var noon = time.Date(2026, 11, 25, 12, 0, 30, 0, time.UTC)

func stamp(at time.Time) *metav1.Time { return &metav1.Time{Time: at} }

func ptr[T any](v T) *T { return &v }

// hourly is a CronJob that was made at ten, and whose last Job was that of eleven.
func hourly() *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "cron",
		CreationTimestamp: *stamp(noon.Add(-2 * time.Hour))}}
	c.Spec = batchv1.CronJobSpec{Schedule: "0 * * * *", ConcurrencyPolicy: batchv1.AllowConcurrent, SuccessfulJobsHistoryLimit: ptr(int32(3)),
		FailedJobsHistoryLimit: ptr(int32(1))}
	c.Spec.JobTemplate.Labels = map[string]string{"app": "x"}
	c.Status.LastScheduleTime = stamp(noon.Truncate(time.Hour).Add(-time.Hour))
	return c
}

// job is a Job of it for a time, which has ended as end says; "": it runs.
func job(c *batchv1.CronJob, at time.Time, end batchv1.JobConditionType) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name(c, at), UID: types.UID("uid-" + name(c, at)),
		Annotations: map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.Format(time.RFC3339)}}}
	j.Status.StartTime = stamp(at)
	if end != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue}}
		if end == batchv1.JobComplete {
			j.Status.CompletionTime = stamp(at.Add(time.Minute))
		}
	}
	return j
}

// text is a plan in words.
func text(c *batchv1.CronJob, p *Plan) string {
	var out []string
	if !p.Same(c) {
		s := fmt.Sprintf("status %d", len(p.Status.Active))
		if at := p.Status.LastScheduleTime; at != nil {
			s += " last " + at.UTC().Format("01-02T15:04")
		}
		if at := p.Status.LastSuccessfulTime; at != nil {
			s += " good " + at.UTC().Format("15:04")
		}
		out = append(out, s)
	}
	for _, j := range p.Delete {
		out = append(out, "delete "+j.Name)
	}
	if p.Make != nil {
		out = append(out, "make "+p.Make.Name)
	}
	for _, e := range append(p.Says, p.Warns...) {
		out = append(out, e.Reason)
	}
	if p.Again > 0 {
		out = append(out, "again "+p.Again.String())
	}
	return strings.Join(out, ", ")
}

func TestNext(t *testing.T) { // N-12.8
	at12 := noon.Truncate(time.Hour)
	at11, at10 := at12.Add(-time.Hour), at12.Add(-2*time.Hour)
	due := "make " + name(hourly(), at12)
	running := func(c *batchv1.CronJob, at time.Time) *batchv1.Job {
		j := job(c, at, "")
		c.Status.Active = append(c.Status.Active, reference(j))
		return j
	}
	for _, tc := range []struct {
		name, want string
		edit       func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job
	}{
		{"due", due + ", again 59m30s", nil},
		{"not due", "again 30m0s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			clock.Now = at11.Add(30 * time.Minute)
			return nil
		}},
		{"a clock that nobody believes", "again 10s",
			func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { clock.Believed = false; return nil }},
		{"a month later", due + ", TooManyMissedTimes, again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime = stamp(at12.Add(-30 * 24 * time.Hour))
			return nil
		}},
		{"never yet", due + ", again 59m30s", func(c *batchv1.CronJob,
			clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime = nil
			return nil
		}},
		{"off for a week, with a deadline", "MissSchedule, again 29m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime, c.Spec.StartingDeadlineSeconds = stamp(at12.Add(-7*24*time.Hour)), ptr(int64(600))
			clock.Now = noon.Add(30 * time.Minute)
			return nil
		}},
		{"off for a week, in time", due + ", again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime, c.Spec.StartingDeadlineSeconds = stamp(at12.Add(-7*24*time.Hour)), ptr(int64(600))
			return nil
		}},
		{"a deadline of ages", due + ", again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.StartingDeadlineSeconds = ptr(int64(1) << 62)
			return nil
		}},
		{"another schedule until now", "again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { clock.Since = noon; return nil }},
		{"suspended", "", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { c.Spec.Suspend = ptr(true); return nil }},
		{"going", "", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { c.DeletionTimestamp = stamp(noon); return nil }},
		{"never", "InvalidSchedule", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { c.Spec.Schedule = "0 0 31 2 *"; return nil }},
		{"made, and its maker died", "status 1 last 11-25T12:00", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			return []*batchv1.Job{job(c, at12, "")}
		}},
		{"one beside the other", due + ", again 59m30s",
			func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { return []*batchv1.Job{running(c, at11)} }},
		{"forbidden", "JobAlreadyActive, again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
			return []*batchv1.Job{running(c, at11)}
		}},
		{"forbidden, but done", due + ", again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
			return []*batchv1.Job{job(c, at10, batchv1.JobFailed)}
		}},
		{"replaced", "delete c-29926740, again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.ConcurrencyPolicy = batchv1.ReplaceConcurrent
			return []*batchv1.Job{running(c, at11)}
		}},
		{"replaced one that goes", due + ", again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.ConcurrencyPolicy = batchv1.ReplaceConcurrent
			j := running(c, at11)
			j.DeletionTimestamp = stamp(noon)
			return []*batchv1.Job{j}
		}},
		{"ended", "status 0 last 11-25T11:00 good 11:01, SawCompletedJob", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			running(c, at11)
			return []*batchv1.Job{job(c, at11, batchv1.JobComplete)}
		}},
		{"lost", "status 0 last 11-25T11:00, MissingJob", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job { running(c, at11); return nil }},
		{"made by hand", due + ", UnexpectedJob, again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
			j := job(c, at11, "")
			j.Name, j.Annotations = "mine", map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
			return []*batchv1.Job{j}
		}},
		{"old ones", "delete c-29926620, delete c-29926560", func(c *batchv1.CronJob, clock *Clock) (out []*batchv1.Job) {
			c.Status.LastSuccessfulTime = stamp(noon.Add(time.Minute))
			for _, h := range []int{0, 1, 2, 3} {
				out = append(out, job(c, at12.Add(time.Duration(h-3)*time.Hour), batchv1.JobComplete))
			}
			c.Status.LastScheduleTime = stamp(at12)
			return append(out, job(c, at12.Add(-4*time.Hour), batchv1.JobFailed), job(c, at12.Add(-90*time.Minute), batchv1.JobFailed))
		}},
		{"twice in a minute", "again 30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Spec.Schedule, c.Status.LastScheduleTime = "@every 10s", stamp(at12)
			c.Status.LastSuccessfulTime = stamp(noon.Add(time.Minute))
			return []*batchv1.Job{job(c, at12, batchv1.JobComplete)}
		}},
		{"a clock that was set back", "status 0 last 11-25T12:00, ClockSetBack", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime = stamp(noon.Add(30 * 24 * time.Hour))
			return nil
		}},
		{"a clock that is behind", "again 59m30s", func(c *batchv1.CronJob, clock *Clock) []*batchv1.Job {
			c.Status.LastScheduleTime, clock.Believed = stamp(noon.Add(30*24*time.Hour)), false
			return nil
		}},
		{"too many", "TooManyActive, again 59m30s", func(c *batchv1.CronJob, clock *Clock) (out []*batchv1.Job) {
			for i := range mostActive {
				out = append(out, running(c, at11.Add(-time.Duration(i)*time.Hour)))
			}
			return out
		}},
	} {
		c, clock := hourly(), Clock{Now: noon, Believed: true}
		var jobs []*batchv1.Job
		if tc.edit != nil {
			jobs = tc.edit(c, &clock)
		}
		s, err := batch.ParseSchedule(c.Spec.Schedule, ptr("UTC"))
		if err != nil {
			t.Fatal(err)
		}
		before := c.DeepCopy()
		p := Next(c, s, jobs, clock)
		if got := text(c, &p); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if !(&Plan{Status: before.Status}).Same(c) {
			t.Errorf("%s: the CronJob was changed", tc.name)
		}
	}
}

// TestMadeJob: what Kubernetes writes into a Job.
func TestMadeJob(t *testing.T) {
	c := hourly()
	c.Spec.JobTemplate.Annotations = map[string]string{"a": "b"}
	s, err := batch.ParseSchedule(c.Spec.Schedule, ptr("Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	p := Next(c, s, nil, Clock{Now: noon, Believed: true})
	j := p.Make
	if j == nil || j.Name != "c-29926800" || j.Namespace != "default" || j.Labels["app"] != "x" || j.Annotations["a"] != "b" ||
		j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != "2026-11-25T13:00:00+01:00" {
		t.Errorf("%+v", j)
	}
	if of := metav1.GetControllerOf(j); of == nil || of.Kind != "CronJob" || of.APIVersion != "batch/v1" || of.UID != "cron" {
		t.Errorf("owned by %+v", of)
	}
	if len(c.Spec.JobTemplate.Annotations) != 1 {
		t.Error("the template was changed")
	}
}
