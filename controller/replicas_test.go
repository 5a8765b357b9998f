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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/local"
)

var webLabels = map[string]string{"app": "web"}

// webs is a controller of pods labelled app=web.
func webs(want int32) *corev1.ReplicationController {
	return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &want, Selector: webLabels, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: webLabels, Annotations: map[string]string{"note": "x"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}}}}}
}

// A pod for the pure functions: what it is like, in words.
func likePod(name string, now time.Time, words string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: webLabels,
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "ReplicationController", Name: "web", UID: "rc", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: "n-" + name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "orphan":
			p.OwnerReferences = nil
		case "other":
			p.OwnerReferences[0].UID = "another"
		case "unlabelled":
			p.Labels = map[string]string{"app": "none"}
		case "going":
			p.DeletionTimestamp = &metav1.Time{Time: now}
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "reason":
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, value
		case "unbound":
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		case "on":
			p.Spec.NodeName = value
		case "cost":
			p.Annotations = map[string]string{corev1.PodDeletionCost: value}
		case "ready":
			d, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-d))}}
		case "age":
			d, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			p.CreationTimestamp = metav1.NewTime(now.Add(-d))
		case "restarts":
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: int32(value[0] - '0')}}
		default:
			panic(w)
		}
	}
	return p
}

func podNames(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestReplicate(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		name  string
		want  int32
		going bool
		min   int32
		pods  map[string]string
		says  string // missing, surplus, adopted, released; replicas labelled ready available; replaced
		again time.Duration
	}{
		{name: "none yet", want: 3, says: "3 [] [] []; 0 0 0 0"},
		{name: "enough", want: 1, pods: map[string]string{"a": "ready=1s"}, says: "0 [] [] []; 1 1 1 1"},
		{name: "too many", want: 1, pods: map[string]string{"a": "ready=9m", "b": "", "c": "ready=1m"}, says: "0 [b c] [] []; 3 3 2 2"},
		{name: "none wanted", want: 0, pods: map[string]string{"a": ""}, says: "0 [a] [] []; 1 1 0 0"},
		{name: "one goes", want: 2, pods: map[string]string{"a": "", "b": "going"}, says: "1 [] [] []; 1 1 0 0"},
		{name: "one has ended", want: 2, pods: map[string]string{"a": "phase=Failed", "b": "phase=Succeeded"}, says: "2 [] [] []; 0 0 0 0"},
		{name: "somebody else's", want: 1, pods: map[string]string{"a": "other"}, says: "1 [] [] []; 0 0 0 0"},
		{name: "nobody's", want: 2, pods: map[string]string{"a": "orphan"}, says: "0 [] [a] []; 0 0 0 0"},
		{name: "nobody's, and too many", want: 1, pods: map[string]string{"a": "orphan unbound", "b": "", "c": ""}, says: "0 [] [a] []; 2 2 0 0"},
		{name: "nobody's, ended or going", want: 1, pods: map[string]string{"a": "orphan phase=Failed", "b": "orphan going"},
			says: "1 [] [] []; 0 0 0 0"},
		{name: "other labels", want: 1, pods: map[string]string{"a": "unlabelled", "b": "orphan unlabelled"}, says: "0 [] [] [a]; 0 0 0 0"},
		{name: "going itself", going: true, want: 3, pods: map[string]string{"a": "", "b": "orphan", "c": "unlabelled"},
			says: "0 [] [] []; 2 1 0 0"},
		{name: "ready for too short", want: 2, min: 60, pods: map[string]string{"a": "ready=20s", "b": "ready=60s"}, says: "0 [] [] []; 2 2 2 1",
			again: 40 * time.Second},
		{name: "ready by a clock that was wrong", want: 1, min: 60, pods: map[string]string{"a": "ready=-24h"}, says: "0 [] [] []; 1 1 1 1"},
		{name: "ended by a power-off, and nobody in its place", want: 2, pods: map[string]string{"a": "", "b": "reason=Terminated"},
			says: "1 [] [] []; 1 1 0 0"},
		{name: "ended by a power-off, and replaced", want: 1,
			pods: map[string]string{"a": "", "b": "reason=Terminated", "c": "reason=Evicted", "d": "reason=NodeShutdown other",
				"e": "reason=NodeShutdown"},
			says: "0 [] [] []; 1 1 0 0; b e"},
		{name: "ended by a power-off, and more than enough", want: 1, pods: map[string]string{"a": "ready=1h", "b": "", "c": "reason=Shutdown"},
			says: "0 [b] [] []; 2 2 1 1; c"},
		{name: "ended by a power-off, of one that goes", want: 0, going: true, pods: map[string]string{"a": "reason=Terminated"},
			says: "0 [] [] []; 0 0 0 0"},
		{name: "very many", want: 2e9, pods: map[string]string{"a": "", "b": "unbound"}, says: "99 [] [] []; 2 2 0 0"},
	} {
		rc := webs(tt.want)
		rc.UID, rc.Generation, rc.Spec.MinReadySeconds = "rc", 7, tt.min
		if tt.going {
			rc.DeletionTimestamp = &metav1.Time{Time: now}
		}
		var pods []*corev1.Pod
		for name, words := range tt.pods {
			pods = append(pods, likePod(name, now, words))
		}
		got := replicate(controllers(NewWorld(nil, nil), nil).read(rc), pods, nil, now)
		s := got.status
		says := fmt.Sprintf("%d [%s] [%s] [%s]; %d %d %d %d", got.missing, podNames(got.surplus), podNames(got.adopt), podNames(got.release),
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas)
		if len(got.replaced) > 0 {
			slices.SortFunc(got.replaced, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			says += "; " + podNames(got.replaced)
		}
		if tt.again == 0 {
			tt.again = idle
		}
		if says != tt.says || got.again != tt.again || s.ObservedGeneration != 7 {
			t.Errorf("%s: %s, again in %v, want %s, in %v", tt.name, says, got.again, tt.says, tt.again)
		}
	}
}

// A pod of a controller that a power-off ended goes once another one is there, and what ended otherwise stays to be looked at.
func TestReplicasPoweredOff(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		r.controller(2)
		was := r.pods()
		r.report(was[0].Name, corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "Terminated" })
		r.report(was[1].Name, corev1.PodFailed)
		if n := len(r.pods()); n != 2 || !r.gone(api.Pods, "default", was[0].Name) || r.gone(api.Pods, "default", was[1].Name) {
			t.Errorf("%d pods; the one that a power-off ended is gone: %t; the one that failed is gone: %t", n,
				r.gone(api.Pods, "default", was[0].Name), r.gone(api.Pods, "default", was[1].Name))
		}
	})
}

