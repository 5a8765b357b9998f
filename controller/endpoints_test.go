//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/api/kinds"
)

// serving runs the loops with two boards.
func serving(t *testing.T, fn func(r *rig)) {
	t.Helper()
	plane(t, Config{}, func(r *rig) {
		for _, name := range []string{"n1", "n2"} {
			r.node(name, func(n *corev1.Node) {
				n.Labels = map[string]string{corev1.LabelTopologyZone: "zone-" + name}
			})
			n := r.getNode(name)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1" + name[1:]}}
			_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
			must(r, n, err)
			defer r.alive(name)()
		}
		fn(r)
	})
}

func (r *rig) service(name string, edit ...func(*corev1.Service)) *corev1.Service {
	r.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeClusterIP, map[string]string{"app": name}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}}
	for _, f := range edit {
		f(s)
	}
	s, err := api.Create(r.ctx, r.Client, api.Services, s)
	must(r, s, err)
	synctest.Wait()
	return s
}

func (r *rig) getService(name string) *corev1.Service {
	r.Helper()
	s, err := api.Get[*corev1.Service](r.ctx, r.Client, api.Services, "default", name)
	return must(r, s, err)
}

// remake changes a Service, as users do.
func (r *rig) remake(name string, edit func(*corev1.Service)) {
	r.Helper()
	_, _, err := amend(r.ctx, r.Client, api.Services, r.getService(name), "", func(s *corev1.Service) bool { edit(s); return true })
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) drop(kind *api.Kind, name string) {
	r.Helper()
	if _, err := r.Delete(r.ctx, kind, "default", name, api.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// backend is a pod with a label and an address that is ready.
func (r *rig) backend(name, app, ip, node string) {
	r.Helper()
	r.pod(name, func(p *corev1.Pod) {
		p.Labels, p.Spec.NodeName = map[string]string{"app": app}, node
	})
	r.answer(name, ip, corev1.ConditionTrue)
}

func (r *rig) answer(name, ip string, ready corev1.ConditionStatus) {
	r.Helper()
	r.report(name, corev1.PodRunning, func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	})
}

// slices are "service manager family: address+ address-", sorted; + is ready.
func (r *rig) slices() (out []string) {
	r.Helper()
	list, err := r.List(r.ctx, discovery.EndpointSlices, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range list.Items {
		s := o.(*discoveryv1.EndpointSlice)
		if s.Labels[discoveryv1.LabelServiceName] == "kubernetes" { // the server's own
			continue
		}
		text := fmt.Sprintf("%s %s:", s.Labels[discoveryv1.LabelServiceName],
			strings.TrimSuffix(s.Labels[discoveryv1.LabelManagedBy], "-controller.k8s.io"))
		for _, e := range s.Endpoints {
			text += " " + e.Addresses[0] + map[bool]string{true: "+", false: "-"}[*e.Conditions.Ready]
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// legacy are "name: address+ address-", sorted.
func (r *rig) legacy() (out []string) {
	r.Helper()
	list, err := r.List(r.ctx, api.Endpoints, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range list.Items {
		if o.GetName() == "kubernetes" {
			continue
		}
		text := o.GetName() + ":"
		for _, s := range o.(*corev1.Endpoints).Subsets {
			for _, a := range s.Addresses {
				text += " " + a.IP + "+"
			}
			for _, a := range s.NotReadyAddresses {
				text += " " + a.IP + "-"
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func (r *rig) byHand(name string, ips ...string) {
	r.Helper()
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	e.Subsets = []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}}}}
	for _, ip := range ips {
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: ip})
	}
	_, err := api.Create(r.ctx, r.Client, api.Endpoints, e)
	must(r, e, err)
	synctest.Wait()
}

// From a pod that is ready to one that is gone, and what becomes of it all with the Service.
func TestEndpoints(t *testing.T) {
	serving(t, func(r *rig) {
		r.service("web")
		r.want("nobody yet", r.slices(), "web endpointslice:")
		r.want("nobody yet", r.legacy(), "web:")
		r.backend("a", "web", "10.0.0.1", "n1")
		r.backend("b", "web", "10.0.0.2", "n2")
		r.backend("c", "other", "10.0.0.3", "n2")
		r.want("two", r.slices(), "web endpointslice: 10.0.0.1+ 10.0.0.2+")
		r.want("two", r.legacy(), "web: 10.0.0.1+ 10.0.0.2+")

		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing happened", n)
		}
		r.answer("a", "10.0.0.1", corev1.ConditionFalse)
		r.want("one is not ready", r.slices(), "web endpointslice: 10.0.0.1- 10.0.0.2+")
		if _, err := r.Delete(r.ctx, api.Pods, "default", "b", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.want("one goes", r.slices(), "web endpointslice: 10.0.0.1- 10.0.0.2-")
		r.want("one goes", r.legacy(), "web: 10.0.0.1-")
		r.confirm("b")
		r.want("one is gone", r.slices(), "web endpointslice: 10.0.0.1-")

		r.remake("web", func(s *corev1.Service) { s.Spec.Selector["app"] = "other" })
		r.want("another selector", r.slices(), "web endpointslice: 10.0.0.3+")
		n := r.getNode("n2")
		n.Labels[corev1.LabelTopologyZone] = "moved"
		_, err := api.Update(r.ctx, r.Client, api.Nodes, n)
		must(r, n, err)
		synctest.Wait()
		web := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "web"})
		list, err := r.List(r.ctx, discovery.EndpointSlices, api.ListOptions{Selection: api.Selection{Labels: web}})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d slices, %v", len(list.Items), err)
		}
		if zone := list.Items[0].(*discoveryv1.EndpointSlice).Endpoints[0].Zone; zone == nil || *zone != "moved" {
			t.Errorf("zone %v of a node that has moved", zone)
		}
		r.drop(api.Services, "web")
		r.pass(time.Minute)
		r.want("gone with the Service", r.slices())
		r.want("gone with the Service", r.legacy())
	})
}

// What somebody wrote stays as it is and is mirrored; it goes with its Service.
func TestEndpointsByHand(t *testing.T) {
	serving(t, func(r *rig) {
		r.byHand("db", "192.0.2.7")
		r.byHand("lone", "192.0.2.8")
		r.pass(time.Minute)
		r.want("before their Service", r.slices())
		r.want("before their Service", r.legacy(), "db: 192.0.2.7+", "lone: 192.0.2.8+")
		r.service("db", func(s *corev1.Service) { s.Spec.Selector = nil })
		r.want("with it", r.slices(), "db endpointslicemirroring: 192.0.2.7+")
		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing happened", n)
		}
		e, err := api.Get[*corev1.Endpoints](r.ctx, r.Client, api.Endpoints, "default", "db")
		must(r, e, err)
		e.Subsets[0].NotReadyAddresses = []corev1.EndpointAddress{{IP: "192.0.2.9"}}
		_, err = api.Update(r.ctx, r.Client, api.Endpoints, e)
		must(r, e, err)
		synctest.Wait()
		r.want("changed", r.slices(), "db endpointslicemirroring: 192.0.2.7+ 192.0.2.9-")

		r.backend("a", "db", "10.0.0.1", "n1")
		r.remake("db", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "db"} })
		r.pass(2 * time.Second)
		r.want("a selector takes over", r.slices(), "db endpointslice: 10.0.0.1+")
		r.want("a selector takes over", r.legacy(), "db: 10.0.0.1+", "lone: 192.0.2.8+")
		r.remake("db", func(s *corev1.Service) { s.Spec.Selector = nil })
		r.pass(2 * time.Second)
		r.want("and lets go", r.slices(), "db endpointslicemirroring: 10.0.0.1+")

		r.remake("db", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
		})
		r.pass(2 * time.Second)
		r.drop(api.Services, "db")
		r.pass(time.Minute)
		r.want("gone with the Service", r.slices())
		r.want("the other's stay", r.legacy(), "lone: 192.0.2.8+")
	})
}

