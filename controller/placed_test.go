package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/local"
	"ledge/controller/workload"
)

func (r *rig) statefulSet(want int32, edit ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	r.Helper()
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.StatefulSetSpec{Replicas: &want,
		Selector: &metav1.LabelSelector{MatchLabels: webLabels}, Template: *webs(1).Spec.Template.DeepCopy()}}
	s.Spec.Template.Spec.Containers[0].Image = "ledge.local/one"
	for _, f := range edit {
		f(s)
	}
	s, err := api.Create(r.ctx, r.Client, apps.StatefulSets, s)
	must(r, s, err)
	synctest.Wait()
	return s
}

func (r *rig) daemonSet(edit ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	r.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: webLabels}, Template: *webs(1).Spec.Template.DeepCopy()}}
	d.Spec.Template.Spec.Containers[0].Image = "ledge.local/one"
	for _, f := range edit {
		f(d)
	}
	d, err := api.Create(r.ctx, r.Client, apps.DaemonSets, d)
	must(r, d, err)
	synctest.Wait()
	return d
}

// edit changes an object called web, as users do.
func edit[T api.Object](r *rig, kind *api.Kind, change func(T)) {
	r.Helper()
	obj, err := api.Get[T](r.ctx, r.Client, kind, "default", "web")
	must(r, obj, err)
	if _, _, err := amend(r.ctx, r.Client, kind, obj, "", func(o T) bool { change(o); return true }); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) resize(n int32) {
	r.Helper()
	edit(r, apps.StatefulSets, func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n })
}

// retemplate gives the set another image.
func (r *rig) retemplate(kind *api.Kind, image string) {
	r.Helper()
	edit(r, kind, func(o api.Object) { kind.Template(o).Spec.Containers[0].Image = "ledge.local/" + image })
}

