package apitest

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/networking"
)

var ingressCases = []Case{
	{"Ingress", testIngress},
	{"IngressRefused", testIngressRefused},
	{"IngressStatus", testIngressStatus},
	{"IngressDefaultClass", testIngressDefaultClass},
	{"IngressClassRefused", testIngressClassRefused},
}

// ingress is one of a class that nobody serves.
func (e *env) ingress(name string) *networkingv1.Ingress {
	class, kind := "apitest-none", networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web",
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: networkingv1.IngressSpec{
		IngressClassName: &class, TLS: []networkingv1.IngressTLS{{Hosts: []string{"*.example.com"}, SecretName: "tls"}},
		Rules: []networkingv1.IngressRule{{Host: "a.example.com", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind, Backend: backend}}}}}}}}
}

func testIngress(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.ingress("i")
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	made := e.create(in).(*networkingv1.Ingress)
	if made.Generation != 1 || len(made.Status.LoadBalancer.Ingress) > 0 || *made.Spec.IngressClassName != "apitest-none" {
		t.Errorf("made: %+v", made)
	}
	made.Spec.Rules[0].Host = "b.example.com"
	changed := e.update(made).(*networkingv1.Ingress)
	if changed.Generation != 2 {
		t.Errorf("generation %d after a change", changed.Generation)
	}
	// What an Ingress may not be made with, a later one may have: the annotation of the older form beside another class.
	changed.Annotations = map[string]string{networking.ClassAnnotation: "other"}
	if again := e.update(changed); again.GetGeneration() != 2 {
		t.Errorf("generation %d after an annotation", again.GetGeneration())
	}
}

func testIngressRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	path := func(i *networkingv1.Ingress) *networkingv1.HTTPIngressPath { return &i.Spec.Rules[0].HTTP.Paths[0] }
	const paths = "spec.rules[0].http.paths[0]"
	for name, tt := range map[string]struct {
		field string
		edit  func(*networkingv1.Ingress)
	}{
		"nothing":        {"spec", func(i *networkingv1.Ingress) { i.Spec.Rules = nil }},
		"address":        {"spec.rules[0].host", func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "192.0.2.1" }},
		"wildcard":       {"spec.rules[0].host", func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "*.*.example.com" }},
		"star inside":    {"spec.rules[0].host", func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "a*.example.com" }},
		"port in host":   {"spec.rules[0].host", func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "a.example.com:80" }},
		"no paths":       {"spec.rules[0].http.paths", func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP.Paths = nil }},
		"no type":        {paths + ".pathType", func(i *networkingv1.Ingress) { path(i).PathType = nil }},
		"type":           {paths + ".pathType", func(i *networkingv1.Ingress) { *path(i).PathType = "Regex" }},
		"relative":       {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "x" }},
		"no path":        {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "" }},
		"two slashes":    {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "/a//b" }},
		"upwards":        {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "/a/../b" }},
		"ends upwards":   {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "/a/.." }},
		"encoded":        {paths + ".path", func(i *networkingv1.Ingress) { path(i).Path = "/a%2fb" }},
		"relative, free": {paths + ".path", func(i *networkingv1.Ingress) { *path(i).PathType, path(i).Path = "ImplementationSpecific", "x" }},
		"no backend":     {paths + ".backend", func(i *networkingv1.Ingress) { path(i).Backend.Service = nil }},
		"no name":        {paths + ".backend.service.name", func(i *networkingv1.Ingress) { path(i).Backend.Service.Name = "" }},
		"name":           {paths + ".backend.service.name", func(i *networkingv1.Ingress) { path(i).Backend.Service.Name = "A_b" }},
		"no port":        {paths + ".backend", func(i *networkingv1.Ingress) { path(i).Backend.Service.Port.Number = 0 }},
		"two ports":      {paths + ".backend", func(i *networkingv1.Ingress) { path(i).Backend.Service.Port.Name = "http" }},
		"port":           {paths + ".backend.service.port.number", func(i *networkingv1.Ingress) { path(i).Backend.Service.Port.Number = 65536 }},
		"port name": {paths + ".backend.service.port.name", func(i *networkingv1.Ingress) {
			path(i).Backend.Service.Port = networkingv1.ServiceBackendPort{Name: "too-long-for-a-port"}
		}},
		"TLS host": {"spec.tls[0].hosts[0]", func(i *networkingv1.Ingress) { i.Spec.TLS[0].Hosts[0] = "*" }},
		"secret":   {"spec.tls[0].secretName", func(i *networkingv1.Ingress) { i.Spec.TLS[0].SecretName = "A_b" }},
		"class":    {"spec.ingressClassName", func(i *networkingv1.Ingress) { *i.Spec.IngressClassName = "A_b" }},
		"two classes": {"annotations." + networking.ClassAnnotation, func(i *networkingv1.Ingress) {
			i.Annotations = map[string]string{networking.ClassAnnotation: "other"}
		}},
	} {
		i := e.ingress("i")
		tt.edit(i)
		_, err := c.Create(e.ctx, networking.Ingresses, i, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tt.field)
	}
	// A path of a kind that each controller reads its own way may be anything that is absolute.
	free := e.ingress("i")
	*path(free).PathType, path(free).Path = networkingv1.PathTypeImplementationSpecific, "/a/(.*)//b"
	e.create(free)
}

func testIngressStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	i := e.create(e.ingress("i")).(*networkingv1.Ingress)
	i.Spec.Rules[0].Host = "b.example.com"
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "board.example.com"}}
	i, err := api.UpdateStatus(e.ctx, c, networking.Ingresses, i)
	e.must(err)
	if len(i.Status.LoadBalancer.Ingress) != 2 || i.Spec.Rules[0].Host != "a.example.com" || i.Generation != 1 {
		t.Errorf("got %+v", i)
	}
	for field, in := range map[string]networkingv1.IngressLoadBalancerIngress{
		"status.loadBalancer.ingress[0].ip":       {IP: "x"},
		"status.loadBalancer.ingress[0].hostname": {Hostname: "192.0.2.1"},
	} {
		i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{in}
		_, err = api.UpdateStatus(e.ctx, c, networking.Ingresses, i)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
}

// testIngressDefaultClass: who names no class gets the newest default, unless he names it in the older form (N-11.46).
func testIngressDefaultClass(t *testing.T, c api.Client) {
	e := begin(t, c)
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: e.ns, Annotations: map[string]string{
		networkingv1.AnnotationIsDefaultIngressClass: "true"}}, Spec: networkingv1.IngressClassSpec{Controller: "apitest.dev/none"}}
	e.create(class)
	t.Cleanup(func() { _, _ = c.Delete(e.ctx, networking.IngressClasses, "", class.Name, api.DeleteOptions{}) })
	plain := e.ingress("plain")
	plain.Spec.IngressClassName = nil
	for end := time.Now().Add(patience); ; { // a server may hear of a class late
		made, err := c.Create(e.ctx, networking.Ingresses, plain, api.WriteOptions{DryRun: true})
		e.must(err)
		if name := made.(*networkingv1.Ingress).Spec.IngressClassName; name != nil && *name == class.Name {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the default class is not given: %+v", made)
		}
		time.Sleep(50 * time.Millisecond)
	}
	old := e.ingress("old")
	old.Spec.IngressClassName, old.Annotations = nil, map[string]string{networking.ClassAnnotation: "other"}
	if made := e.create(old).(*networkingv1.Ingress); made.Spec.IngressClassName != nil {
		t.Errorf("a class beside the annotation: %s", *made.Spec.IngressClassName)
	}
}

func testIngressClassRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	scope, namespace := networkingv1.IngressClassParametersReferenceScopeNamespace, "default"
	sample := func() *networkingv1.IngressClass {
		return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: e.ns}, Spec: networkingv1.IngressClassSpec{
			Controller: "apitest.dev/none", Parameters: &networkingv1.IngressClassParametersReference{Kind: "Thing", Name: "it"}}}
	}
	for name, tt := range map[string]struct {
		field string
		edit  func(*networkingv1.IngressClassSpec)
	}{
		"no controller": {"spec.controller", func(s *networkingv1.IngressClassSpec) { s.Controller = "" }},
		"controller":    {"spec.controller", func(s *networkingv1.IngressClassSpec) { s.Controller = "nginx" }},
		"too long":      {"spec.controller", func(s *networkingv1.IngressClassSpec) { s.Controller = "a.b/" + strings.Repeat("x", 250) }},
		"kind":          {"spec.parameters.kind", func(s *networkingv1.IngressClassSpec) { s.Parameters.Kind = "" }},
		"name":          {"spec.parameters.name", func(s *networkingv1.IngressClassSpec) { s.Parameters.Name = "a/b" }},
		"namespace":     {"spec.parameters.namespace", func(s *networkingv1.IngressClassSpec) { s.Parameters.Scope = &scope }},
		"no namespace":  {"spec.parameters.namespace", func(s *networkingv1.IngressClassSpec) { s.Parameters.Namespace = &namespace }},
		"scope": {"spec.parameters.scope", func(s *networkingv1.IngressClassSpec) {
			bad := "Board"
			s.Parameters.Scope = &bad
		}},
	} {
		class := sample()
		tt.edit(&class.Spec)
		_, err := c.Create(e.ctx, networking.IngressClasses, class, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tt.field)
	}
	made := e.create(sample()).(*networkingv1.IngressClass)
	t.Cleanup(func() { _, _ = c.Delete(e.ctx, networking.IngressClasses, "", made.Name, api.DeleteOptions{}) })
	if s := made.Spec.Parameters.Scope; s == nil || *s != networkingv1.IngressClassParametersReferenceScopeCluster {
		t.Errorf("scope %v", s)
	}
	made.Spec.Controller = "apitest.dev/other"
	_, err := c.Update(e.ctx, networking.IngressClasses, made, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "spec.controller")
}
