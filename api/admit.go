package api

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// StatusSub is the subresource for what somebody sees of an object, beside what others want of it.
const StatusSub = "status"

// Default fills what Kubernetes fills when a caller leaves it empty (N-7.1, N-1.10).
func (k *Kind) Default(obj Object) {
	if k.rules.Default != nil {
		k.rules.Default(obj)
	}
}

// Fresh sets what only the server may say of a new object.
func (k *Kind) Fresh(obj Object) {
	obj.SetGeneration(0)
	if k.Generation {
		obj.SetGeneration(1)
	}
	if k.rules.Fresh != nil {
		k.rules.Fresh(obj)
	}
}

// Validate checks a new object that Default has filled. The error is a Kubernetes 422 with one cause per field (N-1.3).
func (k *Kind) Validate(obj Object) error {
	name := k.rules.NameRule
	if name == nil {
		name = apivalidation.NameIsDNSSubdomain
	}
	errs := apivalidation.ValidateObjectMetaAccessor(obj, k.Namespaced, name, field.NewPath("metadata"))
	if k.rules.Validate != nil {
		errs = append(errs, k.rules.Validate(obj)...)
	}
	return k.invalid(obj, errs)
}

// ValidateUpdate checks a change of an existing object or, by name, of one of its subresources. What may not change has
// been put back by Keep (N-1.8).
func (k *Kind) ValidateUpdate(obj, old Object, subresource string) error {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))
	switch {
	case k.rules.ValidateUpdate != nil:
		errs = append(errs, k.rules.ValidateUpdate(obj, old, subresource)...)
	case k.rules.Validate != nil:
		errs = append(errs, k.rules.Validate(obj)...)
	}
	return k.invalid(obj, errs)
}

// maxProblems is how many faults of an object are told. A few bytes can have thousands, whose words would take seconds to join
// and megabytes to send.
const maxProblems = 32

func (k *Kind) invalid(obj metav1.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	err := apierrors.NewInvalid(k.GVK().GroupKind(), obj.GetName(), errs[:min(len(errs), maxProblems)])
	if more := len(errs) - maxProblems; more > 0 {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", more)
	}
	return err
}

// Warnings says in words what an accepted object will not get as it is written, for the Warning header of its answer.
func (k *Kind) Warnings(obj Object) []string {
	if k.rules.Warn == nil {
		return nil
	}
	return k.rules.Warn(obj)
}

// Keep puts back into obj, which is to take the place of old, what an update of this subresource may not change.
func (k *Kind) Keep(obj, old Object, subresource string) {
	half := k.rules.Status
	if subresource == StatusSub {
		half = k.rules.Spec
	}
	if half != nil && k.HasStatus() {
		was := half(old.DeepCopyObject().(Object))
		reflect.ValueOf(half(obj)).Elem().Set(reflect.ValueOf(was).Elem())
	}
	if k.rules.Keep != nil {
		k.rules.Keep(obj, old, subresource)
	}
}

// Halves are what somebody wants of an object, and what is seen of it: pointers into it, or nil where a kind has no such half.
func (k *Kind) Halves(obj Object) (spec, status any) {
	if k.rules.Spec != nil {
		spec = k.rules.Spec(obj)
	}
	if k.rules.Status != nil {
		status = k.rules.Status(obj)
	}
	return spec, status
}

// OtherSpec says that somebody wants something else of an object whose generation counts that.
func (k *Kind) OtherSpec(obj, old Object) bool {
	if !k.Generation || k.rules.Spec == nil {
		return false
	}
	return !apiequality.Semantic.DeepEqual(k.rules.Spec(obj), k.rules.Spec(old)) ||
		k.Annotated && !apiequality.Semantic.DeepEqual(obj.GetAnnotations(), old.GetAnnotations())
}

// Same says whether two objects say the same. It looks first at what differs most often: to compare a whole Pod takes
// longer than to write it down.
func (k *Kind) Same(obj, old Object) bool {
	often := k.rules.Status
	if often == nil {
		often = k.rules.Spec
	}
	if often != nil && !apiequality.Semantic.DeepEqual(often(obj), often(old)) {
		return false
	}
	return apiequality.Semantic.DeepEqual(obj, old)
}

// IsHeartbeat says that a change only tells that somebody is still there: a power cut may forget it (architecture: Leases are lazy).
func (k *Kind) IsHeartbeat(obj, old Object) bool {
	return k.Lazy || k.rules.Beat != nil && k.Same(k.rules.Beat(obj, old), old)
}

// Grace is how many seconds an object may take to end when it is deleted (N-7.23). asked is nil where the caller does not
// say.
func (k *Kind) Grace(obj Object, asked *int64) int64 {
	if k.rules.Grace == nil {
		return 0
	}
	return k.rules.Grace(obj, asked)
}

// Template is what pods are made from by an object; nil where they are not.
func (k *Kind) Template(obj Object) *corev1.PodTemplateSpec {
	if k.rules.Template == nil {
		return nil
	}
	return k.rules.Template(obj)
}
