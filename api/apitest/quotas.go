package apitest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

var quotaCases = []Case{
	{"QuotaOfPods", testQuotaOfPods},
	{"QuotaIsExact", testQuotaIsExact},
	{"QuotaOfCompute", testQuotaOfCompute},
	{"QuotaOfServices", testQuotaOfServices},
	{"QuotaCounts", testQuotaCounts},
	{"QuotaScopes", testQuotaScopes},
	{"QuotaResize", testQuotaResize},
	{"QuotaRefused", testQuotaRefused},
	{"LimitRange", testLimitRange},
	{"LimitRangeBounds", testLimitRangeBounds},
	{"LimitRangeRefused", testLimitRangeRefused},
}

// amounts reads "cpu=1,memory=1Gi".
func amounts(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, q, ok := strings.Cut(pair, "="); ok {
			out[corev1.ResourceName(name)] = resource.MustParse(q)
		}
	}
	return out
}

func quotaOf(e *env, name, hard string, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard), Scopes: scopes}}
}

// bounded makes a quota. Nothing of what it is about is there yet, and the word of its controller is the suite's: there is none in it, or
// it comes to the same.
func (e *env) bounded(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	e.Helper()
	q = e.create(q).(*corev1.ResourceQuota)
	if len(q.Status.Hard)+len(q.Status.Used) > 0 {
		e.Errorf("a new quota has the status %+v", q.Status)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
	for name := range q.Spec.Hard {
		q.Status.Used[name] = resource.MustParse("0")
	}
	q, err := api.UpdateStatus(e.ctx, e.c, api.ResourceQuotas, q)
	e.must(err)
	return q
}

// barred wants a write to be refused in these words.
func (e *env) barred(err error, words string) {
	e.Helper()
	if s := e.fails(err, metav1.StatusReasonForbidden, 403); !strings.HasSuffix(s.Message, "is forbidden: "+words) {
		e.Errorf("got  %s\nwant %s", s.Message, words)
	}
}

func (e *env) try(obj api.Object) error {
	_, err := e.c.Create(e.ctx, kindOf(obj), obj, api.WriteOptions{})
	return err
}

// asking is a pod with one container that asks for something.
func asking(e *env, name, requests, limits string) *corev1.Pod {
	p := e.pod(name)
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
	return p
}

func testQuotaOfPods(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "pods=2,count/pods=3"))
	e.bounded(quotaOf(e, "another", "count/configmaps=0")) // about something else
	_, err := c.Create(e.ctx, api.Pods, e.pod("dry"), api.WriteOptions{DryRun: true})
	e.must(err)
	e.create(e.pod("a"))
	e.create(e.pod("b"))
	e.barred(e.try(e.pod("c")), "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")
	e.barred(e.try(e.configMap("c")), "exceeded quota: another, requested: count/configmaps=1, used: count/configmaps=0, limited: count/configmaps=0")
	e.update(e.get(e.pod("a")))
}

// Many writers at once get as much as there is.
func testQuotaIsExact(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "secrets=7"))
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if e.try(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: fmt.Sprint("s", i)}}) == nil {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	if made.Load() != 7 {
		t.Errorf("%d of 20 were made, 7 may be", made.Load())
	}
}

// What is asked for, and what a container must say (N-13.13).
func testQuotaOfCompute(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "cpu=1,requests.memory=1Gi,limits.cpu=2,limits.memory=2Gi,requests.ephemeral-storage=1Gi,requests.example.com/radio=1"))
	e.barred(e.try(e.pod("p")), "failed quota: q: must specify cpu for: c; limits.cpu for: c; limits.memory for: c; requests.memory for: c")
	e.barred(e.try(asking(e, "p", "cpu=500m,memory=512Mi", "cpu=3,memory=3Gi")), "exceeded quota: q, requested: limits.cpu=3,limits.memory=3Gi, "+
		"used: limits.cpu=0,limits.memory=0, limited: limits.cpu=2,limits.memory=2Gi")
	e.create(asking(e, "p", "cpu=600m,memory=512Mi,ephemeral-storage=1Gi,example.com/radio=1", "cpu=1,memory=1Gi,ephemeral-storage=1Gi,example.com/radio=1"))
	e.barred(e.try(asking(e, "r", "cpu=500m,memory=1Gi,example.com/radio=1", "cpu=500m,memory=1Gi,example.com/radio=1")),
		"exceeded quota: q, requested: cpu=500m,requests.example.com/radio=1,requests.memory=1Gi, "+
			"used: cpu=600m,requests.example.com/radio=1,requests.memory=512Mi, limited: cpu=1,requests.example.com/radio=1,requests.memory=1Gi")
	e.create(asking(e, "r", "cpu=400m,memory=512Mi", "cpu=1,memory=1Gi"))
}

