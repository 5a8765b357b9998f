package api

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// DefaultTokenRequest fills what a request for a service-account token leaves empty. Without an audience the token is
// for this API.
func DefaultTokenRequest(r *authenticationv1.TokenRequest) {
	setDefault(&r.Spec.ExpirationSeconds, tokenSeconds)
}

// ValidateTokenRequest checks a request that has its defaults.
func ValidateTokenRequest(r *authenticationv1.TokenRequest) error {
	at := field.NewPath("spec")
	errs := validateTokenSeconds(*r.Spec.ExpirationSeconds, at.Child("expirationSeconds"))
	if b := r.Spec.BoundObjectRef; b != nil {
		at := at.Child("boundObjectRef")
		errs = append(errs, valid.Required(b.Name, at.Child("name"))...)
		if b.Kind != "Pod" || b.APIVersion != "" && b.APIVersion != "v1" {
			errs = append(errs, field.NotSupported(at.Child("kind"), b.APIVersion+"/"+b.Kind, []string{"v1/Pod"}))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), r.Name, errs)
}
