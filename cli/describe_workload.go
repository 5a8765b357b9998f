package cli

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
)

func (p *page) deployment(ctx context.Context, cl api.Client, d *appsv1.Deployment) error {
	sets, err := setsOf(ctx, cl, d)
	if err != nil {
		return err
	}
	s := d.Status
	p.line("Selector", "%s", metav1.FormatLabelSelector(d.Spec.Selector))
	p.line("Replicas", "%d wanted, %d new, %d in all, %d ready, %d available", apps.Deployments.Replicas(d), s.UpdatedReplicas, s.Replicas,
		s.ReadyReplicas,
		s.AvailableReplicas)
	strategy := string(d.Spec.Strategy.Type)
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		strategy += fmt.Sprintf(", %s more at most, %s fewer", r.MaxSurge, r.MaxUnavailable)
	}
	p.line("Strategy", "%s", strategy)
	if d.Spec.Paused {
		p.line("Paused", "true")
	}
	p.template(&d.Spec.Template)
	p.section("Conditions")
	p.row("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range s.Conditions {
		p.row(c.Type, c.Status, p.ago(c.LastTransitionTime.Time), c.Reason, c.Message)
	}
	p.section("ReplicaSets")
	p.row("REVISION", "NAME", "PODS")
	for _, rs := range sets {
		p.row(revisionOf(rs), rs.Name, fmt.Sprintf("%d/%d", rs.Status.Replicas, apps.ReplicaSets.Replicas(rs)))
	}
	return nil
}

func (p *page) statefulSet(ctx context.Context, cl api.Client, set *appsv1.StatefulSet) error {
	s := set.Status
	p.line("Selector", "%s", metav1.FormatLabelSelector(set.Spec.Selector))
	p.line("Replicas", "%d wanted, %d new, %d in all, %d ready, %d available", apps.StatefulSets.Replicas(set), s.UpdatedReplicas, s.Replicas,
		s.ReadyReplicas, s.AvailableReplicas)
	p.line("Pods", "%s", set.Spec.PodManagementPolicy)
	strategy := string(set.Spec.UpdateStrategy.Type)
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil && r.MaxUnavailable != nil {
		strategy += fmt.Sprintf(", %s missing at most, from the pod %d on", r.MaxUnavailable, *r.Partition)
	}
	p.line("Strategy", "%s", strategy)
	p.template(&set.Spec.Template)
	return p.revisions(ctx, cl, apps.StatefulSets, set)
}

func (p *page) daemonSet(ctx context.Context, cl api.Client, d *appsv1.DaemonSet) error {
	s := d.Status
	p.line("Selector", "%s", metav1.FormatLabelSelector(d.Spec.Selector))
	p.pairs("Node Selector", d.Spec.Template.Spec.NodeSelector)
	p.line("Boards", "%d are to have a pod, %d have one, %d a new one, %d a ready one, %d an available one; %d have one that is not to be there",
		s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.UpdatedNumberScheduled, s.NumberReady, s.NumberAvailable, s.NumberMisscheduled)
	strategy := string(d.Spec.UpdateStrategy.Type)
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
		strategy += fmt.Sprintf(", %s more at most, %s fewer", r.MaxSurge, r.MaxUnavailable)
	}
	p.line("Strategy", "%s", strategy)
	p.template(&d.Spec.Template)
	return p.revisions(ctx, cl, apps.DaemonSets, d)
}

// revisions are the templates that an object has had.
func (p *page) revisions(ctx context.Context, cl api.Client, kind *api.Kind, obj api.Object) error {
	all, err := rememberedBy(kind)(ctx, cl, obj)
	if err != nil {
		return err
	}
	p.section("Revisions")
	p.row("REVISION", "CHANGE-CAUSE")
	for _, r := range all {
		p.row(r.number, r.cause)
	}
	return nil
}

func (p *page) replicaSet(rs *appsv1.ReplicaSet) {
	if owner := metav1.GetControllerOf(rs); owner != nil {
		p.line("Controlled By", "%s/%s", owner.Kind, owner.Name)
	}
	s := rs.Status
	p.line("Selector", "%s", metav1.FormatLabelSelector(rs.Spec.Selector))
	p.line("Replicas", "%d wanted, %d in all, %d ready, %d available", apps.ReplicaSets.Replicas(rs), s.Replicas, s.ReadyReplicas,
		s.AvailableReplicas)
	p.template(&rs.Spec.Template)
	if len(s.Conditions) > 0 {
		p.section("Conditions")
		p.row("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	}
	for _, c := range s.Conditions {
		p.row(c.Type, c.Status, p.ago(c.LastTransitionTime.Time), c.Reason, c.Message)
	}
}

// template is what the pods of a workload are made from.
func (p *page) template(t *corev1.PodTemplateSpec) {
	p.pairs("Pod Labels", t.Labels)
	p.pairs("Pod Annotations", t.Annotations)
	if t.Spec.ServiceAccountName != "" {
		p.line("Service Account", "%s", t.Spec.ServiceAccountName)
	}
	p.containers("Init Containers", t.Spec.InitContainers, nil)
	p.containers("Containers", t.Spec.Containers, nil)
	var volumes []string
	for _, v := range t.Spec.Volumes {
		volumes = append(volumes, v.Name+" ("+sourceOf(v)+")")
	}
	if volumes != nil {
		p.w.Flush()
		p.line("Volumes", "%s", strings.Join(volumes, ", "))
	}
}
