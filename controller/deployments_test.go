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
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
)

// deploying runs the loops, and a board.
func deploying(t *testing.T, fn func(r *rig)) {
	t.Helper()
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		fn(r)
	})
}

func (r *rig) deployment(want int32, edit ...func(*appsv1.Deployment)) *appsv1.Deployment {
	r.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &want,
		Selector: &metav1.LabelSelector{MatchLabels: webLabels}, Template: *webs(1).Spec.Template}}
	for _, f := range edit {
		f(d)
	}
	d, err := api.Create(r.ctx, r.Client, apps.Deployments, d)
	must(r, d, err)
	synctest.Wait()
	return d
}

func (r *rig) getDeployment() *appsv1.Deployment {
	r.Helper()
	d, err := api.Get[*appsv1.Deployment](r.ctx, r.Client, apps.Deployments, "default", "web")
	return must(r, d, err)
}

// redeploy changes the Deployment, as users do.
func (r *rig) redeploy(edit func(*appsv1.Deployment)) {
	r.Helper()
	_, _, err := amend(r.ctx, r.Client, apps.Deployments, r.getDeployment(), "", func(d *appsv1.Deployment) bool { edit(d); return true })
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func imaged(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "ledge.local/" + name }
}

// replicaSets are "image: size, revision", by name of the image.
func (r *rig) replicaSets() []string {
	r.Helper()
	list, err := r.List(r.ctx, apps.ReplicaSets, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		rs := o.(*appsv1.ReplicaSet)
		out = append(out, fmt.Sprintf("%s: %d, %s", strings.TrimPrefix(rs.Spec.Template.Spec.Containers[0].Image, "ledge.local/"),
			*rs.Spec.Replicas, rs.Annotations[workload.Revision]))
	}
	slices.Sort(out)
	return out
}

// serve is the board for a while: what is there becomes ready, and what is to go goes.
func (r *rig) serve(rounds int) {
	r.Helper()
	for range rounds {
		list, err := r.List(r.ctx, api.Pods, api.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		for _, o := range list.Items {
			switch p := o.(*corev1.Pod); {
			case p.DeletionTimestamp != nil:
				r.confirm(p.Name)
			case p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "":
				r.report(p.Name, corev1.PodRunning, func(p *corev1.Pod) {
					p.Status.Conditions = append(p.Status.Conditions,
						corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				})
			}
		}
		r.pass(time.Second)
	}
}

func (r *rig) rolledOut(want string) {
	r.Helper()
	d := r.getDeployment()
	s := d.Status
	reason := ""
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			reason = c.Reason
		}
	}
	got := fmt.Sprintf("%d of %d updated, %d available, %d in all, seen %t, revision %s, %s", s.UpdatedReplicas, *d.Spec.Replicas,
		s.AvailableReplicas, s.Replicas,
		s.ObservedGeneration == d.Generation, d.Annotations[workload.Revision], reason)
	if got != want {
		r.Errorf("%s\nwant %s", got, want)
	}
}

