package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/networking"
)

// way makes an Ingress of a class.
func (r *rig) way(name, class string) {
	r.Helper()
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	i.Spec.IngressClassName = &class
	i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	_, err := api.Create(r.ctx, r.Client, networking.Ingresses, i)
	must(r, i, err)
	r.pass(time.Second)
}

// ingressPods is the DaemonSet, if there is one.
func (r *rig) ingressPods() *appsv1.DaemonSet {
	r.Helper()
	s, err := api.Get[*appsv1.DaemonSet](r.ctx, r.Client, apps.DaemonSets, metav1.NamespaceSystem, networking.Pods)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return must(r, s, err)
}

// at is where an Ingress says that it is reached.
func (r *rig) at(name string) string {
	r.Helper()
	i, err := api.Get[*networkingv1.Ingress](r.ctx, r.Client, networking.Ingresses, "default", name)
	text := ""
	for _, in := range must(r, i, err).Status.LoadBalancer.Ingress {
		text += in.IP + " "
	}
	return text
}

// TestIngressPods: they come with the first Ingress of ledge's class, go some time after the last, and are where it says.
func TestIngressPods(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		if _, followed := r.watched.Load(networking.IngressClasses); followed {
			t.Error("classes are followed before there is an Ingress")
		}
		r.way("others", "somebodys")
		if r.ingressPods() != nil {
			t.Error("pods for another class")
		}
		r.node("n")
		r.alive("n")
		r.node("out", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }) // which gets no pod
		r.alive("out")
		n := r.getNode("n")
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeInternalIP, Address: "2001:db8::1"}}
		_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
		must(r, n, err)
		r.way("ours", networking.DefaultClass)
		if r.ingressPods() == nil || r.at("ours") != "" {
			t.Fatalf("pods %v, reached at %q", r.ingressPods(), r.at("ours"))
		}
		pods, err := r.List(r.ctx, api.Pods, api.ListOptions{Selection: api.Selection{Namespace: metav1.NamespaceSystem}})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("%v %v", pods.Items, err)
		}
		ready := func(is corev1.ConditionStatus) {
			p, err := api.Get[*corev1.Pod](r.ctx, r.Client, api.Pods, metav1.NamespaceSystem, pods.Items[0].GetName())
			must(r, p, err)
			p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: "10.42.0.2"}}
			p.Status.PodIP = "10.42.0.2"
			setCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: is}, time.Now())
			_, err = api.UpdateStatus(r.ctx, r.Client, api.Pods, p)
			must(r, p, err)
			r.pass(time.Second)
		}
		for _, step := range []struct {
			is   corev1.ConditionStatus
			want string
		}{{corev1.ConditionTrue, "192.0.2.1 "}, {corev1.ConditionFalse, ""}, {corev1.ConditionTrue, "192.0.2.1 "}} {
			if ready(step.is); r.at("ours") != step.want || r.at("others") != "" {
				t.Errorf("ready %s: reached at %q and %q", step.is, r.at("ours"), r.at("others"))
			}
		}

		// What somebody changes stays, until this ledge wants other pods than the one that made them.
		set := r.ingressPods()
		set.Spec.Template.Spec.NodeSelector = map[string]string{"door": "yes"}
		_, err = api.Update(r.ctx, r.Client, apps.DaemonSets, set)
		must(r, set, err)
		if r.pass(time.Hour); r.ingressPods().Spec.Template.Spec.NodeSelector["door"] != "yes" {
			t.Error("a change was taken back")
		}
		set = r.ingressPods()
		set.Annotations[ingressMark] = "of an older ledge"
		_, err = api.Update(r.ctx, r.Client, apps.DaemonSets, set)
		must(r, set, err)
		if r.pass(time.Second); r.ingressPods().Spec.Template.Spec.NodeSelector != nil || r.ingressPods().Annotations[ingressMark] == "of an older ledge" {
			t.Error("the pods of an older ledge stay")
		}

		r.drop(networking.Ingresses, "ours")
		if r.pass(ingressLinger / 2); r.ingressPods() == nil {
			t.Error("gone at once")
		}
		r.way("again", networking.DefaultClass)
		if r.pass(time.Hour); r.ingressPods() == nil {
			t.Error("gone beside an Ingress that came again")
		}
		r.drop(networking.Ingresses, "again")
		if r.pass(ingressLinger + time.Second); r.ingressPods() != nil || !r.gone(api.ServiceAccounts, metav1.NamespaceSystem, networking.Pods) {
			t.Error("still there")
		}
	})
}

// TestIngressPorts: a port of the boards has one holder, whoever came first.
func TestIngressPorts(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.alive("n")
		n := r.getNode("n")
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
		_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
		must(r, n, err)
		balanced := func(name string) {
			r.service(name, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
		}
		has := func(name string) bool { return len(r.getService(name).Status.LoadBalancer.Ingress) > 0 }
		balanced("first")
		r.pass(time.Second)
		r.way("ours", networking.DefaultClass)
		if !has("first") || r.ingressPods() != nil {
			t.Error("the ports of a service were taken")
		}
		r.want("told", r.events("PortTaken"),
			"ingress-controller Warning PortTaken ours: Not reachable at the boards: port 80/TCP of the boards is that of service default/first")
		r.drop(api.Services, "first")
		if r.pass(time.Second); r.ingressPods() == nil {
			t.Error("no pods where the ports are free")
		}
		balanced("second")
		if r.pass(time.Second); has("second") {
			t.Error("the ports of the pods were given to a service")
		}
		r.drop(networking.Ingresses, "ours")
		if r.pass(ingressLinger + 2*time.Second); !has("second") {
			t.Error("the service waits for nobody")
		}
	})
}
