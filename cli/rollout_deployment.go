package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
)

// deploymentStatus says how far the rollout of a Deployment is.
func deploymentStatus(obj api.Object) (says string, done bool, err error) {
	d := obj.(*appsv1.Deployment)
	want, s := apps.Deployments.Replicas(d), d.Status
	if s.ObservedGeneration < d.Generation {
		return "the change has not been looked at yet", false, nil
	}
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == workload.TimedOut {
			return "", false, fmt.Errorf("deployment/%s makes no progress: %s", d.Name, c.Message)
		}
	}
	switch {
	case d.Spec.Paused && s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d pods are new, and the rollout is paused: ledge rollout resume deployment %s", s.UpdatedReplicas, want,
			d.Name), false, nil
	case s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d pods are new", s.UpdatedReplicas, want), false, nil
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("%d old pods are left", s.Replicas-s.UpdatedReplicas), false, nil
	case s.AvailableReplicas < s.UpdatedReplicas:
		return fmt.Sprintf("%d of %d new pods are available", s.AvailableReplicas, s.UpdatedReplicas), false, nil
	}
	return fmt.Sprintf("deployment/%s is rolled out", d.Name), true, nil
}

// setsOf are the sets of a Deployment, the oldest revision first.
func setsOf(ctx context.Context, cl api.Client, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	list, err := cl.List(ctx, apps.ReplicaSets, api.ListOptions{Selection: api.Selection{Namespace: d.Namespace}})
	if err != nil {
		return nil, fmt.Errorf("list the sets of %s: %w", d.Name, err)
	}
	var out []*appsv1.ReplicaSet
	for _, o := range list.Items {
		if of := metav1.GetControllerOf(o); of != nil && of.UID == d.UID {
			out = append(out, o.(*appsv1.ReplicaSet))
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return out, nil
}

func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[workload.Revision], 10, 64)
	if err != nil {
		return 0 // it has not been given one
	}
	return n
}

func deploymentRevisions(ctx context.Context, cl api.Client, obj api.Object) ([]revision, error) {
	d := obj.(*appsv1.Deployment)
	sets, err := setsOf(ctx, cl, d)
	if err != nil {
		return nil, err
	}
	var out []revision
	for _, rs := range sets {
		t := rs.Spec.Template.DeepCopy()
		delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		out = append(out, revision{revisionOf(rs), rs.Annotations[changeCause], t, workload.SameTemplate(&rs.Spec.Template, &d.Spec.Template)})
	}
	return out, nil
}

func pauseDeployment(obj api.Object, on bool) { obj.(*appsv1.Deployment).Spec.Paused = on }
