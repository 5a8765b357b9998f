package local

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/storage"
)

const (
	subStatus   = "status"
	subFinalize = "finalize" // of a namespace: who holds it
)

// Update implements api.Client.
func (c *Client) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := checkKind(kind, obj); err != nil {
		return nil, err
	}
	if kind.View != nil {
		out, err := c.Update(ctx, kind.View.Of, kind.View.Read(obj), opts)
		return show(kind, out, err)
	}
	return c.modify(ctx, kind, obj.GetNamespace(), obj.GetName(), opts, func(old api.Object) (api.Object, error) {
		if kind == api.PodDisruptionBudgets && obj.GetResourceVersion() == "" { // its status is counted on: nobody writes blindly
			return nil, apierrors.NewInvalid(kind.GVK().GroupKind(), old.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
		}
		if uid := obj.GetUID(); uid != "" && uid != old.GetUID() { // in a patch it is a change, which validation refuses
			return nil, conflict(kind, old.GetName(), "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID())
		}
		return clone(obj), nil
	})
}

// Patch implements api.Client.
func (c *Client) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object, error) {
	if kind.View != nil {
		return c.patchView(ctx, kind, namespace, name, patch, opts)
	}
	if patch.Type == types.ApplyYAMLPatchType {
		return c.apply(ctx, kind, namespace, name, patch.Data, opts)
	}
	return c.modify(ctx, kind, namespace, name, opts, func(old api.Object) (api.Object, error) {
		return patched(ctx, kind, namespace, name, old, patch, opts)
	})
}

// patched is what a patch makes of an object, if it is still the same object.
func patched(ctx context.Context, kind *api.Kind, namespace, name string, old api.Object, patch api.Patch, opts api.WriteOptions) (api.Object, error) {
	obj, dropped, err := api.ApplyPatch(kind, old, patch)
	if err != nil {
		return nil, err
	}
	if opts.Strict && len(dropped) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("strict decoding error: %s", dropped[0]))
	}
	for _, text := range dropped {
		api.Warn(ctx, text)
	}
	if err := checkKind(kind, obj); err != nil {
		return nil, err
	}
	if obj.GetName() != name || obj.GetNamespace() != namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			path(obj.GetNamespace(), obj.GetName()), path(namespace, name)))
	}
	return obj, nil
}

func path(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// modify changes one object in one transaction. What change answers becomes the client's.
func (c *Client) modify(ctx context.Context, kind *api.Kind, namespace, name string, opts api.WriteOptions,
	change func(old api.Object) (api.Object, error)) (out api.Object, err error) {
	ofPods := kind == api.Pods && (opts.Subresource == api.Resize || opts.Subresource == api.Ephemeral)
	ofNamespaces := kind == api.Namespaces && opts.Subresource == subFinalize
	if opts.Subresource != "" && !ofPods && !ofNamespaces && (opts.Subresource != subStatus || !kind.HasStatus) {
		return nil, noSubresource(kind, opts.Subresource)
	}
	var old api.Object
	err = c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		if old, err = get(tx, kind, namespace, name); err != nil {
			return err
		}
		obj, err := change(clone(old))
		if err != nil {
			return err
		}
		out, err = c.update(ctx, tx, kind, obj, old, how{sub: opts.Subresource, manager: opts.Manager})
		return err
	})
	if err != nil {
		return nil, status(err, "update %s %q", kind.Singular, name)
	}
	if opts.DryRun {
		out.SetResourceVersion(old.GetResourceVersion())
		return out, nil
	}
	c.written(out, old)
	return out, nil
}

// how says what kind of update this is.
type how struct {
	sub     string // the subresource
	manager string // who changes
	applied bool   // by server-side apply, which has noted already who set what
	events  *int   // of a creation: how many there are with this one, 0 when they were not counted
}

