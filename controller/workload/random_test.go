package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// town is a Deployment, its sets and their pods, and who keeps their number.
type town struct {
	*testing.T
	random *rand.Rand
	now    time.Time
	d      *appsv1.Deployment
	sets   []*appsv1.ReplicaSet
	pods   []*inhabitant
	clean  bool // no pod fails
	seed   uint64
	log    []string
}

type inhabitant struct {
	set              types.UID
	available, going bool
}

func (w *town) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf("seed %d: %s; before it:\n%q", w.seed, fmt.Sprintf(format, args...), w.log)
}

func (w *town) note(format string, args ...any) {
	if w.log = append(w.log, fmt.Sprintf(format, args...)); len(w.log) > 30 {
		w.log = w.log[1:]
	}
}

func (w *town) of(uid types.UID) (out []*inhabitant) {
	for _, p := range w.pods {
		if p.set == uid && !p.going {
			out = append(out, p)
		}
	}
	return out
}

// keep is the loop that keeps the number of a set's pods.
func (w *town) keep(rs *appsv1.ReplicaSet) {
	own := w.of(rs.UID)
	for range int(*rs.Spec.Replicas) - len(own) {
		w.pods = append(w.pods, &inhabitant{set: rs.UID})
	}
	slices.SortStableFunc(own, func(a, b *inhabitant) int {
		switch {
		case a.available == b.available:
			return 0
		case b.available:
			return -1
		}
		return 1
	})
	for _, p := range own[:max(len(own)-int(*rs.Spec.Replicas), 0)] {
		p.going = true
	}
	next := *rs
	var available, ending int32
	own = w.of(rs.UID)
	for _, p := range w.pods {
		if p.set == rs.UID && p.going {
			ending++
		}
		if p.set == rs.UID && !p.going && p.available {
			available++
		}
	}
	next.Status = appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation, Replicas: int32(len(own)), ReadyReplicas: available,
		AvailableReplicas:   available,
		TerminatingReplicas: &ending}
	w.put(&next)
}

func (w *town) put(rs *appsv1.ReplicaSet) {
	w.sets[slices.IndexFunc(w.sets, func(is *appsv1.ReplicaSet) bool { return is.UID == rs.UID })] = rs
}

// look is the loop of Deployments, which is killed after some of its writes, or none; whole: it is not. It says whether there was
// anything to write.
func (w *town) look(whole bool) bool {
	var pods []*corev1.Pod
	yes := true
	for _, p := range w.pods {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: p.set, Controller: &yes}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	}
	plan := Roll(w.d, w.sets, func() []*corev1.Pod { return pods }, w.now)
	w.judge(&plan)
	lives := len(plan.Steps)
	if !whole {
		lives = w.random.IntN(lives + 2)
	}
	for _, s := range plan.Steps[:min(lives, len(plan.Steps))] {
		w.note("%s %s %d", s.Do, s.Set.Name, *s.Set.Spec.Replicas)
		switch s.Do {
		case Create:
			if slices.ContainsFunc(w.sets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == s.Set.Name }) {
				w.fail("%s is there already", s.Set.Name)
			}
			rs := s.Set.DeepCopy()
			rs.UID, rs.CreationTimestamp, rs.Generation = types.UID(fmt.Sprint(rs.Name, w.now.UnixNano())), metav1.NewTime(w.now), 1
			w.sets = append(w.sets, rs)
		case Update, Adopt, Release:
			rs := s.Set.DeepCopy()
			rs.Generation++
			w.put(rs)
		case Delete:
			if len(w.of(s.Set.UID)) > 0 {
				w.fail("%s still has pods", s.Set.Name)
			}
			w.sets = slices.DeleteFunc(w.sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == s.Set.UID })
		}
	}
	changed := lives >= len(plan.Steps) && plan.Change(w.d)
	return changed || len(plan.Steps) > 0
}

// judge holds a plan to what maxSurge and maxUnavailable promise, after each of its writes.
func (w *town) judge(plan *Plan) {
	r := &roll{d: w.d, want: *w.d.Spec.Replicas, sets: w.sets}
	r.surge, r.absent = r.slack()
	if !r.rolling() {
		w.alone(plan)
	}
	if !r.rolling() || w.d.Spec.Paused || r.scaled() {
		return
	}
	size, available := map[string]int32{}, map[string]int32{}
	for _, rs := range w.sets {
		size[rs.Name], available[rs.Name] = *rs.Spec.Replicas, rs.Status.AvailableReplicas
		if w.clean { // the count may be from before: of pods that have gone since, or none yet of those that came
			n := int32(0)
			for _, p := range w.of(rs.UID) {
				if p.available {
					n++
				}
			}
			available[rs.Name] = min(n, available[rs.Name])
		}
	}
	total := func() (all, left int32) {
		for name, n := range size {
			all, left = all+n, left+min(n, available[name])
		}
		return all, left
	}
	all, left := total()
	for _, s := range plan.Steps {
		if s.Do == Create || s.Do == Update {
			size[s.Set.Name] = *s.Set.Spec.Replicas
		}
		now, stay := total()
		if now > max(all, r.most()) {
			w.fail("%d pods, of %d there may be %d more: %s", now, r.want, r.surge, told(*plan))
		}
		if stay < min(left, r.want-r.absent) {
			w.fail("%d of %d stay available, of %d there may be %d fewer: %s", stay, left, r.want, r.absent, told(*plan))
		}
	}
}

