package api

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// Subresources that Create takes.
const (
	Binding  = "binding"
	Eviction = "eviction"
	Token    = "token"
)

// The kinds that subresources take and answer beside those of their objects. None of them is kept.
var (
	Bindings = Define(Kind{Version: "v1", Name: "Binding", Namespaced: true},
		Rules[*corev1.Binding]{New: func() *corev1.Binding { return &corev1.Binding{} }})
	Evictions = Define(Kind{Group: "policy", Version: "v1", Name: "Eviction", Namespaced: true},
		Rules[*policyv1.Eviction]{New: func() *policyv1.Eviction { return &policyv1.Eviction{} }})
	TokenRequests = Define(Kind{Group: "authentication.k8s.io", Version: "v1", Name: "TokenRequest", Namespaced: true},
		Rules[*authenticationv1.TokenRequest]{New: func() *authenticationv1.TokenRequest { return &authenticationv1.TokenRequest{} }})
)

// As is the kind of what a subresource takes and answers.
func (k *Kind) As(subresource string) *Kind {
	switch subresource {
	case Scale:
		return Scales
	case Binding:
		return Bindings
	case Eviction:
		return Evictions
	case Token:
		return TokenRequests
	}
	return k
}