// update admits obj in the place of old and stores it, unless nothing changed: then nothing is written and
// nobody is told, which is what keeps a board that only repeats itself off its flash.
func (c *Client) update(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj, old api.Object, ch how) (api.Object, error) {
	sub := ch.sub
	if err := precondition(kind, obj, old); err != nil {
		return nil, err
	}
	keep(obj, old, sub)
	api.Default(obj)
	if err := restrictUpdate(ctx, kind, obj, old, sub); err != nil {
		return nil, err
	}
	if err := admitBinding(ctx, tx, obj, old); err != nil {
		return nil, err
	}
	if err := c.admitUpdate(tx, obj, old, sub); err != nil {
		return nil, err
	}
	if err := api.ValidateUpdate(obj, old, sub); err != nil {
		return nil, err
	}
	if err := c.admitSecurity(ctx, tx, obj, old, sub); err != nil {
		return nil, err
	}
	if !ch.applied {
		if err := c.fields.Update(kind, old, obj, sub, ch.manager); err != nil {
			return nil, err
		}
	}
	kind.Stamp(obj)
	if finished(obj) {
		if err := drop(tx, kind, obj); err != nil {
			return nil, err
		}
		return obj, c.leaveNamespace(tx, kind, obj)
	}
	if !renewed(obj, old) && equal(obj, old) {
		return old, nil
	}
	if sub != subStatus && otherSpec(obj, old) {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if err := put(tx, kind, obj, isHeartbeat(obj, old)); err != nil {
		return nil, err
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		return ns, c.terminate(tx, ns) // its last finalizer may just have gone
	}
	return obj, nil
}

// otherSpec says that somebody wants something else of an object whose generation counts that.
func otherSpec(obj, old api.Object) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return !apiequality.Semantic.DeepEqual(o.Spec, old.(*corev1.Pod).Spec)
	case *policyv1.PodDisruptionBudget:
		return !apiequality.Semantic.DeepEqual(o.Spec, old.(*policyv1.PodDisruptionBudget).Spec)
	case *corev1.ReplicationController:
		return !apiequality.Semantic.DeepEqual(o.Spec, old.(*corev1.ReplicationController).Spec)
	}
	return false
}

// precondition is the compare of compare-and-swap (N-11.32).
func precondition(kind *api.Kind, obj, old api.Object) error {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	switch obj.GetResourceVersion() {
	case "", old.GetResourceVersion():
		obj.SetResourceVersion(old.GetResourceVersion())
		return nil
	}
	return conflict(kind, old.GetName(), "the object has been modified; please apply your changes to the latest version and try again")
}

// keep puts back what this kind of update may not touch (N-1.8).
func keep(obj, old api.Object, sub string) {
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if old.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	obj.SetGeneration(old.GetGeneration())
	obj.SetSelfLink("")
	if sub == subStatus {
		obj.SetFinalizers(old.GetFinalizers())
		obj.SetOwnerReferences(old.GetOwnerReferences())
	}
	if sub == api.Resize || sub == api.Ephemeral { // of the metadata nothing may change
		obj.SetFinalizers(old.GetFinalizers())
		obj.SetOwnerReferences(old.GetOwnerReferences())
		obj.SetLabels(old.GetLabels())
		obj.SetAnnotations(old.GetAnnotations())
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		was := old.(*corev1.Pod)
		if sub == api.Ephemeral { // nothing else of the spec
			come := o.Spec.EphemeralContainers
			was.Spec.DeepCopyInto(&o.Spec)
			o.Spec.EphemeralContainers = come
		}
		if sub == subStatus {
			was.Spec.DeepCopyInto(&o.Spec)
			if o.Status.QOSClass == "" {
				o.Status.QOSClass = was.Status.QOSClass
			}
		} else {
			was.Status.DeepCopyInto(&o.Status)
		}
	case *corev1.Node:
		was := old.(*corev1.Node)
		if sub == subStatus {
			was.Spec.DeepCopyInto(&o.Spec)
		} else {
			was.Status.DeepCopyInto(&o.Status)
		}
	case *policyv1.PodDisruptionBudget:
		was := old.(*policyv1.PodDisruptionBudget)
		if sub == subStatus {
			was.Spec.DeepCopyInto(&o.Spec)
		} else {
			was.Status.DeepCopyInto(&o.Status)
		}
	case *corev1.ReplicationController:
		was := old.(*corev1.ReplicationController)
		if sub == subStatus {
			was.Spec.DeepCopyInto(&o.Spec)
		} else {
			was.Status.DeepCopyInto(&o.Status)
		}
	case *corev1.Namespace:
		was := old.(*corev1.Namespace)
		if sub == subFinalize {
			mine := o.Spec.Finalizers
			was.DeepCopyInto(o)
			o.Spec.Finalizers = mine
			break
		}
		o.Spec.Finalizers = slices.Clone(was.Spec.Finalizers)
		if sub != subStatus {
			was.Status.DeepCopyInto(&o.Status)
		}
	}
}