// TestDeployment follows a Deployment through its life.
func TestDeployment(t *testing.T) {
	deploying(t, func(r *rig) {
		d := r.deployment(3, imaged("one"))
		r.want("sets", r.replicaSets(), "one: 3, 1")
		r.serve(2)
		r.rolledOut("3 of 3 updated, 3 available, 3 in all, seen true, revision 1, NewReplicaSetAvailable")
		for _, p := range r.pods() {
			if of := metav1.GetControllerOf(p); of == nil || of.Kind != "ReplicaSet" || p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" {
				t.Errorf("made %+v", p.ObjectMeta)
			}
		}
		r.redeploy(imaged("two"))
		r.want("sets", r.replicaSets(), "one: 3, 1", "two: 1, 2")
		r.serve(8)
		r.want("sets", r.replicaSets(), "one: 0, 1", "two: 3, 2")
		r.rolledOut("3 of 3 updated, 3 available, 3 in all, seen true, revision 2, NewReplicaSetAvailable")
		r.redeploy(func(d *appsv1.Deployment) { n := int32(4); d.Spec.Replicas = &n })
		r.redeploy(imaged("one")) // as kubectl rollout undo does
		r.serve(8)
		r.want("sets", r.replicaSets(), "one: 4, 3", "two: 0, 2")
		r.rolledOut("4 of 4 updated, 4 available, 4 in all, seen true, revision 3, NewReplicaSetAvailable")

		told := r.events("ScalingReplicaSet")
		if len(told) < 8 || !strings.HasPrefix(told[1], "deployment-controller Normal ScalingReplicaSet web: Scaled down replica set web-") ||
			!strings.HasSuffix(told[1], " from 1 to 0") ||
			!strings.HasPrefix(r.events("SuccessfulCreate")[0], "replicaset-controller Normal SuccessfulCreate web-") {
			t.Errorf("events: %q", told)
		}
		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing happened", n)
		}
		r.redeploy(func(d *appsv1.Deployment) { n := int32(0); d.Spec.RevisionHistoryLimit = &n })
		r.want("sets", r.replicaSets(), "one: 4, 3")

		// Without a word about its sets they stay, and the next one of that selector has them.
		if _, err := r.Delete(r.ctx, apps.Deployments, "default", "web",
			api.DeleteOptions{Propagation: metav1.DeletePropagationOrphan}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		was := podNames(r.pods())
		next := r.deployment(4, imaged("one"))
		if next.UID == d.UID || podNames(r.pods()) != was {
			t.Errorf("pods %s, were %s", podNames(r.pods()), was)
		}
		r.want("sets handed on", r.replicaSets(), "one: 4, 3")
	})
}

// A pod of the new template is not made while one of the old may still run.
func TestDeploymentRecreates(t *testing.T) {
	deploying(t, func(r *rig) {
		r.deployment(2, imaged("one"), func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
		r.serve(2)
		old := r.pods()
		r.redeploy(imaged("two"))
		r.pass(time.Minute)
		r.want("sets", r.replicaSets(), "one: 0, 1")
		if n := r.getDeployment().Status.TerminatingReplicas; n == nil || *n != 2 {
			t.Errorf("going: %v, want 2", n)
		}
		r.confirm(old[0].Name)
		r.pass(time.Minute)
		r.want("sets", r.replicaSets(), "one: 0, 1")
		r.confirm(old[1].Name)
		r.want("sets", r.replicaSets(), "one: 0, 1", "two: 2, 2")
		r.serve(2)
		r.rolledOut("2 of 2 updated, 2 available, 2 in all, seen true, revision 2, NewReplicaSetAvailable")
	})
}

// What does not come up is said after the deadline, once.
func TestDeploymentThatHangs(t *testing.T) {
	deploying(t, func(r *rig) {
		r.deployment(1, func(d *appsv1.Deployment) { n := int32(60); d.Spec.ProgressDeadlineSeconds = &n })
		r.pass(59 * time.Second)
		r.rolledOut("1 of 1 updated, 0 available, 1 in all, seen true, revision 1, ReplicaSetUpdated")
		r.pass(3 * time.Second)
		r.rolledOut("1 of 1 updated, 0 available, 1 in all, seen true, revision 1, ProgressDeadlineExceeded")
		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour", n)
		}
		r.serve(2)
		r.rolledOut("1 of 1 updated, 1 available, 1 in all, seen true, revision 1, NewReplicaSetAvailable")
	})
}