// What is lost again and again is made again ever more rarely, and never less than each five minutes.
func TestPause(t *testing.T) { // N-12.9
	now := time.Unix(1e9, 0)
	k := &kept{pods: map[types.UID]time.Time{}}
	lose := func(want, n int) (waits []string) {
		for range n {
			for i := range want {
				k.pods[types.UID(fmt.Sprint(i))] = now
			}
			now = now.Add(time.Second)
			k.look(nil, now)
			wait := max(0, k.pause(want, now))
			waits = append(waits, wait.String())
			now = now.Add(wait)
		}
		return waits
	}
	if got := strings.Join(lose(1, 12), " "); got != "0s 0s 0s 0s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s 5m0s" {
		t.Errorf("one pod: waits of %s", got)
	}
	now = now.Add(young)
	if got := strings.Join(lose(10, 5), " "); got != "0s 10s 20s 40s 1m20s" {
		t.Errorf("ten pods, some minutes later: waits of %s", got)
	}
	now = now.Add(young)
	k.pods["old"] = now.Add(-young)
	if k.look(nil, now); k.losses != 0 {
		t.Errorf("an old pod is lost, and counts for %d", k.losses)
	}
	k.pods["stays"], k.pods["left"], k.pods["lost"] = now, now, now
	pod := func(uid types.UID) []*corev1.Pod {
		return []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
	}
	if k.look(slices.Concat(pod("stays"), pod("left")), now); k.losses != 1 || len(k.pods) != 2 {
		t.Errorf("%d are lost, %v stay", k.losses, k.pods)
	}
}

