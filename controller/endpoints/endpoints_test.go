package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

func families4and6(s *corev1.Service) {
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

func publishing(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }

func headless(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }

func distributed(how string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.TrafficDistribution = &how }
}

// What pods are as endpoints.
func TestSlices(t *testing.T) {
	http := []string{"http:80->8080"}
	for _, c := range []struct {
		name  string
		ports []string
		edit  func(*corev1.Service)
		pods  string
		want  string
	}{
		{"nobody", http, nil, "", "web-00 IPv4[]"},
		{"nobody, of both families", http, families4and6, "", "web-00 IPv4[] | web-01 IPv6[]"},
		{"ready", http, nil, "a ip=10.0.0.1 ready", "web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=n1,in=east"},
		{"not ready", http, nil, "a ip=10.0.0.1", "web-00 IPv4[http=8080] 10.0.0.1,on=n1,in=east"},
		{"going, and answers still", http, nil, "a ip=10.0.0.1 ready going", "web-00 IPv4[http=8080] 10.0.0.1,serving,terminating,on=n1,in=east"},
		{"going", http, nil, "a ip=10.0.0.1 going", "web-00 IPv4[http=8080] 10.0.0.1,terminating,on=n1,in=east"},
		{"ended", http, nil, "a ip=10.0.0.1 ready done", "web-00 IPv4[]"},
		{"without an address", http, nil, "a ready", "web-00 IPv4[]"},
		{"an address that is none", http, nil, "a ip=ten ready", "web-00 IPv4[]"},
		{"an address that nobody reaches", http, nil, "a ip=127.0.0.1 ready | b ip=169.254.1.1 ready", "web-00 IPv4[]"},
		{"on no node", http, nil, "a ip=10.0.0.1 ready on=gone | b ip=10.0.0.2 ready on=n3", "web-00 IPv4[http=8080] 10.0.0.2,ready,serving,on=n3"},
		{"published: not ready", http, publishing, "a ip=10.0.0.1", "web-00 IPv4[http=8080] 10.0.0.1,ready,on=n1,in=east"},
		{"published: going", http, publishing, "a ip=10.0.0.1 going", "web-00 IPv4[http=8080] 10.0.0.1,ready,terminating,on=n1,in=east"},
		{"published: on no node", http, publishing, "a ip=10.0.0.1 ready on=gone", "web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=gone"},
		{"the families of the Service", http, families4and6, "a ip=10.0.0.1 ip=fd00::1 ready | b ip=fd00::2 ready",
			"web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=n1,in=east | " +
				"web-01 IPv6[http=8080] fd00::1,ready,serving,on=n1,in=east fd00::2,ready,serving,on=n1,in=east"},
		{"a name that is another number in each pod", []string{"http:80->web"}, nil,
			"a ip=10.0.0.1 port=web:81 | b ip=10.0.0.2 port=web:82 | c ip=10.0.0.3 port=web:81",
			"web-00 IPv4[http=81] 10.0.0.1,on=n1,in=east 10.0.0.3,on=n1,in=east | web-01 IPv4[http=82] 10.0.0.2,on=n1,in=east"},
		{"a name that a pod does not have", []string{"http:80->web", "more:90->9000"}, nil, "a ip=10.0.0.1 port=other:81",
			"web-00 IPv4[more=9000] 10.0.0.1,on=n1,in=east"},
		{"a name of a container that stays beside", []string{"http:80->web"}, nil, "a ip=10.0.0.1 init=web:1 sidecar=web:83",
			"web-00 IPv4[http=83] 10.0.0.1,on=n1,in=east"},
		{"headless, without ports", nil, headless, "a ip=10.0.0.1 hostname=web-0", "web-00 IPv4[] 10.0.0.1,on=n1,in=east,as=web-0"},
		{"close", http, distributed("PreferClose"), "a ip=10.0.0.1 ready | b ip=10.0.0.2 | c ip=10.0.0.3 ready on=n3",
			"web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=n1,in=east,for=east 10.0.0.2,on=n1,in=east 10.0.0.3,ready,serving,on=n3"},
		{"in the same zone", http, distributed("PreferSameZone"), "a ip=10.0.0.1 ready", "web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=n1,in=east,for=east"},
		{"on the same node", http, distributed("PreferSameNode"), "a ip=10.0.0.1 ready",
			"web-00 IPv4[http=8080] 10.0.0.1,ready,serving,on=n1,in=east,for=east,for=n1"},
	} {
		svc := service(c.ports...)
		if c.edit != nil {
			c.edit(svc)
		}
		var list []*corev1.Pod
		if c.pods != "" {
			list = pods(strings.Split(c.pods, " | ")...)
		}
		have := apply(nil, Slices(svc, list, zones, nil), everything)
		same(t, c.name, shown(have), strings.Split(c.want, " | ")...)
		if again := Slices(svc, list, zones, have); !again.Empty() {
			t.Errorf("%s: at rest, and there is something to write: %+v", c.name, again)
		}
	}
}

