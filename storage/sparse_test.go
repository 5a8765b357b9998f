package storage

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// WhenAny is told once: at once where there is something, in memory or in the file, or else with the first change of the kind.
func TestWhenAny(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(t.Context(), Config{Dir: dir, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	put := func(kind *api.Kind, obj api.Object, lazy bool) {
		t.Helper()
		obj.SetNamespace("default")
		obj.SetName("x")
		if err := s.Update(func(tx *Tx) error {
			if lazy {
				return tx.PutLazy(kind, obj)
			}
			return tx.Put(kind, obj)
		}); err != nil {
			t.Fatal(err)
		}
	}
	told := 0
	if !s.WhenAny(api.Pods, func() { told++ }) || told != 0 {
		t.Fatalf("of no pods: told %d times", told)
	}
	put(api.ConfigMaps, &corev1.ConfigMap{}, false)
	if told != 0 {
		t.Error("told of another kind")
	}
	put(api.Pods, &corev1.Pod{}, false)
	put(api.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}, false)
	if told != 1 {
		t.Errorf("told %d times of two writes", told)
	}
	put(api.Events, &corev1.Event{}, true)
	for _, k := range []*api.Kind{api.Pods, api.Events} {
		told = 0
		if s.WhenAny(k, func() { told++ }) || told != 1 {
			t.Errorf("of %s that are there: told %d times", k, told)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	told = 0
	if s.WhenAny(api.Pods, func() { told++ }) || told != 1 {
		t.Errorf("after a start: told %d times", told)
	}
}