func testQuotaOfServices(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "services=2,services.nodeports=2,services.loadbalancers=0"))
	service := func(name string, kind corev1.ServiceType, ports ...int32) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: corev1.ServiceSpec{Type: kind}}
		for _, p := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p})
		}
		return s
	}
	e.barred(e.try(service("a", corev1.ServiceTypeLoadBalancer, 80)), "exceeded quota: q, requested: services.loadbalancers=1, "+
		"used: services.loadbalancers=0, limited: services.loadbalancers=0")
	e.barred(e.try(service("a", corev1.ServiceTypeNodePort, 80, 81, 82)), "exceeded quota: q, requested: services.nodeports=3, "+
		"used: services.nodeports=0, limited: services.nodeports=2")
	s := e.create(service("a", corev1.ServiceTypeNodePort, 80)).(*corev1.Service)
	e.create(service("b", corev1.ServiceTypeClusterIP, 80, 81, 82))
	e.barred(e.try(service("c", corev1.ServiceTypeClusterIP, 80)), "exceeded quota: q, requested: services=1, used: services=2, limited: services=2")
	// A change takes what it adds.
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	_, err := c.Update(e.ctx, api.Services, s, api.WriteOptions{})
	e.barred(err, "exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0")
	s.Spec.Type = corev1.ServiceTypeNodePort
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81}, corev1.ServicePort{Name: "most", Port: 82})
	_, err = c.Update(e.ctx, api.Services, s, api.WriteOptions{})
	e.barred(err, "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=1, limited: services.nodeports=2")
	s.Spec.Ports = s.Spec.Ports[:2]
	e.update(s)
}

func testQuotaCounts(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "count/deployments.apps=1,replicationcontrollers=1,count/replicationcontrollers=2,count/widgets.example.com=0"))
	e.create(e.deployment("a"))
	e.barred(e.try(e.deployment("b")), "exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, "+
		"limited: count/deployments.apps=1")
	e.create(e.replication("a"))
	e.barred(e.try(e.replication("b")), "exceeded quota: q, requested: replicationcontrollers=1, used: replicationcontrollers=1, "+
		"limited: replicationcontrollers=1")
	e.create(e.replicaSet("a"))
}

func testQuotaScopes(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "best", "pods=0", corev1.ResourceQuotaScopeBestEffort))
	e.bounded(quotaOf(e, "deadline", "pods=0", corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotBestEffort))
	across := quotaOf(e, "across", "pods=0")
	across.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopeCrossNamespacePodAffinity, Operator: corev1.ScopeSelectorOpExists}}}
	e.bounded(across)
	classes := quotaOf(e, "classes", "pods=0")
	classes.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"none", "system-node-critical"}}}}
	e.bounded(classes)
	full := func(name string) string {
		return "exceeded quota: " + name + ", requested: pods=1, used: pods=0, limited: pods=0"
	}
	e.barred(e.try(e.pod("p")), full("best"))
	p := asking(e, "p", "cpu=1m", "")
	e.create(p)
	seconds := int64(100)
	p = asking(e, "d", "cpu=1m", "")
	p.Spec.ActiveDeadlineSeconds = &seconds
	e.barred(e.try(p), full("deadline"))
	p = asking(e, "a", "cpu=1m", "")
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.
		PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}, Namespaces: []string{"default"}}}}}
	e.barred(e.try(p), full("across"))
	p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = nil
	e.create(p)
	p = asking(e, "c", "cpu=1m", "")
	p.Spec.PriorityClassName = "system-node-critical"
	e.barred(e.try(p), full("classes"))
	p.Spec.PriorityClassName = "system-cluster-critical"
	e.create(p)
	// A change that brings a pod into a scope is asked about, too.
	p = e.get(asking(e, "p", "", "")).(*corev1.Pod)
	p.Spec.ActiveDeadlineSeconds = &seconds
	_, err := c.Update(e.ctx, api.Pods, p, api.WriteOptions{})
	e.barred(err, full("deadline"))
}