func (c *Client) admitUpdate(tx *storage.Tx, obj, old api.Object, sub string) error {
	switch o := obj.(type) {
	case *corev1.Pod:
		if sub != "" {
			break
		}
		c.addTolerations(o) // N-3.29: at every write
		// Who replaces a pod by its manifest need not know what admission made of it.
		was := &old.(*corev1.Pod).Spec
		if o.Spec.Priority == nil {
			o.Spec.Priority = was.Priority
		}
		if o.Spec.Overhead == nil {
			o.Spec.Overhead = was.Overhead.DeepCopy()
		}
		if o.Spec.PreemptionPolicy == nil {
			o.Spec.PreemptionPolicy = was.PreemptionPolicy
		}
		keepToken(&o.Spec, was)
	case *corev1.ConfigMap:
		if c.isRootCA(o) {
			o.Data, o.BinaryData = map[string]string{rootCAKey: string(c.cfg.Tokens.RootCA)}, nil
		}
	case *schedulingv1.PriorityClass:
		return oneDefault(tx, o)
	}
	return nil
}

// finished says that an object only waited for its finalizers, and has none left.
func finished(obj api.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(obj.GetFinalizers()) == 0
}

// isHeartbeat says that a change only tells that somebody is still there: a power cut may forget it
// (architecture: Leases are lazy). Events are lazy always.
func isHeartbeat(obj, old api.Object) bool {
	switch o := obj.(type) {
	case *corev1.Event:
		return true
	case *coordinationv1.Lease:
		c := *o
		c.Spec.RenewTime = old.(*coordinationv1.Lease).Spec.RenewTime
		return apiequality.Semantic.DeepEqual(&c, old)
	case *corev1.Node:
		c, was := *o, old.(*corev1.Node)
		c.Status.Conditions = slices.Clone(c.Status.Conditions)
		for i := range min(len(c.Status.Conditions), len(was.Status.Conditions)) {
			c.Status.Conditions[i].LastHeartbeatTime = was.Status.Conditions[i].LastHeartbeatTime
		}
		return equal(&c, was)
	case *corev1.Pod:
		c, was := *o, old.(*corev1.Pod)
		c.Status.Conditions = slices.Clone(c.Status.Conditions)
		for i := range min(len(c.Status.Conditions), len(was.Status.Conditions)) {
			c.Status.Conditions[i].LastProbeTime = was.Status.Conditions[i].LastProbeTime
		}
		return equal(&c, was)
	}
	return false
}

// equal compares first what differs most often: to compare a whole Pod takes longer than to write it down.
func equal(obj, old api.Object) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		if !apiequality.Semantic.DeepEqual(&o.Status, &old.(*corev1.Pod).Status) {
			return false
		}
	case *corev1.Node:
		if !apiequality.Semantic.DeepEqual(&o.Status, &old.(*corev1.Node).Status) {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(obj, old)
}

// renewed says that the time of a Lease is another, as it is in most of all writes: then it need not be compared.
func renewed(obj, old api.Object) bool {
	l, ok := obj.(*coordinationv1.Lease)
	return ok && !l.Spec.RenewTime.Equal(old.(*coordinationv1.Lease).Spec.RenewTime)
}

// setCondition puts a condition into a pod's list; its time moves only when its status does.
func setCondition(list []corev1.PodCondition, cond corev1.PodCondition, now metav1.Time) []corev1.PodCondition {
	cond.LastTransitionTime = now
	for i := range list {
		if list[i].Type != cond.Type {
			continue
		}
		if list[i].Status == cond.Status {
			cond.LastTransitionTime = list[i].LastTransitionTime
		}
		list[i] = cond
		return list
	}
	return append(list, cond)
}
