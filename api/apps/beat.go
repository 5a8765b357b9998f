package apps

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// A status that only counts is found anew by whoever starts after a power cut, so it need not be on disk when it is answered. What
// cannot be found anew is: revisions, collisions, and since when a condition holds.

func replicaSetBeat(rs, was *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	out := *rs
	out.Status = was.Status
	out.Status.Conditions = rs.Status.Conditions
	return &out
}

func deploymentBeat(d, was *appsv1.Deployment) *appsv1.Deployment {
	out := *d
	out.Status = was.Status
	out.Status.CollisionCount = d.Status.CollisionCount
	out.Status.Conditions = slices.Clone(d.Status.Conditions)
	for i := range min(len(d.Status.Conditions), len(was.Status.Conditions)) { // a rollout that goes on, in the same words or others
		if c, old := &out.Status.Conditions[i], &was.Status.Conditions[i]; c.Type == old.Type && c.Reason == old.Reason {
			c.LastUpdateTime, c.Message = old.LastUpdateTime, old.Message
		}
	}
	return &out
}

func statefulSetBeat(s, was *appsv1.StatefulSet) *appsv1.StatefulSet {
	out := *s
	out.Status = was.Status
	out.Status.CurrentRevision, out.Status.UpdateRevision = s.Status.CurrentRevision, s.Status.UpdateRevision
	out.Status.CollisionCount, out.Status.Conditions = s.Status.CollisionCount, s.Status.Conditions
	return &out
}

func daemonSetBeat(d, was *appsv1.DaemonSet) *appsv1.DaemonSet {
	out := *d
	out.Status = was.Status
	out.Status.CollisionCount, out.Status.Conditions = d.Status.CollisionCount, d.Status.Conditions
	return &out
}
