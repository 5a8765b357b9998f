package apitest

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

var podCases = []Case{
	{"PodDefaults", testPodDefaults},
	{"PodRefused", testPodRefused},
	{"PodSpecIsFixed", testPodSpecIsFixed},
	{"PodStatus", testPodStatus},
	{"PodResize", testPodResize},
	{"PodEphemeral", testPodEphemeral},
	{"PodPriority", testPodPriority},
	{"PodDeleteUnscheduled", testPodDeleteUnscheduled},
	{"PodDeleteGraceful", testPodDeleteGraceful},
	{"PodDeleteShortens", testPodDeleteShortens},
	{"PodDeleteForced", testPodDeleteForced},
	{"PodDeleteFinished", testPodDeleteFinished},
	{"PodDeleteWithFinalizer", testPodDeleteWithFinalizer},
	{"PodDeleteDryRun", testPodDeleteDryRun},
}

var placeCases = []Case{
	{"Bind", testBind},
	{"BindRefused", testBindRefused},
	{"Evict", testEvict},
	{"EvictRefused", testEvictRefused},
}

func testPodDefaults(t *testing.T, c api.Client) { // N-7.1, N-7.37, N-3.29
	e := begin(t, c)
	p := e.pod("p")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Mi")}
	p = e.create(p).(*corev1.Pod)
	s := p.Spec
	tolerated := map[string]int64{}
	for _, tol := range s.Tolerations {
		if tol.Operator == corev1.TolerationOpExists && tol.Effect == corev1.TaintEffectNoExecute && tol.TolerationSeconds != nil {
			tolerated[tol.Key] = *tol.TolerationSeconds
		}
	}
	for what, ok := range map[string]bool{
		"restartPolicy":   s.RestartPolicy == corev1.RestartPolicyAlways,
		"grace":           s.TerminationGracePeriodSeconds != nil && *s.TerminationGracePeriodSeconds == 30,
		"dnsPolicy":       s.DNSPolicy == corev1.DNSClusterFirst,
		"imagePullPolicy": s.Containers[0].ImagePullPolicy == corev1.PullIfNotPresent,
		"message path":    s.Containers[0].TerminationMessagePath == "/dev/termination-log",
		"requests":        s.Containers[0].Resources.Requests.Cpu().String() == "100m",
		"qosClass":        p.Status.QOSClass == corev1.PodQOSGuaranteed,
		"phase":           p.Status.Phase == corev1.PodPending,
		"priority":        s.Priority != nil && *s.Priority == 0,
		"preemption":      s.PreemptionPolicy != nil && *s.PreemptionPolicy == corev1.PreemptLowerPriority,
		"not-ready":       tolerated[corev1.TaintNodeNotReady] == 300,
		"unreachable":     tolerated[corev1.TaintNodeUnreachable] == 300,
		"service account": s.ServiceAccountName == "default",
	} {
		if !ok {
			t.Errorf("%s: wrong default in %+v", what, p)
		}
	}
	own := e.pod("q")
	own.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if got := e.create(own).(*corev1.Pod).Spec.Tolerations; len(got) != 1 {
		t.Errorf("a pod that tolerates everything got more: %+v", got)
	}
}

func testPodRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for field, change := range map[string]func(*corev1.Pod){
		"metadata.name":                func(p *corev1.Pod) { p.Name = "P_" },
		"spec.containers":              func(p *corev1.Pod) { p.Spec.Containers = nil },
		"spec.containers[0].name":      func(p *corev1.Pod) { p.Spec.Containers[0].Name = "" },
		"spec.containers[0].image":     func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" },
		"spec.restartPolicy":           func(p *corev1.Pod) { p.Spec.RestartPolicy = "Sometimes" },
		"spec.containers[1].name":      func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) },
		"spec.activeDeadlineSeconds":   func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64) },
		"spec.tolerations[0].operator": func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{}} },
		"spec.containers[0].ports[0].containerPort": func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 70000}}
		},
		"spec.containers[0].volumeMounts[0].name": func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		},
		"spec.containers[0].resources.requests": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}, Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		},
	} {
		p := e.pod("p")
		change(p)
		_, err := c.Create(e.ctx, api.Pods, p, api.WriteOptions{})
		if err == nil {
			t.Errorf("%s: accepted", field)
			continue
		}
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
}

