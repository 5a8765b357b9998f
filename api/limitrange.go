package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// LimitRanges say what pods and claims of a namespace get that say nothing themselves, and between which bounds they may ask.
var LimitRanges = Define(Kind{Version: "v1", Name: "LimitRange", Resource: "limitranges", Singular: "limitrange", Short: []string{"limits"},
	Namespaced: true},
	Rules[*corev1.LimitRange]{
		New: func() *corev1.LimitRange { return &corev1.LimitRange{} }, NewList: func() ListObject { return &corev1.LimitRangeList{} },
		Default:  defaultLimitRange,
		Validate: validateLimitRange,
	})

// defaultLimitRange: of containers the limit is at most the maximum, the request is the limit, and at least the minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	fill := func(to, from corev1.ResourceList) {
		for name, q := range from {
			if _, ok := to[name]; !ok {
				to[name] = q.DeepCopy()
			}
		}
	}
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		if item.Default == nil {
			item.Default = corev1.ResourceList{}
		}
		if item.DefaultRequest == nil {
			item.DefaultRequest = corev1.ResourceList{}
		}
		fill(item.Default, item.Max)
		fill(item.DefaultRequest, item.Default)
		fill(item.DefaultRequest, item.Min)
	}
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	var seen []corev1.LimitType
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, at.Child("type"))...)
		if slices.Contains(seen, item.Type) {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen = append(seen, item.Type)
		errs = append(errs, validateLimitItem(item, at)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, at *field.Path) field.ErrorList {
	errs := valid.Each(validation.IsQualifiedName(string(t)), func(msg string) *field.Error { return field.Invalid(at, t, msg) })
	if len(errs) > 0 || strings.Contains(string(t), "/") {
		return errs
	}
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	return field.ErrorList{field.Invalid(at, t, "must be a standard limit type or fully qualified")}
}

func validateLimitItem(item *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[corev1.ResourceName]bool{}
	for _, list := range []struct {
		child   string
		amounts corev1.ResourceList
		forbid  bool
	}{{"max", item.Max, false}, {"min", item.Min, false}, {"default", item.Default, item.Type == corev1.LimitTypePod},
		{"defaultRequest", item.DefaultRequest, item.Type == corev1.LimitTypePod}, {"maxLimitRequestRatio", item.MaxLimitRequestRatio, false}} {
		if list.forbid && len(list.amounts) > 0 {
			errs = append(errs, field.Forbidden(at.Child(list.child), "may not be specified when `type` is 'Pod'"))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(list.amounts)) {
			errs = append(errs, validateLimitName(item.Type, name, at.Child(list.child).Key(string(name)))...)
			names[name] = true
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		if !least && !most {
			errs = append(errs, field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, validateLimitOrder(item, name, at)...)
	}
	return errs
}

// validateLimitName: what may be limited of a container or pod is what a container may ask for.
func validateLimitName(t corev1.LimitType, name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := valid.Each(validation.IsQualifiedName(string(name)), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
	if len(errs) > 0 {
		return errs
	}
	ofPods := t == corev1.LimitTypePod || t == corev1.LimitTypeContainer
	if !strings.Contains(string(name), "/") {
		own := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || isHugePage(name)
		switch {
		case !IsQuotaName(name) && name != corev1.ResourceStorage:
			errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
			if ofPods {
				errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
			}
		case ofPods && !own:
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
		}
		return errs
	}
	if ofPods && !strings.Contains(string(name), "kubernetes.io/") && !IsExtended(name) {
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateLimitOrder: min <= defaultRequest <= default <= max, and a ratio that these leave room for.
func validateLimitOrder(item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	at2 := func(child string) *field.Path { return at.Child(child).Key(string(name)) }
	order := func(less, more corev1.ResourceList, at *field.Path, shown corev1.ResourceList, lessName, moreName string) {
		a, ok := less[name]
		b, too := more[name]
		if ok && too && a.Cmp(b) > 0 {
			bad := shown[name]
			errs = append(errs, field.Invalid(at, bad.String(), fmt.Sprintf("%s value %s is greater than %s value %s", lessName, a.String(),
				moreName, b.String())))
		}
	}
	var limit, request corev1.ResourceList
	if item.Type != corev1.LimitTypePod {
		limit, request = item.Default, item.DefaultRequest
	}
	order(item.Min, item.Max, at2("min"), item.Min, "min", "max")
	order(item.Min, request, at2("defaultRequest"), request, "min", "default request")
	order(request, item.Max, at2("defaultRequest"), request, "default request", "max")
	order(request, limit, at2("defaultRequest"), request, "default request", "default limit")
	order(item.Min, limit, at2("default"), item.Min, "min", "default")
	order(limit, item.Max, at2("default"), item.Max, "default", "max")
	errs = append(errs, validateRatio(item, name, at2("maxLimitRequestRatio"))...)
	if l, ok := limit[name]; ok && scarce(name) {
		if r, ok := request[name]; ok && l.Cmp(r) != 0 {
			errs = append(errs, field.Invalid(at2("defaultRequest"), r.String(), fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s",
				l.String(), r.String(), name)))
		}
	}
	return errs
}

func validateRatio(item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if ratio.CmpInt64(1) < 0 {
		errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	least, has := item.Min[name]
	most, too := item.Max[name]
	if has && too {
		if widest := ratioOf(most, least); ratio.AsApproximateFloat64() > widest {
			errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), widest)))
		}
	}
	return errs
}

func ratioOf(a, b resource.Quantity) float64 {
	return a.AsApproximateFloat64() / b.AsApproximateFloat64()
}

// limitRanger is the annotation that says what a pod got.
const limitRanger = "kubernetes.io/limit-ranger"

// DefaultLimits gives containers what a LimitRange says that they get, and tells so in an annotation (N-12.13).
func DefaultLimits(p *corev1.Pod, by *corev1.LimitRange) {
	var set []string
	for i := range by.Spec.Limits {
		item := &by.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for j := range p.Spec.Containers {
			set = append(set, fillContainer(&p.Spec.Containers[j], item, "container")...)
		}
		for j := range p.Spec.InitContainers {
			set = append(set, fillContainer(&p.Spec.InitContainers[j], item, "init container")...)
		}
	}
	if len(set) > 0 {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[limitRanger] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	}
}

func fillContainer(c *corev1.Container, item *corev1.LimitRangeItem, what string) (set []string) {
	give := func(to *corev1.ResourceList, from corev1.ResourceList, of string) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(from)) {
			if _, ok := (*to)[name]; ok {
				continue
			}
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			(*to)[name] = from[name].DeepCopy()
			names = append(names, string(name))
		}
		if len(names) > 0 {
			set = append(set, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), of, what, c.Name))
		}
	}
	give(&c.Resources.Requests, item.DefaultRequest, "request")
	give(&c.Resources.Limits, item.Default, "limit")
	return set
}