// A set that cannot be made is told, and tried again ever more rarely.
func TestDeploymentRefused(t *testing.T) {
	deploying(t, func(r *rig) {
		r.fail("create replicasets")
		r.deployment(1)
		r.rolledOut("0 of 1 updated, 0 available, 0 in all, seen true, revision , ReplicaSetCreateError")
		if told := r.events("ReplicaSetCreateError"); len(told) != 1 || !strings.HasSuffix(told[0], ": injected") {
			t.Errorf("events: %q", told)
		}
		tries := 0
		count := func(verb string, kind *api.Kind) error {
			if verb != "create" || kind != apps.ReplicaSets {
				return nil
			}
			tries++
			return apierrors.NewServiceUnavailable("injected")
		}
		r.broken.Store(&count)
		was := r.getDeployment().ResourceVersion
		r.pass(time.Hour)
		if now := r.getDeployment().ResourceVersion; now != was || tries < 15 || tries > 25 {
			t.Errorf("%d tries in an hour; written once more: %t", tries, now != was)
		}
		r.fail("")
		r.redeploy(imaged("two"))
		r.serve(2)
		r.rolledOut("1 of 1 updated, 1 available, 1 in all, seen true, revision 1, NewReplicaSetAvailable")
	})
}

// The name of the new set is another one's: the set gets another name.
func TestDeploymentCollides(t *testing.T) {
	deploying(t, func(r *rig) {
		template := webs(1).Spec.Template
		r.deployment(1, func(d *appsv1.Deployment) { d.Name = "first" })
		list, err := r.List(r.ctx, apps.ReplicaSets, api.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(err, len(list.Items))
		}
		taken := "web-" + list.Items[0].GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey]
		other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: taken},
			Spec: appsv1.ReplicaSetSpec{Template: *template.DeepCopy()}}
		other.Spec.Template.Labels = map[string]string{"app": "other"}
		other.Spec.Selector = &metav1.LabelSelector{MatchLabels: other.Spec.Template.Labels}
		_, err = api.Create(r.ctx, r.Client, apps.ReplicaSets, other)
		must(r, other, err)
		r.deployment(1)
		r.serve(3)
		if n := r.getDeployment().Status.CollisionCount; n == nil || *n != 1 {
			t.Errorf("collisions: %v", n)
		}
		r.rolledOut("1 of 1 updated, 1 available, 1 in all, seen true, revision 1, NewReplicaSetAvailable")
	})
}

// Pods of one Deployment on one board go first, also where they are of several sets.
func TestKin(t *testing.T) {
	now := time.Unix(1e9, 0)
	yes := true
	set := func(uid, of string) api.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid),
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(of), Controller: &yes}}}}
	}
	related := kin{}
	related.add(set("rc", "web"))
	related.add(set("another", "web"))
	want := replicas{uid: "rc", selector: controllers(NewWorld(nil, nil), nil).read(webs(1)).selector, want: 1}
	pods := []*corev1.Pod{likePod("a", now, "on=lonely ready=1h"), likePod("b", now, "on=full ready=2h"), likePod("c", now, "other on=full")}
	if got := podNames(replicate(want, pods, related, now).surplus); got != "b" {
		t.Errorf("of kin on one board %s goes", got)
	}
	if got := podNames(replicate(want, pods, nil, now).surplus); got != "a" {
		t.Errorf("of strangers on one board %s goes", got)
	}
}

// TestDeploymentsAtRandom: whichever writes fail, wherever, in the end there is what was wanted.
func TestDeploymentsAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 8))
	deploying(t, func(r *rig) {
		want, image := int32(3), "v0"
		var left atomic.Int64 // writes until they fail
		left.Store(1 << 40)
		fail := func(string, *api.Kind) error {
			if left.Add(-1) < 0 {
				return apierrors.NewServiceUnavailable("injected")
			}
			return nil
		}
		r.broken.Store(&fail)
		r.deployment(want, imaged(image))
		for range 40 {
			left.Store(random.Int64N(12))
			if random.IntN(2) == 0 {
				want = random.Int32N(6)
				r.redeploy(func(d *appsv1.Deployment) { d.Spec.Replicas = &want })
			}
			if random.IntN(2) == 0 {
				image = fmt.Sprint("v", random.IntN(3))
				r.redeploy(imaged(image))
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
				r.serve(20)
				if d := r.getDeployment(); d.Status.UpdatedReplicas != want || d.Status.AvailableReplicas != want || d.Status.Replicas != want ||
					len(r.pods()) != int(want) {
					t.Fatalf("%d pods and %+v, want %d", len(r.pods()), d.Status, want)
				}
			}
		}
	})
}
