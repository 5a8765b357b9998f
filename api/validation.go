package api

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks a new object that Default has filled. The error is a Kubernetes 422 with one cause per
// field (N-1.3).
func Validate(obj Object) error {
	kind, err := KindOf(obj)
	if err != nil {
		return NewInternal("validate: %w", err)
	}
	errs := apivalidation.ValidateObjectMetaAccessor(obj, kind.Namespaced, nameRule(kind), field.NewPath("metadata"))
	switch o := obj.(type) {
	case *corev1.Pod:
		errs = append(errs, validatePod(o)...)
	case *corev1.Node:
		errs = append(errs, validateNode(o)...)
	case *corev1.Namespace:
		errs = append(errs, validateNamespace(o)...)
	case *corev1.ConfigMap:
		errs = append(errs, validateConfigMap(o)...)
	case *corev1.Secret:
		errs = append(errs, validateSecret(o)...)
	case *corev1.Event:
		errs = append(errs, validateEvent(o)...)
	case *coordinationv1.Lease:
		errs = append(errs, validateLease(o)...)
	case *schedulingv1.PriorityClass:
		errs = append(errs, validatePriorityClass(o)...)
	case *corev1.PodTemplate:
		errs = append(errs, validateTemplate(&o.Template, field.NewPath("template"))...)
	case *corev1.ReplicationController:
		errs = append(errs, validateReplicationController(o)...)
	case *nodev1.RuntimeClass:
		errs = append(errs, validateRuntimeClass(o)...)
	case *policyv1.PodDisruptionBudget:
		errs = append(errs, validateBudget(o)...)
	case *rbacv1.RoleBinding:
		errs = append(errs, validateBinding(o.RoleRef, o.Subjects)...)
	case *rbacv1.ClusterRoleBinding:
		errs = append(errs, validateBinding(o.RoleRef, o.Subjects)...)
	}
	return invalid(kind, obj, errs)
}

// ValidateUpdate checks a change of an existing object. Subresource is "" or "status"; what the other half
// holds has been put back by the caller (N-1.8).
func ValidateUpdate(obj, old Object, subresource string) error {
	kind, err := KindOf(obj)
	if err != nil {
		return NewInternal("validate: %w", err)
	}
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))
	switch o := obj.(type) {
	case *corev1.Pod:
		switch subresource {
		case "status":
			errs = append(errs, validatePodStatusUpdate(o, old.(*corev1.Pod))...)
		case Resize:
			errs = append(errs, validatePodResize(o, old.(*corev1.Pod))...)
		case Ephemeral:
			errs = append(errs, validateEphemeral(o, old.(*corev1.Pod))...)
		default:
			errs = append(errs, validatePodUpdate(o, old.(*corev1.Pod))...)
		}
	case *corev1.Node:
		errs = append(errs, validateNode(o)...)
		errs = append(errs, validateNodeUpdate(o, old.(*corev1.Node))...)
	case *corev1.Namespace:
		errs = append(errs, validateNamespace(o)...)
	case *corev1.ConfigMap:
		errs = append(errs, validateConfigMap(o)...)
		errs = append(errs, validateConfigMapUpdate(o, old.(*corev1.ConfigMap))...)
	case *corev1.Secret:
		errs = append(errs, validateSecret(o)...)
		errs = append(errs, validateSecretUpdate(o, old.(*corev1.Secret))...)
	case *corev1.Event:
		errs = append(errs, validateEvent(o)...)
	case *coordinationv1.Lease:
		errs = append(errs, validateLease(o)...)
	case *schedulingv1.PriorityClass:
		errs = append(errs, validatePriorityClass(o)...)
		errs = append(errs, validatePriorityClassUpdate(o, old.(*schedulingv1.PriorityClass))...)
	case *corev1.PodTemplate:
		errs = append(errs, validateTemplate(&o.Template, field.NewPath("template"))...)
	case *corev1.ReplicationController:
		if subresource == "" {
			errs = append(errs, validateReplicationController(o)...)
		} else {
			errs = append(errs, validateReplicationStatus(&o.Status)...)
		}
	case *nodev1.RuntimeClass:
		errs = append(errs, validateRuntimeClass(o)...)
		errs = append(errs, apivalidation.ValidateImmutableField(o.Handler, old.(*nodev1.RuntimeClass).Handler, field.NewPath("handler"))...)
	case *policyv1.PodDisruptionBudget:
		if subresource == "" {
			errs = append(errs, validateBudget(o)...)
		} else {
			errs = append(errs, validateBudgetStatus(&o.Status)...)
		}
	case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
		errs = append(errs, validateBindingUpdate(obj, old)...)
	}
	return invalid(kind, obj, errs)
}

// maxProblems is how many faults of an object are told. A few bytes can have thousands, whose words would take seconds to join
// and megabytes to send.
const maxProblems = 32

func invalid(kind *Kind, obj metav1.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	err := apierrors.NewInvalid(kind.GVK().GroupKind(), obj.GetName(), errs[:min(len(errs), maxProblems)])
	if more := len(errs) - maxProblems; more > 0 {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", more)
	}
	return err
}

// nameRule is what the names of a kind must look like.
func nameRule(kind *Kind) apivalidation.ValidateNameFunc {
	switch kind {
	case Namespaces:
		return apivalidation.ValidateNamespaceName
	case RoleBindings, ClusterRoleBindings, ClusterRoles:
		return roleName
	}
	return apivalidation.NameIsDNSSubdomain
}

// isName reports what is wrong with a name that points to another object.
func isName(name string, at *field.Path) field.ErrorList {
	return each(validation.IsDNS1123Subdomain(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

func each(msgs []string, err func(msg string) *field.Error) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range msgs {
		errs = append(errs, err(msg))
	}
	return errs
}

// oneOf reports a value outside a set. Empty is required to be set.
func oneOf[T ~string](v T, at *field.Path, valid ...T) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, ok := range valid {
		if v == ok {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, v, valid)}
}
