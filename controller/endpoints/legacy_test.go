//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package endpoints

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// subsets are those of Endpoints as a person reads them.
func subsets(list []corev1.EndpointSubset) (out []string) {
	for _, s := range list {
		var words []string
		for _, p := range s.Ports {
			words = append(words, fmt.Sprintf("%s=%d", p.Name, p.Port))
		}
		each([]corev1.EndpointSubset{s}, func(_ *corev1.EndpointSubset, a *corev1.EndpointAddress, ready bool) {
			text := a.IP
			if !ready {
				text = "not " + text
			}
			if a.Hostname != "" {
				text += " as " + a.Hostname
			}
			words = append(words, text)
		})
		out = append(out, strings.Join(words, ", "))
	}
	return out
}

func TestLegacy(t *testing.T) {
	http := []string{"http:80->8080"}
	for _, c := range []struct {
		name  string
		ports []string
		edit  func(*corev1.Service)
		pods  string
		want  []string
	}{
		{"nobody", http, nil, "", nil},
		{"ready or not", http, nil, "b ip=10.0.0.12 ready | a ip=10.0.0.2 ready | c ip=10.0.0.3",
			[]string{"http=8080, 10.0.0.2, 10.0.0.12, not 10.0.0.3"}},
		{"going, ended, without an address", http, nil, "a ip=10.0.0.1 ready going | b ip=10.0.0.2 ready done | c ready", nil},
		{"on no node counts here", http, nil, "a ip=10.0.0.1 ready on=gone", []string{"http=8080, 10.0.0.1"}},
		{"published", http, publishing, "a ip=10.0.0.1 | b ip=10.0.0.2 going", []string{"http=8080, 10.0.0.1, 10.0.0.2"}},
		{"the first family", http, families4and6, "a ip=fd00::1 ip=10.0.0.1 ready | b ip=fd00::2 ready", []string{"http=8080, 10.0.0.1"}},
		{"several ports", []string{"one:80->8080", "two:90->9090"}, nil, "a ip=10.0.0.1 ready", []string{"one=8080, two=9090, 10.0.0.1"}},
		{"a name that is another number", []string{"http:80->web", "more:90->9000"}, nil,
			"a ip=10.0.0.1 ready port=web:81 | b ip=10.0.0.2 ready port=web:82 | c ip=10.0.0.3",
			[]string{"http=81, 10.0.0.1", "http=82, 10.0.0.2", "more=9000, 10.0.0.1, 10.0.0.2, not 10.0.0.3"}},
		{"no port of the Service", []string{"http:80->web"}, nil, "a ip=10.0.0.1 ready", nil},
		{"headless, without ports", nil, headless, "a ip=10.0.0.1 ready hostname=web-0", []string{"10.0.0.1 as web-0"}},
	} {
		svc := service(c.ports...)
		if c.edit != nil {
			c.edit(svc)
		}
		var list []*corev1.Pod
		if c.pods != "" {
			list = pods(strings.Split(c.pods, " | ")...)
		}
		e := Legacy(svc, list, nil)
		same(t, c.name, subsets(e.Subsets), c.want...)
		if Legacy(svc, list, e) != nil {
			t.Errorf("%s: at rest, and there is something to write", c.name)
		}
		slices.Reverse(list)
		for i := range e.Subsets { // the same in another form
			slices.Reverse(e.Subsets[i].Ports)
			slices.Reverse(e.Subsets[i].Addresses)
		}
		if next := Legacy(svc, list, e); next != nil {
			t.Errorf("%s: in another order it is another: %q", c.name, subsets(next.Subsets))
		}
	}
}

func TestLegacyMarks(t *testing.T) {
	svc := service("http:80->8080")
	svc.Labels = map[string]string{"tier": "front"}
	headless(svc)
	byHand := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"other": "x"},
		Annotations: map[string]string{"keep": "me"}}}
	e := Legacy(svc, pods("a ip=10.0.0.1 ready at=7"), byHand)
	want := map[string]string{"tier": "front", LegacyManaged: LegacyManager, corev1.IsHeadlessService: ""}
	if fmt.Sprint(e.Labels) != fmt.Sprint(want) || e.Annotations["keep"] != "me" ||
		e.Annotations[corev1.EndpointsLastChangeTriggerTime] != "2026-11-25T00:00:07Z" {
		t.Errorf("labels %v, annotations %v", e.Labels, e.Annotations)
	}
	if a := e.Subsets[0].Addresses[0]; *a.NodeName != "n1" || a.TargetRef.UID != "uid-a" || a.TargetRef.Kind != "Pod" {
		t.Errorf("address %+v", a)
	}
	delete(svc.Labels, "tier")
	next := Legacy(svc, pods("a ip=10.0.0.1 ready at=7"), e)
	if next == nil || next.Labels["tier"] != "" {
		t.Fatalf("a label went, and it stays: %+v", next)
	}
	if _, ok := next.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		t.Error("no pod changed, and it says when one did")
	}
}

