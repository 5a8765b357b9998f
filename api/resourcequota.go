package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// ResourceQuotas bound what a namespace may have. Whether something fits, package quota decides.
var ResourceQuotas = Define(Kind{Version: "v1", Name: "ResourceQuota", Resource: "resourcequotas", Singular: "resourcequota",
	Short: []string{"quota"}, Namespaced: true},
	Rules[*corev1.ResourceQuota]{
		New: func() *corev1.ResourceQuota { return &corev1.ResourceQuota{} }, NewList: func() ListObject { return &corev1.ResourceQuotaList{} },
		Fresh:          func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} },
		Validate:       validateQuota,
		ValidateUpdate: validateQuotaUpdate,
		Warn:           quotaWarnings,
		Spec:           func(q *corev1.ResourceQuota) any { return &q.Spec },
		Status:         func(q *corev1.ResourceQuota) any { return &q.Status },
		Columns: table.Columns{
			table.Name,
			table.Column("Request", "string", "What is used, and what may be."),
			table.Column("Limit", "string", "The limits that are used, and those that may be."),
			table.Age,
		},
		Cells: quotaCells,
	})

// QuotaScopes are the requirements that an object meets which a quota is about.
func QuotaScopes(q *corev1.ResourceQuota) (out []corev1.ScopedResourceSelectorRequirement) {
	for _, s := range q.Spec.Scopes {
		out = append(out, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		out = append(out, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return out
}

// quotaNames are the resources without a prefix of somebody's that a quota may bound.
var quotaNames = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	corev1.ResourcePersistentVolumeClaims, corev1.ResourceConfigMaps, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

// countedNames are those of them that are numbers of things.
var countedNames = quotaNames[10:]

// IsQuotaName tells the names that quotas have for what is Kubernetes' own.
func IsQuotaName(name corev1.ResourceName) bool {
	return slices.Contains(quotaNames, name) || isHugePage(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

func validateQuota(q *corev1.ResourceQuota) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateHard(q.Spec.Hard, at.Child("hard"))
	if len(q.Spec.Scopes) > 0 {
		errs = append(errs, validateScopes(q, at.Child("scopes"))...)
	}
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(q, at.Child("scopeSelector", "matchExpressions"))...)
	}
	return errs
}

func validateQuotaUpdate(q, old *corev1.ResourceQuota, sub string) field.ErrorList {
	if sub == StatusSub {
		at := field.NewPath("status")
		return append(validateHard(q.Status.Hard, at.Child("hard")), validateHard(q.Status.Used, at.Child("used"))...)
	}
	errs := validateQuota(q)
	if !slices.Equal(slices.Sorted(slices.Values(q.Spec.Scopes)), slices.Sorted(slices.Values(old.Spec.Scopes))) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, "field is immutable"))
	}
	return errs
}

func validateHard(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q, at := list[name], at.Key(string(name))
		errs = append(errs, valid.Each(validation.IsQualifiedName(string(name)), func(msg string) *field.Error {
			return field.Invalid(at, name, msg)
		})...)
		if !strings.Contains(string(name), "/") && !IsQuotaName(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
		}
		if whole := q.DeepCopy(); (slices.Contains(countedNames, name) || IsExtended(name)) && !whole.RoundUp(0) {
			errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
		}
	}
	return errs
}

// What of a quota's names a scope may go with.
var (
	computeNames = []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory}
	scopeNames = map[corev1.ResourceQuotaScope][]corev1.ResourceName{
		corev1.ResourceQuotaScopeTerminating:               computeNames,
		corev1.ResourceQuotaScopeNotTerminating:            computeNames,
		corev1.ResourceQuotaScopeBestEffort:                {corev1.ResourcePods},
		corev1.ResourceQuotaScopeNotBestEffort:             computeNames,
		corev1.ResourceQuotaScopePriorityClass:             computeNames,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity: computeNames,
		corev1.ResourceQuotaScopeVolumeAttributesClass:     {corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage},
	}
	// oneOfScopes are scopes in which no object can be at once.
	oneOfScopes = [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating}}
)

// unfit says of how many of a quota's names nobody can tell what they mean in a scope.
func unfit(hard corev1.ResourceList, scope corev1.ResourceQuotaScope) (n int) {
	fit, known := scopeNames[scope]
	for name := range hard {
		if known && IsQuotaName(name) && !slices.Contains(fit, name) {
			n++
		}
	}
	return n
}

func contradict(scopes []corev1.ResourceQuotaScope) (n int) {
	for _, pair := range oneOfScopes {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			n++
		}
	}
	return n
}

func validateScopes(q *corev1.ResourceQuota, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	say := func(n int, why string) {
		for range n {
			errs = append(errs, field.Invalid(at, q.Spec.Scopes, why))
		}
	}
	for _, scope := range q.Spec.Scopes {
		if _, known := scopeNames[scope]; !known {
			say(1, "unsupported scope")
		}
		say(unfit(q.Spec.Hard, scope), "unsupported scope applied to resource")
	}
	say(contradict(q.Spec.Scopes), "conflicting scopes")
	return errs
}

func validateScopeSelector(q *corev1.ResourceQuota, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	for i, r := range q.Spec.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		if _, known := scopeNames[r.ScopeName]; !known {
			errs = append(errs, field.Invalid(at.Index(i).Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for range unfit(q.Spec.Hard, r.ScopeName) {
			errs = append(errs, field.Invalid(at, q.Spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateScopeOperator(r, at.Index(i))...)
	}
	for range contradict(scopes) {
		errs = append(errs, field.Invalid(at, q.Spec.Scopes, "conflicting scopes"))
	}
	return errs
}

func validateScopeOperator(r corev1.ScopedResourceSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
	if _, known := scopeNames[r.ScopeName]; known && !named && r.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "+
			"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "+
			"ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"),
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
		for _, v := range r.Values { // Kubernetes takes them, and then can create nothing in the namespace
			errs = append(errs, isLabelValue(v, at.Child("values"))...)
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(at.Child("values"), r.Values,
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

// inScope says whether one of some names of classes meets a requirement; without a name it is asked about none.
func inScope(r corev1.ScopedResourceSelectorRequirement, names ...string) bool {
	if r.Operator == corev1.ScopeSelectorOpExists {
		return len(names) > 0
	}
	how := map[corev1.ScopeSelectorOperator]selection.Operator{corev1.ScopeSelectorOpIn: selection.In,
		corev1.ScopeSelectorOpNotIn: selection.NotIn, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist}
	must, err := labels.NewRequirement(string(r.ScopeName), how[r.Operator], r.Values)
	if err != nil {
		return false // validation has let no such thing in
	}
	if len(names) == 0 {
		return must.Matches(labels.Set{})
	}
	return slices.ContainsFunc(names, func(name string) bool { return must.Matches(labels.Set{string(r.ScopeName): name}) })
}

// quotaWarnings: less is allowed as a limit than as a request, which no object can use up.
func quotaWarnings(q *corev1.ResourceQuota) (out []string) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage,
		corev1.ResourceEphemeralStorage} {
		asked := corev1.DefaultResourceRequestsPrefix + name
		request, ok := q.Spec.Hard[asked]
		if !ok && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			asked = name
			request, ok = q.Spec.Hard[asked]
		}
		if limit, limited := q.Spec.Hard["limits."+name]; ok && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than limits.%s (%s)", asked, request.String(), name, limit.String()))
		}
	}
	return out
}

func quotaCells(q *corev1.ResourceQuota, l table.Look) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), l.AgeOf(q)}
}