// A write that fails is told once, and tried again ever more rarely.
func TestEndpointsRefused(t *testing.T) {
	serving(t, func(r *rig) {
		r.fail("create endpointslices")
		r.service("web")
		r.pass(time.Hour)
		told := r.events("FailedToUpdateEndpointSlices")
		if len(told) != 1 || !strings.HasSuffix(told[0], "web: Error updating Endpoint Slices for Service default/web: injected") {
			t.Errorf("told: %q", told)
		}
		r.fail("")
		r.pass(latestAttempt)
		r.want("at last", r.slices(), "web endpointslice:")
	})
}

// TestStaticPodsBehindServices: what a board says of itself does not put it behind a Service; of the control plane's own board it does.
func TestStaticPodsBehindServices(t *testing.T) {
	plane(t, Config{Node: "n1"}, func(r *rig) {
		for _, name := range []string{"n1", "n2"} {
			r.node(name)
			defer r.alive(name)()
		}
		r.service("db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
		for i, node := range []string{"n1", "n2"} {
			name := "static-" + node
			r.pod(name, func(p *corev1.Pod) {
				p.Labels, p.Spec.NodeName = map[string]string{"app": "db"}, node
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db"
			})
			r.answer(name, fmt.Sprint("10.0.0.", i+1), corev1.ConditionTrue)
		}
		r.want("of the own board", r.slices(), "db endpointslice: 10.0.0.1+")
		r.want("of the own board", r.legacy(), "db: 10.0.0.1+")
	})
}

// servicesAtRest has n Services with a pod each, and the loop, which finds nothing to do.
func servicesAtRest(tb testing.TB, n int) (*Endpoints, *writes) {
	tb.Helper()
	c, closed := freshStore(tb, kinds.All)
	ctx, cancel := context.WithCancel(tb.Context())
	counted := &writes{Client: c}
	w := NewWorld(counted, kinds.All)
	e := NewEndpoints(w, "", quiet{})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		closed()
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := api.Create(ctx, c, api.Nodes, node); err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprint("app-", i)
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		s.Spec.Selector, s.Spec.IPFamilies = map[string]string{"app": name}, []corev1.IPFamily{corev1.IPv4Protocol}
		s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: s.Spec.Selector}}
		p.Spec.Containers, p.Spec.NodeName = []corev1.Container{{Name: "c", Image: "i"}}, "n1"
		if _, err := api.Create(ctx, c, api.Services, s); err != nil {
			tb.Fatal(err)
		}
		p, err := api.Create(ctx, c, api.Pods, p)
		if err != nil {
			tb.Fatal(err)
		}
		p.Status.PodIP = fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if _, err := api.UpdateStatus(ctx, c, api.Pods, p); err != nil {
			tb.Fatal(err)
		}
	}
	for quiet := 0; quiet < 3; quiet++ {
		before := counted.n
		e.pass(ctx, time.Now())
		if counted.n != before {
			quiet = 0
		}
		time.Sleep(5 * time.Millisecond)
	}
	return e, counted
}

