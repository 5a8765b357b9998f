package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The priorities of N-10.14 and N-10.15.
const (
	HighestUserPriority    = int32(1000000000)
	SystemCriticalPriority = 2 * HighestUserPriority

	SystemNodeCritical    = "system-node-critical"
	SystemClusterCritical = "system-cluster-critical"
)

// SystemPriorityClasses makes the two classes that always exist.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, text string) *schedulingv1.PriorityClass {
		pc := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: text}
		Default(pc)
		return pc
	}
	return []*schedulingv1.PriorityClass{
		class(SystemNodeCritical, SystemCriticalPriority+1000,
			"For the pods a node cannot do without. Last to be evicted, last to be stopped at shutdown."),
		class(SystemClusterCritical, SystemCriticalPriority,
			"For the pods the cluster cannot do without."),
	}
}

// validateTemplate: a template is what a pod made from it will be, so it is held to the same. What ledge does not support
// in one that stands alone is refused when a pod is made.
func validateTemplate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, validatePodAnnotations(t.Annotations, t.Spec.NodeName, at.Child("annotations"))...)
	return append(errs, validatePodSpec(&t.Spec, at.Child("spec"))...)
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := each(validation.IsDNS1123Label(c.Handler), func(msg string) *field.Error {
		return field.Invalid(field.NewPath("handler"), c.Handler, msg)
	})
	if c.Overhead != nil {
		errs = append(errs, validateOverhead(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

func validateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

// validateClass looks at the RuntimeClass that a pod names, and what it adds to the pod.
func validateClass(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := validateOverhead(s.Overhead, at.Child("overhead"))
	if s.RuntimeClassName != nil {
		errs = append(errs, isName(*s.RuntimeClassName, at.Child("runtimeClassName"))...)
	}
	return errs
}

func validatePriorityClass(pc *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(pc.Name, "system-") {
		known := slices.ContainsFunc(SystemPriorityClasses(), func(s *schedulingv1.PriorityClass) bool {
			return s.Name == pc.Name && s.Value == pc.Value && !pc.GlobalDefault
		})
		if !known {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with 'system-' prefix are reserved for system use only"))
		}
	} else if pc.Value > HighestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", HighestUserPriority)))
	}
	if pc.PreemptionPolicy != nil {
		errs = append(errs, oneOf(*pc.PreemptionPolicy, field.NewPath("preemptionPolicy"),
			corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func validatePriorityClassUpdate(pc, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if pc.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, apivalidation.ValidateImmutableField(pc.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}

// validateNamespace refuses finalizers in the spec beside the server's own: there is no finalize subresource to
// take them off again, so the namespace could never be deleted. Those in the metadata work.
func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range ns.Spec.Finalizers {
		if f == corev1.FinalizerKubernetes {
			continue
		}
		at := field.NewPath("spec", "finalizers").Index(i)
		errs = append(errs, apivalidation.ValidateFinalizerName(string(f), at)...)
		if !strings.Contains(string(f), "/") {
			errs = append(errs, field.Invalid(at, f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	errs := refuse(l, leaseRefusals())
	at := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if t := l.Spec.LeaseTransitions; t != nil && *t < 0 {
		errs = append(errs, field.Invalid(at.Child("leaseTransitions"), *t, "must be greater than or equal to 0"))
	}
	return errs
}

// validateEvent keeps an event beside the object it tells of; events of cluster-scoped objects live in
// default (N-11.38). Lengths bound what a chatty sender can make the board store.
func validateEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	about := e.InvolvedObject.Namespace
	if about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem || about != "" && about != e.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace"))
	}
	for _, f := range []struct {
		child, text string
		most        int
	}{{"reason", e.Reason, 1024}, {"message", e.Message, 64 << 10}, {"action", e.Action, 1024},
		{"reportingComponent", e.ReportingController, 1024}, {"reportingInstance", e.ReportingInstance, 1024}} {
		if len(f.text) > f.most {
			errs = append(errs, field.TooLong(field.NewPath(f.child), "", f.most))
		}
	}
	return errs
}

// maxPayload bounds ConfigMaps and Secrets, as Kubernetes does.
const maxPayload = 1 << 20

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, k := range slices.Sorted(maps.Keys(c.Data)) {
		errs = append(errs, isConfigKey(k, field.NewPath("data"))...)
		if _, both := c.BinaryData[k]; both {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(k), k, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[k])
	}
	for _, k := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, isConfigKey(k, field.NewPath("binaryData"))...)
		size += len(c.BinaryData[k])
	}
	if size > maxPayload {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxPayload))
	}
	return errs
}

func isConfigKey(k string, at *field.Path) field.ErrorList {
	return each(validation.IsConfigMapKey(k), func(msg string) *field.Error { return field.Invalid(at.Key(k), k, msg) })
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	if !isTrue(old.Immutable) {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, frozen(isTrue(c.Immutable), field.NewPath("immutable"))...)
	errs = append(errs, frozen(apiequality.Semantic.DeepEqual(c.Data, old.Data), field.NewPath("data"))...)
	return append(errs, frozen(apiequality.Semantic.DeepEqual(c.BinaryData, old.BinaryData), field.NewPath("binaryData"))...)
}

func frozen(same bool, at *field.Path) field.ErrorList {
	if same {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, "field is immutable when `immutable` is set")}
}

func isTrue(b *bool) bool { return b != nil && *b }

// secretKeys are the keys that a secret of a given type must hold.
var secretKeys = map[corev1.SecretType][]string{
	corev1.SecretTypeDockercfg:        {corev1.DockerConfigKey},
	corev1.SecretTypeDockerConfigJson: {corev1.DockerConfigJsonKey},
	corev1.SecretTypeSSHAuth:          {corev1.SSHAuthPrivateKey},
	corev1.SecretTypeTLS:              {corev1.TLSCertKey, corev1.TLSPrivateKeyKey},
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	size := 0
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, isConfigKey(k, data)...)
		size += len(s.Data[k])
	}
	if size > maxPayload {
		errs = append(errs, field.TooLong(data, "", maxPayload))
	}
	for _, k := range secretKeys[s.Type] {
		if v, ok := s.Data[k]; !ok {
			errs = append(errs, field.Required(data.Key(k), ""))
		} else if isJSON := k == corev1.DockerConfigKey || k == corev1.DockerConfigJsonKey; isJSON && !json.Valid(v) {
			errs = append(errs, field.Invalid(data.Key(k), "<secret contents redacted>", "must be valid JSON"))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, pass := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !pass {
			errs = append(errs, field.Required(data.Key(corev1.BasicAuthUsernameKey), ""), field.Required(data.Key(corev1.BasicAuthPasswordKey), ""))
		}
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if !isTrue(old.Immutable) {
		return errs
	}
	errs = append(errs, frozen(isTrue(s.Immutable), field.NewPath("immutable"))...)
	return append(errs, frozen(apiequality.Semantic.DeepEqual(s.Data, old.Data), field.NewPath("data"))...)
}
