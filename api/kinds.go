package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds are all kinds that a server knows. Those of a board are listed in api/kinds.
type Kinds struct {
	Kept  []*Kind // that have objects of their own, in the order of discovery
	Views []*Kind // that show the objects of another one
	// Later and Absent have no objects on a board. Clients list many kinds before they do anything (kubectl get all,
	// describe, drain); a 404 would stop some of them. Of those that are Absent a board does not carry schemas either.
	Later, Absent []*Kind
	Measured      []*Kind // whose objects are measured, not kept: no Client has them
}

// All are all of them, in the order of discovery.
func (s *Kinds) All() []*Kind { return slices.Concat(s.Kept, s.Views, s.Later, s.Absent, s.Measured) }

// Of finds the kind of an object by its Go type.
func (s *Kinds) Of(obj k8sruntime.Object) (*Kind, error) {
	for _, list := range [][]*Kind{s.Kept, s.Views} {
		for _, k := range list {
			if k.Is(obj) {
				return k, nil
			}
		}
	}
	return nil, fmt.Errorf("no kind for %T", obj)
}

// For finds a kind by group, version and plural resource; nil when there is none.
func (s *Kinds) For(group, version, resource string) *Kind {
	for _, list := range [][]*Kind{s.Kept, s.Views, s.Later, s.Absent, s.Measured} {
		for _, k := range list {
			if k.Group == group && k.Version == version && k.Resource == resource {
				return k
			}
		}
	}
	return nil
}

// ByGVK finds a kind that has objects by group, version and kind name; nil when there is none.
func (s *Kinds) ByGVK(gvk schema.GroupVersionKind) *Kind {
	for _, k := range s.Kept {
		if k.Name == gvk.Kind && k.Group == gvk.Group && k.Version == gvk.Version {
			return k
		}
	}
	return nil
}

// Shown is ByGVK, and finds the kinds as well that show the objects of another one.
func (s *Kinds) Shown(gvk schema.GroupVersionKind) *Kind {
	if k := s.ByGVK(gvk); k != nil {
		return k
	}
	for _, k := range s.Views {
		if k.GVK() == gvk {
			return k
		}
	}
	return nil
}

// Named finds a kind that has objects by what a person types: plural, singular, short name or Kind.
func (s *Kinds) Named(word string) *Kind {
	for _, k := range s.Kept {
		if word == k.Resource || word == k.Singular || word == k.Name || slices.Contains(k.Short, word) {
			return k
		}
	}
	return nil
}

// DefineLater names a kind of Kubernetes that has no objects on a board yet.
func DefineLater(group, version, name, resource string, namespaced bool, short ...string) *Kind {
	return &Kind{Group: group, Version: version, Name: name, Resource: resource, Singular: strings.ToLower(name),
		Namespaced: namespaced, Short: short, Later: true}
}

// NotWritable is the refusal of a write to a kind that is the server's own, or not there yet.
func NotWritable(k *Kind) error {
	text := k.Refusal
	if text == "" {
		text = k.GR().String() + " are not supported by ledge yet: there are none, and none can be made"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: text,
		Details: &metav1.StatusDetails{Group: k.Group, Kind: k.Resource},
	}}
}
