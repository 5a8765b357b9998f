package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

func status(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}}
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

func errUnauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

func errNotOfBoard(why error) error {
	return status(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("this socket is for root of the board itself (%v); from elsewhere use the address of its API, with a kubeconfig or a token",
			why))
}

func errNoPath() error {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func errMediaType(format string, args ...any) error {
	return status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf(format, args...))
}

// methodError is a 405 that knows what the Allow header must say.
type methodError struct {
	*apierrors.StatusError
	allow string
}

func errMethod(method string, allowed []string) error {
	allow := strings.Join(allowed, ", ")
	message := fmt.Sprintf("the server does not allow %s here, only %s", method, allow)
	return &methodError{status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message), allow}
}

func (e *methodError) Unwrap() error { return e.StatusError }

func errNotAcceptable(accept string) error {
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("only application/json, and for objects as=Table of meta.k8s.io/v1, can be sent; Accept asks for %q", accept))
}

// invalidOption is a 422 about one field of the request's options, as Kubernetes answers it.
func invalidOption(kind string, errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: kind}, "", errs)
}

// statusOf is the Status an error becomes on the wire. What is no API status is ours to explain: a 500.
func statusOf(err error) metav1.Status {
	var s apierrors.APIStatus
	switch {
	case errors.As(err, &s):
	case errors.Is(err, context.DeadlineExceeded):
		errors.As(apierrors.NewTimeoutError(err.Error(), 0), &s)
	default:
		errors.As(api.NewInternal("%v", err), &s)
	}
	out := s.Status()
	out.Kind, out.APIVersion = "Status", "v1"
	if out.Code == 0 {
		out.Code = http.StatusInternalServerError
	}
	return out
}
