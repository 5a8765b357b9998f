package policies

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/api/networking"
	"ledge/network"
	"ledge/network/policy"
	"ledge/storage"
)

// kernel is what a Fencer would hold.
type kernel struct {
	mu     sync.Mutex
	said   []string
	fence  network.Fence
	broken error
}

func (k *kernel) note(format string, args ...any) error {
	k.said = append(k.said, fmt.Sprintf(format, args...))
	return k.broken
}

func (k *kernel) Add(_ context.Context, about []netip.Addr, f network.Fence) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.note("add %v in=%v", about, slices.Sorted(maps.Values(f.In)))
}

func (k *kernel) Prune(_ context.Context, f network.Fence) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fence = f
	return k.note("prune %d", len(f.In)+len(f.Out))
}

func (k *kernel) Merge(_ context.Context, own map[netip.Addr]bool, f network.Fence) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fence = f
	return k.note("merge %v", own)
}

// peers are the addresses that the last fence lets in.
func (k *kernel) peers() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []string{}
	for _, set := range k.fence.Sets {
		for _, span := range set {
			out = append(out, span.First.String())
		}
	}
	slices.Sort(out)
	return fmt.Sprint(slices.Compact(out))
}

func (k *kernel) Delete(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.note("delete")
}

// told is what the kernel was told since the last call.
func (k *kernel) told() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.said, "; ")
	k.said = nil
	return out
}

// heard is the same, and leaves it for the next call.
func (k *kernel) heard() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.said, "; ")
}

// stage is a board and its control plane.
type stage struct {
	api.Client
	t      *testing.T
	kernel *kernel
	mu     sync.Mutex
	asked  []string // what was listed
	away   error
	deaf   error             // to lists of pods
	where  map[string]string // networks of boards
	pods   []*corev1.Pod
}

func newStage(t *testing.T) *stage {
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), Kinds: kinds.All, NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	c, err := local.New(local.Config{Store: db})
	must(t, err)
	return &stage{Client: c, t: t, kernel: &kernel{}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(kind.Resource+" "+opts.Namespace))
	away := s.away
	if kind == api.Pods && s.deaf != nil {
		away = s.deaf
	}
	s.mu.Unlock()
	if away != nil {
		return api.List{}, away
	}
	return s.Client.List(ctx, kind, opts)
}

// sparse is a client of the board that has the store.
type sparse struct{ *stage }

func (s sparse) WhenAny(kind *api.Kind, do func()) bool {
	return s.Client.(api.Sparse).WhenAny(kind, do)
}

func (s *stage) has() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pods)
}

// pod is one of this board, or of another.
func (s *stage) pod(namespace, name, addr string, here bool) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	p, err := api.Create(s.t.Context(), s.Client, api.Pods, p)
	must(s.t, err)
	p.Status.PodIP, p.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	p, err = api.UpdateStatus(s.t.Context(), s.Client, api.Pods, p)
	must(s.t, err)
	if here {
		s.mu.Lock()
		s.pods = append(s.pods, p)
		s.mu.Unlock()
	}
	return p
}

func (s *stage) policy(namespace string, from ...networkingv1.NetworkPolicyPeer) {
	s.t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(from) > 0 {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from}}
	}
	_, err := s.Client.Create(s.t.Context(), networking.NetworkPolicies, p, api.WriteOptions{})
	must(s.t, err)
}

func (s *stage) space(name string) {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name[:1]}}}
	_, err := s.Client.Create(s.t.Context(), api.Namespaces, ns, api.WriteOptions{})
	must(s.t, err)
}

// run begins a loop; end stops it.
func (s *stage) run(c api.Client) (l *Loop, end func()) {
	l = New(Config{Client: c, Fencer: s.kernel, Pods: s.has, Where: func(node string) (out []netip.Prefix, told bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at := s.where[node]; at != "" {
			out = append(out, netip.MustParsePrefix(at))
		}
		return out, len(s.where) > 0
	}})
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	synctest.Wait()
	return l, func() {
		cancel()
		must(s.t, <-done)
	}
}

func settle() {
	time.Sleep(2 * pause)
	synctest.Wait()
}