func (r *rig) controller(want int32, edit ...func(*corev1.ReplicationController)) *corev1.ReplicationController {
	r.Helper()
	rc := webs(want)
	for _, f := range edit {
		f(rc)
	}
	rc, err := api.Create(r.ctx, r.Client, api.ReplicationControllers, rc)
	must(r, rc, err)
	synctest.Wait()
	return rc
}

func (r *rig) getController() *corev1.ReplicationController {
	r.Helper()
	rc, err := api.Get[*corev1.ReplicationController](r.ctx, r.Client, api.ReplicationControllers, "default", "web")
	return must(r, rc, err)
}

func (r *rig) scale(want int32) {
	r.Helper()
	rc := r.getController()
	rc.Spec.Replicas = &want
	_, err := api.Update(r.ctx, r.Client, api.ReplicationControllers, rc)
	must(r, rc, err)
	synctest.Wait()
}

// pods of the namespace that have not ended and are not going, by name.
func (r *rig) pods() (out []*corev1.Pod) {
	r.Helper()
	list, err := r.List(r.ctx, api.Pods, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range list.Items {
		if p := o.(*corev1.Pod); p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			out = append(out, p)
		}
	}
	return out
}

func (r *rig) counted(want string) {
	r.Helper()
	rc := r.getController()
	s := rc.Status
	got := fmt.Sprintf("%d of %d, %d ready, seen %t", s.Replicas, *rc.Spec.Replicas, s.ReadyReplicas, s.ObservedGeneration == rc.Generation)
	if got != want {
		r.Errorf("%s, want %s", got, want)
	}
}

func (r *rig) relabel(name, app string) {
	r.Helper()
	p := r.getPod(name)
	p.Labels = map[string]string{"app": app}
	_, err := api.Update(r.ctx, r.Client, api.Pods, p)
	must(r, p, err)
	synctest.Wait()
}

// TestReplicas follows a controller through its life.
func TestReplicas(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		rc := r.controller(3)
		pods := r.pods()
		if len(pods) != 3 {
			t.Fatalf("%d pods", len(pods))
		}
		for _, p := range pods {
			of := metav1.GetControllerOf(p)
			if !strings.HasPrefix(p.Name, "web-") || of == nil || of.UID != rc.UID || !*of.BlockOwnerDeletion || p.Annotations["note"] != "x" ||
				p.Spec.NodeName != "n" {
				t.Errorf("made %+v", p)
			}
		}
		r.counted("3 of 3, 0 ready, seen true")
		r.report(pods[0].Name, corev1.PodRunning, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		})
		r.counted("3 of 3, 1 ready, seen true")

		r.scale(1)
		if left := r.pods(); len(left) != 1 || left[0].Name != pods[0].Name {
			t.Errorf("left: %s, the one that is ready was %s", podNames(left), pods[0].Name)
		}
		r.scale(2)
		r.counted("2 of 2, 1 ready, seen true")
		r.relabel(pods[0].Name, "mine") // somebody wants to look at it in peace
		if p := r.getPod(pods[0].Name); len(p.OwnerReferences) != 0 || len(r.pods()) != 3 {
			t.Errorf("let go: %+v; pods: %s", p.OwnerReferences, podNames(r.pods()))
		}
		r.relabel(pods[0].Name, "web")
		if left := r.pods(); len(left) != 2 || !slices.ContainsFunc(left, func(p *corev1.Pod) bool { return p.Name == pods[0].Name }) {
			t.Errorf("taken back, there are %s", podNames(left))
		}
		made, deleted := r.events("SuccessfulCreate"), r.events("SuccessfulDelete")
		if len(made) != 5 || len(deleted) != 3 ||
			!strings.HasPrefix(made[0], "replication-controller Normal SuccessfulCreate web: Created pod: web-") {
			t.Errorf("events: %q, %q", made, deleted)
		}
		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing happened", n)
		}

		if _, err := r.Delete(r.ctx, api.ReplicationControllers, "default", "web",
			api.DeleteOptions{Propagation: metav1.DeletePropagationBackground}); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.(*local.Client).Collect(r.ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := r.pods(); len(left) != 0 {
			t.Errorf("left: %s", podNames(left))
		}
	})
}