// One object has a bound: who is ready is in it before who is not, and each subset has its share.
func TestLegacyIsBounded(t *testing.T) {
	svc := service("http:80->web")
	list := func(ready, not int) (out []*corev1.Pod) {
		for i := range ready + not {
			text := fmt.Sprintf("p%04d ip=10.1.%d.%d port=web:%d", i, i/250, i%250+1, 80+i%2)
			if i < ready {
				text += " ready"
			}
			out = append(out, pod(text))
		}
		return out
	}
	for _, c := range []struct {
		ready, not int
		cut        bool
		want       []int // ready and not, of both subsets
	}{{600, 400, false, []int{300, 200, 300, 200}}, {600, 600, true, []int{300, 200, 300, 200}}, {1500, 600, true, []int{500, 0, 500, 0}}} {
		now := list(c.ready, c.not)
		e := Legacy(svc, now, nil)
		var got []int
		for _, s := range e.Subsets {
			got = append(got, len(s.Addresses), len(s.NotReadyAddresses))
		}
		if !slices.Equal(got, c.want) || (e.Annotations[corev1.EndpointsOverCapacity] == "truncated") != c.cut {
			t.Errorf("%d and %d: %v, annotations %v", c.ready, c.not, got, e.Annotations)
		}
		if Legacy(svc, now, e) != nil {
			t.Errorf("%d and %d: at rest, and there is something to write", c.ready, c.not)
		}
		if next := Legacy(svc, now[:10], e); next == nil || next.Annotations[corev1.EndpointsOverCapacity] != "" {
			t.Errorf("%d and %d: few again, and it says otherwise", c.ready, c.not)
		}
	}
}

func address(ip string, edit ...func(*corev1.EndpointAddress)) corev1.EndpointAddress {
	a := corev1.EndpointAddress{IP: ip}
	for _, f := range edit {
		f(&a)
	}
	return a
}

func byHand() *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "hand", Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}", corev1.EndpointsLastChangeTriggerTime: "y"}}}
	node := "n1"
	e.Subsets = []corev1.EndpointSubset{
		{Addresses: []corev1.EndpointAddress{address("192.0.2.1", func(a *corev1.EndpointAddress) { a.Hostname, a.NodeName = "db-0", &node }),
			address("fd00::1")}, NotReadyAddresses: []corev1.EndpointAddress{address("192.0.2.2")},
			Ports: []corev1.EndpointPort{{Name: "db", Port: 5432, Protocol: corev1.ProtocolTCP}}},
		{Addresses: []corev1.EndpointAddress{address("192.0.2.3")}, Ports: []corev1.EndpointPort{{Name: "db", Port: 5433, Protocol: corev1.ProtocolTCP}}},
	}
	return e
}