// How slices are marked, and that a Service's label of the same name is not theirs.
func TestMarks(t *testing.T) {
	svc := service("http:80->8080")
	svc.Labels = map[string]string{"tier": "front", discoveryv1.LabelManagedBy: "me", corev1.IsHeadlessService: "no", LegacyManaged: "me"}
	have := apply(nil, Slices(svc, pods("a ip=10.0.0.1 ready at=9"), zones, nil), everything)
	s := have[0]
	want := map[string]string{"tier": "front", discoveryv1.LabelManagedBy: Manager, discoveryv1.LabelServiceName: "web", LegacyManaged: "me"}
	if fmt.Sprint(s.Labels) != fmt.Sprint(want) {
		t.Errorf("labels %v, want %v", s.Labels, want)
	}
	if o := metav1.GetControllerOf(s); o == nil || o.Kind != "Service" || o.APIVersion != "v1" || o.Name != "web" || o.UID != svc.UID {
		t.Errorf("owner %+v", o)
	}
	ref := s.Endpoints[0].TargetRef
	if ref.Kind != "Pod" || ref.Namespace != "default" || ref.Name != "a" || ref.UID != "uid-a" {
		t.Errorf("target %+v", ref)
	}
	stamped := func(want string) {
		t.Helper()
		if got := have[0].Annotations[corev1.EndpointsLastChangeTriggerTime]; got != want {
			t.Errorf("changed at %q, want %q", got, want)
		}
	}
	stamped("2026-11-25T00:00:00Z") // a new Service counts from when it was made

	have = apply(have, Slices(svc, pods("a ip=10.0.0.1 ready at=9", "b ip=10.0.0.2 at=20", "c ip=10.0.0.3 ready at=10"), zones, have), everything)
	stamped("2026-11-25T00:00:10Z") // the first of what changed
	svc.Labels, svc.Spec.ClusterIP = nil, ""
	have = apply(have, Slices(svc, pods("a ip=10.0.0.1 ready at=9", "b ip=10.0.0.2 at=20", "c ip=10.0.0.3 ready at=10"), zones, have), everything)
	stamped("")
	if _, ok := have[0].Labels[corev1.IsHeadlessService]; !ok || have[0].Labels["tier"] != "" {
		t.Errorf("labels %v of a Service without an address", have[0].Labels)
	}
}

// Which Services get their endpoints from pods.
func TestWanted(t *testing.T) {
	if !Wanted(service()) {
		t.Error("a Service with a selector does not")
	}
	for what, edit := range map[string]func(*corev1.Service){
		"no selector":   func(s *corev1.Service) { s.Spec.Selector = nil },
		"external name": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"going":         func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: began} },
	} {
		s := service()
		edit(s)
		if Wanted(s) {
			t.Errorf("%s: it does", what)
		}
	}
}

