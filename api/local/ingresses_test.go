package local

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ledge/api"
	"ledge/api/networking"
)

func newIngress(name, class string, annotations map[string]string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: meta(name)}
	i.Annotations = annotations
	i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	if class != "" {
		i.Spec.IngressClassName = &class
	}
	return i
}

// TestOwnClass: it is there from the start, comes back, and stays as somebody set it.
func TestOwnClass(t *testing.T) {
	c := open(t, Config{})
	if got := create(t, c, newIngress("a", "", nil)).Spec.IngressClassName; got == nil || *got != networking.DefaultClass {
		t.Errorf("class %v", got)
	}
	_, err := c.Delete(t.Context(), networking.IngressClasses, "", networking.DefaultClass, api.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := create(t, c, newIngress("b", "", nil)).Spec.IngressClassName; got != nil {
		t.Errorf("class %q, where there is none", *got)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	own, err := api.Get[*networkingv1.IngressClass](t.Context(), c, networking.IngressClasses, "", networking.DefaultClass)
	if err != nil || !networking.IsDefault(own) || own.Spec.Controller != networking.Controller {
		t.Fatalf("%+v, %v", own, err)
	}
	own.Annotations[networkingv1.AnnotationIsDefaultIngressClass] = "false"
	if _, err := api.Update(t.Context(), c, networking.IngressClasses, own); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if got := create(t, c, newIngress("c", "", nil)).Spec.IngressClassName; got != nil {
		t.Errorf("class %q, which is no default any more", *got)
	}
}

// TestIngressWarnings: who asks ledge's controller by another's annotations hears what is not done.
func TestIngressWarnings(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &networkingv1.IngressClass{ObjectMeta: metav1Name("other"), Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}})
	const nginx = "nginx.ingress.kubernetes.io/"
	many := map[string]string{}
	for _, x := range "abcdefghijklmno" {
		many[nginx+string(x)] = ""
	}
	for name, tt := range map[string]struct {
		class       string
		annotations map[string]string
		want        []string
	}{
		"rewrite":       {"", map[string]string{nginx + "rewrite-target": "/"}, []string{"rewrite-target]: not followed"}},
		"others":        {"other", map[string]string{nginx + "rewrite-target": "/"}, nil},
		"followed":      {"ledge", map[string]string{nginx + "force-ssl-redirect": "true", nginx + "proxy-body-size": "8m"}, nil},
		"wrong":         {"ledge", map[string]string{nginx + "proxy-body-size": "lots"}, []string{`"lots" is not understood`}},
		"for others":    {"ledge", map[string]string{"cert-manager.io/cluster-issuer": "x", "plain": "y"}, nil},
		"traefik":       {"ledge", map[string]string{"traefik.ingress.kubernetes.io/router.tls": "true"}, []string{"router.tls]"}},
		"many":          {"ledge", many, append(strings.Split("a] b] c] d] e] f] g] h] i] j]", " "), "5 more")},
		"the older way": {"", map[string]string{networking.ClassAnnotation: "ledge", nginx + "x": ""}, []string{"x]", "is deprecated"}},
	} {
		var heard []string
		ctx := api.WithWarnings(t.Context(), once(&heard))
		i := newIngress("i", tt.class, tt.annotations)
		if _, err := c.Create(ctx, networking.Ingresses, i, api.WriteOptions{DryRun: true}); err != nil {
			t.Fatal(err)
		}
		if len(heard) != len(tt.want) {
			t.Errorf("%s: heard %q", name, heard)
			continue
		}
		for n, want := range tt.want {
			if !strings.Contains(heard[n], want) {
				t.Errorf("%s: heard %q, want %q", name, heard[n], want)
			}
		}
	}
}

// TestIngressEvents: the pods that face strangers say something about Ingresses, and about nothing else.
func TestIngressEvents(t *testing.T) {
	c := open(t, Config{})
	ctx := api.WithUser(t.Context(), api.AccountUser("kube-system", networking.Pods))
	event := func(ctx context.Context, name, kind string) (api.Object, error) {
		return c.Create(ctx, api.Events, &corev1.Event{ObjectMeta: meta(name), Reason: "R", Type: "Warning",
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "default", Name: "x"}}, api.WriteOptions{})
	}
	if _, err := event(ctx, "a", "Ingress"); err != nil {
		t.Error(err)
	}
	_, err := event(ctx, "b", "Node")
	wantCode(t, err, 403, "only write events about ingresses")
	node, err := event(t.Context(), "c", "Node")
	if err != nil {
		t.Fatal(err)
	}
	node.(*corev1.Event).InvolvedObject.Kind = "Ingress"
	_, err = c.Update(ctx, api.Events, node, api.WriteOptions{})
	wantCode(t, err, 403, "only write events about ingresses")
}
