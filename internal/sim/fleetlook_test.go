package sim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/coordination"
	"ledge/runtime"
)

// control has controllers keep all pods but a few: a third of them one on each board, a third by number and a third by name.
func (f *fleet) control() {
	f.Helper()
	about := func(name string) (metav1.ObjectMeta, *metav1.LabelSelector, corev1.PodTemplateSpec) {
		p, kept := wanted(name), map[string]string{"kept": name}
		return metav1.ObjectMeta{Namespace: p.Namespace, Name: name}, &metav1.LabelSelector{MatchLabels: kept},
			corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kept": name, wantLabel: WantSteady}}, Spec: p.Spec}
	}
	n := int32(len(f.boards))
	meta, selector, template := about("deployed")
	_, err := api.Create(f.user(), f.local, apps.Deployments, &appsv1.Deployment{ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: selector, Template: template}})
	f.must(err)
	meta, selector, template = about("ordered")
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &n, Selector: selector, Template: template}}
	f.claim(set)
	_, err = api.Create(f.user(), f.local, apps.StatefulSets, set)
	f.must(err)
	meta, selector, template = about("everywhere")
	_, err = api.Create(f.user(), f.local, apps.DaemonSets, &appsv1.DaemonSet{ObjectMeta: meta,
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}})
	f.must(err)
	f.employ()
	f.autoscale()
}

// daemon says that a pod belongs to its board, whatever is the matter with that.
func daemon(p *corev1.Pod) bool {
	of := metav1.GetControllerOf(p)
	return of != nil && of.Kind == apps.DaemonSets.Name
}

func wanted(name string) *corev1.Pod {
	return Pod(name, WantSteady, corev1.RestartPolicyAlways, "run", "stop=500ms")
}

// stock makes the others that the user wants and that are not there: bare ones, that nobody else makes again.
func (f *fleet) stock() {
	f.Helper()
	have := map[string]bool{}
	for _, p := range f.all.List() {
		have[p.Name] = true
	}
	for i := range f.pods - f.kept {
		p := wanted(fmt.Sprint("p-", i))
		if have[p.Name] {
			continue
		}
		_, err := api.Create(f.user(), f.local, api.Pods, p)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			f.must(err)
		}
	}
}

// running is the containers that run on a board, by pod.
func (f *fleet) running(m *member) map[string]int {
	f.Helper()
	st, err := m.engine.List(f.ctx)
	if errors.Is(err, runtime.ErrUnavailable) {
		return nil
	}
	f.must(err)
	out := map[string]int{}
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			out[c.PodUID]++
		}
	}
	return out
}

// always checks what is true at any moment: a pod runs on one board at most, where it is bound, and a board that nothing
// happened to is ready.
func (f *fleet) always() {
	f.Helper()
	at := map[string]string{}
	for _, m := range f.boards {
		for uid := range f.running(m) {
			if at[uid] != "" {
				f.Errorf("pod %s runs on %s and %s", uid, at[uid], m.name)
			}
			at[uid] = m.name
		}
	}
	for _, p := range f.all.List() {
		if on := at[string(p.UID)]; on != "" && on != p.Spec.NodeName {
			f.Errorf("pod %s is bound to %q and runs on %s", p.Name, p.Spec.NodeName, on)
		}
	}
	f.judgeJobs()
	f.judgeClaims()
	for _, m := range f.boards {
		if m.life == nil || m.touched.IsZero() || time.Since(m.touched) < 2*time.Minute {
			continue
		}
		if n, ok := f.nodes.Get("", m.name); !ok || !nodeReady(n) {
			f.Errorf("%s is not ready, and nothing happened to it: %+v", m.name, n)
		}
	}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pass lets time go by, looking every half minute.
func (f *fleet) pass(d time.Duration) {
	f.Helper()
	for ; d > 0 && !f.Failed(); d -= 30 * time.Second {
		time.Sleep(min(d, 30*time.Second))
		synctest.Wait()
		f.always()
	}
}

// settle waits until all is well, and says what is not.
func (f *fleet) settle(within time.Duration) {
	f.Helper()
	var err error
	for end := time.Now().Add(within); time.Now().Before(end); f.pass(10 * time.Second) {
		f.stock()
		synctest.Wait()
		if err = f.wrong(); err == nil || f.Failed() {
			return
		}
	}
	f.Errorf("not well after %s: %v", within, err)
}

func (f *fleet) wrong() error {
	f.Helper()
	bound, pods, ends := map[string]string{}, f.steady(), f.passing()
	for _, p := range pods {
		if p.DeletionTimestamp != nil || !isTrue(p, corev1.PodReady) {
			return fmt.Errorf("pod %s on %q: %s, deleted %v, %+v", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp,
				p.Status.ContainerStatuses)
		}
		bound[string(p.UID)] = p.Spec.NodeName
	}
	if len(pods) != f.pods {
		return fmt.Errorf("%d pods, %d are wanted", len(pods), f.pods)
	}
	total := 0
	for _, m := range f.boards {
		n, ok := f.nodes.Get("", m.name)
		if !ok || !nodeReady(n) || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("%s: %+v", m.name, n)
		}
		for uid := range f.running(m) {
			if ends[uid] {
				continue
			}
			if total++; bound[uid] != m.name {
				return fmt.Errorf("%s runs pod %s, which is bound to %q", m.name, uid, bound[uid])
			}
		}
	}
	if total != f.pods {
		return fmt.Errorf("%d pods run, %d are wanted", total, f.pods)
	}
	return f.wrongClaims()
}

