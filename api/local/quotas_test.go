package local

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/api/quota"
)

func newQuota(ns, name, hard string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: in(ns, name), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for pair := range strings.SplitSeq(hard, ",") {
		name, amount, _ := strings.Cut(pair, "=")
		q.Spec.Hard[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return q
}

func usedOf(t *testing.T, c *Client, ns, name string) map[string]string {
	t.Helper()
	q, err := api.Get[*corev1.ResourceQuota](t.Context(), c, api.ResourceQuotas, ns, name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, q := range q.Status.Used {
		out[string(name)] = q.String()
	}
	return out
}

// running has the client do what it does without being asked.
func running(t *testing.T, c *Client) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Statuses follow what is made, changed and deleted; a quota that is raised counts at once; one of another namespace counts nothing; what
// somebody writes into a status is put right, and so is a count that has gone wrong.
func TestQuotaStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config{})
		running(t, c)
		create(t, c, newPod("old", ""))
		create(t, c, newQuota("default", "q", "pods=2,secrets=1,count/secrets=5"))
		create(t, c, newQuota("kube-system", "q", "pods=7"))
		want := func(what, text string) {
			t.Helper()
			time.Sleep(time.Second)
			if got := fmt.Sprint(usedOf(t, c, "default", "q")); got != "map["+text+"]" {
				t.Errorf("%s: %s, want %s", what, got, text)
			}
		}
		want("what was there counts", "count/secrets:0 pods:1 secrets:0")
		create(t, c, newPod("p", "n"))
		if _, err := api.Create(t.Context(), c, api.Pods, newPod("more", "")); !apierrors.IsForbidden(err) {
			t.Error("more than may be:", err)
		}
		want("made", "count/secrets:0 pods:2 secrets:0")
		remove(t, c, api.Pods, "default", "old")
		want("deleted", "count/secrets:0 pods:1 secrets:0")
		remove(t, c, api.Pods, "default", "p") // it has a node that does not answer
		want("it has its grace", "count/secrets:0 pods:1 secrets:0")
		time.Sleep(time.Minute)
		want("nobody waits for it longer", "count/secrets:0 pods:0 secrets:0")
		q, err := api.Get[*corev1.ResourceQuota](t.Context(), c, api.ResourceQuotas, "default", "q")
		if err != nil {
			t.Fatal(err)
		}
		q.Status.Used["pods"] = resource.MustParse("77")
		if q, err = api.UpdateStatus(t.Context(), c, api.ResourceQuotas, q); err != nil {
			t.Fatal(err)
		}
		create(t, c, newPod("a", ""))
		create(t, c, newPod("b", ""))
		want("a status of somebody's counts nothing", "count/secrets:0 pods:2 secrets:0")
		q.Spec.Hard["pods"] = resource.MustParse("3")
		q.ResourceVersion = ""
		if _, err := c.Update(t.Context(), api.ResourceQuotas, q, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, c, newPod("c", ""))
		want("raised", "count/secrets:0 pods:3 secrets:0")
		c.quotas.mu.Lock()
		c.quotas.spaces["default"].Apply(api.Secrets, nil, &corev1.Secret{ObjectMeta: in("default", "ghost")})
		c.quotas.mu.Unlock()
		time.Sleep(2 * quotaHeal)
		want("counted anew", "count/secrets:0 pods:3 secrets:0")
		if got := usedOf(t, c, "kube-system", "q")["pods"]; got != "0" {
			t.Error("another namespace has", got)
		}
		remove(t, c, api.ResourceQuotas, "default", "q")
		remove(t, c, api.ResourceQuotas, "kube-system", "q")
		time.Sleep(time.Second)
		if c.quotas.any() {
			t.Error("something is remembered of quotas that are gone")
		}
		create(t, c, newQuota("default", "q", "pods=3"))
		want("again", "pods:3")
	})
}