func (s *stage) tells(what, want string) {
	s.t.Helper()
	if got := s.kernel.told(); got != want {
		s.t.Errorf("%s: the kernel was told %q, want %q", what, got, want)
	}
}

func connect(l *Loop, p *corev1.Pod, addr string) error {
	pod := network.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}
	return l.Guard(context.Background(), pod, []netip.Addr{netip.MustParseAddr(addr)})
}

// TestNothingWithoutPolicies: where there is no policy nobody is asked, and pods are connected at once; the first one begins it (N-14.3).
func TestNothingWithoutPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		a := s.pod("x", "a", "10.0.0.2", true)
		l, end := s.run(sparse{s})
		defer end()
		l.Handed()
		must(t, l.Known(t.Context()))
		must(t, connect(l, a, "10.0.0.2"))
		settle()
		if len(s.asked) > 0 {
			t.Errorf("asked for %v", s.asked)
		}
		s.tells("at rest", "delete")
		s.policy("x")
		settle()
		s.tells("the first policy", "prune 1")
		b := s.pod("x", "b", "10.0.0.3", true)
		must(t, connect(l, b, "10.0.0.3"))
		if got := s.kernel.heard(); !strings.HasPrefix(got, "add [10.0.0.3] in=[shut]") { // the loop may have been quick
			t.Errorf("a pod that comes: %q", got)
		}
		settle()
		s.tells("then all", "add [10.0.0.3] in=[shut]; prune 2")
		_, err := s.Client.Delete(t.Context(), networking.NetworkPolicies, "x", "p", api.DeleteOptions{})
		must(t, err)
		settle()
		s.tells("the last went", "prune 0")
		s.kernel.broken = fmt.Errorf("no room")
		if err := connect(l, b, "10.0.0.3"); err == nil {
			t.Error("a pod whose policies cannot be held is connected")
		}
		settle()
		if c := l.Held(); c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, "no room") {
			t.Errorf("%+v", c)
		}
	})
}

// TestWhoIsHeardOf: a board follows the pods of those namespaces that policies of its own pods name, and no others.
func TestWhoIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for _, ns := range []string{"x", "y", "z"} {
			s.space(ns)
			s.pod(ns, "other", map[string]string{"x": "10.1.0.2", "y": "10.1.0.3", "z": "10.1.0.4"}[ns], false)
		}
		s.pod("x", "a", "10.0.0.2", true)
		s.policy("z", networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}) // of no pod here
		s.policy("x", networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "y"}}})
		l, end := s.run(s)
		defer end()
		settle()
		s.tells("before all pods of the board are known", "")
		l.Handed()
		settle()
		if got := fmt.Sprint(s.asked); got != "[networkpolicies namespaces pods x pods y]" && got != "[networkpolicies pods x namespaces pods y]" {
			t.Errorf("asked for %v", got)
		}
		if peers := s.kernel.peers(); peers != "[10.1.0.2 10.1.0.3]" {
			t.Errorf("let through: %v", peers)
		}
		s.kernel.told()
		_, err := s.Client.Delete(t.Context(), api.Pods, "y", "other", api.DeleteOptions{Grace: new(int64)})
		must(t, err)
		settle()
		s.tells("a pod of another board goes", "prune 1")
	})
}

// TestSilence: while the control plane says nothing, what holds stays, and pods that come are shut, in the end (N-14.4).
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		a := s.pod("x", "a", "10.0.0.2", true)
		s.away = apierrors.NewServiceUnavailable("no route to host")
		l, end := s.run(s)
		defer end()
		l.Handed()
		begin := time.Now()
		must(t, l.Known(t.Context()))
		if waited := time.Since(begin); waited < silence || waited > silence+2*time.Second {
			t.Errorf("waited %v", waited)
		}
		must(t, connect(l, a, "10.0.0.2"))
		settle()
		s.tells("unheard", "add [10.0.0.2] in=["+policy.Shut+"]")
		if c := l.Held(); c.Status != corev1.ConditionTrue || c.Reason != "NotHeard" {
			t.Errorf("%+v", c)
		}
		s.mu.Lock()
		s.away = nil
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s.tells("heard", "prune 0")
		if c := l.Held(); c.Status != "" {
			t.Errorf("%+v", c)
		}
	})
}

