package claims

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// SizeNotEnforced is the condition of a claim that may outgrow its size.
const SizeNotEnforced corev1.PersistentVolumeClaimConditionType = "SizeNotEnforced"

func unsized(why string) string {
	return fmt.Sprintf("nothing holds it to its size on this board: %s ('ledge doctor' says what to do)", why)
}

// conditionOf is what a claim says of that, if anything.
func conditionOf(c *corev1.PersistentVolumeClaim) string {
	for _, o := range c.Status.Conditions {
		if o.Type == SizeNotEnforced {
			return o.Message
		}
	}
	return ""
}

// grown tells a claim how large it is now.
func (l *Loop) grown(ctx context.Context, s Step) error {
	c := s.Claim.DeepCopy()
	if c.Status.Capacity == nil {
		c.Status.Capacity = corev1.ResourceList{}
	}
	c.Status.Capacity[corev1.ResourceStorage] = quantity(s.Bytes)
	c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
	dropConditions(c, corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending)
	if _, err := l.cfg.Client.Update(ctx, api.PersistentVolumeClaims, c, api.WriteOptions{Subresource: api.StatusSub}); err != nil {
		return err
	}
	l.cfg.Events.Event(s.Claim, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "the volume has "+amount(s.Bytes)+" now")
	return nil
}

func dropConditions(c *corev1.PersistentVolumeClaim, types ...corev1.PersistentVolumeClaimConditionType) {
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(types, o.Type)
	})
}

// mark says in a claim's conditions that nothing holds it to its size, or takes that back.
func (l *Loop) mark(ctx context.Context, s Step) error {
	c := s.Claim.DeepCopy()
	dropConditions(c, SizeNotEnforced)
	if s.Why != "" {
		now := metav1.Now()
		c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: SizeNotEnforced,
			Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now, Reason: "NoProjectQuotas", Message: s.Why})
	}
	_, err := l.cfg.Client.Update(ctx, api.PersistentVolumeClaims, c, api.WriteOptions{Subresource: api.StatusSub})
	return err
}

func quantity(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }
