package local

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/quota"
	"ledge/storage"
)

// limitsOf are the LimitRanges of a namespace.
func limitsOf(tx *storage.Tx, namespace string) ([]*corev1.LimitRange, error) {
	if some, err := tx.Any(api.LimitRanges, namespace); err != nil || !some {
		return nil, err
	}
	found, err := list(tx, api.LimitRanges, namespace)
	return typed[*corev1.LimitRange](found), err
}

// defaultLimits gives a pod what the LimitRanges of its namespace say. For a pod that is resized no annotation says so: a resize
// changes no metadata.
func defaultLimits(tx *storage.Tx, a admission) error {
	p := a.obj.(*corev1.Pod)
	ranges, err := limitsOf(tx, p.Namespace)
	told := maps.Clone(p.Annotations)
	for _, l := range ranges {
		api.DefaultLimits(p, l)
	}
	if a.old != nil {
		p.Annotations = told
	}
	return err
}

// holdToLimits refuses what is beyond a LimitRange: a new object, another claim, a pod that is resized.
func holdToLimits(tx *storage.Tx, a admission) error {
	changes := ""
	if a.kind == api.Pods {
		changes = api.Resize
	}
	if !a.kind.Bounded() || a.old != nil && (a.old.GetDeletionTimestamp() != nil || a.sub != changes) {
		return nil
	}
	ranges, err := limitsOf(tx, a.obj.GetNamespace())
	if err != nil {
		return err
	}
	if err := quota.Bound(a.kind, a.obj, ranges); err != nil {
		return forbidden(a.kind, a.obj.GetName(), "%w", err)
	}
	return nil
}

// admitFew bounds how many there are of what every write of a pod looks at.
func admitFew(_ *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	there, err := list(tx, a.kind, a.obj.GetNamespace())
	if err != nil {
		return err
	}
	if err := quota.Full(a.kind, a.obj.GetNamespace(), len(there)); err != nil {
		return forbidden(a.kind, a.obj.GetName(), "%w", err)
	}
	return nil
}