// TestNotTold: another Kubernetes, which shows a node no policies: pods are connected, and nothing of the kernel is touched. One that has
// none is believed at once, one that says no only when it says nothing else for a while.
func TestNotTold(t *testing.T) {
	no, absent := apierrors.NewForbidden(networking.NetworkPolicies.GR(), "", nil), apierrors.NewNotFound(networking.NetworkPolicies.GR(), "")
	for name, c := range map[string]struct {
		away        error
		least, most time.Duration
	}{"refused": {no, sureNo, 2 * sureNo}, "absent": {absent, 0, time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.space("x")
				a := s.pod("x", "a", "10.0.0.2", true)
				s.away = c.away
				begin := time.Now()
				l, end := s.run(s)
				defer end()
				l.Handed()
				must(t, l.Known(t.Context()))
				if waited := time.Since(begin); waited < c.least || waited > c.most {
					t.Errorf("waited %v", waited)
				}
				must(t, connect(l, a, "10.0.0.2"))
				settle()
				s.tells("not told", "")
			})
		})
	}
}

// TestRefusedOnce: a control plane that says no while it starts has policies all the same, and no pod is connected without them (N-14.3).
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		a := s.pod("x", "a", "10.0.0.2", true)
		s.policy("x")
		s.say(apierrors.NewForbidden(networking.NetworkPolicies.GR(), "", nil))
		l, end := s.run(s)
		defer end()
		l.Handed()
		time.Sleep(sureNo / 6)
		s.say(apierrors.NewServiceUnavailable("it starts again"))
		time.Sleep(sureNo)
		s.say(apierrors.NewForbidden(networking.NetworkPolicies.GR(), "", nil))
		time.Sleep(sureNo) // asked once, after 6.3 s
		s.say(nil)
		must(t, l.Known(t.Context()))
		must(t, connect(l, a, "10.0.0.2"))
		if got := s.kernel.told(); !strings.Contains(got, "add [10.0.0.2] in=[shut]") {
			t.Errorf("the kernel was told %q", got)
		}
	})
}

// say has every list fail from now on.
func (s *stage) say(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// deafen has lists of the pods of a namespace fail from now on.
func (s *stage) deafen(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = err
}

// TestRestart: a process that starts while it cannot hear of pods of other boards takes nobody out (N-14.4).
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		s.pod("x", "other", "10.1.0.2", false)
		s.pod("x", "a", "10.0.0.2", true)
		s.policy("x", networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}})
		l, end := s.run(s)
		l.Handed()
		settle()
		s.tells("the first", "prune 1")
		end()
		s.deafen(apierrors.NewServiceUnavailable("no route to host"))
		l, end = s.run(s)
		defer end()
		l.Handed()
		time.Sleep(silence - time.Second)
		s.tells("at first", "")
		time.Sleep(2 * time.Second)
		s.tells("after a while", "merge map[10.0.0.2:true]")
		s.pod("x", "b", "10.0.0.3", true)
		l.Handed()
		settle()
		s.tells("a pod that comes", "merge map[10.0.0.2:true 10.0.0.3:true]")
		s.deafen(nil)
		time.Sleep(20 * time.Second)
		s.tells("heard", "prune 2")
		if peers := s.kernel.peers(); peers != "[10.1.0.2]" {
			t.Errorf("let through: %v", peers)
		}
	})
}

// TestPortsOfOthers: what a port's name means only the pods of other boards tell. Until these are heard of, a pod stays as it is.
func TestPortsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		s.pod("x", "a", "10.0.0.2", true)
		name := intstr.FromString("web")
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &name}}}}
		_, err := s.Client.Create(t.Context(), networking.NetworkPolicies, p, api.WriteOptions{})
		must(t, err)
		s.deafen(apierrors.NewServiceUnavailable("no route to host"))
		l, end := s.run(s)
		defer end()
		l.Handed()
		time.Sleep(silence + time.Second)
		s.tells("unheard", "merge map[10.0.0.2:false]")
	})
}