func testPodSpecIsFixed(t *testing.T, c api.Client) { // N-7.3
	e := begin(t, c)
	p := e.create(e.pod("p")).(*corev1.Pod)
	edit := p.DeepCopy()
	edit.Spec.Containers[0].Command = []string{"other"}
	_, err := c.Update(e.ctx, api.Pods, edit, api.WriteOptions{})
	s := e.fails(err, metav1.StatusReasonInvalid, 422)
	e.hasCause(s, "spec")
	if !strings.Contains(s.Message, "pod updates may not change fields other than") {
		t.Errorf("message: %s", s.Message)
	}
	edit = p.DeepCopy()
	edit.Spec.NodeName = "elsewhere"
	_, err = c.Update(e.ctx, api.Pods, edit, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)

	edit = p.DeepCopy()
	edit.Spec.Containers[0].Image = "ledge.local/self:v2"
	seconds := int64(100)
	edit.Spec.ActiveDeadlineSeconds = &seconds
	edit.Spec.Tolerations = append(edit.Spec.Tolerations, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists})
	edit.Labels = map[string]string{"a": "b"}
	got := e.update(edit).(*corev1.Pod)
	if got.Spec.Containers[0].Image != "ledge.local/self:v2" || got.Labels["a"] != "b" || *got.Spec.ActiveDeadlineSeconds != 100 {
		t.Errorf("got %+v", got)
	}
	if got.Generation <= p.Generation {
		t.Errorf("generation stayed at %d", got.Generation) // N-11.28
	}
}

func testPodStatus(t *testing.T, c api.Client) { // N-1.8
	e := begin(t, c)
	p := e.create(e.pod("p")).(*corev1.Pod)
	edit := p.DeepCopy()
	edit.Status.Phase, edit.Status.PodIP = corev1.PodRunning, "10.1.2.3"
	if got := e.update(edit).(*corev1.Pod); got.Status.Phase != corev1.PodPending || got.ResourceVersion != p.ResourceVersion {
		t.Errorf("an update wrote the status: %+v", got.Status)
	}
	edit = p.DeepCopy()
	edit.Spec.NodeName = "elsewhere"
	edit.Status.Phase, edit.Status.PodIP, edit.Status.Message = corev1.PodRunning, "10.1.2.3", "hello"
	got, err := api.UpdateStatus(e.ctx, c, api.Pods, edit)
	e.must(err)
	if got.Status.Phase != corev1.PodRunning || got.Status.Message != "hello" || got.Spec.NodeName != "" {
		t.Errorf("a status update: %+v", got)
	}
	if len(got.Status.PodIPs) != 1 || got.Status.PodIPs[0].IP != "10.1.2.3" {
		t.Errorf("podIPs: %+v", got.Status.PodIPs)
	}
	if got.Status.QOSClass != corev1.PodQOSBestEffort || got.Generation != p.Generation {
		t.Errorf("qosClass %q, generation %d", got.Status.QOSClass, got.Generation)
	}
	stale := p.DeepCopy()
	stale.Status.Message = "late"
	_, err = c.Update(e.ctx, api.Pods, stale, api.WriteOptions{Subresource: "status"})
	e.fails(err, metav1.StatusReasonConflict, 409)
	bad := got.DeepCopy()
	bad.Status.PodIPs = []corev1.PodIP{{IP: "nonsense"}}
	bad.Status.PodIP = "nonsense"
	_, err = c.Update(e.ctx, api.Pods, bad, api.WriteOptions{Subresource: "status"})
	e.fails(err, metav1.StatusReasonInvalid, 422)
	_, err = e.patch(api.Pods, e.ns, "p", types.MergePatchType, `{"spec":{"nodeName":"x"},"status":{"message":"patched"}}`,
		api.WriteOptions{Subresource: "status"})
	e.must(err)
	if got := e.get(p).(*corev1.Pod); got.Status.Message != "patched" || got.Spec.NodeName != "" {
		t.Errorf("got %+v", got)
	}
}

func testPodPriority(t *testing.T, c api.Client) { // N-10.17
	e := begin(t, c)
	p := e.pod("p")
	p.Spec.PriorityClassName = "apitest-no-such-class"
	_, err := c.Create(e.ctx, api.Pods, p, api.WriteOptions{})
	if s := e.fails(err, metav1.StatusReasonForbidden, 403); !strings.Contains(s.Message,
		"no PriorityClass with name apitest-no-such-class was found") {
		t.Errorf("message: %s", s.Message)
	}
	value := int32(7)
	p = e.pod("p")
	p.Spec.Priority = &value
	_, err = c.Create(e.ctx, api.Pods, p, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonForbidden, 403)
	p = e.pod("p")
	p.Spec.PriorityClassName = "system-cluster-critical"
	if got := e.create(p).(*corev1.Pod); got.Spec.Priority == nil || *got.Spec.Priority != 2000000000 {
		t.Errorf("priority: %+v", got.Spec)
	}
}

func testPodDeleteUnscheduled(t *testing.T, c api.Client) { // N-7.23
	e := begin(t, c)
	p := e.create(e.pod("p"))
	e.delete(p, api.DeleteOptions{})
	_, err := c.Get(e.ctx, api.Pods, e.ns, "p")
	e.fails(err, metav1.StatusReasonNotFound, 404)
}

