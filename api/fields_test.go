package api

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestFieldLabels(t *testing.T) { // N-11.35
	both := []string{"metadata.name", "metadata.namespace"}
	for kind, want := range map[*Kind][]string{
		Pods: {"metadata.name", "metadata.namespace", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
			"spec.serviceAccountName", "status.nominatedNodeName", "status.phase", "status.podIP"},
		Nodes:      {"metadata.name", "metadata.namespace", "spec.unschedulable"},
		Namespaces: {"metadata.name", "metadata.namespace", "status.phase"},
		Secrets:    {"metadata.name", "metadata.namespace", "type"},
		Events: {"involvedObject.apiVersion", "involvedObject.fieldPath", "involvedObject.kind", "involvedObject.name",
			"involvedObject.namespace", "involvedObject.resourceVersion", "involvedObject.uid", "metadata.name", "metadata.namespace",
			"reason", "reportingComponent", "source", "type"},
		ConfigMaps: both,
	} {
		if got := kind.FieldLabels(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q", kind, got)
		}
	}
}

func TestParseFields(t *testing.T) {
	pod := validPod()
	pod.Spec.NodeName, pod.Status.Phase = "n", corev1.PodRunning
	for text, want := range map[string]bool{
		"": true, "spec.nodeName=n": true, "spec.nodeName==m": false, "status.phase!=Failed": true,
		"spec.nodeName=n,status.phase!=Succeeded,status.phase!=Failed": true, // N-11.37
		"spec.nodeName=n,status.phase=Failed":                          false,
		"spec.hostNetwork=false":                                       true,
	} {
		sel, err := ParseFields(Pods, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (&Selection{Fields: sel}).Matches(Pods, pod); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
	for _, text := range []string{"spec.foo=1", "spec.nodeName", "status.phase!=Failed,x!=y"} {
		if _, err := ParseFields(Pods, text); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: want 400, got %v", text, err)
		}
	}
}

func TestSelection(t *testing.T) {
	pod := validPod()
	pod.Labels = map[string]string{"app": "x"}
	for text, want := range map[string]bool{"": true, "app=x": true, "app in (x,y)": true, "app!=x": false, "!app": false, "other": false} {
		sel, err := ParseLabels(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (&Selection{Namespace: "default", Labels: sel}).Matches(Pods, pod); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
	if (&Selection{Namespace: "other"}).Matches(Pods, pod) {
		t.Error("another namespace matches")
	}
	if _, err := ParseLabels("a=b=c"); !apierrors.IsBadRequest(err) {
		t.Errorf("want 400, got %v", err)
	}
}

func TestEventSource(t *testing.T) {
	e := &corev1.Event{ReportingController: "new"}
	if got := Events.Fields(e).Get("source"); got != "new" {
		t.Errorf("got %q", got)
	}
	e.Source.Component = "old"
	if got := Events.Fields(e).Get("source"); got != "old" {
		t.Errorf("got %q", got)
	}
}

// Whatever text comes, a selector either is refused with 400 or can be used, and what it prints reads back.
func FuzzSelectors(f *testing.F) {
	for _, s := range []string{"", "a=b", "a!=b,c", "a in (b,c)", "!a", "metadata.name=x", `metadata.name=a\,b`, "spec.nodeName==",
		"status.phase!=Failed,", "(", "a notin ()"} {
		f.Add(s)
	}
	pod := validPod()
	f.Fuzz(func(t *testing.T, text string) {
		fieldSel, err := ParseFields(Pods, text)
		if err == nil {
			got := (&Selection{Fields: fieldSel}).Matches(Pods, pod)
			again, err := ParseFields(Pods, fieldSel.String())
			if err != nil {
				t.Fatalf("%q prints as %q, which does not parse: %v", text, fieldSel, err)
			}
			if (&Selection{Fields: again}).Matches(Pods, pod) != got {
				t.Fatalf("%q and %q differ", text, fieldSel)
			}
		} else if !apierrors.IsBadRequest(err) {
			t.Fatalf("%q: %v", text, err)
		}
		labelSel, err := ParseLabels(text)
		if err == nil {
			(&Selection{Labels: labelSel}).Matches(Pods, pod)
		} else if !apierrors.IsBadRequest(err) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
