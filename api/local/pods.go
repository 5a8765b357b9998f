package local

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/storage"
)

// bind gives a pod its node, once (N-10.2).
func (c *Client) bind(ctx context.Context, b *corev1.Binding, opts api.WriteOptions) error {
	var errs field.ErrorList
	if k := b.Target.Kind; k != "" && k != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), k, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, b.Name, errs)
	}
	err := c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		obj, err := get(tx, api.Pods, b.Namespace, b.Name)
		if err != nil {
			return err
		}
		pod := obj.(*corev1.Pod)
		if err := restrictBind(ctx, pod); err != nil {
			return err
		}
		if err := bindable(pod, b); err != nil {
			return err
		}
		pod.Spec.NodeName, pod.Status.NominatedNodeName = b.Target.Name, ""
		// Not a change of what was asked for: the generation stays, as on Kubernetes.
		if pod.Annotations == nil && len(b.Annotations) > 0 {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, b.Annotations)
		pod.Status.Conditions = setCondition(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, c.now())
		return put(tx, api.Pods, pod, false)
	})
	return status(err, "bind pod %q", b.Name)
}

func bindable(pod *corev1.Pod, b *corev1.Binding) error {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return refuse("Precondition failed: UID in precondition: %s, UID in object meta: %s", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return refuse("the object has been modified; please apply your changes to the latest version and try again")
	case pod.DeletionTimestamp != nil:
		return refuse("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return refuse("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return refuse("pod %s has non-empty .spec.schedulingGates", pod.Name)
	}
	return nil
}

// evict deletes a pod on request of a drain, if its budget lets it go: the same as a delete, but said in its conditions
// (N-11.1 to N-11.4).
func (c *Client) evict(ctx context.Context, e *policyv1.Eviction, opts api.WriteOptions) error {
	del, err := evictOptions(e)
	if err != nil {
		return err
	}
	del.DryRun = del.DryRun || opts.DryRun
	err = c.write(ctx, del.DryRun, func(tx *storage.Tx) error {
		tx.SpendReserve()
		obj, err := get(tx, api.Pods, e.Namespace, e.Name)
		if err != nil {
			return err
		}
		if err := deletePreconditions(api.Pods, obj, del); err != nil {
			return err
		}
		if err := restrictDelete(ctx, api.Pods, obj); err != nil {
			return err
		}
		pod := obj.(*corev1.Pod)
		if err := spend(tx, pod, c.now()); err != nil {
			return err
		}
		pod.Status.Conditions = setCondition(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}, c.now())
		if err := put(tx, api.Pods, pod, false); err != nil {
			return err
		}
		if err := c.propagateAndMark(tx, api.Pods, pod, del); err != nil {
			return err
		}
		return c.leaveNamespace(tx, api.Pods, pod)
	})
	return status(err, "evict pod %q", e.Name)
}

func evictOptions(e *policyv1.Eviction) (del api.DeleteOptions, err error) {
	o := e.DeleteOptions
	if o == nil {
		return del, nil
	}
	del.Grace = o.GracePeriodSeconds
	if o.Preconditions != nil {
		del.UID, del.Revision = o.Preconditions.UID, o.Preconditions.ResourceVersion
	}
	var errs field.ErrorList
	at := field.NewPath("deleteOptions")
	for _, d := range o.DryRun {
		del.DryRun = true
		if d != metav1.DryRunAll {
			errs = append(errs, field.NotSupported(at.Child("dryRun"), d, []string{metav1.DryRunAll}))
		}
	}
	//lint:ignore SA1019 old clients still send it
	if orphan := o.OrphanDependents; orphan != nil {
		del.Propagation = metav1.DeletePropagationBackground
		if *orphan {
			del.Propagation = metav1.DeletePropagationOrphan
		}
	}
	if how := o.PropagationPolicy; how != nil {
		del.Propagation = *how
		if !slices.Contains(api.Propagations, *how) {
			errs = append(errs, field.NotSupported(at.Child("propagationPolicy"), *how, api.Propagations))
		}
	}
	if len(errs) > 0 {
		err = apierrors.NewInvalid(schema.GroupKind{Group: "policy", Kind: "Eviction"}, e.Name, errs)
	}
	return del, err
}
