package brain

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/storage"
)

// TestTellsOfMissingLog: a start that finds a store without its log says so in the Node's events, and no other start does.
func TestTellsOfMissingLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for _, missing := range []bool{false, true, false} {
		if missing {
			must(t, os.RemoveAll(filepath.Join(dir, "redo")))
		}
		store, err := storage.Open(t.Context(), storage.Config{Dir: dir})
		must(t, err)
		client, err := local.New(local.Config{Store: store})
		must(t, err)
		before := startEvents(t, client)["StoreLogMissing"]
		b := &Brain{Config: Config{Trial: &Trial{}}, store: store, guard: &guard{leave: make(chan struct{})},
			events: api.NewRecorder(client, "kubelet", "n")}
		b.Name = "n"
		b.tellStart()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, b.events.Run(ended)) // writes what there is
		after := startEvents(t, client)["StoreLogMissing"]
		if told := after > before; told != missing {
			t.Errorf("the log is missing: %t, the Node's events tell it: %t", missing, told)
		}
		must(t, store.Close())
	}
}

// startEvents counts the warnings about the node n by their reasons.
func startEvents(t *testing.T, client api.Client) map[string]int {
	t.Helper()
	list, err := client.List(t.Context(), api.Events, api.ListOptions{})
	must(t, err)
	out := map[string]int{}
	for _, o := range list.Items {
		if e := o.(*corev1.Event); e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "n" && e.Type == corev1.EventTypeWarning {
			out[e.Reason]++
		}
	}
	return out
}