// running are the pods: "name image board".
func (r *rig) running() (out []string) {
	r.Helper()
	list, err := r.List(r.ctx, api.Pods, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range list.Items {
		p := o.(*corev1.Pod)
		name := p.Name
		if metav1.GetControllerOf(p) != nil && metav1.GetControllerOf(p).Kind == "DaemonSet" {
			name = "on"
		}
		text := fmt.Sprint(name, " ", strings.TrimPrefix(p.Spec.Containers[0].Image, "ledge.local/"), " ", p.Spec.NodeName)
		if p.DeletionTimestamp != nil {
			text += " going"
		}
		if p.Status.Phase == corev1.PodFailed {
			text += " failed"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// revisions are the templates that are kept: "image number".
func (r *rig) revisions() (out []string) {
	r.Helper()
	list, err := r.List(r.ctx, apps.ControllerRevisions, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range list.Items {
		rev := o.(*appsv1.ControllerRevision)
		out = append(out, fmt.Sprint(strings.TrimPrefix(workload.Remembered(rev).Spec.Containers[0].Image, "ledge.local/"), " ", rev.Revision))
	}
	slices.Sort(out)
	return out
}

// quiet sees that nothing is written for an hour.
func (r *rig) quiet() {
	r.Helper()
	before := r.writes.Load()
	r.pass(time.Hour)
	if n := r.writes.Load() - before; n > 0 {
		r.Errorf("%d writes in an hour in which nothing happened", n)
	}
}

// TestStatefulSet follows a StatefulSet through its life.
func TestStatefulSet(t *testing.T) {
	deploying(t, func(r *rig) {
		set := r.statefulSet(3)
		r.want("first", r.running(), "web-0 one n")
		r.serve(1)
		r.want("then", r.running(), "web-0 one n", "web-1 one n")
		r.serve(3)
		r.want("three", r.running(), "web-0 one n", "web-1 one n", "web-2 one n")
		r.resize(2)
		r.want("smaller", r.running(), "web-0 one n", "web-1 one n", "web-2 one n going")
		r.serve(2)
		r.retemplate(apps.StatefulSets, "two")
		r.want("another template", r.running(), "web-0 one n", "web-1 one n going")
		r.serve(6)
		r.want("all of it", r.running(), "web-0 two n", "web-1 two n")
		r.retemplate(apps.StatefulSets, "one") // as kubectl rollout undo does
		r.serve(6)
		r.want("back", r.running(), "web-0 one n", "web-1 one n")
		r.want("templates", r.revisions(), "one 3", "two 2")
		now, err := api.Get[*appsv1.StatefulSet](r.ctx, r.Client, apps.StatefulSets, "default", "web")
		s := must(r, now, err).Status
		if s.Replicas != 2 || s.AvailableReplicas != 2 || s.UpdatedReplicas != 2 || s.CurrentRevision != s.UpdateRevision ||
			s.ObservedGeneration != now.Generation {
			t.Errorf("it ends with %+v", s)
		}
		if told := r.events("SuccessfulCreate", "SuccessfulDelete"); len(told) < 6 ||
			told[0] != "statefulset-controller Normal SuccessfulCreate web: Created pod: web-0" {
			t.Errorf("events: %q", told)
		}
		r.quiet()
		edit(r, apps.StatefulSets, func(s *appsv1.StatefulSet) { n := int32(0); s.Spec.RevisionHistoryLimit = &n })
		r.want("templates that are kept", r.revisions(), "one 3")

		// Without a word about its pods they stay, and the next one of that selector has them, and their templates.
		was := podNames(r.pods())
		if _, err := r.Delete(r.ctx, apps.StatefulSets, "default", "web",
			api.DeleteOptions{Propagation: metav1.DeletePropagationOrphan}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		next := r.statefulSet(2)
		r.serve(2)
		if next.UID == set.UID || podNames(r.pods()) != was || !metav1.IsControlledBy(r.getPod("web-0"), next) {
			t.Errorf("pods %s, were %s", podNames(r.pods()), was)
		}
		r.want("templates handed on", r.revisions(), "one 3")
	})
}

// TestDaemonSet follows a DaemonSet through its life, while boards come and go.
func TestDaemonSet(t *testing.T) {
	deploying(t, func(r *rig) {
		r.node("m")
		stop := r.alive("m")
		r.daemonSet()
		r.serve(2)
		r.want("one on each", r.running(), "on one m", "on one n")
		r.retemplate(apps.DaemonSets, "two")
		r.serve(1)
		r.want("one board after the other", r.running(), "on one n", "on two m")
		r.serve(5)
		r.want("all of it", r.running(), "on two m", "on two n")
		r.want("templates", r.revisions(), "one 1", "two 2")
		r.quiet()

		stop() // its pods stay, whatever is the matter with it
		r.pass(10 * time.Minute)
		r.want("a board is lost", r.running(), "on two m", "on two n")
		if _, err := r.Delete(r.ctx, api.Nodes, "", "m", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * gcQuarantine)
		r.want("a board leaves", r.running(), "on two n")
		r.node("o")
		defer r.alive("o")()
		r.serve(2)
		r.want("a board joins", r.running(), "on two n", "on two o")
		d, err := api.Get[*appsv1.DaemonSet](r.ctx, r.Client, apps.DaemonSets, "default", "web")
		must(r, d, err)
		if s := d.Status; s.DesiredNumberScheduled != 2 || s.NumberAvailable != 2 || s.UpdatedNumberScheduled != 2 || s.NumberUnavailable != 0 ||
			s.ObservedGeneration != d.Generation {
			t.Errorf("it ends with %+v", s)
		}
		if _, err := r.Delete(r.ctx, apps.DaemonSets, "default", "web", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.(*local.Client).Collect(r.ctx); err != nil {
			t.Fatal(err)
		}
		if list, err := r.List(r.ctx, apps.ControllerRevisions, api.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("it has gone, and %d templates are kept (%v)", len(list.Items), err)
		}
	})
}

// A pod that ends young, or that its board refuses, is made again ever more rarely; elsewhere nobody waits for that.
func TestPlacedThatDieYoung(t *testing.T) { // N-12.9
	deploying(t, func(r *rig) {
		r.daemonSet()
		made := 0
		die := func(d time.Duration) {
			for until := time.Now().Add(d); time.Now().Before(until); r.pass(time.Second) {
				list, err := r.List(r.ctx, api.Pods, api.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range list.Items {
					switch p := o.(*corev1.Pod); {
					case p.Spec.NodeName != "n":
					case p.DeletionTimestamp != nil:
						r.confirm(p.Name)
					case p.Status.Phase == corev1.PodPending:
						made++
						r.report(p.Name, corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "OutOfcpu" })
					}
				}
			}
		}
		die(time.Minute)
		if made < 4 || made > 9 {
			t.Errorf("%d pods in a minute", made)
		}
		die(9 * time.Minute)
		was := made
		die(20 * time.Minute)
		if n := made - was; n < 3 || n > 5 {
			t.Errorf("%d pods in twenty minutes", n)
		}
		r.want("what can be read meanwhile", r.running(), "on one n failed")
		r.node("m")
		defer r.alive("m")()
		r.pass(time.Second)
		r.want("elsewhere", r.running(), "on one m", "on one n failed")
	})
}

// A pod that a power-off ended gives way to its successor, of the same name.
func TestStatefulSetAfterPowerOff(t *testing.T) {
	deploying(t, func(r *rig) {
		r.statefulSet(1)
		r.serve(1)
		was := r.getPod("web-0")
		r.report("web-0", corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "Terminated" })
		r.serve(2)
		if p := r.getPod("web-0"); p.UID == was.UID || p.Status.Phase != corev1.PodRunning {
			t.Errorf("%+v", p.Status)
		}
	})
}

// The name of a new template is another one's: it gets another name.
func TestPlacedCollides(t *testing.T) {
	deploying(t, func(r *rig) {
		r.statefulSet(0, func(s *appsv1.StatefulSet) { s.Name = "first" })
		list, err := r.List(r.ctx, apps.ControllerRevisions, api.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(err, len(list.Items))
		}
		other := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: strings.Replace(list.Items[0].GetName(), "first", "web", 1)}, Revision: 7}
		other.Data.Raw = []byte("{}")
		_, err = api.Create(r.ctx, r.Client, apps.ControllerRevisions, other)
		must(r, other, err)
		r.statefulSet(1)
		r.serve(3)
		s, err := api.Get[*appsv1.StatefulSet](r.ctx, r.Client, apps.StatefulSets, "default", "web")
		if must(r, s, err); s.Status.CollisionCount == nil || *s.Status.CollisionCount != 1 || s.Status.AvailableReplicas != 1 {
			t.Errorf("%+v", s.Status)
		}
		r.quiet()
	})
}

// What cannot be made is told, and tried again ever more rarely.
func TestPlacedRefused(t *testing.T) {
	deploying(t, func(r *rig) {
		tries := map[string]int{}
		count := func(verb string, kind *api.Kind) error {
			if verb != "create" || kind != api.Pods {
				return nil
			}
			tries[kind.Resource]++
			return apierrors.NewServiceUnavailable("injected")
		}
		r.broken.Store(&count)
		r.statefulSet(2)
		r.pass(time.Hour)
		if n := tries["pods"]; n < 15 || n > 25 {
			t.Errorf("%d tries in an hour", n)
		}
		if told := r.events("FailedCreate"); len(told) != 1 ||
			told[0] != "statefulset-controller Warning FailedCreate web: Error creating: injected" {
			t.Errorf("events: %q", told)
		}
		r.fail("")
		r.resize(1)
		r.serve(2)
		r.want("at last", r.running(), "web-0 one n")
	})
}

// TestPlacedAtRandom: whichever writes fail, wherever, in the end there is what was wanted.
func TestPlacedAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 9))
	deploying(t, func(r *rig) {
		r.node("m")
		defer r.alive("m")()
		var left atomic.Int64 // writes until they fail
		left.Store(1 << 40)
		fail := func(string, *api.Kind) error {
			if left.Add(-1) < 0 {
				return apierrors.NewServiceUnavailable("injected")
			}
			return nil
		}
		r.broken.Store(&fail)
		want, image := int32(3), "v0"
		r.statefulSet(want, func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "ledge.local/v0" })
		daemons := map[string]string{"app": "daemon"}
		r.daemonSet(func(d *appsv1.DaemonSet) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: daemons}
			d.Spec.Template.Labels = daemons
			d.Spec.Template.Spec.Containers[0].Image = "ledge.local/v0"
		})
		for range 30 {
			left.Store(random.Int64N(12))
			if random.IntN(2) == 0 {
				want = random.Int32N(5)
				r.resize(want)
			}
			if random.IntN(2) == 0 {
				image = fmt.Sprint("v", random.IntN(3))
				r.retemplate(apps.StatefulSets, image)
				r.retemplate(apps.DaemonSets, image)
			}
			if pods := r.pods(); len(pods) > 0 && random.IntN(2) == 0 {
				if _, err := r.Delete(r.ctx, api.Pods, "default", pods[random.IntN(len(pods))].Name, force()); err != nil {
					t.Fatal(err)
				}
			}
			r.serve(random.IntN(3))
			left.Store(1 << 40)
			if random.IntN(4) == 0 {
				r.pass(latestAttempt)
				for range 3 {
					r.serve(12)
					r.pass(longestPause)
				}
				wants := []string{"on " + image + " m", "on " + image + " n"}
				for i := range want {
					wants = append(wants, fmt.Sprintf("web-%d %s", i, image))
				}
				got := r.running()
				for i := range got {
					if strings.HasPrefix(got[i], "web-") {
						got[i], _, _ = strings.Cut(got[i], " m")
						got[i], _, _ = strings.Cut(got[i], " n")
					}
				}
				if !slices.Equal(got, wants) {
					t.Fatalf("%q, want %q", r.running(), wants)
				}
			}
		}
	})
}
