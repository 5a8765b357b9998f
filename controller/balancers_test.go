package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
)

// board is a node as "name word..." says: down, excluded, going, in=ADDRESS, ext=ADDRESS, door=PORT.
func board(text string) *corev1.Node {
	words := strings.Fields(text)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}}}
	ready := corev1.ConditionTrue
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "down":
			ready = corev1.ConditionUnknown
		case "excluded":
			n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		case "going":
			n.DeletionTimestamp = &metav1.Time{}
		case "in":
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: value})
		case "ext":
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: value})
		case "door":
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = intstr.Parse(value).IntVal
		}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

// balancer is a Service as "name word..." says: PORT/PROTOCOL (several), age=DAYS, node=PORT, local, v6, class, cluster, at=ADDRESS.
func balancer(text string) *corev1.Service {
	words := strings.Fields(text)
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0], UID: types.UID(words[0])}}
	s.Spec.Type, s.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	s.CreationTimestamp = metav1.NewTime(day)
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		number, protocol, port := strings.Cut(w, "/")
		switch {
		case key == "age":
			s.CreationTimestamp = metav1.NewTime(day.AddDate(0, 0, -int(intstr.Parse(value).IntVal)))
		case key == "node":
			s.Spec.Ports[len(s.Spec.Ports)-1].NodePort = intstr.Parse(value).IntVal
		case key == "local":
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		case key == "v6":
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
		case key == "class":
			s.Spec.LoadBalancerClass = &s.Name
		case key == "cluster":
			s.Spec.Type = corev1.ServiceTypeClusterIP
		case key == "at":
			s.Spec.LoadBalancerIP = value
		case port:
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: intstr.Parse(number).IntVal, Protocol: corev1.Protocol(protocol)})
		}
	}
	return s
}

func TestBalance(t *testing.T) {
	two := "a in=192.0.2.1 in=fd00::1 | b in=192.0.2.2"
	for _, c := range []struct{ name, boards, services, want string }{
		{"all boards", two, "web 80/TCP", "web: 192.0.2.1 192.0.2.2"},
		{"both families", two, "web 80/TCP v6", "web: 192.0.2.1 fd00::1 192.0.2.2"},
		{"boards that are ready, and for this", "a in=192.0.2.1 down | b in=192.0.2.2 excluded | c in=192.0.2.3 going | d in=192.0.2.4", "web 80/TCP",
			"web: 192.0.2.4"},
		{"an address outside", "a in=192.0.2.1 ext=198.51.100.1", "web 80/TCP", "web: 198.51.100.1"},
		{"no address of the family outside", "a in=192.0.2.1 ext=2001:db8::1", "web 80/TCP", "web: 192.0.2.1"},
		{"where its endpoints are", two, "web 80/TCP local", "web: 192.0.2.2"}, // on b, below
		{"of somebody else", two, "web 80/TCP class | db 80/TCP", "db: 192.0.2.1 192.0.2.2"},
		{"of another type", two, "web 80/TCP cluster", ""},
		{"the younger waits", two, "new 80/TCP 443/TCP age=1 | old 443/TCP age=2",
			"new: port 443/TCP of the boards is that of service default/old | old: 192.0.2.1 192.0.2.2"},
		{"of the same age by name", two, "b 80/TCP | a 80/TCP",
			"a: 192.0.2.1 192.0.2.2 | b: port 80/TCP of the boards is that of service default/a"},
		{"who waits holds nothing", two, "a 80/TCP age=3 | b 80/TCP 81/TCP age=2 | c 81/TCP age=1",
			"a: 192.0.2.1 192.0.2.2 | b: port 80/TCP of the boards is that of service default/a | c: 192.0.2.1 192.0.2.2"},
		{"another protocol", two, "web 53/TCP | dns 53/UDP", "dns: 192.0.2.1 192.0.2.2 | web: 192.0.2.1 192.0.2.2"},
		{"a node port of another", two, "web 30080/TCP age=9 | db 80/TCP node=30080 cluster",
			"web: port 30080/TCP of the boards is a node port of service default/db"},
		{"a node port of its own", two, "web 30080/TCP node=30080", "web: 192.0.2.1 192.0.2.2"},
		{"the boards' own", "a in=192.0.2.1 door=10250", "web 10250/TCP", "web: port 10250/TCP of the boards is their own"},
		{"that by which people come", two, "web 22/TCP", "web: port 22/TCP of the boards is their own"},
		{"a door of its own", "a in=192.0.2.1 door=80 | b in=192.0.2.2 door=10250", "web 80/TCP", "web: 192.0.2.2"},
		{"many addresses of one board", "a in=192.0.2.1 in=192.0.2.66 in=fd00::1 in=fd00::66 | b in=192.0.2.2", "web 80/TCP v6",
			"web: 192.0.2.1 fd00::1 192.0.2.2"},
		{"another board's address", "a in=192.0.2.2 | b in=192.0.2.2", "web 80/TCP", "web: 192.0.2.2"},
		{"that of the API", "a in=192.0.2.1", "web 6443/TCP | kubernetes 6443/TCP cluster", "web: port 6443/TCP of the boards is that of the API"},
		{"the board that it asks for", two, "web 80/TCP at=192.0.2.2", "web: 192.0.2.2"},
		{"a board that there is not", two, "web 80/TCP at=192.0.2.9", "web: 192.0.2.9 is the address of no board that takes traffic"},
		{"no board", "a in=192.0.2.1 down", "web 80/TCP", "web:"},
	} {
		var nodes []*corev1.Node
		for _, b := range strings.Split(c.boards, " | ") {
			nodes = append(nodes, board(b))
		}
		var services []*corev1.Service
		names := map[types.UID]string{}
		for _, s := range strings.Split(c.services, " | ") {
			svc := balancer(s)
			services, names[svc.UID] = append(services, svc), svc.Name
		}
		ready := func(*corev1.Service) map[string]bool { return map[string]bool{"b": true} }
		var got []string
		for uid, b := range balance(services, nodes, ready, nil) {
			text := names[uid] + ":"
			for _, i := range b.ingress {
				text += " " + i.IP
			}
			for _, w := range b.why() {
				if w.message != "" {
					text += " " + w.message
				}
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if strings.Join(got, " | ") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, strings.Join(got, " | "), c.want)
		}
	}
}