func testQuotaResize(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.bounded(quotaOf(e, "q", "requests.cpu=1"))
	p := e.create(asking(e, "p", "cpu=500m", "")).(*corev1.Pod)
	p.Spec.Containers[0].Resources.Requests = amounts("cpu=1100m")
	_, err := c.Update(e.ctx, api.Pods, p, api.WriteOptions{Subresource: api.Resize})
	e.barred(err, "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1")
	p.Spec.Containers[0].Resources.Requests = amounts("cpu=1")
	_, err = c.Update(e.ctx, api.Pods, p, api.WriteOptions{Subresource: api.Resize})
	e.must(err)
}

func testQuotaRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	selector := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) *corev1.ScopeSelector {
		one := corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: op, Values: values}
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{one}}
	}
	for _, tc := range []struct {
		hard     string
		scopes   []corev1.ResourceQuotaScope
		selector *corev1.ScopeSelector
		field    string
	}{
		{hard: "nonsense=1", field: "spec.hard[nonsense]"},
		{hard: "pods=-1", field: "spec.hard[pods]"},
		{hard: "pods=1500m", field: "spec.hard[pods]"},
		{hard: "count/pods=1500m", field: "spec.hard[count/pods]"},
		{hard: "limits.cpu=-1m", field: "spec.hard[limits.cpu]"},
		{hard: "a/b/c=1", field: "spec.hard[a/b/c]"},
		{hard: "pods=1", scopes: []corev1.ResourceQuotaScope{"BestEffort", "NotBestEffort"}, field: "spec.scopes"},
		{hard: "pods=1", scopes: []corev1.ResourceQuotaScope{"Terminating", "NotTerminating"}, field: "spec.scopes"},
		{hard: "cpu=1", scopes: []corev1.ResourceQuotaScope{"BestEffort"}, field: "spec.scopes"},
		{hard: "secrets=1", scopes: []corev1.ResourceQuotaScope{"Terminating"}, field: "spec.scopes"},
		{hard: "pods=1", selector: selector("BestEffort", "In", "x")},
		{hard: "pods=1", selector: selector("PriorityClass", "In")},
		{hard: "pods=1", selector: selector("PriorityClass", "Exists", "x")},
		{hard: "pods=1", selector: selector("VolumeAttributesClass", "Exists")},
	} {
		q := quotaOf(e, "q", tc.hard, tc.scopes...)
		q.Spec.ScopeSelector = tc.selector
		if s := e.fails(e.try(q), metav1.StatusReasonInvalid, 422); tc.field != "" { // Kubernetes does not say which expression it is
			e.hasCause(s, tc.field)
		}
	}
	q := e.create(quotaOf(e, "q", "pods=1", corev1.ResourceQuotaScopeTerminating)).(*corev1.ResourceQuota)
	q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
	_, err := c.Update(e.ctx, api.ResourceQuotas, q, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.scopes")
}

func limitsOf(e *env, name string, items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
}

// What containers get that say nothing (N-12.13).
func testLimitRange(t *testing.T, c api.Client) {
	e := begin(t, c)
	l := e.create(limitsOf(e, "l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("cpu=2"), Min: amounts("ephemeral-storage=1Mi"),
		Default: amounts("memory=200Mi"), DefaultRequest: amounts("memory=100Mi")})).(*corev1.LimitRange)
	if got := fmt.Sprint(texts(l.Spec.Limits[0].Default), texts(l.Spec.Limits[0].DefaultRequest)); got !=
		"map[cpu:2 memory:200Mi] map[cpu:2 ephemeral-storage:1Mi memory:100Mi]" {
		t.Error("defaults of the range:", got)
	}
	p := asking(e, "p", "cpu=500m", "")
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "ledge.local/self:v1"}}
	p = e.create(p).(*corev1.Pod)
	got := p.Spec.Containers[0].Resources
	if all := fmt.Sprint(texts(got.Requests), texts(got.Limits)); all != "map[cpu:500m ephemeral-storage:1Mi memory:100Mi] map[cpu:2 memory:200Mi]" {
		t.Error("the container got", all)
	}
	if note := p.Annotations["kubernetes.io/limit-ranger"]; note != "LimitRanger plugin set: ephemeral-storage, memory request for container c; "+
		"cpu, memory limit for container c; cpu, ephemeral-storage, memory request for init container i; cpu, memory limit for init container i" {
		t.Error("the pod tells", note)
	}
	if p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Error("its class is", p.Status.QOSClass)
	}
	e.update(e.get(p)) // what was given stays
}

