package workload

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// house is the revisions and pods of a StatefulSet or DaemonSet, and who carries out what is decided, who may be killed after any write.
type house struct {
	*testing.T
	random    *rand.Rand
	now       time.Time
	revisions []*appsv1.ControllerRevision
	pods      []*corev1.Pod
	made      int
	seed      uint64
	log       []string
	judge     func(PodStep)            // before each write to a pod
	place     func(*corev1.Pod) string // where a pod may run; "": nowhere
}

func newHouse(t *testing.T, seed uint64) house {
	return house{T: t, random: rand.New(rand.NewPCG(seed, 7)), now: epoch, seed: seed}
}

func (h *house) fail(format string, args ...any) {
	h.Helper()
	h.Fatalf("seed %d: %s; before it:\n%q\npods %q", h.seed, fmt.Sprintf(format, args...), h.log, h.states())
}

func (h *house) note(format string, args ...any) {
	if h.log = append(h.log, fmt.Sprintf(format, args...)); len(h.log) > 40 {
		h.log = h.log[1:]
	}
}

// states are the pods in words.
func (h *house) states() (out []string) {
	for _, p := range h.pods {
		text := p.Name + " " + p.Spec.Containers[0].Image + " " + target(p) + " " + string(p.Status.Phase)
		if serves(p) {
			text += " serves"
		}
		if p.DeletionTimestamp != nil {
			text += " going"
		}
		out = append(out, text)
	}
	return out
}

// serves says that a pod is ready and stays.
func serves(p *corev1.Pod) bool {
	ok, _ := Available(p, 0, epoch)
	return ok && p.DeletionTimestamp == nil && !ended(p)
}

// carry writes what a course has, or is killed on the way; whole: it is not. all says that everything is written.
func (h *house) carry(c *Course, whole bool) (all bool) {
	lives := len(c.Revisions) + len(c.Pods)
	if !whole {
		lives = h.random.IntN(lives + 2)
	}
	for _, s := range c.Revisions {
		if lives--; lives < 0 {
			return false
		}
		h.note("%s revision %s %d", s.Do, s.Revision.Name, s.Revision.Revision)
		i := slices.IndexFunc(h.revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == s.Revision.Name })
		switch {
		case s.Do == Create && i < 0:
			r := s.Revision.DeepCopy()
			r.UID, r.CreationTimestamp = types.UID(r.Name), metav1.NewTime(h.now)
			h.revisions = append(h.revisions, r)
		case s.Do == Update && i >= 0:
			h.revisions[i] = s.Revision
		case s.Do == Delete && i >= 0:
			h.revisions = slices.Delete(h.revisions, i, i+1)
		default:
			h.fail("%s revision %s, which is number %d", s.Do, s.Revision.Name, i)
		}
	}
	for _, s := range c.Pods {
		if lives--; lives < 0 {
			return false
		}
		h.judge(s)
		h.note("%s %s of %s", s.Do, s.Pod.Name, s.Place)
		i := slices.IndexFunc(h.pods, func(p *corev1.Pod) bool { return p.Name == s.Pod.Name && p.Name != "" })
		switch {
		case s.Do == Create && i < 0:
			h.made++
			p := s.Pod.DeepCopy()
			p.UID, p.CreationTimestamp, p.Status.Phase = types.UID(fmt.Sprint("pod", h.made)), metav1.NewTime(h.now), corev1.PodPending
			if p.Name == "" {
				p.Name = fmt.Sprint(p.GenerateName, h.made)
			}
			h.pods = append(h.pods, p)
		case (s.Do == Delete || s.Do == Replace) && i >= 0 && h.pods[i].DeletionTimestamp == nil:
			h.pods[i] = h.pods[i].DeepCopy()
			h.pods[i].DeletionTimestamp = &metav1.Time{Time: h.now}
		default:
			h.fail("%s %s, which is number %d", s.Do, s.Pod.Name, i)
		}
	}
	return lives >= 0
}

