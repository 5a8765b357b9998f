package api

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validateNode(n *corev1.Node) field.ErrorList {
	errs := valid.Refuse(n, nodeRefusals())
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("spec", "taints"))...)
	errs = append(errs, validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
	if one, all := n.Spec.PodCIDR, n.Spec.PodCIDRs; one != "" && len(all) > 0 && one != all[0] {
		errs = append(errs, field.Invalid(field.NewPath("spec", "podCIDRs").Index(0), all[0], "must be the same as podCIDR, "+one))
	}
	status := field.NewPath("status")
	errs = append(errs, validateQuantities(n.Status.Capacity, status.Child("capacity"))...)
	errs = append(errs, validateQuantities(n.Status.Allocatable, status.Child("allocatable"))...)
	seen := sets.New[corev1.NodeAddress]()
	for i, a := range n.Status.Addresses {
		if seen.Has(a) {
			errs = append(errs, field.Duplicate(status.Child("addresses").Index(i), a))
		}
		seen.Insert(a)
	}
	return errs
}

func validateTaints(taints []corev1.Taint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	type id struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := sets.New[id]()
	for i, t := range taints {
		at := at.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, isLabelValue(t.Value, at.Child("value"))...)
		errs = append(errs, isEffect(t.Effect, at.Child("effect"))...)
		if k := (id{t.Key, t.Effect}); seen.Has(k) {
			dup := field.Duplicate(at, t)
			dup.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, dup)
		} else {
			seen.Insert(k)
		}
	}
	return errs
}

func validatePodCIDRs(list []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			errs = append(errs, field.Invalid(at.Index(i), s, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
			continue
		}
		families[p.Addr().Is4()]++
	}
	if len(list) > 2 || families[true] > 1 || families[false] > 1 {
		errs = append(errs, field.Invalid(at, list, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func validateNodeUpdate(n, old *corev1.Node) field.ErrorList { // N-1.7
	at := field.NewPath("spec")
	var errs field.ErrorList
	for _, f := range []struct {
		child    string
		now, old []string
	}{
		{"podCIDR", one(n.Spec.PodCIDR), one(old.Spec.PodCIDR)},
		{"podCIDRs", n.Spec.PodCIDRs, old.Spec.PodCIDRs},
		{"providerID", one(n.Spec.ProviderID), one(old.Spec.ProviderID)},
	} {
		if len(f.old) > 0 && !slices.Equal(f.now, f.old) {
			errs = append(errs, field.Forbidden(at.Child(f.child),
				fmt.Sprintf("node updates may not change %s except from \"\" to valid", f.child)))
		}
	}
	return errs
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
