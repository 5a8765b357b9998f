package api

import (
	"encoding/json"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Object is one API object: a pointer to a Kubernetes type.
type Object interface {
	metav1.Object
	k8sruntime.Object
}

// ListObject is the list type that belongs to a kind, such as *corev1.PodList.
type ListObject interface {
	metav1.ListInterface
	k8sruntime.Object
}

// Kind is one kind of object: how it is named and addressed and, by the Rules it was defined with, all that the server must
// know of its objects. A pointer to it is its identity.
type Kind struct {
	Group, Version string
	Name           string // CamelCase singular: Pod
	Resource       string // plural, as in URLs: pods
	Singular       string
	Short          []string
	Categories     []string
	Namespaced     bool
	// Later: there are no such objects yet. Lists answer empty, so that clients that look find nothing, and writes are
	// refused. Such a kind has no rules.
	Later bool
	// Measured: the objects are measured, not kept.
	Measured bool
	// Refusal is the message for who writes an object that is not there yet; "" is the usual one.
	Refusal string
	// Deprecated is the warning that comes with every answer about such objects.
	Deprecated string
	// Generation: metadata.generation counts the changes of the spec.
	Generation bool
	// Annotated: it counts the changes of annotations, too.
	Annotated bool
	// Lazy: a power cut may forget the newest of these objects.
	Lazy bool
	// Compared: an update must say which version it replaces.
	Compared bool
	// Propagation is the default deletion policy for dependents; "" means Background.
	Propagation metav1.DeletionPropagation
	// Subresources that Update and Patch take, beside status and scale.
	Subresources []string

	// Schema is that of an object (OpenAPI v3), for a kind of which package openapi has none: most have theirs generated there.
	Schema json.RawMessage

	// View is set when the objects are those of another kind in another form.
	View *Form

	rules Rules[Object]
	is    func(k8sruntime.Object) bool
}

// Rules are what the server must know of the objects of a kind, in terms of their type. What is left out is not done, or not
// there. They are pure: what needs other objects is the server's own business (api/local).
type Rules[T Object] struct {
	New     func() T
	NewList func() ListObject

	// Default fills what callers may leave empty. It runs on every object on its way in, before Validate, and changes nothing
	// when it runs twice.
	Default func(T)
	// Fresh sets what only the server may say of a new object: the status, as a rule.
	Fresh func(T)
	// NameRule is what names must look like; nil: a DNS subdomain.
	NameRule apivalidation.ValidateNameFunc
	// Validate looks at a new object, beside its metadata.
	Validate func(T) field.ErrorList
	// ValidateUpdate looks at a change, of a subresource or with "" of the object itself; nil: Validate does.
	ValidateUpdate func(obj, old T, subresource string) field.ErrorList
	// Warn says in words what an accepted object will not get as it is written.
	Warn func(T) []string

	// Spec and Status point to the two halves of an object. A kind with a Status has that subresource: each half is changed
	// by its own, and put back by the other.
	Spec, Status func(T) any
	// Keep puts back what else an update may not change.
	Keep func(obj, old T, subresource string)
	// Beat is a copy of obj with the times of old in the place of those that only say that somebody is still there; what else
	// it shares with obj. A change of nothing else may be forgotten by a power cut.
	Beat func(obj, old T) T
	// Grace is how many seconds an object may take to end when it is deleted; asked is nil where the caller does not say.
	Grace func(obj T, asked *int64) int64

	// Fields are those that a field selector may name, beside name and namespace.
	Fields []Field[T]
	// Computed are the names of those that are not the path of their value in JSON.
	Computed []string
	// Template is what pods are made from.
	Template func(T) *corev1.PodTemplateSpec
	// Scale is the number of pods that somebody wants, and what has become of it; SetScale sets the number.
	Scale    func(T) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus)
	SetScale func(T, int32)

	// Charge is what of a ResourceQuota objects take beside the count of them; nil: nothing.
	Charge *Charge[T]
	// Bound says in which ways an object is beyond a LimitRange; nil: those are not about the kind.
	Bound func(T, *corev1.LimitRange) []error

	// Columns of a table of these objects, the cells of one row, and what a client may drop rows for. Without Columns a table
	// has table.Created.
	Columns    table.Columns
	Cells      func(T, table.Look) []any
	Conditions func(T) []metav1.TableRowCondition
}

// Charge is what objects of a kind take of a ResourceQuota.
type Charge[T Object] struct {
	// Covers says whether a name of a quota is about such objects. It is not asked about the count of them.
	Covers func(corev1.ResourceName) bool
	Uses   func(T) corev1.ResourceList
	// Until is when an object that is still there takes no more of it; zero: not before it is gone.
	Until func(T) time.Time
	// In says whether an object is in a scope; nil: it is in none.
	In func(T, corev1.ScopedResourceSelectorRequirement) bool
	// Lacks says what an object does not say although a quota has these names; nil: nothing has to be said.
	Lacks func(T, []corev1.ResourceName) string
}

// charge is a Charge in which every function is there.
func charge[T Object](c *Charge[T]) *Charge[Object] {
	if c == nil {
		c = &Charge[T]{Covers: func(corev1.ResourceName) bool { return false }, Uses: func(T) corev1.ResourceList { return nil }}
	}
	out := &Charge[Object]{Covers: c.Covers, Uses: ask(c.Uses), Until: ask(c.Until), In: with(c.In), Lacks: with(c.Lacks)}
	if out.Until == nil {
		out.Until = func(Object) time.Time { return time.Time{} }
	}
	if out.In == nil {
		out.In = func(Object, corev1.ScopedResourceSelectorRequirement) bool { return false }
	}
	if out.Lacks == nil {
		out.Lacks = func(Object, []corev1.ResourceName) string { return "" }
	}
	return out
}

