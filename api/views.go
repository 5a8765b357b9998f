package api

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
)

// EventsV1 is the newer form of events: the same objects under other names of their fields.
var EventsV1 = &Kind{Group: "events.k8s.io", Version: "v1", Name: "Event", Resource: "events", Singular: "event", Short: []string{"ev"},
	Namespaced: true, View: eventView,
	New: func() Object { return &eventsv1.Event{} }, NewList: func() ListObject { return &eventsv1.EventList{} }}

// Views are kinds that show the objects of another one.
var Views = []*Kind{EventsV1}

// Form says how a kind shows the objects of another one.
type Form struct {
	Of   *Kind
	Show func(Object) Object // an object of Of in this form
	Read func(Object) Object // and back
	// Field is the name that a field has in a selector over Of.
	Field func(string) string
	// Renamed are the fields of an object that are called otherwise in one of Of, by their names there.
	Renamed map[string]string
}

var eventView = &Form{Of: Events, Show: showEvent, Read: readEvent, Field: eventField, Renamed: map[string]string{
	"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent", "deprecatedSource": "source",
	"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count"}}

func showEvent(obj Object) Object {
	e := obj.(*corev1.Event)
	out := &eventsv1.Event{ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related,
		Note: e.Message, Type: e.Type, DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count}
	if s := e.Series; s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}

func readEvent(obj Object) Object {
	e := obj.(*eventsv1.Event)
	out := &corev1.Event{ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related,
		Message: e.Note, Type: e.Type, Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount}
	if s := e.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	Events.Stamp(out)
	return out
}

var eventFields = map[string]string{"regarding.kind": "involvedObject.kind", "regarding.namespace": "involvedObject.namespace",
	"regarding.name": "involvedObject.name", "regarding.uid": "involvedObject.uid", "regarding.apiVersion": "involvedObject.apiVersion",
	"regarding.resourceVersion": "involvedObject.resourceVersion", "regarding.fieldPath": "involvedObject.fieldPath",
	"reportingController": "reportingComponent"}

func eventField(name string) string {
	if of, ok := eventFields[name]; ok {
		return of
	}
	return name
}

// fieldsOfView are the fields of a view that a selector may name.
func fieldsOfView(v *Form, obj Object) fields.Set {
	of := FieldsOf(v.Read(obj))
	set := fields.Set{}
	for name, is := range of {
		set[name] = is
	}
	for name, was := range eventFields {
		delete(set, was)
		set[name] = of[was]
	}
	return set
}

// viewOf finds the view that an object is of; nil when it is of a kind that is kept.
func viewOf(obj k8sruntime.Object) *Kind {
	if _, ok := obj.(*eventsv1.Event); ok {
		return EventsV1
	}
	return nil
}