// live lets a pod go on: to a board, to be ready or not, to fail, or to go.
func (h *house) live(clean bool) {
	if len(h.pods) == 0 {
		return
	}
	i := h.random.IntN(len(h.pods))
	p := h.pods[i].DeepCopy()
	h.pods[i] = p
	kind := h.random.IntN(10)
	switch {
	case p.DeletionTimestamp != nil:
		if kind < 6 {
			h.pods = slices.Delete(h.pods, i, i+1)
		}
	case ended(p):
	case p.Spec.NodeName == "":
		if p.Spec.NodeName = h.place(p); p.Spec.NodeName != "" {
			p.Status.Phase = corev1.PodRunning
		}
	case kind < 7:
		podReady(p, true)
	case clean:
	case kind < 9:
		podReady(p, false)
	default:
		p.Status.Phase = corev1.PodFailed
		podReady(p, false)
	}
}

func podReady(p *corev1.Pod, is bool) {
	p.Status.Conditions = nil
	if is {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(epoch)}}
	}
}

// thrive has all pods be what they are to be.
func (h *house) thrive() {
	h.pods = slices.DeleteFunc(h.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	for i, p := range h.pods {
		if p = p.DeepCopy(); !ended(p) {
			if p.Spec.NodeName == "" {
				p.Spec.NodeName = h.place(p)
			}
			if p.Spec.NodeName != "" {
				p.Status.Phase = corev1.PodRunning
				podReady(p, true)
			}
		}
		h.pods[i] = p
	}
}

// rest lets everything come to rest: look says whether it wrote.
func (h *house) rest(look func() bool) {
	h.Helper()
	for rounds, quiet := 0, 0; quiet < 2; rounds++ {
		if quiet++; look() {
			quiet = 0
		}
		h.thrive()
		if rounds > 200 {
			h.fail("it does not come to rest")
		}
	}
	if look() {
		h.fail("it writes at rest")
	}
}

// row is a StatefulSet in such a house.
type row struct {
	house
	set *appsv1.StatefulSet
}

func (w *row) look(whole bool) bool {
	course, status := Order(w.set, w.revisions, w.pods, w.now)
	if !w.carry(&course, whole) {
		return true
	}
	changed := !Same(&w.set.Status, &status)
	w.set.Status = status
	return changed || len(course.Pods)+len(course.Revisions) > 0
}

func (w *row) at(ordinal int) *corev1.Pod {
	i := slices.IndexFunc(w.pods, func(p *corev1.Pod) bool { return Ordinal(w.set, p) == ordinal })
	if i < 0 {
		return nil
	}
	return w.pods[i]
}

// allows holds a write to what StatefulSets promise.
func (w *row) allows(s PodStep) {
	o := &order{set: w.set}
	o.line(nil)
	ordered, n := w.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, Ordinal(w.set, s.Pod)
	serving := 0
	for i := o.start; i < o.end; i++ {
		if p := w.at(i); p != nil && serves(p) {
			serving++
		} else if ordered && (s.Do == Create && i < n || s.Do == Delete && n >= o.end && w.at(n) != nil && serves(w.at(n))) {
			w.fail("%s %d before %d serves", s.Do, n, i)
		}
	}
	if s.Do == Create && (n < o.start || n >= o.end) {
		w.fail("creates %d", n)
	}
	if s.Do != Delete {
		return
	}
	if n < o.start || n >= o.end { // too many
		for _, p := range w.pods {
			if other := Ordinal(w.set, p); ordered && other > n && other >= o.end {
				w.fail("deletes %d before %d", n, other)
			}
		}
		return
	}
	revision := s.Pod.Labels[appsv1.StatefulSetRevisionLabel]
	newest := w.revisions[0]
	for _, r := range w.revisions {
		if r.Revision > newest.Revision {
			newest = r
		}
	}
	switch {
	case n < o.partition(), revision == newest.Name, w.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		w.fail("deletes %d of %s, the newest is %s", n, revision, newest.Name)
	case serves(w.at(n)) && serving-1 < o.end-o.start-o.slack():
		w.fail("deletes %d of %d that serve", n, serving)
	}
	for i := n + 1; ordered && i < o.end; i++ {
		if p := w.at(i); p == nil || p.DeletionTimestamp == nil && p.Labels[appsv1.StatefulSetRevisionLabel] != newest.Name {
			w.fail("deletes %d before %d", n, i)
		}
	}
}

func (w *row) something(clean bool) {
	w.now = w.now.Add(time.Second)
	switch kind := w.random.IntN(30); {
	case kind == 0:
		w.set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.random.IntN(4))
		w.set.Generation++
		w.note("image %s", w.set.Spec.Template.Spec.Containers[0].Image)
	case kind == 1:
		n := w.random.Int32N(6)
		w.set.Spec.Replicas = &n
		w.set.Generation++
		w.note("size %d", n)
	case kind == 2 && w.set.Spec.UpdateStrategy.RollingUpdate != nil:
		n := w.random.Int32N(4)
		w.set.Spec.UpdateStrategy.RollingUpdate.Partition = &n
		w.set.Generation++
		w.note("partition %d", n)
	case kind == 3:
		w.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: w.random.Int32N(3)}
		w.set.Generation++
		w.note("start %d", w.set.Spec.Ordinals.Start)
	case kind < 20:
		w.live(clean)
	default:
		w.look(false)
	}
}

