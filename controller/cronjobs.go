package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
	"ledge/controller/cronjobs"
)

// CronJobs makes Jobs when they are due, and deletes old ones.
type CronJobs struct {
	w        *World
	all      Of[*batchv1.CronJob]
	jobs     Of[*batchv1.Job]
	believed func() bool // nil: every time is
	events   Recorder
	changed  <-chan struct{}
	saw      latest[*batchv1.CronJob]
	made     latest[*batchv1.Job]
	gone     map[types.UID]bool // Jobs that went by our doing, and that the view still shows
	of       map[types.UID]*cronJob
	grumble  grumble
}

// cronJob is what is remembered of a CronJob, in its present generation.
type cronJob struct {
	kept
	text     string // of its schedule and time zone
	schedule batch.Schedule
	bad      *cronjobs.Event  // it has none that can be read
	since    time.Time        // it had another one until then
	warned   []cronjobs.Event // at the last look
}

// NewCronJobs prepares the loop; call it before the World runs.
func NewCronJobs(w *World, believed func() bool, events Recorder) *CronJobs {
	d := &CronJobs{w: w, all: Of[*batchv1.CronJob]{w.view(batch.CronJobs, api.Selection{})},
		jobs:     Of[*batchv1.Job]{w.view(batch.Jobs, api.Selection{})},
		believed: believed, events: events, saw: latest[*batchv1.CronJob]{}, made: latest[*batchv1.Job]{}, gone: map[types.UID]bool{},
		of: map[types.UID]*cronJob{}}
	d.changed = listen(d.all, d.jobs)
	return d
}

// Run makes Jobs until ctx ends.
func (d *CronJobs) Run(ctx context.Context) error { return loop(ctx, d.changed, d.pass, d.all, d.jobs) }

func (d *CronJobs) pass(ctx context.Context, now time.Time) time.Duration {
	all := d.all.List()
	present := map[types.UID]bool{}
	for _, c := range all {
		present[c.UID] = true
	}
	for uid := range d.of {
		if !present[uid] {
			delete(d.of, uid)
			delete(d.saw, uid)
		}
	}
	if len(all) == 0 {
		clear(d.made)
		clear(d.gone)
		return idle
	}
	owned := d.look(ctx, now)
	wake, failed := idle, error(nil)
	for _, c := range d.saw.over(all, nil, now) {
		again, err := d.settle(ctx, c, owned[c.UID], now)
		failed, wake = errors.Join(failed, err), min(wake, again)
	}
	if len(d.made) > 0 {
		wake = min(wake, madeDoubt)
	}
	d.grumble.about(ctx, "cannot run a cronjob", failed)
	return wake
}

// look finds the Jobs that have an owner, as they are by now.
func (d *CronJobs) look(ctx context.Context, now time.Time) map[types.UID][]*batchv1.Job {
	owned, unseen := map[types.UID][]*batchv1.Job{}, map[types.UID]bool{}
	for _, j := range d.made.over(d.jobs.List(), unknown[*batchv1.Job](ctx, d.w.Client, batch.Jobs), now) {
		switch of := metav1.GetControllerOf(j); {
		case d.gone[j.UID]:
			unseen[j.UID] = true
		case of != nil:
			owned[of.UID] = append(owned[of.UID], j)
		}
	}
	d.gone = unseen
	return owned
}

// settle takes the next step for one CronJob, and returns when to look at it again.
func (d *CronJobs) settle(ctx context.Context, c *batchv1.CronJob, jobs []*batchv1.Job, now time.Time) (time.Duration, error) {
	k := d.remember(c, now)
	if k.bad != nil {
		d.warn(c, k, []cronjobs.Event{*k.bad})
		return idle, nil
	}
	if left := k.retry(now); left > 0 {
		return left, nil
	}
	plan := cronjobs.Next(c, k.schedule, jobs, cronjobs.Clock{Now: now, Believed: d.believed == nil || d.believed(), Since: k.since})
	d.warn(c, k, plan.Warns)
	again := idle
	if plan.Again > 0 {
		again = min(again, plan.Again)
	}
	did, err := d.act(ctx, c, &plan, now)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return again, nil
	case outdated(err):
		return firstAttempt, nil
	case err != nil:
		return k.failed("", err, now), err
	case did:
		k.failing = nil
		return 0, nil
	}
	return again, nil
}

