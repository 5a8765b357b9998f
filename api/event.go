package api

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Events tell what happened to other objects.
var Events = Define(Kind{Version: "v1", Name: "Event", Resource: "events", Singular: "event", Short: []string{"ev"},
	Namespaced: true, Lazy: true},
	Rules[*corev1.Event]{
		New: func() *corev1.Event { return &corev1.Event{} }, NewList: func() ListObject { return &corev1.EventList{} },
		Validate: validateEvent,
		Fields: []Field[*corev1.Event]{
			{"involvedObject.kind", func(e *corev1.Event) string { return e.InvolvedObject.Kind }},
			{"involvedObject.namespace", func(e *corev1.Event) string { return e.InvolvedObject.Namespace }},
			{"involvedObject.name", func(e *corev1.Event) string { return e.InvolvedObject.Name }},
			{"involvedObject.uid", func(e *corev1.Event) string { return string(e.InvolvedObject.UID) }},
			{"involvedObject.apiVersion", func(e *corev1.Event) string { return e.InvolvedObject.APIVersion }},
			{"involvedObject.resourceVersion", func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion }},
			{"involvedObject.fieldPath", func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }},
			{"reason", func(e *corev1.Event) string { return e.Reason }},
			{"type", func(e *corev1.Event) string { return e.Type }},
			{"reportingComponent", func(e *corev1.Event) string { return e.ReportingController }},
			{"source", eventSource},
		},
		Computed: []string{"source"},
		Columns:  eventColumns,
		Cells:    eventCells,
	})

// eventSource: events of the newer API name their sender elsewhere.
func eventSource(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
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

var eventColumns = table.Columns{
	table.Column("Last Seen", "string", "When it happened last."),
	table.Column("Type", "string", "Normal, or Warning."),
	table.Column("Reason", "string", "Why, in one word."),
	table.Column("Object", "string", "What it happened to."),
	table.Wide("Subobject", "string", "Which part of it."),
	table.Wide("Source", "string", "Who says so."),
	table.Column("Message", "string", "What happened."),
	table.Wide("First Seen", "string", "When it happened first."),
	table.Wide("Count", "string", "How often it happened."),
	table.Wide("Name", "string", "The name of the event."),
}

func eventCells(e *corev1.Event, l table.Look) []any {
	first, last, count := e.FirstTimestamp.Time, e.LastTimestamp.Time, int64(e.Count)
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if last.IsZero() {
		last = first
	}
	// Events of the newer API count in a series.
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, int64(e.Series.Count)
	}
	count = max(count, 1)
	about := e.InvolvedObject.Name
	if e.InvolvedObject.Kind != "" {
		about = strings.ToLower(e.InvolvedObject.Kind) + "/" + about
	}
	source := []string{e.Source.Component, e.Source.Host}
	if e.Source.Component == "" {
		source = []string{e.ReportingController, e.ReportingInstance}
	}
	return []any{
		l.Since(last), e.Type, e.Reason, about, e.InvolvedObject.FieldPath, strings.TrimSuffix(strings.Join(source, ", "), ", "),
		strings.TrimSpace(e.Message), l.Since(first), count, e.Name,
	}
}
