package local

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/batch"
	"ledge/api/networking"
	"ledge/api/rbac"
	"ledge/api/scheduling"
	"ledge/storage"
)

// admission is one object on its way into the store.
type admission struct {
	kind     *api.Kind
	obj, old api.Object // old is nil where obj is new
	sub      string     // the subresource that is written
}

type (
	admit  func(*inTx, context.Context, *storage.Tx, admission) error
	after  func(*inTx, *storage.Tx, api.Object) error
	secure func(podSecurity, context.Context, *storage.Tx, admission) error
)

// gate has the steps of admission of one kind that need other objects or the configuration, beside the kind's own rules. A step that is
// nil is left out; most kinds have no gate.
type gate struct {
	create, update admit  // before validation
	secure         secure // pod security, after it
	made, updated  after  // the write
	mayDelete      func(api.Object) error
	deleted        after
	gone           after // it is not there any more; of a damaged object only the name is known
}

// gates are those of all kinds that have one.
func gates(kind *api.Kind) gate {
	switch kind {
	case api.Pods:
		return gate{create: (*inTx).admitPod, update: (*inTx).admitPodUpdate, secure: podSecurity.pod}
	case api.Nodes:
		return gate{create: admitNode, made: (*inTx).buryFormer, deleted: (*inTx).nodeDeleted}
	case api.Namespaces:
		return gate{secure: podSecurity.namespace, made: (*inTx).furnishNew, updated: (*inTx).namespaceUpdated}
	case api.LimitRanges, api.ResourceQuotas:
		return gate{create: admitFew}
	case batch.Jobs:
		return gate{create: selectPods}
	case api.ConfigMaps:
		return gate{update: keepRootCA}
	case api.Services:
		return gate{create: admitService, update: admitService, gone: serviceGone}
	case networking.ServiceCIDRs:
		return gate{create: admitRange, update: admitRange, mayDelete: keepDefaultRange, deleted: rangeDeleted}
	case networking.Ingresses:
		return gate{create: admitIngress, update: admitIngress}
	case networking.IPAddresses:
		return gate{gone: addressGone}
	case api.PersistentVolumeClaims:
		return gate{create: admitClaim, update: admitGrowth}
	case api.PersistentVolumes:
		return gate{create: admitVolume, update: timePhase}
	case scheduling.PriorityClasses:
		return gate{create: admitPriorityClass, update: admitPriorityClass, mayDelete: keepSystemClasses}
	case rbac.Roles, rbac.ClusterRoles, rbac.RoleBindings, rbac.ClusterRoleBindings:
		return gate{create: admitRights, update: admitRights}
	}
	return gate{}
}

// ask runs one step of admission, if there is one.
func (in *inTx) ask(ctx context.Context, tx *storage.Tx, step admit, a admission) error {
	if step == nil {
		return nil
	}
	return step(in, ctx, tx, a)
}

// then does what follows a write, if anything does.
func (in *inTx) then(tx *storage.Tx, step after, obj api.Object) error {
	if step == nil {
		return nil
	}
	return step(in, tx, obj)
}

// admitNode is N-1.6.
func admitNode(_ *inTx, _ context.Context, _ *storage.Tx, a admission) error {
	taintNotReady(a.obj.(*corev1.Node))
	return nil
}

// selectPods gives a new Job the selector and labels by which its pods are found: its name and uid.
func selectPods(_ *inTx, _ context.Context, _ *storage.Tx, a admission) error {
	batch.Select(a.obj.(*batchv1.Job))
	return nil
}

// admitPod is the admission of N-3.29, N-10.16 and N-10.17.
func (in *inTx) admitPod(_ context.Context, tx *storage.Tx, a admission) error {
	p := a.obj.(*corev1.Pod)
	if err := defaultLimits(tx, a); err != nil {
		return err
	}
	if err := admitPriority(tx, p); err != nil {
		return err
	}
	tolerateBoard(p)
	in.patience.add(p)
	if err := admitRuntimeClass(tx, p); err != nil {
		return err
	}
	if err := in.accounts.admitAccount(tx, p); err != nil {
		return err
	}
	p.Status.QOSClass = api.QOSClass(p)
	if len(p.Spec.SchedulingGates) > 0 { // N-10.4
		p.Status.Conditions = setCondition(nil, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}, in.now())
	}
	return nil
}

// admitPodUpdate puts back what admission added to a pod, for clients that replace the pod by the manifest it was made from.
func (in *inTx) admitPodUpdate(_ context.Context, tx *storage.Tx, a admission) error {
	if a.sub == api.Resize && a.old.GetDeletionTimestamp() == nil {
		return defaultLimits(tx, a)
	}
	if a.sub != "" {
		return nil
	}
	p, was := a.obj.(*corev1.Pod), &a.old.(*corev1.Pod).Spec
	in.patience.add(p) // N-3.29: at every write
	if p.Spec.Priority == nil {
		p.Spec.Priority = was.Priority
	}
	if p.Spec.Overhead == nil {
		p.Spec.Overhead = was.Overhead.DeepCopy()
	}
	if p.Spec.PreemptionPolicy == nil {
		p.Spec.PreemptionPolicy = was.PreemptionPolicy
	}
	keepToken(&p.Spec, was)
	return nil
}

// keepRootCA puts back what nobody but the server may say.
func keepRootCA(in *inTx, _ context.Context, _ *storage.Tx, a admission) error {
	if m := a.obj.(*corev1.ConfigMap); in.accounts.isRootCA(m) {
		m.Data, m.BinaryData = map[string]string{rootCAKey: string(in.accounts.tokens.RootCA)}, nil
	}
	return nil
}