// remember is what is remembered of a CronJob. A schedule that is changed while we look is none for what was due before.
func (d *CronJobs) remember(c *batchv1.CronJob, now time.Time) *cronJob {
	was := d.of[c.UID]
	if was != nil && was.generation == c.Generation {
		return was
	}
	zone := ""
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	k := &cronJob{kept: kept{generation: c.Generation}, text: c.Spec.Schedule + "\n" + zone}
	if was != nil {
		k.since, k.warned = was.since, was.warned
		if was.text != k.text {
			k.since = now
		}
	}
	var err error
	if k.schedule, err = batch.ParseSchedule(c.Spec.Schedule, c.Spec.TimeZone); err != nil { // another release took it
		k.bad = &cronjobs.Event{Type: corev1.EventTypeWarning, Reason: "UnparseableSchedule",
			Message: fmt.Sprintf("unparseable schedule: %q : %v", c.Spec.Schedule, err)}
	}
	d.of[c.UID] = k
	return k
}

// warn tells what it did not tell at the last look.
func (d *CronJobs) warn(c *batchv1.CronJob, k *cronJob, warns []cronjobs.Event) {
	for _, e := range warns {
		if !slices.Contains(k.warned, e) {
			d.events.Event(c, e.Type, e.Reason, e.Message)
		}
	}
	k.warned = warns
}

// act takes the step of a plan, if there is one.
func (d *CronJobs) act(ctx context.Context, c *batchv1.CronJob, plan *cronjobs.Plan, now time.Time) (did bool, err error) {
	switch {
	case !plan.Same(c):
		next := *c
		next.Status = plan.Status
		out, err := api.UpdateStatus(ctx, d.w.Client, batch.CronJobs, &next)
		if err != nil {
			return false, fmt.Errorf("update cronjob %s: %w", api.Key(c), err)
		}
		d.saw.note(out, now)
		for _, e := range plan.Says {
			d.events.Event(c, e.Type, e.Reason, e.Message)
		}
		return true, nil
	case len(plan.Delete) > 0:
		for _, j := range plan.Delete {
			if err := d.delete(ctx, c, j, now); err != nil {
				return false, err
			}
		}
		return true, nil
	case plan.Make != nil:
		return true, d.make(ctx, c, plan.Make, now)
	}
	return false, nil
}

func (d *CronJobs) delete(ctx context.Context, c *batchv1.CronJob, j *batchv1.Job, now time.Time) error {
	out, err := d.w.Client.Delete(ctx, batch.Jobs, j.Namespace, j.Name,
		api.DeleteOptions{UID: &j.UID, Propagation: metav1.DeletePropagationBackground})
	left, ok := out.(*batchv1.Job)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		d.gone[j.UID] = true
		return nil
	case err != nil:
		d.events.Event(c, corev1.EventTypeWarning, "FailedDelete", "Deleted job: "+err.Error())
		return fmt.Errorf("delete job %s: %w", api.Key(j), err)
	case ok && left.DeletionTimestamp != nil && len(left.Finalizers) > 0:
		d.made.note(left, now)
	default:
		d.gone[j.UID] = true
		delete(d.made, j.UID)
	}
	d.events.Event(c, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job "+j.Name)
	return nil
}

// make makes a Job of a CronJob that still is what was looked at: somebody may have suspended it.
func (d *CronJobs) make(ctx context.Context, c *batchv1.CronJob, j *batchv1.Job, now time.Time) error {
	fresh, err := d.w.Client.Get(ctx, batch.CronJobs, c.Namespace, c.Name)
	switch {
	case err != nil:
		return err
	case fresh.GetUID() != c.UID || fresh.GetGeneration() != c.Generation:
		return errOutdated
	}
	out, err := api.Create(ctx, d.w.Client, batch.Jobs, j)
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			d.events.Event(c, corev1.EventTypeWarning, "FailedCreate", "Error creating job: "+err.Error())
		}
		return fmt.Errorf("create job %s: %w", api.Key(j), err)
	}
	d.made.note(out, now)
	d.events.Event(c, corev1.EventTypeNormal, "SuccessfulCreate", "Created job "+out.Name)
	return nil
}
