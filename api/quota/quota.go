// Package quota decides what a namespace may have: by its ResourceQuotas, and by its LimitRanges for each object alone. It is pure: who
// keeps the objects (api/local) hands them in and asks, inside the transaction of the write. What objects of a kind take, the kind says
// (api.Charge).
package quota

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// MostOf bounds how many ResourceQuotas, and how many LimitRanges, a namespace has: each write of a pod looks at all of them.
const MostOf = 100

// Bound says in which ways an object is beyond the LimitRanges of its namespace.
func Bound(kind *api.Kind, obj api.Object, by []*corev1.LimitRange) error {
	for _, l := range by {
		errs := kind.Bound(obj, l)
		if len(errs) == 1 {
			return errs[0]
		}
		var texts []string
		for _, err := range errs {
			texts = append(texts, err.Error())
		}
		if len(texts) > 0 {
			return errors.New("[" + strings.Join(texts, ", ") + "]")
		}
	}
	return nil
}

// Full refuses one more of what a namespace may not have any number of.
func Full(kind *api.Kind, namespace string, there int) error {
	if there < MostOf {
		return nil
	}
	return fmt.Errorf("namespace %q has %d %s already, and may not have more: delete some, or say it all in one", namespace, there, kind)
}