// A Service names a bounded number of boards, however many there are.
func TestBalanceIsBounded(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 300 {
		nodes = append(nodes, board(fmt.Sprintf("n%03d in=10.0.%d.%d", i, i/250, i%250)))
	}
	svc := balancer("web 80/TCP")
	if n := len(balance([]*corev1.Service{svc}, nodes, nil, nil)[svc.UID].ingress); n != mostIngress {
		t.Errorf("%d boards are named", n)
	}
}

func (r *rig) reached(name string) string {
	r.Helper()
	s := r.getService(name)
	var words []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		words = append(words, i.IP)
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			words = append(words, "?")
		}
	}
	for _, c := range s.Status.Conditions {
		words = append(words, fmt.Sprintf("%s %s: %s", c.Type, c.Reason, c.Message))
	}
	return strings.Join(words, " ")
}

// Addresses come and go with boards, endpoints and other Services, and with the type.
func TestBalancers(t *testing.T) {
	serving(t, func(r *rig) {
		is := func(name, want string) {
			t.Helper()
			r.pass(time.Second)
			if got := r.reached(name); got != want {
				t.Errorf("%s is at %q, want %q", name, got, want)
			}
		}
		to := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
		r.service("web", to)
		is("web", "192.0.2.11 192.0.2.12")
		r.pass(time.Minute)
		r.service("other", to)
		is("other", "LoadBalancerPortsError PortTaken: port 80/TCP of the boards is that of service default/web")
		r.want("told", r.events("PortTaken"), "service-controller Warning PortTaken other: Not reachable at the boards: "+
			"port 80/TCP of the boards is that of service default/web")
		r.want("told", r.events("EnsuredLoadBalancer"), "service-controller Normal EnsuredLoadBalancer web: Ensured load balancer")

		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing happened", n)
		}
		r.remake("web", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32001
		})
		is("web", "")
		r.backend("a", "web", "10.0.0.1", "n2")
		is("web", "192.0.2.12")
		r.answer("a", "10.0.0.1", corev1.ConditionFalse)
		is("web", "")
		n := r.getNode("n1")
		n.Labels[corev1.LabelNodeExcludeBalancers] = "true"
		_, err := api.Update(r.ctx, r.Client, api.Nodes, n)
		must(r, n, err)
		synctest.Wait()
		r.remake("web", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyCluster, 0
		})
		is("web", "192.0.2.12")

		r.remake("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		is("web", "")
		is("other", "192.0.2.12")
		r.drop(api.Services, "other")

		r.service("theirs", to, func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptrTo("example.org/other") })
		s := r.getService("theirs")
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7", IPMode: ptrTo(corev1.LoadBalancerIPModeVIP)}}
		_, err = api.UpdateStatus(r.ctx, r.Client, api.Services, s)
		must(r, s, err)
		r.pass(time.Minute)
		is("theirs", "198.51.100.7")
	})
}
