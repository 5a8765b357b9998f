package cli

import (
	"context"
	"fmt"
	"sort"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
)

// statefulSetStatus says how far the rollout of a StatefulSet is.
func statefulSetStatus(obj api.Object) (says string, done bool, err error) {
	set := obj.(*appsv1.StatefulSet)
	want, s, part := apps.StatefulSets.Replicas(set), set.Status, int32(0)
	if roll := set.Spec.UpdateStrategy.RollingUpdate; roll != nil && roll.Partition != nil {
		part = min(*roll.Partition, want)
	}
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return "", false, onDelete(apps.StatefulSets, obj)
	case s.ObservedGeneration < set.Generation:
		return "the change has not been looked at yet", false, nil
	case s.ReadyReplicas < want:
		return fmt.Sprintf("%d of %d pods are ready", s.ReadyReplicas, want), false, nil
	case s.UpdatedReplicas < want-part:
		return fmt.Sprintf("%d of %d pods are new", s.UpdatedReplicas, want-part), false, nil
	case part > 0:
		return fmt.Sprintf("statefulset/%s is rolled out but for its first %d pods, which its partition keeps", set.Name, part), true, nil
	case s.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d pods are available", s.AvailableReplicas, want), false, nil
	}
	return fmt.Sprintf("statefulset/%s is rolled out", set.Name), true, nil
}

// daemonSetStatus says how far the rollout of a DaemonSet is.
func daemonSetStatus(obj api.Object) (says string, done bool, err error) {
	d := obj.(*appsv1.DaemonSet)
	s := d.Status
	switch {
	case d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return "", false, onDelete(apps.DaemonSets, obj)
	case s.ObservedGeneration < d.Generation:
		return "the change has not been looked at yet", false, nil
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		return fmt.Sprintf("%d of %d boards have a new pod", s.UpdatedNumberScheduled, s.DesiredNumberScheduled), false, nil
	case s.NumberAvailable < s.DesiredNumberScheduled:
		return fmt.Sprintf("on %d of %d boards it is available", s.NumberAvailable, s.DesiredNumberScheduled), false, nil
	}
	return fmt.Sprintf("daemonset/%s is rolled out", d.Name), true, nil
}

func onDelete(kind *api.Kind, obj api.Object) error {
	return fmt.Errorf("%s/%s replaces no pods itself: its update strategy is OnDelete", kind.Singular, obj.GetName())
}

// rememberedBy is the templates that an object of a kind has had, as its ControllerRevisions keep them.
func rememberedBy(kind *api.Kind) func(context.Context, api.Client, api.Object) ([]revision, error) {
	return func(ctx context.Context, cl api.Client, obj api.Object) ([]revision, error) {
		list, err := cl.List(ctx, apps.ControllerRevisions, api.ListOptions{Selection: api.Selection{Namespace: obj.GetNamespace()}})
		if err != nil {
			return nil, fmt.Errorf("list the former templates of %s: %w", obj.GetName(), err)
		}
		var out []revision
		for _, o := range list.Items {
			of, r := metav1.GetControllerOf(o), o.(*appsv1.ControllerRevision)
			if of == nil || of.UID != obj.GetUID() {
				continue
			}
			if t := workload.Remembered(r); t != nil {
				out = append(out, revision{r.Revision, r.Annotations[changeCause], t, workload.SameTemplate(t, kind.Template(obj))})
			}
		}
		sort.Slice(out, func(i, j int) bool { return out[i].number < out[j].number })
		return out, nil
	}
}
