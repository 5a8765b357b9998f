package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/coordination"
	"ledge/storage"
)

// What only says "still there" waits for the next commit, everything else is on disk when it is answered
// (architecture: Leases are lazy). The file tells which is which.
// Heartbeats are such writes (N-2.18), and statuses of workloads that only count (N-12.12).
func TestLazyWrites(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	checkLazy(t, c, filepath.Join(dir, "state.db"))
}

func checkLazy(t *testing.T, c *Client, path string) {
	now := metav1.NowMicro()
	lease := create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "kube-node-lease"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr("n"), RenewTime: &now}})
	node := create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: metav1.Now()}}}})
	pod := create(t, c, newPod("p", "n"))
	pod.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "True", LastProbeTime: metav1.Now()}}
	pod, err := api.UpdateStatus(t.Context(), c, api.Pods, pod)
	if err != nil {
		t.Fatal(err)
	}
	deployment := create(t, c, &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: newPod("p", "").Spec}}})
	update := func(kind *api.Kind, o api.Object, sub string) { write(t, c, kind, o, sub) }
	later := metav1.NewTime(time.Now().Add(time.Minute))
	for _, step := range []struct {
		name string
		lazy bool
		do   func()
	}{
		{"a renewal", true, func() {
			at := metav1.NewMicroTime(later.Time)
			lease.Spec.RenewTime = &at
			update(coordination.Leases, lease, "")
		}},
		{"a new holder", false, func() {
			lease.Spec.HolderIdentity = ptr("m")
			update(coordination.Leases, lease, "")
		}},
		{"a node's heartbeat", true, func() {
			node.Status.Conditions[0].LastHeartbeatTime = later
			update(api.Nodes, node, "status")
		}},
		{"a node's condition", false, func() {
			node.Status.Conditions[0].Status = "False"
			update(api.Nodes, node, "status")
		}},
		{"a node's label", false, func() {
			node.Labels = map[string]string{"a": "b"}
			update(api.Nodes, node, "")
		}},
		{"a pod's probe", true, func() {
			pod.Status.Conditions[0].LastProbeTime = later
			update(api.Pods, pod, "status")
		}},
		{"a pod's phase", false, func() {
			pod.Status.Phase = corev1.PodRunning
			update(api.Pods, pod, "status")
		}},
		{"a pod's generation that was seen", true, func() {
			pod.Status.ObservedGeneration = 1
			update(api.Pods, pod, "status")
		}},
		{"what a deployment counts", true, func() {
			deployment.Status.Replicas, deployment.Status.ObservedGeneration = 3, 1
			update(apps.Deployments, deployment, "status")
		}},
		{"what a deployment says", false, func() {
			deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: "True", Reason: "x"}}
			update(apps.Deployments, deployment, "status")
		}},
		{"that it still says so", true, func() {
			deployment.Status.Conditions[0].LastUpdateTime = later
			update(apps.Deployments, deployment, "status")
		}},
		{"an event", true, func() {
			create(t, c, &corev1.Event{ObjectMeta: meta("e"), InvolvedObject: corev1.ObjectReference{Namespace: "default"}})
		}},
		{"a repeated event", true, func() {
			e, err := api.Get[*corev1.Event](t.Context(), c, api.Events, "default", "e")
			if err != nil {
				t.Fatal(err)
			}
			e.Count = 2
			update(api.Events, e, "")
		}},
		{"a config map", false, func() { create(t, c, &corev1.ConfigMap{ObjectMeta: meta("c")}) }},
	} {
		before := read(t, path)
		step.do()
		if lazy := bytes.Equal(before, read(t, path)); lazy != step.lazy {
			t.Errorf("%s: lazy is %v", step.name, lazy)
		}
	}
}

// write updates an object, which must change something.
func write(t *testing.T, c *Client, kind *api.Kind, o api.Object, sub string) {
	t.Helper()
	out, err := c.Update(t.Context(), kind, o, api.WriteOptions{Subresource: sub})
	if err != nil {
		t.Fatal(err)
	}
	if out.GetResourceVersion() == o.GetResourceVersion() {
		t.Error("nothing was written at all")
	}
	o.SetResourceVersion(out.GetResourceVersion())
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestErrorsOfTheStore(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int32
		text string
	}{
		{fmt.Errorf("write /var/lib/ledge/state.db: %w", syscall.ENOSPC), 507, "free some space"},
		{fmt.Errorf("grow: %w", syscall.EDQUOT), 507, "free some space"},
		{fmt.Errorf("x: %w", storage.ErrBroken), 500, "cannot write"},
		{errors.New("bad"), 500, "cannot write pod \"p\": bad"},
		{context.Canceled, 504, "did not complete"},
		{apierrors.NewNotFound(api.Pods.GR(), "p"), 404, "not found"},
	} {
		wantCode(t, status(tc.err, "write pod %q", "p"), tc.code, tc.text)
	}
	if status(nil, "write") != nil {
		t.Error("no error became one")
	}
}

// With its store closed a client answers statuses, and its watches end.
func TestClosedStore(t *testing.T) {
	s, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), api.Pods, api.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: %v", err)
	}
	_, err = c.Get(t.Context(), api.Pods, "default", "p")
	wantCode(t, err, 500, "closed")
	_, err = c.List(t.Context(), api.Pods, api.ListOptions{})
	wantCode(t, err, 500, "closed")
	_, err = c.Create(t.Context(), api.Pods, newPod("p", ""), api.WriteOptions{})
	wantCode(t, err, 500, "closed")
	_, err = c.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{})
	wantCode(t, err, 500, "closed")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Get(over, api.Pods, "default", "p")
	wantCode(t, err, 504, "canceled")
}

// A value that a bad card has spoiled does not take anything else along, and can be deleted.
func TestDamagedObject(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	const marker = "this-text-is-nowhere-else"
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("bad"), Data: map[string]string{"k": marker}})
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("good")})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte(marker)) {
		t.Fatalf("the marker is not in the file: %v", err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(marker), []byte(strings.ToUpper(marker))), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true, Check: func(context.Context, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c, err = New(Config{Store: s}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), api.ConfigMaps, "default", "bad")
	wantCode(t, err, 500, `configmap "default/bad" is damaged in the store and cannot be read: delete it and create it again`)
	_, err = c.Create(t.Context(), api.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta("bad")}, api.WriteOptions{})
	wantCode(t, err, 500, "damaged")
	if l, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{}); err != nil || len(l.Items) != 1 {
		t.Errorf("got %v, %v", l.Items, err)
	}
	if out, err := c.Delete(t.Context(), api.ConfigMaps, "default", "bad", api.DeleteOptions{}); err != nil || out.GetName() != "bad" {
		t.Errorf("delete: %v, %v", out, err)
	}
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("bad")})
}
