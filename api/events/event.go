// Package events has the kind of the group events.k8s.io.
package events

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"ledge/api"
)

// Events are the newer form of events: the same objects under other names of their fields.
var Events = api.Define(api.Kind{Group: "events.k8s.io", Version: "v1", Name: "Event", Resource: "events", Singular: "event",
	Short:      []string{"ev"},
	Namespaced: true,
	View: &api.Form{Of: api.Events, Show: show, Read: read,
		Fields: map[string]string{"involvedObject.kind": "regarding.kind", "involvedObject.namespace": "regarding.namespace",
			"involvedObject.name": "regarding.name", "involvedObject.uid": "regarding.uid", "involvedObject.apiVersion": "regarding.apiVersion",
			"involvedObject.resourceVersion": "regarding.resourceVersion", "involvedObject.fieldPath": "regarding.fieldPath",
			"reportingComponent": "reportingController"},
		Renamed: map[string]string{"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
			"deprecatedSource": "source", "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
			"deprecatedCount": "count"}}},
	api.Rules[*eventsv1.Event]{
		New: func() *eventsv1.Event { return &eventsv1.Event{} }, NewList: func() api.ListObject { return &eventsv1.EventList{} },
	})

func show(obj api.Object) api.Object {
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

func read(obj api.Object) api.Object {
	e := obj.(*eventsv1.Event)
	out := &corev1.Event{ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related,
		Message: e.Note, Type: e.Type, Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount}
	if s := e.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	api.Events.Stamp(out)
	return out
}