func TestMirror(t *testing.T) {
	e := byHand()
	have := apply(nil, Mirror(e, nil), everything)
	same(t, "slices", shown(have), "web-00 IPv4[db=5432] 192.0.2.1,ready,on=n1,as=db-0 192.0.2.2", "web-01 IPv6[db=5432] fd00::1,ready",
		"web-02 IPv4[db=5433] 192.0.2.3,ready")
	want := map[string]string{"a": "b", discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: Mirrorer}
	if s := have[0]; fmt.Sprint(s.Labels) != fmt.Sprint(want) || fmt.Sprint(s.Annotations) != "map[note:x]" ||
		s.OwnerReferences[0].Kind != "Endpoints" || s.OwnerReferences[0].UID != "hand" {
		t.Errorf("labels %v, annotations %v, owners %+v", s.Labels, s.Annotations, s.OwnerReferences)
	}
	step := func(what string, writes int, want ...string) {
		t.Helper()
		p := Mirror(e, have)
		have = apply(have, p, everything)
		if size(p) != writes {
			t.Errorf("%s: %d writes, want %d", what, size(p), writes)
		}
		same(t, what, shown(have), want...)
	}
	step("at rest", 0, shown(have)...)
	e.Annotations["note"] = "z"
	step("an annotation is followed", 3, shown(have)...)
	e.Subsets = e.Subsets[:1]
	step("a subset goes", 1, "web-00 IPv4[db=5432] 192.0.2.1,ready,on=n1,as=db-0 192.0.2.2", "web-01 IPv6[db=5432] fd00::1,ready")
	e.Subsets[0].Ports[0].Port = 1
	step("another port", 2, "web-00 IPv4[db=1] 192.0.2.1,ready,on=n1,as=db-0 192.0.2.2", "web-01 IPv6[db=1] fd00::1,ready")
	e.UID = "made anew"
	have = apply(have, Mirror(e, have), everything)
	if have[0].OwnerReferences[0].UID != "made anew" || len(have) != 2 {
		t.Errorf("made anew: %q, owners %+v", shown(have), have[0].OwnerReferences)
	}
	e.Subsets = nil
	step("nobody", 2)
}

// What Endpoints may have at most is one slice, and what is no address is left out.
func TestMirrorOfMany(t *testing.T) {
	e := byHand()
	e.Subsets = e.Subsets[:1]
	e.Subsets[0].Addresses = []corev1.EndpointAddress{address("ten"), address("fd00::1")}
	e.Subsets[0].NotReadyAddresses = nil
	for i := range 998 {
		e.Subsets[0].NotReadyAddresses = append(e.Subsets[0].NotReadyAddresses, address(fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
	}
	have := apply(nil, Mirror(e, nil), everything)
	if got := sizes(have); !slices.Equal(got, []int{998, 1}) {
		t.Errorf("sizes %v", got)
	}
	if p := Mirror(e, have); !p.Empty() {
		t.Error("at rest, and there is something to write")
	}
}

func TestMirrored(t *testing.T) {
	if !Mirrored(byHand()) {
		t.Error("Endpoints made by hand are not")
	}
	for what, edit := range map[string]func(*corev1.Endpoints){
		"told not to": func(e *corev1.Endpoints) { e.Labels[discoveryv1.LabelSkipMirror] = "true" },
		"a lock":      func(e *corev1.Endpoints) { e.Annotations["control-plane.alpha.kubernetes.io/leader"] = "{}" },
		"going":       func(e *corev1.Endpoints) { e.DeletionTimestamp = &metav1.Time{Time: began} },
	} {
		e := byHand()
		edit(e)
		if Mirrored(e) {
			t.Errorf("%s: they are", what)
		}
	}
}

// The form that is compared is one form: of itself, and of the same in any order.
func TestRepack(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 5))
	for range 500 {
		var in []corev1.EndpointSubset
		for range random.IntN(5) {
			var s corev1.EndpointSubset
			for range random.IntN(4) {
				a := address(fmt.Sprintf("10.0.0.%d", random.IntN(4)))
				if random.IntN(2) == 0 {
					s.Addresses = append(s.Addresses, a)
				} else {
					s.NotReadyAddresses = append(s.NotReadyAddresses, a)
				}
			}
			for i := range random.IntN(3) {
				s.Ports = append(s.Ports, corev1.EndpointPort{Name: fmt.Sprint("p", i), Port: 80 + random.Int32N(2), Protocol: corev1.ProtocolTCP})
			}
			in = append(in, s)
		}
		out := repack(in)
		if again := repack(out); !apiequality.Semantic.DeepEqual(out, again) {
			t.Fatalf("%q becomes %q", subsets(out), subsets(again))
		}
		random.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		if other := repack(in); !apiequality.Semantic.DeepEqual(out, other) {
			t.Fatalf("in another order %q becomes %q, not %q", subsets(in), subsets(other), subsets(out))
		}
		seen := map[string]bool{}
		each(out, func(s *corev1.EndpointSubset, a *corev1.EndpointAddress, _ bool) {
			for _, p := range append(s.Ports, corev1.EndpointPort{})[:max(len(s.Ports), 1)] {
				key := fmt.Sprint(a.IP, p)
				if seen[key] {
					t.Fatalf("%s stands twice in %q", key, subsets(out))
				}
				seen[key] = true
			}
		})
	}
}