// many are ready pods with numbers.
func many(from, to int) (out []*corev1.Pod) {
	for i := from; i < to; i++ {
		out = append(out, pod(fmt.Sprintf("p%04d ready ip=10.1.%d.%d", i, i/250, i%250+1)))
	}
	return out
}

// sizes are the numbers of endpoints in slices, the fullest first.
func sizes(list []*discoveryv1.EndpointSlice) (out []int) {
	for _, s := range list {
		out = append(out, len(s.Endpoints))
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// Where endpoints go, and what is written for it.
func TestPacking(t *testing.T) {
	svc := service("http:80->8080")
	have := apply(nil, Slices(svc, many(0, 250), zones, nil), everything)
	step := func(what string, now []*corev1.Pod, writes int, want ...int) {
		t.Helper()
		p := Slices(svc, now, zones, have)
		have = apply(have, p, everything)
		if got := sizes(have); size(p) != writes || !slices.Equal(got, want) {
			t.Errorf("%s: %d writes, want %d; sizes %v, want %v", what, size(p), writes, got, want)
		}
	}
	step("at rest", many(0, 250), 0, 100, 100, 50)
	step("one more goes where there is room", many(0, 251), 1, 100, 100, 51)
	step("one goes, another comes: one write", append(many(1, 251), pod("new ready ip=10.9.0.1")), 1, 100, 100, 51)
	step("more than one slice has room for", append(many(1, 300), pod("new ready ip=10.9.0.1")), 1, 100, 100, 100)
	step("a new slice", append(many(1, 301), pod("new ready ip=10.9.0.1")), 1, 100, 100, 100, 1)
	step("most of it goes", many(95, 105), 4, 10)
	step("all goes", nil, 1, 0)
	same(t, "what says so", shown(have), have[0].Name+" IPv4[]")
	step("and comes back", many(0, 1), 1, 1)
	svc.Spec.Ports[0].TargetPort.IntVal = 9090
	step("another port is another slice, in the place of the old", many(0, 1), 1, 1)
	same(t, "its port", []string{fmt.Sprint(*have[0].Ports[0].Port)}, "9090")
	svc.Labels = map[string]string{"a": "b"}
	step("labels follow", many(0, 1), 1, 1)
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	step("another family cannot take a slice over", many(0, 1), 2, 0)
}

// Slices of a former Service of the same name, and such as go by themselves.
func TestStrangers(t *testing.T) {
	svc := service("http:80->8080")
	have := apply(nil, Slices(svc, many(0, 1), zones, nil), everything)
	svc.UID = "another"
	p := Slices(svc, many(0, 1), zones, have)
	if len(p.Create) != 1 || len(p.Update) != 0 || len(p.Delete) != 1 || p.Delete[0].Name != have[0].Name {
		t.Errorf("over slices of a former Service: %+v", p)
	}
	have = apply(have, p, everything)
	have[0].DeletionTimestamp = &metav1.Time{Time: began}
	if p = Slices(svc, many(0, 1), zones, have); len(p.Create) != 1 || size(p) != 1 {
		t.Errorf("over a slice that goes: %+v", p)
	}
}

// A pod that is made anew under its name, as a StatefulSet's, is changed in its place.
func TestAnewUnderItsName(t *testing.T) {
	svc := service("http:80->8080")
	have := apply(nil, Slices(svc, pods("a ip=10.0.0.1 ready", "b ip=10.0.0.2 ready"), zones, nil), everything)
	list := pods("a ip=10.0.0.1", "b ip=10.0.0.2 ready")
	list[0].UID = "new"
	p := Slices(svc, list, zones, have)
	if len(p.Update) != 1 || size(p) != 1 || p.Update[0].Endpoints[0].TargetRef.UID != "new" || p.Update[0].Endpoints[1].TargetRef.UID != "uid-b" {
		t.Errorf("%+v", p)
	}
	if api.PodReady(list[0]) {
		t.Error("the case is none")
	}
}