// boundPod holds each container, or the pod as a whole, to a LimitRange.
func boundPod(p *corev1.Pod, by *corev1.LimitRange) (errs []error) {
	for i := range by.Spec.Limits {
		switch item := &by.Spec.Limits[i]; item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for _, c := range list {
					errs = append(errs, bound(item, c.Resources.Requests, c.Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			errs = append(errs, bound(item, aggregate(p, requestsOf), aggregate(p, limitsOf))...)
		}
	}
	return errs
}

// bound says what of some requests and limits is beyond a LimitRange, in Kubernetes' words.
func bound(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		least := item.Min[name]
		request, asked := requests[name]
		limit, limited := limits[name]
		about := fmt.Sprintf("minimum %s usage per %s is %s", name, item.Type, least.String())
		switch {
		case !asked:
			say("%s.  No request is specified", about)
		case request.Cmp(least) < 0:
			say("%s, but request is %s", about, request.String())
		case limited && limit.Cmp(least) < 0:
			say("%s, but limit is %s", about, limit.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		most := item.Max[name]
		request, asked := requests[name]
		limit, limited := limits[name]
		about := fmt.Sprintf("maximum %s usage per %s is %s", name, item.Type, most.String())
		switch {
		case !limited:
			say("%s.  No limit is specified", about)
		case limit.Cmp(most) > 0:
			say("%s, but limit is %s", about, limit.String())
		case asked && request.Cmp(most) > 0:
			say("%s, but request is %s", about, request.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		most, request, limit := item.MaxLimitRequestRatio[name], requests[name], limits[name]
		about := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, item.Type, most.String())
		switch {
		case request.IsZero():
			say("%s, but no request is specified or request is 0", about)
		case limit.IsZero():
			say("%s, but no limit is specified or limit is 0", about)
		case ratioOf(limit, request) > most.AsApproximateFloat64():
			say("%s, but provided ratio is %f", about, ratioOf(limit, request))
		}
	}
	return errs
}

// boundClaim holds the size of a claim to a LimitRange. A claim has no limits: the maximum is about what it asks for.
func boundClaim(c *corev1.PersistentVolumeClaim, by *corev1.LimitRange) (errs []error) {
	for _, item := range by.Spec.Limits {
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		errs = append(errs, bound(&corev1.LimitRangeItem{Type: item.Type, Min: item.Min}, c.Spec.Resources.Requests, nil)...)
		for _, name := range slices.Sorted(maps.Keys(item.Max)) {
			most := item.Max[name]
			request, asked := c.Spec.Resources.Requests[name]
			about := fmt.Sprintf("maximum %s usage per %s is %s", name, item.Type, most.String())
			switch {
			case !asked:
				errs = append(errs, errors.New(about+".  No request is specified"))
			case request.Cmp(most) > 0:
				errs = append(errs, fmt.Errorf("%s, but request is %s", about, request.String()))
			}
		}
	}
	return errs
}
