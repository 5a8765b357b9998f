package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/storage"
)

// errDryRun makes the store take a transaction back that went well.
var errDryRun = errors.New("dry run")

// storeError turns what the store says of one object into a status.
func storeError(err error, kind *api.Kind, namespace, name string) error {
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return apierrors.NewNotFound(kind.GR(), name)
	case errors.Is(err, storage.ErrDamaged):
		where := name
		if namespace != "" {
			where = namespace + "/" + name
		}
		return api.NewInternal("%s %q is damaged in the store and cannot be read: delete it and create it again, or restore a backup: %w",
			kind.Singular, where, err)
	}
	return err
}

// status makes sure that an error is a Kubernetes status. What already is one goes through as it is.
func status(err error, format string, args ...any) error {
	var known apierrors.APIStatus
	if err == nil || errors.As(err, &known) {
		return err
	}
	what := fmt.Sprintf(format, args...)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return timeout(err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return noRoom("cannot %s: the file system that holds the data directory is full; free some space there (reading still works): %v", what,
			err)
	case errors.Is(err, storage.ErrFull):
		return noRoom("cannot %s: the store of all objects is full; delete some (reading and deleting still work): %v", what, err)
	}
	return api.NewInternal("cannot %s: %w", what, err)
}

func noRoom(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage,
		Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf(format, args...)}}
}

func timeout(err error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete: %v", err), 0)
}

func forbidden(kind *api.Kind, name, format string, args ...any) error {
	return apierrors.NewForbidden(kind.GR(), name, fmt.Errorf(format, args...))
}

func conflict(kind *api.Kind, name, format string, args ...any) error {
	return apierrors.NewConflict(kind.GR(), name, fmt.Errorf(format, args...))
}

func noSubresource(kind *api.Kind, sub string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "",
		schema.GroupResource{Group: kind.Group, Resource: kind.Resource + "/" + sub},
		"", "", 0, false)
}

// tooLarge answers a revision that has not been given out yet (N-11.29). It says nothing of trying again: one
// store is never behind itself, so the revision is another store's and a new list is what helps.
func tooLarge(asked, have uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, have), 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func expired(format string, args ...any) error {
	return apierrors.NewResourceExpired(fmt.Sprintf(format, args...))
}