// However many write at once, and whatever fails of it: what is let in is what may be (N-13.13). The store commits many writes together,
// tries each twice here, and forgets all but the last 512 changes.
func TestQuotaIsExact(t *testing.T) {
	c := open(t, Config{})
	running(t, c)
	create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
	const most, writers, each = 40, 8, 60
	create(t, c, newQuota("x", "q", fmt.Sprintf("count/secrets=%d", most)))
	var there atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("s%d-%d", w, i)
				_, err := c.Create(t.Context(), api.Secrets, &corev1.Secret{ObjectMeta: in("x", name)}, api.WriteOptions{DryRun: i%5 == 0})
				switch {
				case err != nil && !apierrors.IsForbidden(err):
					t.Error(err)
				case err == nil && i%5 != 0:
					if n := there.Add(1); n > most {
						t.Errorf("%d are there, %d may be", n, most)
					}
					if i%2 == 0 {
						there.Add(-1) // first: others may take its place before we hear of it
						if _, err := c.Delete(t.Context(), api.Secrets, "x", name, api.DeleteOptions{}); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	l, err := c.List(t.Context(), api.Secrets, api.ListOptions{Selection: api.Selection{Namespace: "x"}})
	if err != nil || len(l.Items) != int(there.Load()) || len(l.Items) > most {
		t.Fatalf("%d are there, %d were made, %d may be, %v", len(l.Items), there.Load(), most, err)
	}
}

// A quota counts with the very write that makes or changes it, in whatever company it is committed.
func TestQuotaCountsAtOnce(t *testing.T) {
	c := open(t, Config{})
	for round := range 30 {
		ns := fmt.Sprint("x", round)
		create(t, c, &corev1.Namespace{ObjectMeta: metav1Name(ns)})
		var wg sync.WaitGroup
		var bounded atomic.Bool
		for i := range 6 {
			wg.Go(func() {
				if i == 3 {
					_, err := api.Create(t.Context(), c, api.ResourceQuotas, newQuota(ns, "q", "count/secrets=0"))
					bounded.Store(err == nil)
					return
				}
				was := bounded.Load()
				if _, err := api.Create(t.Context(), c, api.Secrets, &corev1.Secret{ObjectMeta: in(ns, fmt.Sprint("s", i))}); err == nil && was {
					t.Error("made although there was a quota of none")
				}
			})
		}
		wg.Wait()
		if _, err := api.Create(t.Context(), c, api.Secrets, &corev1.Secret{ObjectMeta: in(ns, "late")}); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
}

// Every write of a pod looks at all quotas and limits of its namespace: there are some at most.
func TestFewQuotas(t *testing.T) {
	c := open(t, Config{})
	for i := range quota.MostOf {
		create(t, c, newQuota("default", fmt.Sprint("q", i), "count/pods=1000000"))
		create(t, c, &corev1.LimitRange{ObjectMeta: in("default", fmt.Sprint("l", i))})
	}
	for _, one := range []struct {
		kind *api.Kind
		obj  api.Object
	}{{api.ResourceQuotas, newQuota("default", "more", "pods=1")}, {api.LimitRanges, &corev1.LimitRange{ObjectMeta: in("default", "more")}}} {
		_, err := c.Create(t.Context(), one.kind, one.obj, api.WriteOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "has 100 "+one.kind.Resource+" already") {
			t.Error(err)
		}
	}
	begin := time.Now()
	create(t, c, newPod("p", ""))
	if took := time.Since(begin); took > 5*time.Second {
		t.Error("a pod took", took)
	}
}

// What the system makes itself is counted and not refused: a namespace gets its account and its ConfigMap.
func TestQuotaAndTheSystem(t *testing.T) {
	c := open(t, Config{})
	create(t, c, newQuota("default", "q", "count/serviceaccounts=0"))
	remove(t, c, api.ServiceAccounts, "default", "default")
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), api.ServiceAccounts, "default", "default"); err != nil {
		t.Error(err)
	}
}

// BenchmarkQuotas is what a pod costs beside none, one and ten quotas that are about all it takes, and where quotas are elsewhere.
func BenchmarkQuotas(b *testing.B) {
	for _, n := range []int{0, 1, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := open(b, Config{})
			for i := range n {
				q := newQuota("default", fmt.Sprint("q", i), "pods=1M,count/pods=1M,requests.cpu=1M,requests.memory=1Pi,limits.memory=1Pi")
				if _, err := api.Create(b.Context(), c, api.ResourceQuotas, q); err != nil {
					b.Fatal(err)
				}
			}
			list := corev1.ResourceList{"cpu": resource.MustParse("1m"), "memory": resource.MustParse("1Mi")}
			i := 0
			for b.Loop() {
				p := newPod(fmt.Sprint("p", i), "")
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
				if _, err := c.Create(b.Context(), api.Pods, p, api.WriteOptions{}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
