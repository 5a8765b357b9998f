// Package apitest is the suite that every api.Client passes: in process, over HTTP, and a real kube-apiserver.
// It relies on nothing but what Kubernetes does, so it names no rule that is ledge's own; those are tested
// where they live. Each case works in a namespace of its own, so that one server can take the whole suite.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/internal/testrun"
)

// A Case is one part of the suite.
type Case struct {
	Name string
	Run  func(t *testing.T, c api.Client)
}

// Cases lists the suite.
func Cases() []Case {
	var out []Case
	for _, part := range [][]Case{objectCases, patchCases, listCases, watchCases, podCases, placeCases, budgetCases, replicationCases,
		appsCases, placedCases, batchCases, autoscalerCases, ingressCases, quotaCases, attachmentCases,
		namespaceCases, adminCases, rightsCases, kindCases()} {
		out = append(out, part...)
	}
	return out
}

// Run runs the suite. open is called once for each case; it may answer the same Client each time, and cleans up
// with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) api.Client) {
	for _, tc := range Cases() {
		t.Run(tc.Name, func(t *testing.T) { tc.Run(t, open(t)) })
	}
}

// RunBubble runs the suite with each case in a bubble of testing/synctest. open makes everything the Client
// needs inside it and takes it down with t.Cleanup.
func RunBubble(t *testing.T, open func(t *testing.T) api.Client) {
	for _, tc := range Cases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.Run(t, open(t)) })
		})
	}
}

// patience bounds every wait of the suite.
const patience = 30 * time.Second

// env is what a case works with: a client, a context and a namespace of its own.
type env struct {
	*testing.T
	c   api.Client
	ctx context.Context
	ns  string
}

func begin(t *testing.T, c api.Client) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	e := &env{T: t, c: c, ctx: ctx}
	ns := e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "apitest-"}})
	e.ns = ns.GetName()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		zero := int64(0)
		if pods, err := c.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{Namespace: e.ns}}); err == nil {
			for _, p := range pods.Items { // nobody runs them: they would hold the namespace for their grace
				_, _ = c.Delete(ctx, api.Pods, e.ns, p.GetName(), api.DeleteOptions{Grace: &zero})
			}
		}
		if _, err := c.Delete(ctx, api.Namespaces, "", e.ns, api.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func kindOf(obj api.Object) *api.Kind {
	k, err := kinds.All.Of(obj)
	if err != nil {
		panic("ledge bug: " + err.Error())
	}
	return k
}

// create makes an object that must be makeable and answers what the server made of it.
func (e *env) create(obj api.Object) api.Object {
	e.Helper()
	out, err := e.c.Create(e.ctx, kindOf(obj), obj, api.WriteOptions{})
	e.must(err)
	return out
}

func (e *env) get(obj api.Object) api.Object {
	e.Helper()
	out, err := e.c.Get(e.ctx, kindOf(obj), obj.GetNamespace(), obj.GetName())
	e.must(err)
	return out
}

func (e *env) update(obj api.Object) api.Object {
	e.Helper()
	out, err := e.c.Update(e.ctx, kindOf(obj), obj, api.WriteOptions{})
	e.must(err)
	return out
}

func (e *env) delete(obj api.Object, opts api.DeleteOptions) {
	e.Helper()
	_, err := e.c.Delete(e.ctx, kindOf(obj), obj.GetNamespace(), obj.GetName(), opts)
	e.must(err)
}

// gone waits until an object is no more.
func (e *env) gone(obj api.Object) {
	e.Helper()
	e.eventually(obj.GetName()+" is gone", func() bool {
		_, err := e.c.Get(e.ctx, kindOf(obj), obj.GetNamespace(), obj.GetName())
		return apierrors.IsNotFound(err)
	})
}

func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	testrun.Until(e, patience, what, ok)
}

// fails checks the reason and the code of an error.
func (e *env) fails(err error, reason metav1.StatusReason, code int32) *metav1.Status {
	e.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		e.Fatalf("want %s, got %v, which is no Kubernetes status", reason, err)
	}
	s := status.Status()
	if s.Reason != reason || s.Code != code || s.Status != metav1.StatusFailure {
		e.Fatalf("want %s %d, got %s %d: %s", reason, code, s.Reason, s.Code, s.Message)
	}
	return &s
}

// hasCause checks that a 422 blames a field.
func (e *env) hasCause(s *metav1.Status, field string) {
	e.Helper()
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field == field {
				return
			}
		}
	}
	e.Errorf("no cause on %s: %+v", field, s)
}

func (e *env) configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.ns}, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// pod is one that no scheduler touches and that a board can run.
func (e *env) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.ns},
		Spec: corev1.PodSpec{
			SchedulerName:                "apitest",
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "c", Image: "ledge.local/self:v1"}},
		},
	}
}

// boundPod is a pod on a node that does not exist: nothing but the API acts on it.
func (e *env) boundPod(name string) *corev1.Pod {
	e.Helper()
	p := e.pod(name)
	p.Spec.NodeName = "apitest-no-such-node"
	return e.create(p).(*corev1.Pod)
}

func names(objs []api.Object) string {
	var out string
	for i, o := range objs {
		if i > 0 {
			out += " "
		}
		out += o.GetName()
	}
	return out
}

func counted(i int) string { return fmt.Sprintf("x%03d", i) }
