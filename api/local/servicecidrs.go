package local

import (
	"context"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/networking"
	"ledge/storage"
)

// rangeFinalizer holds a range that addresses are in use of.
const rangeFinalizer = "networking.k8s.io/service-cidr-finalizer"

// admitRange: a range is ready as soon as it is there, and held as long as somebody has an address of it.
func admitRange(in *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	r := a.obj.(*networkingv1.ServiceCIDR)
	if a.sub != "" {
		return nil
	}
	hold := true
	if a.old != nil && a.old.GetDeletionTimestamp() != nil {
		used, err := inUse(tx, r)
		if err != nil {
			return err
		}
		hold = used
	}
	if hold && !slices.Contains(r.Finalizers, rangeFinalizer) {
		r.Finalizers = append(r.Finalizers, rangeFinalizer)
	}
	if a.old != nil && slices.Equal(r.Spec.CIDRs, a.old.(*networkingv1.ServiceCIDR).Spec.CIDRs) {
		return nil
	}
	for i, p := range prefixes(r) {
		if err := in.cfg.Services.Overlap(p); err != nil {
			return apierrors.NewInvalid(networking.ServiceCIDRs.GVK().GroupKind(), r.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "cidrs").Index(i), r.Spec.CIDRs[i], err.Error())})
		}
	}
	if a.old == nil {
		setRangeReady(in, r)
	}
	return nil
}

func setRangeReady(in *inTx, r *networkingv1.ServiceCIDR) {
	setRangeCondition(in, r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
}

func setRangeCondition(in *inTx, r *networkingv1.ServiceCIDR, is metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: is, Reason: reason,
		Message: message, LastTransitionTime: in.now()})
}

// keepDefaultRange: without it no service could be made, the API's own included.
func keepDefaultRange(obj api.Object) error {
	if obj.GetName() != networking.DefaultServiceCIDR {
		return nil
	}
	return forbidden(networking.ServiceCIDRs, obj.GetName(), "it is the range of the configuration: change serviceCIDR there")
}

// rangeDeleted lets a range go that nobody uses, and says of another what it waits for.
func rangeDeleted(in *inTx, tx *storage.Tx, obj api.Object) error {
	r := obj.(*networkingv1.ServiceCIDR)
	if finished(r) {
		return nil // gone already
	}
	used, err := inUse(tx, r)
	if err != nil {
		return err
	}
	if used {
		setRangeCondition(in, r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	} else {
		r.Finalizers = slices.DeleteFunc(r.Finalizers, func(f string) bool { return f == rangeFinalizer })
	}
	return putOrDrop(in, tx, networking.ServiceCIDRs, r)
}

// dropRanges drops the ranges that were deleted and whose last address has gone.
func dropRanges(in *inTx, tx *storage.Tx) error {
	all, err := tx.List(networking.ServiceCIDRs, "")
	if err != nil {
		return err
	}
	for _, o := range all {
		r := o.(*networkingv1.ServiceCIDR)
		if r.DeletionTimestamp == nil || !slices.Contains(r.Finalizers, rangeFinalizer) {
			continue
		}
		if used, err := inUse(tx, r); err != nil || used {
			return err
		}
		if err := rangeDeleted(in, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// inUse says that there is an address of a range that no other range has.
func inUse(tx *storage.Tx, r *networkingv1.ServiceCIDR) (bool, error) {
	all, err := tx.List(networking.ServiceCIDRs, "")
	if err != nil {
		return false, err
	}
	var others []netip.Prefix
	for _, o := range all {
		if other := o.(*networkingv1.ServiceCIDR); other.Name != r.Name && other.DeletionTimestamp == nil {
			others = append(others, prefixes(other)...)
		}
	}
	addresses, err := tx.List(networking.IPAddresses, "")
	if err != nil {
		return false, err
	}
	in := func(list []netip.Prefix, ip netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	own := prefixes(r)
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a.GetName()); err == nil && in(own, ip) && !in(others, ip) {
			return true, nil
		}
	}
	return false, nil
}

// defaultRange is what the configuration says.
func defaultRange(in *inTx) *networkingv1.ServiceCIDR {
	r := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: networking.DefaultServiceCIDR, Finalizers: []string{rangeFinalizer}}}
	for _, p := range in.cfg.Services.Ranges {
		r.Spec.CIDRs = append(r.Spec.CIDRs, p.String())
	}
	return r
}