func secs(n int64) *int64 { return &n }

func testPodDeleteGraceful(t *testing.T, c api.Client) { // N-7.23
	e := begin(t, c)
	p := e.boundPod("p")
	before := time.Now()
	out, err := c.Delete(e.ctx, api.Pods, e.ns, "p", api.DeleteOptions{})
	e.must(err)
	got := e.get(p).(*corev1.Pod)
	if got.DeletionTimestamp == nil || got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("not marked: %+v", got.ObjectMeta)
	}
	if wait := got.DeletionTimestamp.Sub(before); wait < 25*time.Second || wait > 60*time.Second {
		t.Errorf("deletion in %v", wait)
	}
	if got.Generation <= p.Generation {
		t.Errorf("generation stayed at %d", got.Generation) // N-11.28
	}
	if out != nil && out.GetName() != "p" {
		t.Errorf("delete answered %+v", out)
	}
	// The mark cannot be taken back.
	alive := got.DeepCopy()
	alive.DeletionTimestamp, alive.DeletionGracePeriodSeconds = nil, nil
	alive.Labels = map[string]string{"a": "b"}
	if again := e.update(alive); again.GetDeletionTimestamp() == nil {
		t.Error("an update took the mark away")
	}
	// What the agent does at the end (N-7.31): grace 0, this very pod.
	uid := got.UID
	e.delete(p, api.DeleteOptions{Grace: secs(0), UID: &uid})
	_, err = c.Get(e.ctx, api.Pods, e.ns, "p")
	e.fails(err, metav1.StatusReasonNotFound, 404)
}

func testPodDeleteShortens(t *testing.T, c api.Client) { // N-7.24
	e := begin(t, c)
	p := e.boundPod("p")
	e.delete(p, api.DeleteOptions{Grace: secs(100)})
	first := e.get(p).(*corev1.Pod)
	for _, longer := range []*int64{nil, secs(100), secs(200)} {
		e.delete(p, api.DeleteOptions{Grace: longer})
		if got := e.get(p); got.GetResourceVersion() != first.ResourceVersion {
			t.Errorf("a second delete with %v changed the pod: %+v", longer, got)
		}
	}
	e.delete(p, api.DeleteOptions{Grace: secs(50)})
	got := e.get(p).(*corev1.Pod)
	if *got.DeletionGracePeriodSeconds != 50 {
		t.Errorf("grace is %d", *got.DeletionGracePeriodSeconds)
	}
	if moved := first.DeletionTimestamp.Sub(got.DeletionTimestamp.Time); moved != 50*time.Second {
		t.Errorf("the end moved by %v", moved)
	}
}

func testPodDeleteForced(t *testing.T, c api.Client) { // N-7.32
	e := begin(t, c)
	p := e.boundPod("p")
	e.delete(p, api.DeleteOptions{Grace: secs(0)})
	_, err := c.Get(e.ctx, api.Pods, e.ns, "p")
	e.fails(err, metav1.StatusReasonNotFound, 404)
	p = e.boundPod("p")
	e.delete(p, api.DeleteOptions{})
	e.delete(p, api.DeleteOptions{Grace: secs(0)})
	_, err = c.Get(e.ctx, api.Pods, e.ns, "p")
	e.fails(err, metav1.StatusReasonNotFound, 404)
}

func testPodDeleteFinished(t *testing.T, c api.Client) { // N-7.23: nothing runs, nothing to wait for
	e := begin(t, c)
	p := e.boundPod("p")
	p.Status.Phase = corev1.PodSucceeded
	_, err := api.UpdateStatus(e.ctx, c, api.Pods, p)
	e.must(err)
	e.delete(p, api.DeleteOptions{})
	_, err = c.Get(e.ctx, api.Pods, e.ns, "p")
	e.fails(err, metav1.StatusReasonNotFound, 404)
}

func testPodDeleteWithFinalizer(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.pod("p")
	in.Spec.NodeName = "apitest-no-such-node"
	in.Finalizers = []string{"apitest.dev/hold"}
	e.create(in)
	e.delete(in, api.DeleteOptions{})
	e.delete(in, api.DeleteOptions{Grace: secs(0)})
	held := e.get(in).(*corev1.Pod)
	if *held.DeletionGracePeriodSeconds != 0 {
		t.Errorf("grace is %d", *held.DeletionGracePeriodSeconds)
	}
	held.Finalizers = nil
	e.update(held)
	e.gone(in)

	in.Name = "q"
	e.create(in)
	e.delete(in, api.DeleteOptions{Grace: secs(100)})
	held = e.get(in).(*corev1.Pod)
	held.Finalizers = nil
	e.update(held) // the grace is still running
	if got := e.get(in); got.GetDeletionTimestamp() == nil {
		t.Error("the mark is gone")
	}
	e.delete(in, api.DeleteOptions{Grace: secs(0)})
	e.gone(in)
}