// alone holds a plan to what Recreate promises: no pod of a template is made while one of another is there.
func (w *town) alone(plan *Plan) {
	for _, s := range plan.Steps {
		grows := s.Do == Create || s.Do == Update && *s.Set.Spec.Replicas > int32(len(w.of(s.Set.UID)))
		if grows && !w.d.Spec.Paused && slices.ContainsFunc(w.pods, func(p *inhabitant) bool { return p.set != s.Set.UID }) {
			w.fail("pods of two templates at once: %s", told(*plan))
		}
	}
}

// something happens.
func (w *town) something() {
	one := func() *inhabitant { return w.pods[w.random.IntN(len(w.pods))] }
	w.now = w.now.Add(time.Duration(w.random.IntN(20)) * time.Second)
	switch kind := w.random.IntN(24); {
	case kind == 0:
		w.d.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.random.IntN(4))
		w.d.Generation++
		w.note("image %s", w.d.Spec.Template.Spec.Containers[0].Image)
	case kind == 1:
		n := w.random.Int32N(12)
		w.d.Spec.Replicas = &n
		w.d.Generation++
		w.note("size %d", n)
	case kind == 2 && w.random.IntN(3) == 0:
		w.d.Spec.Paused = !w.d.Spec.Paused
		w.d.Generation++
		w.note("paused %t", w.d.Spec.Paused)
	case kind < 8 && len(w.sets) > 0:
		w.keep(w.sets[w.random.IntN(len(w.sets))])
	case kind < 13 && len(w.pods) > 0:
		one().available = true
	case kind == 13 && len(w.pods) > 0 && !w.clean:
		one().available = false
	case kind < 17 && len(w.pods) > 0:
		w.pods = slices.DeleteFunc(w.pods, func(p *inhabitant) bool { return p.going && w.random.IntN(2) == 0 })
	default:
		w.look(false)
	}
}

// settle lets everything come to rest.
func (w *town) settle() {
	w.d.Spec.Paused = false
	for rounds, quiet := 0, 0; quiet < 3; rounds++ { // what the last round of writes brought is counted in the next
		w.now = w.now.Add(time.Second)
		if quiet++; w.look(true) {
			quiet = 0
		}
		for _, rs := range w.sets {
			w.keep(rs)
		}
		for _, p := range w.pods {
			p.available = true
		}
		w.pods = slices.DeleteFunc(w.pods, func(p *inhabitant) bool { return p.going })
		if rounds > 200 {
			w.fail("it does not come to rest: %+v", w.d.Status)
		}
	}
	if w.look(true) {
		w.fail("it writes at rest")
	}
	s, want := w.d.Status, *w.d.Spec.Replicas
	c := condition(&s, appsv1.DeploymentProgressing)
	if s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.UnavailableReplicas != 0 ||
		s.ObservedGeneration != w.d.Generation ||
		c == nil || c.Reason != finished {
		w.fail("it ends with %+v, want %d", s, want)
	}
	latest, current := int64(0), 0
	for _, rs := range w.sets {
		latest = max(latest, revision(rs))
		if SameTemplate(&rs.Spec.Template, &w.d.Spec.Template) {
			current++
			if fmt.Sprint(revision(rs)) != w.d.Annotations[Revision] || *rs.Spec.Replicas != want {
				w.fail("the set of today's template has revision %d and %d pods, the Deployment says %s and %d", revision(rs), *rs.Spec.Replicas,
					w.d.Annotations[Revision], want)
			}
		}
	}
	if fmt.Sprint(latest) != w.d.Annotations[Revision] || current != 1 || len(w.sets) > 1+int(*w.d.Spec.RevisionHistoryLimit) {
		w.fail("revision %s of %d, %d sets of today's template, %d in all", w.d.Annotations[Revision], latest, current, len(w.sets))
	}
}

// TestRollAtRandom: whatever users and pods do, and wherever the loop is killed, no write makes more pods than maxSurge allows or leaves
// fewer available than maxUnavailable allows, pods of two templates never meet where they may not, and all comes to rest as it is
// wanted.
func TestRollAtRandom(t *testing.T) { // N-12.1
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(150) {
		random := rand.New(rand.NewPCG(seed+i, 7))
		words := []string{"recreate", "surge=1 out=0", "surge=0 out=1", "surge=25% out=25%", "surge=3 out=2", "surge=100% out=0",
			"surge=0 out=100%", "surge=0 out=1%"}
		w := &town{T: t, random: random, now: epoch, seed: seed + i, clean: random.IntN(2) == 0,
			d: deployment(random.Int32N(8), words[random.IntN(len(words))])}
		for range 3 {
			for range 100 {
				w.something()
			}
			w.settle()
		}
	}
}