// Without a word about its pods they stay, and the next controller of that selector has them.
func TestReplicasHandedOn(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.controller(2)
		was := podNames(r.pods())
		if _, err := r.Delete(r.ctx, api.ReplicationControllers, "default", "web", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, p := range r.pods() {
			if len(p.OwnerReferences) > 0 {
				t.Errorf("%s belongs to %v", p.Name, p.OwnerReferences)
			}
		}
		next := r.controller(2)
		pods := r.pods()
		if podNames(pods) != was || metav1.GetControllerOf(pods[0]).UID != next.UID {
			t.Errorf("now %s, was %s", podNames(pods), was)
		}
	})
}

// In the foreground it goes after its pods, and makes no others meanwhile.
func TestReplicasInTheForeground(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		r.controller(1)
		pod := r.pods()[0].Name
		if _, err := r.Delete(r.ctx, api.ReplicationControllers, "default", "web",
			api.DeleteOptions{Propagation: metav1.DeletePropagationForeground}); err != nil {
			t.Fatal(err)
		}
		collect := func() {
			t.Helper()
			if err := r.Client.(*local.Client).Collect(r.ctx); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		collect()
		if len(r.pods()) > 0 || r.gone(api.ReplicationControllers, "default", "web") {
			t.Errorf("pods %s, and the controller is gone: %v", podNames(r.pods()), r.gone(api.ReplicationControllers, "default", "web"))
		}
		r.confirm(pod)
		collect()
		if len(r.pods()) > 0 || !r.gone(api.ReplicationControllers, "default", "web") {
			t.Errorf("at last there are %s", podNames(r.pods()))
		}
	})
}

// What cannot be made is told, and tried again ever more rarely, but at once when somebody changes what is wanted.
func TestReplicasRefused(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.fail("create pods")
		r.controller(2)
		failure := func() string {
			t.Helper()
			c := r.getController().Status.Conditions
			if len(c) != 1 {
				return fmt.Sprint(c)
			}
			return fmt.Sprintf("%s %s %s: %s", c[0].Type, c[0].Status, c[0].Reason, c[0].Message)
		}
		if got := failure(); got != "ReplicaFailure True FailedCreate: injected" {
			t.Error(got)
		}
		r.want("events", r.events("FailedCreate"), "replication-controller Warning FailedCreate web: Error creating: injected")
		tries := 0
		count := func(verb string, kind *api.Kind) error {
			if verb+kind.Resource != "createpods" {
				return nil
			}
			tries++
			return apierrors.NewServiceUnavailable(fmt.Sprint("injected ", tries))
		}
		r.broken.Store(&count)
		was := r.getController().ResourceVersion
		r.pass(time.Hour)
		if rc := r.getController(); rc.ResourceVersion != was { // for a message that names another pod each time
			t.Errorf("written once more: %+v", rc.Status)
		}
		if tries < 15 || tries > 25 {
			t.Errorf("%d tries in an hour", tries)
		}
		r.fail("")
		r.scale(1)
		if len(r.pods()) != 1 || failure() != "[]" {
			t.Errorf("pods %s, conditions %s", podNames(r.pods()), failure())
		}
	})
}