func texts(list corev1.ResourceList) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name, q := range list {
		out[name] = q.String()
	}
	return out
}

// What they may say (N-12.13).
func testLimitRangeBounds(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(limitsOf(e, "l",
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("cpu=100m"), Max: amounts("memory=1Gi"), MaxLimitRequestRatio: amounts("cpu=2")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: amounts("memory=1536Mi")}))
	e.barred(e.try(asking(e, "p", "cpu=50m,memory=1Mi", "cpu=100m,memory=1Mi")), "minimum cpu usage per Container is 100m, but request is 50m")
	e.barred(e.try(asking(e, "p", "cpu=100m,memory=1Mi", "cpu=100m,memory=2Gi")), "[maximum memory usage per Container is 1Gi, but limit is 2Gi, "+
		"maximum memory usage per Pod is 1536Mi, but limit is 2Gi]")
	e.barred(e.try(asking(e, "p", "cpu=100m,memory=1Mi", "cpu=300m,memory=1Mi")), "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000")
	e.barred(e.try(asking(e, "p", "memory=1Mi", "")), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0")
	two := asking(e, "p", "cpu=100m,memory=1Gi", "cpu=100m,memory=1Gi")
	two.Spec.Containers = append(two.Spec.Containers, two.Spec.Containers[0])
	two.Spec.Containers[1].Name = "d"
	e.barred(e.try(two), "maximum memory usage per Pod is 1536Mi, but limit is 2Gi")
	p := e.create(asking(e, "p", "cpu=100m,memory=1Mi", "cpu=200m,memory=1Mi")).(*corev1.Pod)
	p.Spec.Containers[0].Resources.Limits = amounts("cpu=300m,memory=1Mi")
	_, err := c.Update(e.ctx, api.Pods, p, api.WriteOptions{Subresource: api.Resize})
	e.barred(err, "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000")
}

func testLimitRangeRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for _, tc := range []struct {
		item  corev1.LimitRangeItem
		field string
	}{
		{corev1.LimitRangeItem{Type: "Node"}, "type"},
		{corev1.LimitRangeItem{Type: "Container", Max: amounts("nonsense=1")}, "max[nonsense]"},
		{corev1.LimitRangeItem{Type: "Container", Max: amounts("storage=1")}, "max[storage]"},
		{corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu=2"), Max: amounts("cpu=1")}, "min[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", Default: amounts("cpu=2"), Max: amounts("cpu=1")}, "default[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", DefaultRequest: amounts("cpu=2"), Default: amounts("cpu=1")}, "defaultRequest[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", DefaultRequest: amounts("cpu=1"), Min: amounts("cpu=2")}, "defaultRequest[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: amounts("cpu=500m")}, "maxLimitRequestRatio[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: amounts("cpu=3"), Min: amounts("cpu=1"), Max: amounts("cpu=2")},
			"maxLimitRequestRatio[cpu]"},
		{corev1.LimitRangeItem{Type: "Container", Default: amounts("example.com/radio=2"), DefaultRequest: amounts("example.com/radio=1")},
			"defaultRequest[example.com/radio]"},
		{corev1.LimitRangeItem{Type: "Pod", Default: amounts("cpu=1")}, "default"},
		{corev1.LimitRangeItem{Type: "Pod", DefaultRequest: amounts("cpu=1")}, "defaultRequest"},
		{corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: amounts("cpu=1")}, "limits"},
	} {
		e.hasCause(e.fails(e.try(limitsOf(e, "l", tc.item)), metav1.StatusReasonInvalid, 422), "spec.limits[0]."+tc.field)
	}
	twice := corev1.LimitRangeItem{Type: "Pod", Max: amounts("cpu=1")}
	e.hasCause(e.fails(e.try(limitsOf(e, "l", twice, twice)), metav1.StatusReasonInvalid, 422), "spec.limits[1].type")
}