// settle lets everything come to rest, and sees that it is as it is to be.
func (w *row) settle() {
	w.rest(func() bool { return w.look(true) })
	o := &order{set: w.set}
	o.line(nil)
	s, want := w.set.Status, o.end-o.start
	if len(w.pods) != want || int(s.Replicas) != want || int(s.ReadyReplicas) != want || int(s.AvailableReplicas) != want ||
		s.ObservedGeneration != w.set.Generation {
		w.fail("it ends with %d pods, wants %d: %+v", len(w.pods), want, s)
	}
	updated := 0
	for n := o.start; n < o.end; n++ {
		p := w.at(n)
		if p == nil {
			w.fail("%d is missing", n)
		}
		is := p.Labels[appsv1.StatefulSetRevisionLabel] == s.UpdateRevision
		if is != (p.Spec.Containers[0].Image == w.set.Spec.Template.Spec.Containers[0].Image) {
			w.fail("%d says it is of %s", n, p.Labels[appsv1.StatefulSetRevisionLabel])
		}
		if is {
			updated++
		} else if n >= o.partition() && w.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
			w.fail("%d is of another template", n)
		}
	}
	if int(s.UpdatedReplicas) != updated || updated == want && s.CurrentRevision != s.UpdateRevision {
		w.fail("%d are updated: %+v", updated, s)
	}
	if most := int(*w.set.Spec.RevisionHistoryLimit) + 2 + want; len(w.revisions) > most {
		w.fail("%d templates are kept", len(w.revisions))
	}
}

// TestOrderAtRandom: whatever users and pods do, and wherever the loop is killed, no ordinal comes before its predecessor in order, no
// write leaves fewer pods than maxUnavailable allows, no pod before the partition goes, and all comes to rest as it is wanted.
func TestOrderAtRandom(t *testing.T) { // N-12.2
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(40) {
		h := newHouse(t, seed+i)
		words := []string{"", "parallel", "out=2", "parallel out=2", "out=50%", "plain", "parallel plain", "ondelete", "partition=2",
			"parallel out=100%"}
		w := &row{house: h, set: statefulSet(h.random.Int32N(5), words[h.random.IntN(len(words))])}
		w.set.Status = appsv1.StatefulSetStatus{}
		w.judge, w.place = w.allows, func(*corev1.Pod) string { return "n" }
		clean := w.random.IntN(2) == 0
		for range 3 {
			for range 120 {
				w.something(clean)
			}
			w.settle()
		}
	}
}

// fleet is a DaemonSet and boards in such a house.
type fleet struct {
	house
	ds     *appsv1.DaemonSet
	boards []*corev1.Node
}

func (w *fleet) look(whole bool) bool {
	course, status := Cover(w.ds, w.revisions, w.pods, w.boards, w.now)
	if !w.carry(&course, whole) {
		return true
	}
	changed := !Same(&w.ds.Status, &status)
	w.ds.Status = status
	return changed || len(course.Pods)+len(course.Revisions) > 0
}

// scheduled is where the scheduler puts a pod: on its board, if it is there.
func (w *fleet) scheduled(p *corev1.Pod) string {
	if i := slices.IndexFunc(w.boards, func(b *corev1.Node) bool { return b.Name == target(p) }); i >= 0 {
		return target(p)
	}
	return ""
}

