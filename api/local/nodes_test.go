package local

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// TestNodeCreation: an agent and a person are held to the same, with an identity of a node or without (N-1.1, N-1.3,
// N-1.6, N-1.41).
func TestNodeCreation(t *testing.T) {
	c := open(t, Config{})
	for name, ctx := range map[string]func(*testing.T, string) (n *corev1.Node, err error){
		"agent": func(t *testing.T, name string) (*corev1.Node, error) {
			return api.Create(asNode(t, name), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		},
		"person": func(t *testing.T, name string) (*corev1.Node, error) {
			return api.Create(t.Context(), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		},
	} {
		n, err := ctx(t, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != corev1.TaintNodeNotReady ||
			n.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
			t.Errorf("%s: taints %v", name, n.Spec.Taints)
		}
		_, err = ctx(t, name)
		wantCode(t, err, 409, "already exists")
		_, err = ctx(t, "Bad_"+name)
		wantCode(t, err, 422, "metadata.name")
	}
	// Without a node's identity everything may be written, of every node.
	n, err := api.Get[*corev1.Node](t.Context(), c, api.Nodes, "", "agent")
	if err != nil {
		t.Fatal(err)
	}
	n.Labels = map[string]string{"node-role.kubernetes.io/edge": ""}
	n.Spec.Taints = nil
	if _, err := api.Update(t.Context(), c, api.Nodes, n); err != nil {
		t.Error(err)
	}
}

// TestNodeOfAnother: what was made by hand or by its agent can be edited by hand at any time (N-1.11), also without
// saying over which version; and an update makes no Node (N-1.9).
func TestNodeOfAnother(t *testing.T) {
	c := open(t, Config{})
	if _, err := api.Create(asNode(t, "a"), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(*corev1.Node){
		func(n *corev1.Node) { n.Labels = map[string]string{"tier": "edge"} },
		func(n *corev1.Node) { n.Spec.Unschedulable = true },
		func(n *corev1.Node) { n.ResourceVersion, n.Spec.Unschedulable = "", false },
	} {
		n, err := api.Get[*corev1.Node](t.Context(), c, api.Nodes, "", "a")
		if err != nil {
			t.Fatal(err)
		}
		edit(n)
		if _, err := api.Update(t.Context(), c, api.Nodes, n); err != nil {
			t.Error(err)
		}
	}
	_, err := api.Update(t.Context(), c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	wantCode(t, err, 404, "not found")
}

// TestNodeReplaced: a Node made anew does not inherit what the agent of the old one ran (N-1.35); what no agent had
// taken up stays bound.
func TestNodeReplaced(t *testing.T) {
	c := open(t, Config{})
	make := func() { create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}) }
	make()
	ran, held := create(t, c, newPod("ran", "n")), create(t, c, newPod("held", "n"))
	create(t, c, newPod("fresh", "n"))
	create(t, c, newPod("elsewhere", "m"))
	held.Finalizers = []string{"ledge.dev/test"}
	held, err := api.Update(t.Context(), c, api.Pods, held)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{ran, held} {
		p.Status.StartTime, p.Status.Phase = ptr(metav1.Now()), corev1.PodRunning
		if _, err := api.UpdateStatus(t.Context(), c, api.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Delete(t.Context(), api.Nodes, "", "n", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	make()
	list, err := c.List(t.Context(), api.Pods, api.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range list.Items {
		left = append(left, o.GetName())
		if p := o.(*corev1.Pod); p.Name == "held" && (p.Status.Phase != corev1.PodFailed || p.DeletionTimestamp == nil ||
			p.Status.Conditions[len(p.Status.Conditions)-1].Reason != "DeletionByPodGC") {
			t.Errorf("%+v", p)
		}
	}
	early := create(t, c, newPod("early", "later")) // by an agent that could not make its Node yet
	early.Status.StartTime, early.Status.Phase = ptr(metav1.Now()), corev1.PodRunning
	if _, err := api.UpdateStatus(t.Context(), c, api.Pods, early); err != nil {
		t.Fatal(err)
	}
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
	if _, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", "early"); err != nil {
		t.Error(err)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"elsewhere", "fresh", "held"}) {
		t.Errorf("left: %v", left)
	}
}

// TestNodeLocal: N-10.24, N-10.25.
func TestNodeLocal(t *testing.T) {
	c := open(t, Config{})
	for _, hostNetwork := range []bool{false, true} {
		p := newPod("p", "")
		p.Annotations = map[string]string{nodeLocal: "true"}
		p.Spec.HostNetwork = hostNetwork
		got, err := api.Create(t.Context(), c, api.Pods, p)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, tol := range got.Spec.Tolerations {
			if tol.Operator != corev1.TolerationOpExists || tol.TolerationSeconds != nil {
				t.Errorf("%+v", tol)
			}
			all = append(all, strings.TrimPrefix(tol.Key, "node.kubernetes.io/")+":"+string(tol.Effect))
		}
		want := "not-ready:NoExecute unreachable:NoExecute disk-pressure:NoSchedule memory-pressure:NoSchedule pid-pressure:NoSchedule unschedulable:NoSchedule"
		if hostNetwork {
			want += " network-unavailable:NoSchedule"
		}
		if text := strings.Join(all, " "); text != want {
			t.Errorf("tolerates %s\nwant %s", text, want)
		}
		if _, err := c.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{Grace: ptr(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
}
