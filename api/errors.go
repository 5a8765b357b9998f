package api

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// NewInternal is a 500 with a message. For everything else use the constructors of
// k8s.io/apimachinery/pkg/api/errors with Kind.GR: they carry the reasons that clients test for.
func NewInternal(format string, args ...any) error {
	return apierrors.NewInternalError(fmt.Errorf(format, args...))
}
