package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// FieldsOf is what a field selector can see of an object (N-11.35).
func FieldsOf(obj Object) fields.Set {
	if k := viewOf(obj); k != nil {
		return fieldsOfView(k.View, obj)
	}
	set := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	switch o := obj.(type) {
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		set["spec.schedulerName"] = o.Spec.SchedulerName
		set["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		set["spec.hostNetwork"] = strconv.FormatBool(o.Spec.HostNetwork)
		set["status.phase"] = string(o.Status.Phase)
		set["status.podIP"] = o.Status.PodIP
		set["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.ReplicationController:
		set["status.replicas"] = strconv.Itoa(int(o.Status.Replicas))
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Event:
		about := o.InvolvedObject
		set["involvedObject.kind"] = about.Kind
		set["involvedObject.namespace"] = about.Namespace
		set["involvedObject.name"] = about.Name
		set["involvedObject.uid"] = string(about.UID)
		set["involvedObject.apiVersion"] = about.APIVersion
		set["involvedObject.resourceVersion"] = about.ResourceVersion
		set["involvedObject.fieldPath"] = about.FieldPath
		set["reason"] = o.Reason
		set["type"] = o.Type
		set["reportingComponent"] = o.ReportingController
		set["source"] = o.Source.Component
		if o.Source.Component == "" { // events of the newer API name their sender here
			set["source"] = o.ReportingController
		}
	}
	return set
}

// FieldLabels are the fields a selector may name for a kind, sorted.
func FieldLabels(kind *Kind) []string {
	return slices.Sorted(maps.Keys(FieldsOf(kind.New())))
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
	known := FieldsOf(kind.New())
	for _, r := range sel.Requirements() {
		if !known.Has(r.Field) {
			return apierrors.NewBadRequest(fmt.Sprintf("Unable to find %q that match field selector %q: field label not supported: %s",
				kind.GVK().GroupVersion().WithResource(kind.Resource).String(), sel.String(), r.Field))
		}
	}
	return nil
}

// Matches says whether a selection picks an object.
func (s *Selection) Matches(obj Object) bool {
	if s.Fields != nil { // every watch by name, or of a board's pods, sees every change of its kind: these are there without making a set of fields
		if name, one := s.Fields.RequiresExactMatch("metadata.name"); one && name != obj.GetName() {
			return false
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			if node, one := s.Fields.RequiresExactMatch("spec.nodeName"); one && node != pod.Spec.NodeName {
				return false
			}
		}
	}
	return (s.Namespace == "" || obj.GetNamespace() == s.Namespace) &&
		(s.Labels == nil || s.Labels.Empty() || s.Labels.Matches(labels.Set(obj.GetLabels()))) &&
		(s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(FieldsOf(obj)))
}