// Field is one that a field selector may name.
type Field[T Object] struct {
	Name string
	Get  func(T) string
}

// Define makes a kind of its names and rules.
func Define[T Object](k Kind, r Rules[T]) *Kind {
	k.is = func(o k8sruntime.Object) bool { _, ok := o.(T); return ok }
	k.rules = Rules[Object]{
		New: made(r.New), NewList: r.NewList,
		Default: do(r.Default), Fresh: do(r.Fresh),
		NameRule: r.NameRule, Validate: ask(r.Validate), ValidateUpdate: change(r.ValidateUpdate), Warn: ask(r.Warn),
		Spec: ask(r.Spec), Status: ask(r.Status), Keep: keepAs(r.Keep), Beat: beat(r.Beat), Grace: with(r.Grace),
		Charge: charge(r.Charge), Bound: with(r.Bound),
		Computed: r.Computed, Template: ask(r.Template), Scale: scale(r.Scale), SetScale: setTo(r.SetScale),
		Columns: r.Columns, Cells: with(r.Cells), Conditions: ask(r.Conditions),
	}
	for _, f := range r.Fields {
		k.rules.Fields = append(k.rules.Fields, Field[Object]{f.Name, ask(f.Get)})
	}
	return &k
}

func made[T Object](f func() T) func() Object { return func() Object { return f() } }

func do[T Object](f func(T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(o Object) { f(o.(T)) }
}

func ask[T Object, R any](f func(T) R) func(Object) R {
	if f == nil {
		return nil
	}
	return func(o Object) R { return f(o.(T)) }
}

func with[T Object, A, R any](f func(T, A) R) func(Object, A) R {
	if f == nil {
		return nil
	}
	return func(o Object, a A) R { return f(o.(T), a) }
}

func setTo[T Object](f func(T, int32)) func(Object, int32) {
	if f == nil {
		return nil
	}
	return func(o Object, n int32) { f(o.(T), n) }
}

func scale[T Object](f func(T) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus)) func(Object) (autoscalingv1.ScaleSpec,
	autoscalingv1.ScaleStatus) {
	if f == nil {
		return nil
	}
	return func(o Object) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) { return f(o.(T)) }
}

func keepAs[T Object](f func(obj, old T, sub string)) func(obj, old Object, sub string) {
	if f == nil {
		return nil
	}
	return func(obj, old Object, sub string) { f(obj.(T), old.(T), sub) }
}

func beat[T Object](f func(obj, old T) T) func(obj, old Object) Object {
	if f == nil {
		return nil
	}
	return func(obj, old Object) Object { return f(obj.(T), old.(T)) }
}

func change[T Object](f func(obj, old T, sub string) field.ErrorList) func(obj, old Object, sub string) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(obj, old Object, sub string) field.ErrorList { return f(obj.(T), old.(T), sub) }
}

// New makes an empty object.
func (k *Kind) New() Object { return k.rules.New() }

// NewList makes an empty list.
func (k *Kind) NewList() ListObject { return k.rules.NewList() }

// Is says whether an object has the type of this kind.
func (k *Kind) Is(obj k8sruntime.Object) bool { return k.is != nil && k.is(obj) }

// HasStatus says whether the status is a subresource.
func (k *Kind) HasStatus() bool { return k.rules.Status != nil }

// HasScale says whether the number of pods is a subresource.
func (k *Kind) HasScale() bool { return k.rules.Scale != nil }

// Has says whether Update takes a subresource; "" is the object itself.
func (k *Kind) Has(subresource string) bool {
	switch subresource {
	case "":
		return true
	case StatusSub:
		return k.HasStatus()
	case Scale:
		return k.HasScale()
	}
	return slices.Contains(k.Subresources, subresource)
}

// Charge is what of a ResourceQuota objects of the kind take, beside the count of them. All its functions are there.
func (k *Kind) Charge() *Charge[Object] { return k.rules.Charge }

// Bound says in which ways an object is beyond a LimitRange.
func (k *Kind) Bound(obj Object, by *corev1.LimitRange) []error {
	if k.rules.Bound == nil {
		return nil
	}
	return k.rules.Bound(obj, by)
}

// Bounded says whether a LimitRange may be about objects of the kind.
func (k *Kind) Bounded() bool { return k.rules.Bound != nil }

// GVK is the kind's group, version and kind.
func (k *Kind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Name}
}

// GR is the kind's group and resource, as error details name it.
func (k *Kind) GR() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// APIVersion is "v1" for the core group, "group/version" otherwise.
func (k *Kind) APIVersion() string { return k.GVK().GroupVersion().String() }

func (k *Kind) String() string { return k.Resource }

// Stamp sets kind and apiVersion on an object or list item, which Go types leave empty.
func (k *Kind) Stamp(obj k8sruntime.Object) { obj.GetObjectKind().SetGroupVersionKind(k.GVK()) }

// Columns are those of a table of these objects.
func (k *Kind) Columns() table.Columns {
	switch {
	case k.View != nil:
		return k.View.Of.Columns()
	case k.Later:
		return table.Columns{table.Name, table.Age}
	case k.rules.Columns == nil:
		return table.Created
	}
	return k.rules.Columns
}

// Row is what an object shows in such a table.
func (k *Kind) Row(obj Object, look table.Look) (cells []any, conditions []metav1.TableRowCondition) {
	if k.View != nil {
		return k.View.Of.Row(k.View.Read(obj), look)
	}
	if k.rules.Columns == nil {
		return table.CreatedRow(obj), nil
	}
	if k.rules.Conditions != nil {
		conditions = k.rules.Conditions(obj)
	}
	return k.rules.Cells(obj, look), conditions
}
