package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/local"
)

// TestAPILosesPods: what runs and is not known is stopped only where it is certain that it was deleted.
func TestAPILosesPods(t *testing.T) {
	for name, c := range map[string]struct {
		line    string // of the store when the agent comes back
		deleted bool   // the log says so
		newer   bool   // it has another pod of that name, made later
		back    bool
		event   string
	}{
		"deleted":                   {line: "one"},
		"lost":                      {line: "two", back: true, event: "PodRestored"},
		"lost after it was deleted": {line: "two", deleted: true, event: "PodStopped"},
		"lost, and made anew":       {line: "two", newer: true, event: "PodStopped"},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, nil, func(r *rig) {
				client := r.Client.(*local.Client)
				r.cfg.Lineage, r.cfg.Restore = "one", client.Restore
				r.cfg.Deleted = func(ns, name string) bool { return c.deleted && ns == "default" && name == "p" }
				r.begin()
				pod := r.pod("p")
				r.pass(time.Minute)
				before := r.get("p").Status.ContainerStatuses[0]
				r.end()
				r.delete("p", new(int64))
				if c.newer {
					r.pod("p")
				}
				r.cfg.Lineage = c.line
				r.begin()
				r.pass(10 * time.Minute)

				st, err := r.engine.List(r.Context())
				if err != nil {
					t.Fatal(err)
				}
				runs := false
				for _, p := range st.Pods {
					runs = runs || p.Pod.UID == string(pod.UID)
				}
				now, err := api.Get[*corev1.Pod](r.Context(), r.Client, api.Pods, "default", "p")
				known := err == nil && now.UID == pod.UID
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if runs != c.back || known != c.back {
					t.Errorf("want it back: %v; it runs: %v, the API knows it: %v", c.back, runs, known)
				}
				if known {
					if s := now.Status.ContainerStatuses[0]; now.Status.Phase != corev1.PodRunning || s.ContainerID != before.ContainerID ||
						s.RestartCount != 0 {
						t.Errorf("it is %s, %+v", now.Status.Phase, s)
					}
				}
				var told []string
				for _, e := range r.events.of("PodRestored", "PodStopped") {
					told = append(told, strings.Fields(e)[1])
				}
				var want []string
				if c.event != "" {
					want = append(want, c.event)
				}
				r.want("events", told, want...)
				if c.back { // and it can be deleted like any other, also when nobody is there to see it
					r.end()
					r.delete("p", new(int64))
					r.begin()
					r.pass(time.Minute)
					r.want("running", r.running())
				}
			})
		})
	}
}