// seen is how the boards are as one look sees them.
func (w *fleet) seen() *cover {
	c := &cover{ds: w.ds, now: w.now}
	c.place(w.pods, w.boards)
	c.allow()
	return c
}

// allows holds a write to what DaemonSets promise.
func (w *fleet) allows(s PodStep) {
	c := w.seen()
	serving, twice := 0, 0
	var here *place
	for _, p := range c.boards {
		if p.name == s.Place {
			here = p
		}
		n := 0
		for _, pod := range p.pods {
			if serves(pod) {
				n++
			}
		}
		if p.run && n > 0 {
			serving++
		}
		if stay := slices.DeleteFunc(slices.Clone(p.pods),
			func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || ended(p) }); len(stay) > 1 && n > 0 {
			twice++
		}
	}
	switch {
	case here == nil:
		w.fail("%s for %q", s.Do, s.Place)
	case s.Do == Create && !here.run:
		w.fail("a pod for %s, where none is to be", here.name)
	case s.Do == Create && c.surge == 0 && len(here.pods) > 0:
		w.fail("a second pod for %s", here.name)
	case s.Do == Create && slices.ContainsFunc(here.pods, serves) && twice >= c.surge:
		w.fail("a second pod for %s, %d have two", here.name, twice)
	case s.Do != Delete || !here.run || !serves(s.Pod) || len(here.pods) > 2:
	case c.surge == 0 && serving-1 < c.desired-c.absent && w.ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
		w.fail("%d of %d serve, and one on %s goes", serving, c.desired, here.name)
	case c.surge > 0 && !slices.ContainsFunc(here.pods, func(p *corev1.Pod) bool { return p.Name != s.Pod.Name && serves(p) }):
		w.fail("nobody is left on %s", here.name)
	}
}

func (w *fleet) something(clean bool) {
	w.now = w.now.Add(time.Second)
	switch kind := w.random.IntN(30); {
	case kind == 0:
		w.ds.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", w.random.IntN(4))
		w.ds.Generation++
		w.note("image %s", w.ds.Spec.Template.Spec.Containers[0].Image)
	case kind == 1 && len(w.boards) < 6:
		w.boards = append(w.boards, board(fmt.Sprint("b", w.now.Unix())))
		w.note("%s comes", w.boards[len(w.boards)-1].Name)
	case kind == 2 && len(w.boards) > 0 && w.random.IntN(3) == 0:
		gone := w.boards[0].Name
		w.boards = w.boards[1:]
		w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == gone }) // the collector of pods
		w.note("%s leaves", gone)
	case kind == 3 && len(w.boards) > 0:
		i := w.random.IntN(len(w.boards))
		taints := []string{"", "x:NoSchedule", "x:NoExecute"}[w.random.IntN(3)]
		w.boards[i] = board(w.boards[i].Name + " " + taints)
		w.note("%s has %s", w.boards[i].Name, taints)
	case kind < 20:
		w.live(clean)
	default:
		w.look(false)
	}
}

func (w *fleet) settle() {
	w.rest(func() bool { return w.look(true) })
	want, stay := 0, 0
	for _, b := range w.boards {
		run, stays := belongs(daemon(w.ds, b.Name, "v"), b)
		on := slices.DeleteFunc(slices.Clone(w.pods), func(p *corev1.Pod) bool { return p.Spec.NodeName != b.Name })
		switch {
		case run:
			want++
			if len(on) != 1 {
				w.fail("%d pods on %s", len(on), b.Name)
			}
		case stays:
			stay += len(on)
		}
		for _, p := range on {
			if !stays {
				w.fail("%s on %s", p.Name, b.Name)
			}
			if run && w.ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType &&
				p.Spec.Containers[0].Image != w.ds.Spec.Template.Spec.Containers[0].Image {
				w.fail("%s is of another template", p.Name)
			}
		}
	}
	s := w.ds.Status
	if len(w.pods) != want+stay || int(s.DesiredNumberScheduled) != want || int(s.CurrentNumberScheduled) != want ||
		int(s.NumberAvailable) != want || s.NumberUnavailable != 0 ||
		s.ObservedGeneration != w.ds.Generation {
		w.fail("it ends with %d pods, wants %d and %d may stay: %+v", len(w.pods), want, stay, s)
	}
	if most := int(*w.ds.Spec.RevisionHistoryLimit) + 1 + len(w.pods); len(w.revisions) > most {
		w.fail("%d templates are kept", len(w.revisions))
	}
}

