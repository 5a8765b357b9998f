package workload

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of conditions. kubectl rollout status reads TimedOut.
const (
	created     = "NewReplicaSetCreated"
	CreateError = "ReplicaSetCreateError" // and of the event
	found       = "FoundNewReplicaSet"
	updated     = "ReplicaSetUpdated"
	finished    = "NewReplicaSetAvailable"
	TimedOut    = "ProgressDeadlineExceeded"
	paused      = "DeploymentPaused"
	resumed     = "DeploymentResumed"
	enough      = "MinimumReplicasAvailable"
	tooFew      = "MinimumReplicasUnavailable"
)

func sameStatus(a, b *appsv1.DeploymentStatus) bool { return apiequality.Semantic.DeepEqual(a, b) }

func condition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}

func drop(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

// put sets a condition; one with the same status and reason stays as it is, unless again says that it has happened once more.
func put(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition, again bool) {
	is := condition(s, c.Type)
	if is == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if is.Status == c.Status {
		if is.Reason == c.Reason && !again {
			return
		}
		c.LastTransitionTime = is.LastTransitionTime
	}
	*is = c
}

func because(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string,
	now time.Time) appsv1.DeploymentCondition {
	at := metav1.NewTime(now)
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

// report says how the rollout goes, if somebody has set a deadline for it.
func (r *roll) report(reason, message string) {
	if _, ok := r.deadline(); !ok {
		return
	}
	status := corev1.ConditionTrue
	switch reason {
	case TimedOut:
		status = corev1.ConditionFalse
	case paused, resumed:
		status = corev1.ConditionUnknown
	}
	put(&r.plan.Status, because(appsv1.DeploymentProgressing, status, reason, message, r.now), reason == updated)
}

// pause stops the clock of a rollout, or starts it anew. One that has run out stays so.
func (r *roll) pause() {
	is := condition(&r.plan.Status, appsv1.DeploymentProgressing)
	switch {
	case is != nil && is.Reason == TimedOut:
	case r.d.Spec.Paused:
		r.report(paused, "Deployment is paused")
	case is != nil && is.Reason == paused:
		r.report(resumed, "Deployment is resumed")
	}
}

// count fills in how far the pods are, as the sets say.
func (r *roll) count() {
	s := &r.plan.Status
	s.ObservedGeneration = r.d.Generation
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas = 0, 0, 0, 0, 0
	var ending, total int32
	for _, rs := range r.sets {
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
		if rs == r.fresh {
			s.UpdatedReplicas = rs.Status.Replicas
		}
		if n := rs.Status.TerminatingReplicas; n != nil {
			ending += *n
		}
		total += wanted(rs.Spec.Replicas)
	}
	s.TerminatingReplicas = &ending
	s.UnavailableReplicas = max(total-s.AvailableReplicas, 0)
	if s.AvailableReplicas >= r.want-r.absent {
		put(s, because(appsv1.DeploymentAvailable, corev1.ConditionTrue, enough, "Deployment has minimum availability.", r.now), false)
	} else {
		put(s, because(appsv1.DeploymentAvailable, corev1.ConditionFalse, tooFew, "Deployment does not have minimum availability.", r.now), false)
	}
}

// complete says that all pods are of today's template and available, and there are no others.
func (r *roll) complete() bool {
	s := &r.plan.Status
	return s.UpdatedReplicas == r.want && s.Replicas == r.want && s.AvailableReplicas == r.want && s.ObservedGeneration >= r.d.Generation
}

// progress says how the rollout goes, and when its time is over.
func (r *roll) progress() {
	s, was := &r.plan.Status, &r.d.Status
	r.failures()
	limit, ok := r.deadline()
	if !ok {
		drop(s, appsv1.DeploymentProgressing)
		return
	}
	is := condition(s, appsv1.DeploymentProgressing)
	if is != nil && is.Reason == finished && s.Replicas == s.UpdatedReplicas {
		return // pods that fail later are no rollout
	}
	subject := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.fresh != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.fresh.Name)
	}
	moved := s.UpdatedReplicas > was.UpdatedReplicas || s.Replicas-s.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		s.ReadyReplicas > was.ReadyReplicas || s.AvailableReplicas > was.AvailableReplicas
	switch {
	case r.complete():
		r.report(finished, subject+" has successfully progressed.")
		return
	case moved:
		r.report(updated, subject+" is progressing.")
	case is == nil || is.Reason == finished || is.Reason == TimedOut:
	case !r.now.Before(is.LastUpdateTime.Add(limit)):
		r.report(TimedOut, subject+" has timed out progressing.")
	}
	if is = condition(s, appsv1.DeploymentProgressing); is != nil && is.Reason != TimedOut && is.Reason != finished {
		r.plan.Again = max(is.LastUpdateTime.Add(limit).Sub(r.now), 0) + time.Second
	}
}

// failures passes on that pods of a set cannot be made or deleted; the set of today's template counts first.
func (r *roll) failures() {
	sets := r.old
	if r.fresh != nil {
		sets = slices.Concat([]*appsv1.ReplicaSet{r.fresh}, r.old)
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				put(&r.plan.Status, appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason,
					Message: c.Message, LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime}, false)
				return
			}
		}
	}
	drop(&r.plan.Status, appsv1.DeploymentReplicaFailure)
}

// CannotCreate says the message of a ReplicaSet that could not be made in the place of what the plan promised.
func (p *Plan) CannotCreate(d *appsv1.Deployment, message string, now time.Time) {
	p.Revision = ""
	drop(&p.Status, appsv1.DeploymentProgressing)
	if is := condition(&d.Status, appsv1.DeploymentProgressing); is != nil {
		p.Status.Conditions = append(p.Status.Conditions, *is)
	}
	if d.Spec.ProgressDeadlineSeconds != nil {
		put(&p.Status, because(appsv1.DeploymentProgressing, corev1.ConditionFalse, CreateError, message, now), false)
	}
}

// Collided says that the name for a new set is somebody else's: the next look finds another one.
func (p *Plan) Collided(d *appsv1.Deployment) {
	next := int32(1)
	if n := d.Status.CollisionCount; n != nil {
		next = *n + 1
	}
	p.Status, p.Revision = *d.Status.DeepCopy(), ""
	p.Status.CollisionCount = &next
}
