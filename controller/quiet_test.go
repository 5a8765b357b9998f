package controller

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// work is what the control plane did in some time, without a clock.
type work struct {
	writes, reads int64
	allocations   uint64
}

// halfHour lets half an hour pass.
func (r *rig) halfHour() work {
	r.Helper()
	runtime.GC() // what hangs on collected memory is done now
	var before, after runtime.MemStats
	writes, reads := r.writes.Load(), r.reads.Load()
	runtime.ReadMemStats(&before)
	r.pass(30 * time.Minute)
	runtime.ReadMemStats(&after)
	return work{r.writes.Load() - writes, r.reads.Load() - reads, after.Mallocs - before.Mallocs}
}

// TestHundredDeploymentsAtRest: boards that only say that they live give all loops together nearly the same work, whether there are a
// hundred Deployments with their pods or none. Nothing is written, nobody asks the store, and no loop looks at them because of a heartbeat:
// of 720 in half an hour each would cost a Deployment an allocation at least. Each loop compares them all every five minutes (idle), which
// is 150 allocations a time.
func TestHundredDeploymentsAtRest(t *testing.T) { // N-12.10
	const boards, apps, most = 4, 100, 2300
	plane(t, Config{}, func(r *rig) {
		for i := range boards {
			name := fmt.Sprintf("n%d", i)
			r.node(name)
			defer r.alive(name)()
		}
		r.pass(15 * time.Minute)
		none := r.halfHour()
		for i := range apps {
			name := fmt.Sprintf("app-%d", i)
			r.deployment(1, func(d *appsv1.Deployment) {
				d.Name, d.Spec.Template.Labels = name, map[string]string{"app": name}
				d.Spec.Selector = &metav1.LabelSelector{MatchLabels: d.Spec.Template.Labels}
			})
		}
		r.serve(5)
		if pods := r.pods(); len(pods) != apps {
			t.Fatalf("%d pods", len(pods))
		}
		r.pass(15 * time.Minute) // longer than any of them may take to roll out
		all := r.halfHour()
		each := (int64(all.allocations) - int64(none.allocations)) / apps
		t.Logf("without %+v, with %+v: %d allocations each", none, all, each)
		if all.writes != none.writes || all.reads != none.reads {
			t.Errorf("%d writes and %d reads of the store, %d and %d without Deployments", all.writes, all.reads, none.writes, none.reads)
		}
		if each > most {
			t.Errorf("%d allocations for each Deployment in half an hour, at most %d", each, most)
		}
	})
}