// TestServicesAtRest: Services at rest are not written, and a look at them costs next to nothing: each change of a pod, whosever it is,
// makes the loop look. When one pod changes, what its Service has behind it is written, and nothing is listed.
func TestServicesAtRest(t *testing.T) {
	const n, most = 100, 8
	e, counted := servicesAtRest(t, n)
	before := counted.n
	allocs := testing.AllocsPerRun(10, func() { e.pass(t.Context(), time.Now()) })
	if counted.n != before || allocs > n*most {
		t.Errorf("%d writes, and %v allocations for each of %d Services", counted.n-before, allocs/n, n)
	}
	listed := counted.listed.Load()
	pod := e.pods.List()[0].DeepCopy()
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	if _, err := api.UpdateStatus(t.Context(), e.w.Client, api.Pods, pod); err != nil {
		t.Fatal(err)
	}
	for before = counted.n; counted.n == before; time.Sleep(time.Millisecond) {
		e.pass(t.Context(), time.Now())
	}
	if counted.n != before+2 || counted.listed.Load() != listed {
		t.Errorf("%d writes for one pod, want a slice's and the Endpoints'; %d lists", counted.n-before, counted.listed.Load()-listed)
	}
}

func BenchmarkServicesAtRest(b *testing.B) {
	e, _ := servicesAtRest(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		e.pass(b.Context(), time.Now())
	}
}