func testPodDeleteDryRun(t *testing.T, c api.Client) {
	e := begin(t, c)
	p := e.boundPod("p")
	e.delete(p, api.DeleteOptions{DryRun: true})
	e.delete(p, api.DeleteOptions{DryRun: true, Grace: secs(0)})
	if got := e.get(p); got.GetResourceVersion() != p.ResourceVersion {
		t.Errorf("a dry run changed %+v", got)
	}
}

func testBind(t *testing.T, c api.Client) { // N-10.2
	e := begin(t, c)
	p := e.create(e.pod("p")).(*corev1.Pod)
	e.bind("p", "apitest-no-such-node")
	got := e.get(p).(*corev1.Pod)
	if got.Spec.NodeName != "apitest-no-such-node" {
		t.Errorf("node %q", got.Spec.NodeName)
	}
	if cond := condition(got, "PodScheduled"); cond == nil || cond.Status != corev1.ConditionTrue || cond.LastTransitionTime.IsZero() {
		t.Errorf("conditions: %+v", got.Status.Conditions)
	}
}

func testBindRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	bind := func(pod, node string, opts api.WriteOptions) error {
		opts.Subresource = "binding"
		_, err := c.Create(e.ctx, api.Pods, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: e.ns},
			Target: corev1.ObjectReference{Kind: "Node", Name: node}}, opts)
		return err
	}
	e.fails(bind("p", "n", api.WriteOptions{}), metav1.StatusReasonNotFound, 404)
	p := e.create(e.pod("p"))
	// kube-apiserver finds that so late that it answers 500.
	if err := bind("p", "", api.WriteOptions{}); err == nil || !strings.Contains(err.Error(), "target.name") {
		t.Errorf("bound to nothing: %v", err)
	}
	e.must(bind("p", "n", api.WriteOptions{DryRun: true}))
	if got := e.get(p).(*corev1.Pod); got.Spec.NodeName != "" {
		t.Errorf("a dry run bound the pod to %s", got.Spec.NodeName)
	}
	e.bind("p", "apitest-no-such-node")
	s := e.fails(bind("p", "other", api.WriteOptions{}), metav1.StatusReasonConflict, 409)
	if !strings.Contains(s.Message, `already assigned to node "apitest-no-such-node"`) {
		t.Errorf("message: %s", s.Message)
	}
	if got := e.get(p).(*corev1.Pod); got.Spec.NodeName != "apitest-no-such-node" {
		t.Errorf("bound to %s", got.Spec.NodeName)
	}
}

func (e *env) evict(name string, opts *metav1.DeleteOptions, write api.WriteOptions) error {
	write.Subresource = "eviction"
	_, err := e.c.Create(e.ctx, api.Pods, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.ns}, DeleteOptions: opts},
		write)
	return err
}

func testEvict(t *testing.T, c api.Client) { // N-11.1, N-11.4
	e := begin(t, c)
	p := e.boundPod("p")
	p.Status.Phase = corev1.PodRunning
	_, err := api.UpdateStatus(e.ctx, c, api.Pods, p)
	e.must(err)
	e.must(e.evict("p", nil, api.WriteOptions{}))
	got := e.get(p).(*corev1.Pod)
	if got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 30 {
		t.Errorf("not going: %+v", got.ObjectMeta)
	}
	cond := condition(got, "DisruptionTarget")
	if cond == nil || cond.Status != corev1.ConditionTrue || cond.Reason != "EvictionByEvictionAPI" ||
		cond.Message != "Eviction API: evicting" {
		t.Errorf("conditions: %+v", got.Status.Conditions)
	}
	e.must(e.evict("p", &metav1.DeleteOptions{GracePeriodSeconds: secs(5)}, api.WriteOptions{}))
	if got := e.get(p); *got.GetDeletionGracePeriodSeconds() != 5 {
		t.Errorf("grace is %d", *got.GetDeletionGracePeriodSeconds())
	}
	q := e.create(e.pod("q"))
	e.must(e.evict("q", nil, api.WriteOptions{})) // N-11.2
	e.gone(q)
}

func testEvictRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.fails(e.evict("p", nil, api.WriteOptions{}), metav1.StatusReasonNotFound, 404)
	p := e.boundPod("p")
	other := types.UID("00000000-0000-0000-0000-000000000000")
	e.fails(e.evict("p", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}, api.WriteOptions{}),
		metav1.StatusReasonConflict, 409)
	e.must(e.evict("p", nil, api.WriteOptions{DryRun: true}))
	e.must(e.evict("p", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, api.WriteOptions{}))
	if got := e.get(p).(*corev1.Pod); got.DeletionTimestamp != nil || condition(got, "DisruptionTarget") != nil {
		t.Errorf("changed: %+v", got)
	}
}
