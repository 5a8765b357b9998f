package local

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/events"
)

func encoded(t *testing.T, obj api.Object) string {
	t.Helper()
	if obj == nil {
		return ""
	}
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sameJSON: a list in JSON is the list, encoded. Continue tells the time, too.
func sameJSON(t *testing.T, c *Client, kind *api.Kind, opts api.ListOptions, want api.List) {
	t.Helper()
	got, err := c.ListJSON(t.Context(), kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision != want.Revision || (got.Continue == "") != (want.Continue == "") || len(got.Items) != len(want.Items) ||
		(got.Remaining == nil) != (want.Remaining == nil) || got.Remaining != nil && *got.Remaining != *want.Remaining {
		t.Fatalf("in JSON %d at %s, decoded %d at %s", len(got.Items), got.Revision, len(want.Items), want.Revision)
	}
	for i, data := range got.Items {
		if text := encoded(t, want.Items[i]); string(data) != text {
			t.Fatalf("in JSON %s\ndecoded %s", data, text)
		}
	}
}

// TestWire: what is handed out as JSON is what is handed out decoded, by name, in lists and in watches, of views too.
func TestWire(t *testing.T) {
	c := open(t, Config{})
	for i := range 40 {
		pod := newPod("p"+strings.Repeat("x", i), "n"+string(rune('a'+i%3)))
		pod.Labels = map[string]string{"app": "abc"[:1+i%3], "i": strings.Repeat("v", i%4)}
		pod.Annotations = map[string]string{"ab": "<&>\"\\\u2028"}
		create(t, c, pod)
	}
	app, err := labels.Parse("app=a,i")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []*api.Kind{api.Pods, api.Namespaces, api.Events, events.Events, api.ServiceAccounts} {
		selections := []api.Selection{{}, {Namespace: "default"}, {Labels: app}, {Fields: fields.OneTermEqualSelector("metadata.name", "px")}}
		if kind == api.Pods {
			selections = append(selections, api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "na")},
				api.Selection{Namespace: "default", Fields: fields.OneTermEqualSelector("status.phase", "Pending"), Labels: app})
		}
		for _, sel := range selections {
			for _, limit := range []int64{0, 1, 7} {
				opts := api.ListOptions{Selection: sel, Limit: limit}
				list, err := c.List(t.Context(), kind, opts)
				if err != nil {
					t.Fatal(err)
				}
				sameJSON(t, c, kind, opts, list)
			}
		}
	}
	obj, err := c.Get(t.Context(), api.Pods, "default", "px")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := c.GetJSON(t.Context(), api.Pods, "default", "px"); err != nil || !bytes.Equal(data, []byte(encoded(t, obj))) {
		t.Errorf("%s, %v", data, err)
	}
	_, want := c.Get(t.Context(), api.Pods, "default", "none")
	if _, err := c.GetJSON(t.Context(), api.Pods, "default", "none"); err == nil || err.Error() != want.Error() {
		t.Errorf("%v, want %v", err, want)
	}
}
