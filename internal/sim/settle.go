package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/brain/played"
	imagesfake "ledge/images/fake"
	"ledge/network"
	networkfake "ledge/network/fake"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

func synctestWait() { synctest.Wait() }

func networkOf(b *Board) network.Setup { return networkfake.New(b.network) }

// fall removes what dies with a boot: the run directory, with what is mounted there.
func (b *Board) fall() {
	b.t.Helper()
	b.must(played.Unmount(b.run), "unmount volumes")
	b.must(os.RemoveAll(b.run), "remove the run directory")
}

func forgetRenewal(o api.Object) {
	if l, ok := o.(*coordinationv1.Lease); ok {
		l.Spec.RenewTime = nil
	}
}

// label that a pod of a simulation carries: what is expected of it.
const (
	wantLabel  = "sim.local/want"
	WantSteady = "steady" // runs and is ready, whenever nothing is wrong
	WantEnd    = "end"    // comes to an end by itself
	WantCrash  = "crash"  // never for long
	WantGone   = "gone"   // takes all there is of something, until it is evicted
)

// Pod is a pod of one container, to be changed and then applied. It has no token: a volume that is looked at every minute takes a quarter
// of the time of a quiet day.
func Pod(name, want string, policy corev1.RestartPolicy, does ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{wantLabel: want}}}
	p.Spec.RestartPolicy, p.Spec.AutomountServiceAccountToken = policy, new(bool)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: ImageOne, Command: does}}
	return p
}

// Apply makes a pod, as the user.
func (b *Board) Apply(p *corev1.Pod) *corev1.Pod {
	b.t.Helper()
	out, err := api.Create(b.ctx, b.brain.user, api.Pods, p)
	b.must(err, "make pod "+p.Name)
	if out.Spec.RestartPolicy == corev1.RestartPolicyNever {
		b.starts.runsOnce(string(out.UID))
	}
	return out
}

// Delete deletes a pod, as the user; nil is its own grace.
func (b *Board) Delete(name string, grace *int64) {
	b.t.Helper()
	_, err := b.brain.user.Delete(b.ctx, api.Pods, "default", name, api.DeleteOptions{Grace: grace})
	if err != nil && !apierrors.IsNotFound(err) {
		b.must(err, "delete pod "+name)
	}
}

// Pods are all pods, as the user sees them.
func (b *Board) Pods() []*corev1.Pod {
	b.t.Helper()
	list, err := b.brain.user.List(b.ctx, api.Pods, api.ListOptions{})
	b.must(err, "list pods")
	var out []*corev1.Pod
	for _, o := range list.Items {
		out = append(out, o.(*corev1.Pod))
	}
	return out
}

// Settle waits until everything is as it should be when nothing is wrong, and reports what is not in time.
func (b *Board) Settle(within time.Duration) {
	b.t.Helper()
	end := time.Now().Add(within)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		synctest.Wait()
		err := b.wrong()
		if err == nil {
			return
		}
		if !time.Now().Before(end) {
			b.Errorf("not well after %s: %v", within, err)
			return
		}
		time.Sleep(min(wait, time.Until(end)))
	}
}

func (b *Board) traces() traces { return traces{b.engine, b.images, b.network, b.disk, b.run} }

// wrong is everything that is not as it should be in a quiet moment.
func (b *Board) wrong() error {
	b.t.Helper()
	node, err := b.getNode()
	if err != nil {
		return err
	}
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, c := range node.Status.Conditions {
		if want := corev1.ConditionStatus(map[bool]string{true: "True", false: "False"}[c.Type == corev1.NodeReady]); c.Status != want {
			say("the node is %s=%s: %s", c.Type, c.Status, c.Message)
		}
	}
	if len(node.Spec.Taints) > 0 {
		say("the node has taints %v", node.Spec.Taints)
	}
	running, known := b.Containers(), map[string]bool{}
	for _, p := range b.Pods() {
		known[string(p.UID)] = true
		if err := b.wrongWith(p, running[string(p.UID)]); err != nil {
			say("pod %s: %w", p.Name, err)
		}
	}
	for uid, left := range b.traces().all(b.ctx) {
		if !known[uid] {
			say("a pod that is gone left %v", left)
		}
	}
	for _, kind := range witnessed {
		list, err := b.brain.user.List(b.ctx, kind, api.ListOptions{})
		if err == nil {
			err = b.witness.compare(kind, list.Items)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (b *Board) wrongWith(p *corev1.Pod, running []runtime.Status) error {
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("is being deleted since %s", p.DeletionTimestamp)
	case over:
		if left := b.traces().of(b.ctx, string(p.UID)); len(left) > 0 {
			return fmt.Errorf("is over, and left %v", left)
		}
	case p.Spec.NodeName == "":
		return fmt.Errorf("has no node: %v", p.Status.Conditions)
	}
	if p.Labels[wantLabel] != WantSteady || refused(p) {
		return nil
	}
	if !isTrue(p, corev1.PodReady) || p.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("is %s (%s), not running and ready: %+v %+v", p.Status.Phase, p.Status.Reason, p.Status.InitContainerStatuses,
			p.Status.ContainerStatuses)
	}
	want := len(p.Spec.Containers)
	for i := range p.Spec.InitContainers {
		if api.IsSidecar(&p.Spec.InitContainers[i]) {
			want++
		}
	}
	if len(running) != want {
		return fmt.Errorf("has %d containers that stay, %d run", want, len(running))
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil || c.Image != imageOf(p, c.Name) {
			return fmt.Errorf("container %s: %+v", c.Name, c)
		}
	}
	if p.Status.HostIP == "" || p.Status.PodIP == "" {
		return fmt.Errorf("has addresses %q and %q", p.Status.HostIP, p.Status.PodIP)
	}
	return nil
}

func imageOf(p *corev1.Pod, container string) string {
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// traces is what pods leave on a board: in the engine, the images, the network and the directories. Logs
// stay while the object does and are not counted for pods that are known.
type traces struct {
	engine    *enginefake.Engine
	images    *imagesfake.Store
	network   *networkfake.Machine
	disk, run string
}

// all is what there is, by pod UID.
func (x traces) all(ctx context.Context) map[string][]string {
	out := map[string][]string{}
	note := func(uid, what string) { out[uid] = append(out[uid], what) }
	if st, err := x.engine.List(ctx); err == nil {
		for _, p := range st.Pods {
			note(p.Pod.UID, "sandbox")
		}
		for _, c := range st.Containers {
			note(c.PodUID, "container "+c.Name)
		}
	}
	for key := range x.images.Mounts() {
		uid, _, _ := strings.Cut(key, ".")
		note(uid, "root file system")
	}
	for _, uid := range x.network.Pods() {
		note(uid, "address")
	}
	for _, dir := range []string{filepath.Join(x.disk, "volumes"), filepath.Join(x.run, "volumes"), filepath.Join(x.run, "files"),
		filepath.Join(x.run, "podfiles")} {
		for _, name := range names(dir) {
			uid, _, _ := strings.Cut(name, ".")
			note(uid, dir)
		}
	}
	for _, name := range names(filepath.Join(x.disk, "logs")) {
		note(name[strings.LastIndexByte(name, '_')+1:], "logs")
	}
	return out
}

// of is what one pod has left, but for its logs.
func (x traces) of(ctx context.Context, uid string) []string {
	return slices.DeleteFunc(x.all(ctx)[uid], func(what string) bool { return what == "logs" })
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
