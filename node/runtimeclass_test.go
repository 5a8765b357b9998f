package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/node"
)

// TestRuntimeClassHandlers: a pod of a class whose handler the board has runs; of another it waits, its owner is told why,
// and a class mended in between counts.
func TestRuntimeClassHandlers(t *testing.T) {
	with(t, nil, func(r *rig) {
		class := func(name, handler string) {
			t.Helper()
			if _, err := api.Create(t.Context(), r.Client, node.RuntimeClasses,
				&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}); err != nil {
				t.Fatal(err)
			}
		}
		of := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &name } }
		class("usual", "runc")
		class("own", "ledge")
		class("vm", "kata")
		r.begin()
		r.pod("a", of("usual"))
		r.pod("b", of("own"))
		r.pod("c", of("vm"))
		r.pass(10 * time.Second)
		for name, want := range map[string]corev1.PodPhase{"a": corev1.PodRunning, "b": corev1.PodRunning, "c": corev1.PodPending} {
			if got := r.get(name).Status.Phase; got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		var named []string
		for _, h := range r.node().Status.RuntimeHandlers {
			if f := h.Features; f != nil && *f.RecursiveReadOnlyMounts && *f.UserNamespaces {
				named = append(named, h.Name)
			}
		}
		if !slices.Equal(named, []string{"", "ledge", "runc"}) {
			t.Errorf("the Node names %q", named)
		}
		told := r.events.of("FailedCreatePodSandBox")
		if len(told) == 0 || !strings.Contains(told[0],
			`Failed to create pod sandbox: no runtime for "kata" is configured: the handlers of this board are ledge and runc`) {
			t.Errorf("told %q", told)
		}
		if _, err := r.Delete(t.Context(), node.RuntimeClasses, "", "vm", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		class("vm", "runc")
		r.pass(5 * time.Minute)
		if got := r.get("c").Status.Phase; got != corev1.PodRunning {
			t.Errorf("c is %s after its class was mended", got)
		}
		for _, name := range []string{"a", "b", "c"} {
			r.delete(name, nil)
		}
		r.pass(time.Minute)
	})
}