// steady are the pods that stay.
func (f *fleet) steady() []*corev1.Pod {
	return slices.DeleteFunc(f.all.List(), func(p *corev1.Pod) bool { return p.Labels[wantLabel] != WantSteady })
}

// weight is what a fleet in a quiet moment takes up.
type weight struct {
	at                             time.Time
	store, heap                    int64
	goroutines, events, left       int
	leases, nodes, pods, revisions int
}

func (w weight) String() string {
	return fmt.Sprintf("store %d KiB, heap %d KiB, %d goroutines, %d events, %d leases, %d nodes, %d pods, %d files on boards, revision %d",
		w.store>>10, w.heap>>10, w.goroutines, w.events, w.leases, w.nodes, w.pods, w.left, w.revisions)
}

// weigh is for quiet moments. What may never be more than it is, is judged at once.
func (f *fleet) weigh() {
	f.Helper()
	w := weight{at: time.Now(), goroutines: goruntime.NumGoroutine(), revisions: int(f.store.Revision())}
	size := func(dir string) (bytes int64, files int) {
		f.must(filepath.Walk(dir, func(path string, i os.FileInfo, err error) error {
			if err == nil && i.Mode().IsRegular() {
				bytes, files = bytes+i.Size(), files+1
			}
			return err
		}))
		return bytes, files
	}
	w.store, _ = size(f.plane.storeDir())
	for _, m := range f.boards {
		_, n := size(m.dir)
		w.left += n
	}
	for kind, n := range map[*api.Kind]*int{api.Events: &w.events, coordination.Leases: &w.leases, api.Nodes: &w.nodes, api.Pods: &w.pods} {
		list, err := f.local.List(f.ctx, kind, api.ListOptions{})
		f.must(err)
		*n = len(list.Items)
	}
	w.pods -= len(f.passing())
	goruntime.GC()
	var mem goruntime.MemStats
	goruntime.ReadMemStats(&mem)
	w.heap = int64(mem.HeapAlloc)
	f.weights = append(f.weights, w)
	f.Logf("%s: %s", f.now(), w)
	if w.leases != len(f.boards) || w.nodes != len(f.boards) || w.pods != f.pods || w.events > mostEvents {
		f.Errorf("%d boards, %d pods, and: %s", len(f.boards), f.pods, w)
	}
}

// mostEvents is the cap of a store (N-11.39), which is kept when the next one comes.
const mostEvents = 1000

// judgeGrowth: nothing grows with time. The first weighings are those of a fleet that has not lived yet; of the others none
// is far above the least of the first half.
func (f *fleet) judgeGrowth() {
	f.Helper()
	for _, why := range grown(f.weights) {
		f.Errorf("%s", why)
	}
}

func grown(all []weight) (out []string) {
	if len(all) < 8 {
		return nil // too short a life to tell
	}
	all = all[len(all)/4:]
	last := all[len(all)-len(all)/3:]
	for _, c := range []struct {
		what  string
		of    func(weight) int64
		slack int64
	}{
		{"bytes of the store", func(w weight) int64 { return w.store }, 4 << 20},
		{"bytes of memory", func(w weight) int64 { return w.heap }, 8 << 20},
		{"goroutines", func(w weight) int64 { return int64(w.goroutines) }, 50},
		{"files on boards", func(w weight) int64 { return int64(w.left) }, 50},
	} {
		least := func(ws []weight) int64 {
			n := c.of(ws[0])
			for _, w := range ws {
				n = min(n, c.of(w))
			}
			return n
		}
		if was, is := least(all[:len(all)/3]), least(last); is > was+was/4+c.slack {
			out = append(out, fmt.Sprintf("%s grow: %d on %s, %d on %s", c.what, was, all[0].at.Format("02 15:04"), is,
				last[0].at.Format("02 15:04")))
		}
	}
	return out
}

func TestGrown(t *testing.T) {
	life := func(n int, per func(i int) weight) (out []weight) {
		for i := range n {
			out = append(out, per(i))
		}
		return out
	}
	calm := func(i int) weight {
		return weight{store: 8 << 20, heap: int64(40+i%5) << 20, goroutines: 900 + i%20, left: 300}
	}
	if got := grown(life(28, calm)); got != nil {
		t.Errorf("a calm life: %q", got)
	}
	got := grown(life(28, func(i int) weight {
		w := calm(i)
		w.store, w.heap, w.goroutines, w.left = w.store+int64(i)<<20, w.heap+int64(i)<<21, w.goroutines+40*i, w.left+20*i
		return w
	}))
	if len(got) != 4 || !strings.Contains(got[0], "store grow") {
		t.Errorf("a life that grows: %q", got)
	}
}