// TestCoverAtRandom: whatever users, boards and pods do, and wherever the loop is killed, three things hold. No board gets a second pod
// where none may surge. No write takes more pods than maxUnavailable allows, or makes more than maxSurge does. Each board ends with the
// pod that it is to have.
func TestCoverAtRandom(t *testing.T) { // N-12.4
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(40) {
		h := newHouse(t, seed+i)
		words := []string{"", "out=2", "out=50%", "surge=1", "surge=50%", "surge=100%", "ondelete"}
		w := &fleet{house: h, ds: daemonSet(words[h.random.IntN(len(words))]), boards: []*corev1.Node{board("a"), board("b"), board("c")}}
		w.judge, w.place = w.allows, w.scheduled
		clean := w.random.IntN(2) == 0
		for range 3 {
			for range 120 {
				w.something(clean)
			}
			w.settle()
		}
	}
}

// TestForeignRevisions: anybody may write a ControllerRevision; one that says nothing, or nonsense, is only in the way of nobody.
func TestForeignRevisions(t *testing.T) {
	set := statefulSet(1, "partition=1")
	for _, text := range []string{"", "{}", "null", `{"spec":{"template":[]}}`, strings.Repeat("[", 10000)} {
		r := remembered(set, "StatefulSet", revisionHash, &set.Spec.Template, "v7")
		r.Data.Raw = []byte(text)
		set.Status.CurrentRevision = r.Name
		course, _ := Order(set, []*appsv1.ControllerRevision{r}, nil, epoch)
		if len(course.Revisions) != 1 || course.Revisions[0].Revision.Revision != 8 || len(course.Pods) != 1 ||
			course.Pods[0].Pod.Spec.Containers[0].Image != "v1" {
			t.Errorf("%.20q: %+v", text, course)
		}
	}
}

// TestLastRevision: whoever writes the last number there is into a revision stops no rollout, and none is written again and again.
func TestLastRevision(t *testing.T) {
	last := strconv.FormatInt(math.MaxInt64, 10)
	d := deployment(1, "")
	rs := setOf(d, "v1", "0")
	former := setOf(d, "v2", "1 of=1-2")
	former.Annotations[Revision] = last
	p := Roll(d, []*appsv1.ReplicaSet{rs, former}, nil, epoch)
	if got := p.Steps[0].Set.Annotations[Revision]; got != last || p.Revision != last {
		t.Errorf("the set has revision %s, the Deployment %s", got, p.Revision)
	}
	rs.Annotations = maps.Clone(p.Steps[0].Set.Annotations)
	before := maps.Clone(rs.Annotations)
	for _, s := range Roll(d, []*appsv1.ReplicaSet{rs, former}, nil, epoch).Steps {
		if s.Set.Name == rs.Name && !maps.Equal(s.Set.Annotations, before) {
			t.Errorf("written again: %v, then %v", before, s.Set.Annotations)
		}
	}

	set := statefulSet(1, "")
	old := remembered(set, "StatefulSet", revisionHash, &set.Spec.Template, "v7")
	old.Revision = math.MaxInt64
	course, _ := Order(set, []*appsv1.ControllerRevision{old}, nil, epoch)
	if len(course.Revisions) != 1 || course.Revisions[0].Do != Create || course.Revisions[0].Revision.Revision != math.MaxInt64 {
		t.Fatalf("%+v", course.Revisions)
	}
	fresh := course.Revisions[0].Revision
	fresh.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	for _, of := range []time.Duration{-2 * time.Hour, 0} { // the other one is older, or newer
		old.CreationTimestamp = metav1.NewTime(epoch.Add(of))
		fresh.UID = "fresh"
		course, _ = Order(set, []*appsv1.ControllerRevision{old, fresh}, nil, epoch)
		if len(course.Revisions) > 0 {
			t.Errorf("%+v", course.Revisions)
		}
	}
}
