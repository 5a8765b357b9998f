package networking

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// NetworkPolicies say who may talk to the pods that they select, and to whom these may.
var NetworkPolicies = api.Define(api.Kind{Group: "networking.k8s.io", Version: "v1", Name: "NetworkPolicy", Resource: "networkpolicies",
	Singular: "networkpolicy", Short: []string{"netpol"}, Namespaced: true, Generation: true},
	api.Rules[*networkingv1.NetworkPolicy]{
		New:      func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		NewList:  func() api.ListObject { return &networkingv1.NetworkPolicyList{} },
		Default:  defaultPolicy,
		Validate: func(p *networkingv1.NetworkPolicy) field.ErrorList { return validatePolicy(p, nil) },
		ValidateUpdate: func(p, old *networkingv1.NetworkPolicy, _ string) field.ErrorList {
			return validatePolicy(p, cidrsOf(old))
		},
		Warn:    policyWarnings,
		Spec:    func(p *networkingv1.NetworkPolicy) any { return &p.Spec },
		Columns: table.Columns{table.Name, table.Column("Pod-Selector", "string", "The pods that it is about."), table.Age},
		Cells: func(p *networkingv1.NetworkPolicy, l table.Look) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), l.AgeOf(p)}
		},
	})

// What one policy may have of each list: a board turns each into rules or elements of the kernel.
const (
	mostRules  = 500
	mostPorts  = 500
	mostPeers  = 500
	mostExcept = 250
	mostTerms  = 100 // of a selector
	mostValues = 1000
)

func defaultPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	eachRule(p, func(_ *field.Path, ports []networkingv1.NetworkPolicyPort, _ []networkingv1.NetworkPolicyPeer, _ string) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	})
}

// eachRule goes through the rules of both directions; peers is what their field of peers is called.
func eachRule(p *networkingv1.NetworkPolicy,
	do func(at *field.Path, ports []networkingv1.NetworkPolicyPort, list []networkingv1.NetworkPolicyPeer, peers string),
) {
	for i, r := range p.Spec.Ingress {
		do(field.NewPath("spec", "ingress").Index(i), r.Ports, r.From, "from")
	}
	for i, r := range p.Spec.Egress {
		do(field.NewPath("spec", "egress").Index(i), r.Ports, r.To, "to")
	}
}

func validatePolicy(p *networkingv1.NetworkPolicy, was []string) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateSelector(&p.Spec.PodSelector, spec.Child("podSelector"))
	errs = append(errs, atMost(len(p.Spec.Ingress), mostRules, spec.Child("ingress"))...)
	errs = append(errs, atMost(len(p.Spec.Egress), mostRules, spec.Child("egress"))...)
	if len(errs) > 0 {
		return errs // what is too long is not looked at whole
	}
	eachRule(p, func(at *field.Path, ports []networkingv1.NetworkPolicyPort, list []networkingv1.NetworkPolicyPeer, peers string) {
		more := append(atMost(len(ports), mostPorts, at.Child("ports")), atMost(len(list), mostPeers, at.Child(peers))...)
		for i := 0; len(more) == 0 && i < len(ports); i++ {
			errs = append(errs, validatePort(&ports[i], at.Child("ports").Index(i))...)
		}
		for i := 0; len(more) == 0 && i < len(list); i++ {
			errs = append(errs, validatePeer(&list[i], was, at.Child(peers).Index(i))...)
		}
		errs = append(errs, more...)
	})
	types := spec.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	known := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}
	for i, t := range p.Spec.PolicyTypes {
		if t != known[0] && t != known[1] {
			errs = append(errs, field.NotSupported(types.Index(i), t, known))
		}
	}
	return errs
}

func atMost(n, most int, at *field.Path) field.ErrorList {
	if n > most {
		return field.ErrorList{field.TooMany(at, n, most)}
	}
	return nil
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	errs := atMost(len(s.MatchLabels), mostTerms, at.Child("matchLabels"))
	errs = append(errs, atMost(len(s.MatchExpressions), mostTerms, at.Child("matchExpressions"))...)
	for i := 0; len(errs) == 0 && i < len(s.MatchExpressions); i++ {
		errs = atMost(len(s.MatchExpressions[i].Values), mostValues, at.Child("matchExpressions").Index(i).Child("values"))
	}
	if len(errs) > 0 {
		return errs
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func validatePort(p *networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch protocol := p.Protocol; {
	case protocol == nil, *protocol == corev1.ProtocolTCP, *protocol == corev1.ProtocolUDP, *protocol == corev1.ProtocolSCTP:
	default:
		errs = append(errs, field.NotSupported(at.Child("protocol"), *protocol,
			[]corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}))
	}
	end := at.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.Int:
		errs = append(errs, portNumber(p.Port.IntVal, at.Child("port"))...)
		if p.EndPort != nil {
			if *p.EndPort < p.Port.IntVal {
				errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
			}
			errs = append(errs, portNumber(*p.EndPort, end)...)
		}
	default:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, valid.Each(validation.IsValidPortName(p.Port.StrVal),
			func(msg string) *field.Error { return field.Invalid(at.Child("port"), p.Port.StrVal, msg) })...)
	}
	return errs
}

func portNumber(n int32, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsValidPortNum(int(n)), func(msg string) *field.Error { return field.Invalid(at, n, msg) })
}

func validatePeer(p *networkingv1.NetworkPolicyPeer, was []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validateSelector(p.PodSelector, at.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validateSelector(p.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, validateBlock(p.IPBlock, was, at.Child("ipBlock"))...)
	}
	switch pods := p.PodSelector != nil || p.NamespaceSelector != nil; {
	case !pods && p.IPBlock == nil:
		errs = append(errs, field.Required(at, "must specify a peer"))
	case pods && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
	}
	return errs
}

// validateBlock: what was in a policy may stay in it.
func validateBlock(b *networkingv1.IPBlock, was []string, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	if errs := atMost(len(b.Except), mostExcept, at.Child("except")); len(errs) > 0 {
		return errs
	}
	errs := validation.IsValidCIDRForLegacyField(at.Child("cidr"), b.CIDR, true, was)
	whole, err := netip.ParsePrefix(b.CIDR)
	for i, text := range b.Except {
		inside := at.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(inside, text, true, was)...)
		x, bad := netip.ParsePrefix(text)
		if err == nil && bad == nil && (!whole.Contains(x.Addr()) || whole.Bits() >= x.Bits()) {
			errs = append(errs, field.Invalid(inside, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func cidrsOf(p *networkingv1.NetworkPolicy) (out []string) {
	eachBlock(p, func(_ *field.Path, b *networkingv1.IPBlock) { out = append(append(out, b.CIDR), b.Except...) })
	return out
}

func eachBlock(p *networkingv1.NetworkPolicy, do func(at *field.Path, b *networkingv1.IPBlock)) {
	eachRule(p, func(at *field.Path, _ []networkingv1.NetworkPolicyPort, list []networkingv1.NetworkPolicyPeer, peers string) {
		for i := range list {
			if b := list[i].IPBlock; b != nil {
				do(at.Child(peers).Index(i).Child("ipBlock"), b)
			}
		}
	})
}

func policyWarnings(p *networkingv1.NetworkPolicy) (out []string) {
	eachBlock(p, func(at *field.Path, b *networkingv1.IPBlock) {
		out = append(out, validation.GetWarningsForCIDR(at.Child("cidr"), b.CIDR)...)
		for i, x := range b.Except {
			out = append(out, validation.GetWarningsForCIDR(at.Child("except").Index(i), x)...)
		}
	})
	return out
}
