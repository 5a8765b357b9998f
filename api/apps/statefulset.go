package apps

import (
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// StatefulSets keep pods that have numbers and names of their own, in order.
var StatefulSets = api.Define(api.Kind{Group: "apps", Version: "v1", Name: "StatefulSet", Resource: "statefulsets", Singular: "statefulset",
	Short: []string{"sts"}, Categories: []string{"all"}, Namespaced: true, Generation: true},
	api.Rules[*appsv1.StatefulSet]{
		New:      func() *appsv1.StatefulSet { return &appsv1.StatefulSet{} },
		NewList:  func() api.ListObject { return &appsv1.StatefulSetList{} },
		Default:  defaultStatefulSet,
		Fresh:    func(s *appsv1.StatefulSet) { s.Status = appsv1.StatefulSetStatus{} },
		NameRule: apivalidation.NameIsDNSLabel,
		Validate: func(s *appsv1.StatefulSet) field.ErrorList { return validateStatefulSet(&s.Spec) },
		ValidateUpdate: func(s, old *appsv1.StatefulSet, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateStatefulSetStatus(&s.Status, &old.Status)
			}
			return append(validateStatefulSet(&s.Spec), validateStatefulSetChange(&s.Spec, &old.Spec)...)
		},
		Warn:     statefulSetWarnings,
		Spec:     func(s *appsv1.StatefulSet) any { return &s.Spec },
		Status:   func(s *appsv1.StatefulSet) any { return &s.Status },
		Beat:     statefulSetBeat,
		Template: func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template },
		Scale: func(s *appsv1.StatefulSet) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: wanted(s.Spec.Replicas)},
				autoscalingv1.ScaleStatus{Replicas: s.Status.Replicas, Selector: selectorOf(s.Spec.Selector).String()}
		},
		SetScale: func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n },
		Columns: table.Columns{
			table.Name,
			table.Column("Ready", "string", "How many pods are ready, of how many there are to be."),
			table.Age,
			table.Wide("Containers", "string", "The names of the containers."),
			table.Wide("Images", "string", "The images of the containers."),
		},
		Cells: func(s *appsv1.StatefulSet, l table.Look) []any {
			names, images := table.Containers(&s.Spec.Template.Spec)
			return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, wanted(s.Spec.Replicas)), l.AgeOf(s), names, images}
		},
	})

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	setDefault(&s.Replicas, 1)
	setDefault(&s.RevisionHistoryLimit, 10)
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		setDefault(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if roll := s.UpdateStrategy.RollingUpdate; roll != nil && s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		setDefault(&roll.Partition, 0)
		setDefault(&roll.MaxUnavailable, intstr.FromInt32(1))
	}
	setDefault(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, p := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &s.PersistentVolumeClaimRetentionPolicy.WhenScaled} {
		if *p == "" {
			*p = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	for i := range s.VolumeClaimTemplates {
		t := &s.VolumeClaimTemplates[i]
		t.APIVersion, t.Kind = api.PersistentVolumeClaims.APIVersion(), api.PersistentVolumeClaims.Name
		api.DefaultClaim(t)
	}
	api.DefaultTemplate(&s.Template)
}

func validateStatefulSet(s *appsv1.StatefulSetSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := valid.NotNegative(wanted(s.Replicas), at.Child("replicas"))
	errs = append(errs, valid.NotNegative(s.MinReadySeconds, at.Child("minReadySeconds"))...)
	errs = append(errs, valid.OneOf(s.PodManagementPolicy, at.Child("podManagementPolicy"),
		appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	errs = append(errs, validateOrdered(&s.UpdateStrategy, at.Child("updateStrategy"))...)
	if o := s.Ordinals; o != nil {
		start := at.Child("ordinals", "start")
		errs = append(errs, valid.NotNegative(o.Start, start)...)
		if int64(o.Start)+int64(wanted(s.Replicas)) > math.MaxInt32 {
			errs = append(errs, field.Invalid(start, o.Start, "the last ordinal must be below 2147483647"))
		}
	}
	if s.ServiceName != "" {
		errs = append(errs, valid.Each(validation.IsDNS1123Label(s.ServiceName),
			func(msg string) *field.Error { return field.Invalid(at.Child("serviceName"), s.ServiceName, msg) })...)
	}
	if p := s.PersistentVolumeClaimRetentionPolicy; p != nil {
		in := at.Child("persistentVolumeClaimRetentionPolicy")
		retain, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		errs = append(errs, valid.OneOf(p.WhenDeleted, in.Child("whenDeleted"), retain, remove)...)
		errs = append(errs, valid.OneOf(p.WhenScaled, in.Child("whenScaled"), retain, remove)...)
	}
	template := s.Template // the pods get names and claims of their own in the place of what it says
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	volumes, wrong := claimTemplates(s.VolumeClaimTemplates, template.Spec.Volumes, at.Child("volumeClaimTemplates"))
	template.Spec.Volumes, errs = volumes, append(errs, wrong...)
	return append(errs, validateSelected(s.Selector, &template, at, "statefulset")...)
}

// maxClaims is how many claims a pod may have: each costs a write, and a directory.
const maxClaims = 64

// claimTemplates looks at the templates of claims, and puts them in the place of the volumes of their names.
func claimTemplates(list []corev1.PersistentVolumeClaim, volumes []corev1.Volume, at *field.Path) ([]corev1.Volume, field.ErrorList) {
	if n := len(list); n > maxClaims {
		return volumes, field.ErrorList{field.TooMany(at, n, maxClaims)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range list {
		name, in := list[i].Name, at.Index(i)
		errs = append(errs, valid.Required(name, in.Child("metadata", "name"))...)
		if seen[name] {
			errs = append(errs, field.Duplicate(in.Child("metadata", "name"), name))
		}
		seen[name] = true
		errs = append(errs, api.ValidateClaimSpec(&list[i].Spec, in.Child("spec"))...)
		volumes = slices.DeleteFunc(slices.Clone(volumes), func(v corev1.Volume) bool { return v.Name == name })
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}})
	}
	return volumes, errs
}

// validateOrdered looks at how pods are replaced.
func validateOrdered(s *appsv1.StatefulSetUpdateStrategy, at *field.Path) field.ErrorList {
	roll, inRoll := s.RollingUpdate, at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if roll != nil {
			return field.ErrorList{field.Invalid(inRoll, roll, "only allowed for updateStrategy 'RollingUpdate'")}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
	default:
		return field.ErrorList{field.Invalid(at, s, "must be 'RollingUpdate' or 'OnDelete'")}
	}
	if roll == nil {
		return nil
	}
	var errs field.ErrorList
	if roll.Partition != nil {
		errs = valid.NotNegative(*roll.Partition, inRoll.Child("partition"))
	}
	if out := roll.MaxUnavailable; out != nil {
		at := inRoll.Child("maxUnavailable")
		errs = append(errs, valid.Amount(*out, at)...)
		if isNone(*out) {
			errs = append(errs, field.Invalid(at, *out, "cannot be 0"))
		}
		errs = append(errs, valid.AtMostAll(*out, at)...)
	}
	return errs
}

// validateStatefulSetChange: pods that are there keep what they were made with.
func validateStatefulSetChange(s, old *appsv1.StatefulSetSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := sameSelector(s.Selector, old.Selector)
	errs = append(errs, apivalidation.ValidateImmutableField(s.ServiceName, old.ServiceName, at.Child("serviceName"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.VolumeClaimTemplates, old.VolumeClaimTemplates,
		at.Child("volumeClaimTemplates"))...)
	return append(errs, apivalidation.ValidateImmutableField(s.PodManagementPolicy, old.PodManagementPolicy,
		at.Child("podManagementPolicy"))...)
}

func validateStatefulSetStatus(s, old *appsv1.StatefulSetStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := valid.Counts(at, s.Replicas, valid.Count{Name: "readyReplicas", N: s.ReadyReplicas},
		valid.Count{Name: "currentReplicas", N: s.CurrentReplicas}, valid.Count{Name: "updatedReplicas", N: s.UpdatedReplicas},
		valid.Count{Name: "availableReplicas", N: s.AvailableReplicas})
	errs = append(errs, validateSeen(at, s.ObservedGeneration, nil, s.AvailableReplicas, s.ReadyReplicas)...)
	return append(errs, validateCollisions(s.CollisionCount, old.CollisionCount)...)
}

// longestOrdered is how long a name may be for the pods' names and the names of their templates to be labels.
const longestOrdered = validation.LabelValueMaxLength - len("-4294967295")

func statefulSetWarnings(set *appsv1.StatefulSet) []string {
	out := api.TemplateWarnings(&set.Spec.Template, field.NewPath("spec", "template"))
	if len(set.Name) > longestOrdered {
		out = append(out, fmt.Sprintf("metadata.name: pods are called by it and a number, and names of more than %d characters leave no room for that", longestOrdered))
	}
	if n := set.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}
