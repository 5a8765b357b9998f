package managed

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
)

// What server-side apply holds in memory once it has been used: it is paid by boards that use it, and must be small for
// them too. The schemas of the library are most of it.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var f Fields
	if _, err := f.Apply(api.ConfigMaps, &corev1.ConfigMap{}, configMap("a", "1"), "", "m", false); err != nil {
		t.Fatal(err)
	}
	const most = 6 << 20
	if got := heap() - before; got > most {
		t.Errorf("%d KiB are held after the first apply, at most %d", got>>10, most>>10)
	} else {
		t.Logf("%d KiB", got>>10)
	}
	runtime.KeepAlive(&f)
}

func configMap(name, value string) map[string]any {
	return map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": name},
		"data": map[string]any{"k": value}}
}

// Every kind that can be written has a schema and can be applied.
func TestEveryKind(t *testing.T) {
	var f Fields
	for _, k := range kinds.All.Kept {
		config := map[string]any{"kind": k.Name, "apiVersion": k.APIVersion(),
			"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "y"}}}
		obj, err := f.Apply(k, k.New(), config, "", "m", false)
		if err != nil {
			t.Errorf("%s: %v", k, err)
			continue
		}
		if obj.GetLabels()["x"] != "y" || !Tracked(obj) {
			t.Errorf("%s: %+v", k, obj)
		}
		if k.HasStatus() {
			if _, err := f.Apply(k, obj, config, "status", "n", true); err != nil {
				t.Errorf("%s/status: %v", k, err)
			}
		}
	}
}

// An object that nobody applied to costs nothing and carries nothing.
func TestUntracked(t *testing.T) {
	var f Fields
	was := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	is := was.DeepCopy()
	is.Data = map[string]string{"k": "v"}
	if err := f.Update(api.ConfigMaps, was, is, "", "m"); err != nil || Tracked(is) || f.types != nil {
		t.Errorf("%+v, %v, schemas read: %v", is, err, f.types != nil)
	}
	is.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	if err := f.Update(api.ConfigMaps, was, is, "", "m"); err != nil || is.ManagedFields != nil {
		t.Errorf("a reset: %+v, %v", is, err)
	}
}

// A write of the status does not take over what it cannot set.
func TestStatusKeepsSpec(t *testing.T) {
	var f Fields
	config := map[string]any{"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"unschedulable": true}}
	made, err := f.Apply(api.Nodes, &corev1.Node{}, config, "", "m", false)
	if err != nil {
		t.Fatal(err)
	}
	live := made.(*corev1.Node)
	live.UID = "u"
	next := live.DeepCopy()
	next.Status.Phase = corev1.NodeRunning
	if err := f.Update(api.Nodes, live, next, "status", "agent"); err != nil {
		t.Fatal(err)
	}
	if n := len(next.ManagedFields); n != 2 {
		t.Fatalf("%d managers: %+v", n, next.ManagedFields)
	}
	config["spec"] = map[string]any{"unschedulable": false}
	if _, err := f.Apply(api.Nodes, next, config, "", "m", false); err != nil {
		t.Errorf("the agent's status made a conflict over the spec: %v", err)
	}
}

// Many writers do not make an object grow without end: the oldest entries become one.
func TestLimit(t *testing.T) {
	at := time.Unix(0, 0)
	f := Fields{Now: func() time.Time { return at }}
	made, err := f.Apply(api.ConfigMaps, &corev1.ConfigMap{}, configMap("a", "1"), "", "m", false)
	if err != nil {
		t.Fatal(err)
	}
	live := made.(*corev1.ConfigMap)
	live.UID = "u"
	for i := range 30 {
		at = at.Add(time.Hour)
		next := live.DeepCopy()
		next.Data[fmt.Sprint("key", i)] = "v"
		if err := f.Update(api.ConfigMaps, live, next, "", fmt.Sprint("writer", i)); err != nil {
			t.Fatal(err)
		}
		live = next
	}
	managers := map[string]bool{}
	for _, e := range live.ManagedFields {
		managers[e.Manager] = true
	}
	if len(live.ManagedFields) != maxUpdaters+2 || !managers["m"] || !managers[ancient] || !managers["writer29"] || managers["writer19"] {
		t.Errorf("%d entries: %v", len(live.ManagedFields), managers)
	}
	if _, err := f.Apply(api.ConfigMaps, live, map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "a"},
		"data": map[string]any{"key0": "x"}}, "", "n", false); err == nil || !strings.Contains(err.Error(), ancient) {
		t.Errorf("what is old has no owner any more: %v", err)
	}
}

// Broken managedFields are refused or repaired, never a panic.
func FuzzEntries(f *testing.F) {
	f.Add("Apply", "v1", `{"f:data":{"f:k":{}}}`)
	f.Add("Update", "v1", `{"k:{\"a\":1}":{".":{}}}`)
	f.Add("", "", `[`)
	f.Fuzz(func(t *testing.T, operation, version, fields string) {
		e := metav1.ManagedFieldsEntry{Manager: "m", Operation: metav1.ManagedFieldsOperationType(operation), APIVersion: version,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
		o, err := open([]metav1.ManagedFieldsEntry{e})
		if err != nil {
			return
		}
		entries, err := o.close()
		if err != nil {
			t.Fatal(err)
		}
		again, err := open(entries)
		if err != nil {
			t.Fatalf("%v, after %v", err, entries)
		}
		if len(entries) > 0 && !again.same(o) {
			t.Fatalf("%v became %v", o, again)
		}
	})
}
