package api

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// The fields that every kind has.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// Fields is what a field selector can see of an object (N-11.35).
func (k *Kind) Fields(obj Object) fields.Fields { return fieldsOf{k, obj} }

type fieldsOf struct {
	kind *Kind
	obj  Object
}

// getter is Get of one field, for many objects.
func (k *Kind) getter(name string) func(Object) string {
	switch i := slices.IndexFunc(k.rules.Fields, func(f Field[Object]) bool { return f.Name == name }); {
	case name == nameField:
		return Object.GetName
	case name == namespaceField:
		return Object.GetNamespace
	case k.View == nil && i >= 0:
		return k.rules.Fields[i].Get
	}
	return func(o Object) string { return fieldsOf{k, o}.Get(name) }
}

func (f fieldsOf) Has(name string) bool { return f.kind.hasField(name) }

func (f fieldsOf) Get(name string) string {
	switch name {
	case nameField:
		return f.obj.GetName()
	case namespaceField:
		return f.obj.GetNamespace()
	}
	if v := f.kind.View; v != nil {
		return v.Of.Fields(v.Read(f.obj)).Get(v.field(name))
	}
	for _, field := range f.kind.rules.Fields {
		if field.Name == name {
			return field.Get(f.obj)
		}
	}
	return ""
}

// Computes says whether a field is more than a value in JSON.
func (k *Kind) Computes(name string) bool { return slices.Contains(k.rules.Computed, name) }

func (k *Kind) hasField(name string) bool { return slices.Contains(k.FieldLabels(), name) }

// FieldLabels are the fields a selector may name for a kind, sorted.
func (k *Kind) FieldLabels() []string {
	labels := []string{nameField, namespaceField}
	if v := k.View; v != nil {
		labels = v.Of.FieldLabels()
		for i, name := range labels {
			labels[i] = v.shown(name)
		}
	}
	for _, f := range k.rules.Fields {
		labels = append(labels, f.Name)
	}
	slices.Sort(labels)
	return labels
}

// ParseFields reads the fieldSelector of a request: 400 when it cannot be read or names a field that the kind
// does not offer.
func ParseFields(kind *Kind, text string) (fields.Selector, error) {
	sel, err := fields.ParseSelector(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse field selector %q: %v", text, err))
	}
	return sel, CheckFields(kind, sel)
}

// ParseLabels reads the labelSelector of a request.
func ParseLabels(text string) (labels.Selector, error) {
	sel, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse label selector %q: %v", text, err))
	}
	return sel, nil
}

// CheckFields refuses a selector over fields that a kind does not offer.
func CheckFields(kind *Kind, sel fields.Selector) error {
	if sel == nil || sel.Empty() {
		return nil
	}
	known := kind.FieldLabels()
	for _, r := range sel.Requirements() {
		if !slices.Contains(known, r.Field) {
			return apierrors.NewBadRequest(fmt.Sprintf("Unable to find %q that match field selector %q: field label not supported: %s",
				kind.GVK().GroupVersion().WithResource(kind.Resource).String(), sel.String(), r.Field))
		}
	}
	return nil
}

// Matches says whether a selection picks an object.
func (s *Selection) Matches(kind *Kind, obj Object) bool {
	return (s.Namespace == "" || obj.GetNamespace() == s.Namespace) &&
		(s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(kind.Fields(obj))) &&
		(s.Labels == nil || s.Labels.Empty() || s.Labels.Matches(labels.Set(obj.GetLabels())))
}

// Matcher is Matches, made ready for many objects: one costs no memory. A change of a board's pod is asked about by the watches of all
// boards.
func (s Selection) Matcher(kind *Kind) func(Object) bool {
	type term struct {
		get   func(Object) string
		value string
		is    bool
	}
	var terms []term
	var other fields.Selector
	if s.Fields != nil && !s.Fields.Empty() {
		other = s.Fields
		for _, r := range s.Fields.Requirements() {
			terms, other = append(terms, term{kind.getter(r.Field), r.Value, r.Operator != selection.NotEquals}), nil
		}
	}
	return func(o Object) bool {
		if s.Namespace != "" && o.GetNamespace() != s.Namespace {
			return false
		}
		for _, t := range terms {
			if (t.get(o) == t.value) != t.is {
				return false
			}
		}
		return (other == nil || other.Matches(kind.Fields(o))) &&
			(s.Labels == nil || s.Labels.Empty() || s.Labels.Matches(labels.Set(o.GetLabels())))
	}
}