// Pods that their board refuses, or that somebody deletes as soon as they are there, do not fill the store, however few of them
// are kept, and whatever number is wanted; once what is wanted is another thing, nobody waits for it.
func TestReplicasThatFail(t *testing.T) {
	lost := map[string]func(r *rig, name string){
		"refused": func(r *rig, name string) { r.report(name, corev1.PodFailed) },
		"deleted": func(r *rig, name string) {
			if _, err := r.Delete(r.ctx, api.Pods, "default", name, force()); err != nil {
				r.Fatal(err)
			}
		},
	}
	for how, lose := range lost {
		for _, want := range []int32{1, 6} {
			t.Run(fmt.Sprint(how, want), func(t *testing.T) {
				plane(t, Config{TerminatedPods: 1}, func(r *rig) {
					r.node("n")
					defer r.alive("n")()
					made := 0
					count := func(verb string, kind *api.Kind) error {
						if verb == "create" && kind == api.Pods {
							made++
						}
						return nil
					}
					r.broken.Store(&count)
					r.controller(want)
					for start := time.Now(); time.Since(start) < 2*time.Hour; r.pass(5 * time.Second) {
						for _, p := range r.pods() {
							lose(r, p.Name)
						}
					}
					// Each five minutes, and a few rounds more at first.
					if most := int(want)*(24+6) + 2*freeLosses; made > most || made < 20*int(want) {
						t.Errorf("two hours have made %d pods, at most %d are well", made, most)
					}
					r.scale(want + 1)
					if n := len(r.pods()); n != int(want)+1 {
						t.Errorf("changed, and there are %d pods", n)
					}
				})
			})
		}
	}
}

// Two controllers want the same pod of nobody: one has it, and the other lets it alone.
func TestReplicasOfOneSelector(t *testing.T) {
	for range 10 {
		plane(t, Config{}, func(r *rig) {
			r.pod("alone", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "none"} })
			r.controller(1, func(rc *corev1.ReplicationController) { rc.Name = "one" })
			r.controller(0)
			r.relabel("alone", "web")
			owned := map[string]int{}
			for _, p := range r.pods() {
				if of := metav1.GetControllerOf(p); of != nil {
					owned[of.Name]++
				}
			}
			if owned["one"] != 1 || owned["web"] != 0 || len(r.pods()) != 1 {
				t.Errorf("owned %v, pods %s", owned, podNames(r.pods()))
			}
		})
	}
}

// TestReplicasAtRandom: whatever happens to the pods, there are soon as many as are wanted, and never one was made to be
// deleted again.
func TestReplicasAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 6))
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		want, fewer := int32(4), 0
		var deleted atomic.Int64
		var broken atomic.Value // the write that fails
		broken.Store("")
		fail := func(verb string, kind *api.Kind) error {
			if what := verb + " " + kind.Resource; what == broken.Load() {
				return apierrors.NewServiceUnavailable("injected")
			} else if what == "delete pods" {
				deleted.Add(1)
			}
			return nil
		}
		r.broken.Store(&fail)
		r.controller(want)
		for range 150 {
			pods := r.pods()
			one := func() string { return pods[random.IntN(len(pods))].Name }
			switch kind := random.IntN(7); {
			case kind == 0:
				next := random.Int32N(8)
				fewer += int(max(0, want-next))
				want = next
				r.scale(want)
			case kind == 1 && len(pods) > 0:
				if _, err := r.Delete(r.ctx, api.Pods, "default", one(), force()); err != nil {
					t.Fatal(err)
				}
				r.pass(2 * young)
			case kind == 2 && len(pods) > 0:
				r.report(one(), corev1.PodFailed)
				r.pass(2 * young) // without a pause for it
			case kind == 3 && len(pods) > 0:
				name := one()
				r.relabel(name, "lost")
				if _, err := r.Delete(r.ctx, api.Pods, "default", name, force()); err != nil {
					t.Fatal(err)
				}
			case kind == 4:
				broken.Store("create pods")
			case kind == 5:
				broken.Store("delete pods")
			default:
				broken.Store("")
				r.pass(latestAttempt)
			}
			synctest.Wait()
			if broken.Load() == "" {
				r.pass(latestAttempt)
				if n := len(r.pods()); n != int(want) {
					t.Fatalf("%d pods, want %d", n, want)
				}
			}
		}
		broken.Store("")
		r.pass(latestAttempt)
		if n := int(deleted.Load()); n > fewer {
			t.Errorf("%d pods were deleted, %d were too many", n, fewer)
		}
	})
}