// TestNinthNamespace: pods of namespaces that were followed one by one stay, and are followed, until those of all are heard of (N-14.4).
func TestNinthNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		s.pod("x", "a", "10.0.0.2", true)
		for i := range mostScopes {
			ns := fmt.Sprintf("n%d", i)
			s.space(ns)
			s.pod(ns, "other", fmt.Sprintf("10.1.0.%d", i+1), false)
		}
		s.policy("x", networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "n"}}})
		l, end := s.run(s)
		defer end()
		l.Handed()
		time.Sleep(2 * silence)
		follows := func(what string, want int) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.peers) != want {
				t.Errorf("%s: follows %d scopes, want %d", what, len(l.peers), want)
			}
		}
		follows("at first", mostScopes)
		all := "10.1.0.1 10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6 10.1.0.7 10.1.0.8"
		if peers := s.kernel.peers(); peers != "["+all+"]" {
			t.Fatalf("let through: %v", peers)
		}
		s.deafen(apierrors.NewServiceUnavailable("no route to host"))
		s.space("n9")
		time.Sleep(2 * silence)
		s.pod("n1", "second", "10.1.0.90", false)
		settle()
		if peers := s.kernel.peers(); peers != "["+all+" 10.1.0.90]" {
			t.Errorf("unheard: let through: %v", peers)
		}
		s.deafen(nil)
		time.Sleep(20 * time.Second)
		s.pod("n9", "other", "10.1.0.99", false)
		settle()
		if peers := s.kernel.peers(); peers != "["+all+" 10.1.0.90 10.1.0.99]" {
			t.Errorf("heard: let through: %v", peers)
		}
		follows("heard", 1)
	})
}

// TestLiars: a board gets past policies of others neither by a static pod that it shows nor by an address that is not its own (N-14.7).
func TestLiars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.space("x")
		s.pod("x", "a", "10.0.0.2", true)
		show := func(name, addr string, static bool) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{"app": "other"}}}
			if static {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "u"}
			}
			p.Spec.NodeName, p.Spec.Containers = "stolen", []corev1.Container{{Name: "c", Image: "i"}}
			p, err := api.Create(t.Context(), s.Client, api.Pods, p)
			must(t, err)
			p.Status.PodIP, p.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
			_, err = api.UpdateStatus(t.Context(), s.Client, api.Pods, p)
			must(t, err)
		}
		show("own", "10.1.0.2", false)
		show("other", "203.0.113.9", false)
		show("static", "10.1.0.3", true)
		s.policy("x", networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}})
		l, end := s.run(s)
		defer end()
		l.Handed()
		for _, c := range []struct {
			what  string
			where map[string]string
			want  string
		}{
			{"nobody gives networks", nil, "[10.1.0.2 203.0.113.9]"},
			{"its own", map[string]string{"stolen": "10.1.0.0/24", "c": "203.0.113.0/24"}, "[10.1.0.2]"},
			{"it has none", map[string]string{"c": "203.0.113.0/24"}, "[]"},
		} {
			s.mu.Lock()
			s.where = c.where
			s.mu.Unlock()
			l.Moved()
			settle()
			if got := s.kernel.peers(); got != c.want {
				t.Errorf("%s: let through %s, want %s", c.what, got, c.want)
			}
		}
	})
}

func TestTrim(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "127.0.0.1"}, {IP: "10.0.0.2"}}
	ports := []corev1.ContainerPort{{Name: "a", ContainerPort: 70000}, {Name: "b", ContainerPort: 80}, {ContainerPort: 81}}
	p.Spec.Containers = []corev1.Container{{Ports: ports}}
	got, ok := Trim(p)
	if !ok || fmt.Sprint(got.Addrs) != "[10.0.0.1]" || fmt.Sprint(got.Ports) != "[{b TCP 80}]" {
		t.Errorf("%+v %v", got, ok)
	}
	p.Spec.HostNetwork = true
	if _, ok := Trim(p); ok {
		t.Error("a pod on the host's network is the board")
	}
	p.Spec.HostNetwork, p.Status.Phase = false, corev1.PodSucceeded
	if _, ok := Trim(p); ok {
		t.Error("a pod that has ended has no address")
	}
}
