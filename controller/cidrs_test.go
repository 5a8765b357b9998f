package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/testrun"
)

func net(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// TestBlocks: parts in order, a released one last, and the end (N-3.53, N-3.54, N-3.55).
func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		cluster string
		bits    int
		first   []string
		count   int
		wrong   string
	}{
		{"10.0.0.0/22", 24, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"}, 4, ""},
		{"10.0.0.7/30", 32, []string{"10.0.0.4/32", "10.0.0.5/32"}, 4, ""},
		{"10.0.0.0/24", 24, []string{"10.0.0.0/24"}, 1, ""},
		{"fd00:0:0:fffe::/63", 64, []string{"fd00:0:0:fffe::/64", "fd00:0:0:ffff::/64"}, 2, ""},
		{"fd00::/48", 64, []string{"fd00::/64", "fd00:0:0:1::/64"}, 1 << 16, ""},
		{"10.0.0.0/24", 23, nil, 0, "shorter"},
		{"10.0.0.0/24", 33, nil, 0, "cannot be cut"},
		{"fd00::/47", 64, nil, 0, "New CIDR set failed; the node CIDR size is too big"},
	} {
		b, err := NewBlocks(net(c.cluster), c.bits)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s/%d: %v", c.cluster, c.bits, err)
			}
			continue
		}
		seen := map[netip.Prefix]bool{}
		for i := range c.count {
			p, err := b.Next()
			if err != nil || seen[p] || i < len(c.first) && p.String() != c.first[i] {
				t.Fatalf("%s: part %d is %s, %v", c.cluster, i, p, err)
			}
			seen[p] = true
		}
		if _, err := b.Next(); !errors.Is(err, errNoBlocks) {
			t.Errorf("%s: after the last: %v", c.cluster, err)
		}
	}
	b, err := NewBlocks(net("10.0.0.0/22"), 24)
	if err != nil {
		t.Fatal(err)
	}
	b.Exclude(net("10.0.1.128/25"))
	first, _ := b.Next()
	b.Release(first)
	if p, _ := b.Next(); p != net("10.0.2.0/24") {
		t.Errorf("after a release: %s", p) // neither the one given back nor the excluded one
	}
	b.Exclude(net("10.0.2.0/23"))
	if p, _ := b.Next(); p != first {
		t.Errorf("the last one left: %s", p)
	}
}

// cidrsOf lists what nodes have, and finds two that share.
func (r *rig) cidrsOf() map[string][]string {
	r.Helper()
	list, err := r.List(r.ctx, api.Nodes, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	out, owner := map[string][]string{}, map[string]string{}
	for _, o := range list.Items {
		n := o.(*corev1.Node)
		out[n.Name] = n.Spec.PodCIDRs
		for _, c := range n.Spec.PodCIDRs {
			if owner[c] != "" {
				r.Errorf("%s and %s share %s", owner[c], n.Name, c)
			}
			owner[c] = n.Name
		}
	}
	return out
}

func (r *rig) bare(name string, cidrs ...string) {
	r.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if len(cidrs) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = cidrs[0], cidrs
	}
	if _, err := api.Create(r.ctx, r.Client, api.Nodes, n); err != nil {
		r.Fatal(err)
	}
	r.pass(time.Second)
}

func (r *rig) unmake(name string) {
	r.Helper()
	if _, err := r.Delete(r.ctx, api.Nodes, "", name, api.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.pass(time.Second)
}

// TestNodeCIDRs: allocation in both families, what is there is kept (N-3.55, N-3.56), exhaustion is told and ends when a
// node goes (N-3.54, N-3.58), and takes nothing of the other family with it (N-3.57). Without the flag nothing is given
// (N-3.52).
func TestNodeCIDRs(t *testing.T) {
	cfg := NodeCIDRs{Clusters: []netip.Prefix{net("10.0.0.0/22"), net("fd00::/62")}, Bits: []int{24, 64},
		Services: []netip.Prefix{net("10.0.3.0/28")}}
	plane(t, Config{NodeCIDRs: cfg}, func(r *rig) {
		r.bare("own", "10.0.1.0/24", "fd00:0:0:3::/64")
		r.bare("a")
		r.bare("b")
		r.bare("c")
		got := r.cidrsOf()
		r.want("own", got["own"], "10.0.1.0/24", "fd00:0:0:3::/64")
		r.want("a", got["a"], "10.0.0.0/24", "fd00::/64")
		r.want("b", got["b"], "10.0.2.0/24", "fd00:0:0:1::/64")
		r.want("c", got["c"])
		r.want("events", r.events("CIDRNotAvailable"), "cidrAllocator Normal CIDRNotAvailable c: Node c status is now: CIDRNotAvailable")
		r.unmake("a")
		r.pass(5 * time.Minute)
		got = r.cidrsOf()
		r.want("c", got["c"], "10.0.0.0/24", "fd00:0:0:2::/64") // the IPv6 part was not lost, and a's rests
		if n := r.getNode("c"); n.Spec.PodCIDR != "10.0.0.0/24" {
			t.Errorf("podCIDR %s", n.Spec.PodCIDR)
		}
	})
	plane(t, Config{}, func(r *rig) {
		r.bare("a")
		r.want("a", r.cidrsOf()["a"])
	})
}

// TestNodeCIDRWritesFail: a refused write gives its parts back and is tried again (N-3.56).
func TestNodeCIDRWritesFail(t *testing.T) {
	cfg := NodeCIDRs{Clusters: []netip.Prefix{net("10.0.0.0/24")}, Bits: []int{24}}
	plane(t, Config{NodeCIDRs: cfg}, func(r *rig) {
		r.fail("update nodes")
		r.bare("a")
		r.pass(time.Minute)
		if e := r.events("CIDRAssignmentFailed"); len(e) == 0 {
			t.Error("nobody was told")
		}
		r.fail("")
		r.pass(5 * time.Minute)
		r.want("a", r.cidrsOf()["a"], "10.0.0.0/24")
	})
}

// TestStrays: whose network counts and whose does not, in any order of the Nodes.
func TestStrays(t *testing.T) {
	cfg := NodeCIDRs{Clusters: []netip.Prefix{net("10.0.0.0/22"), net("fd00::/62")}, Bits: []int{24, 64}}
	for _, c := range []struct {
		what  string
		nodes []string // name, and what it has; the oldest first
		want  string   // those astray
	}{
		{"as given", []string{"a 10.0.0.0/24 fd00::/64", "b 10.0.1.0/24 fd00:0:0:1::/64", "c"}, "map[]"},
		{"outside", []string{"a 192.0.2.0/24", "b 10.0.4.0/24", "c 10.0.0.0/21"},
			"map[a:192.0.2.0/24 is not in --cluster-cidr 10.0.0.0/22 b:10.0.4.0/24 is not in --cluster-cidr 10.0.0.0/22 c:10.0.0.0/21 is not in --cluster-cidr 10.0.0.0/22]"},
		{"all", []string{"a 10.0.0.0/22", "b 10.0.0.0/24"}, "map[a:10.0.0.0/22 is all of --cluster-cidr]"},
		{"the oldest has it", []string{"b 10.0.1.0/24", "a 10.0.1.0/24"}, "map[a:10.0.1.0/24 overlaps 10.0.1.0/24, which node b has]"},
		{"not by a wider claim", []string{"a 10.0.0.0/23", "b 10.0.1.0/24"}, "map[a:10.0.0.0/23 overlaps 10.0.1.0/24, which node b has]"},
		{"nor by a part of it", []string{"a 10.0.1.128/25", "b 10.0.1.0/24"}, "map[a:10.0.1.128/25 overlaps 10.0.1.0/24, which node b has]"},
		{"by one family", []string{"a 10.0.0.0/24 fd00::/64", "b 10.0.1.0/24 fd00::/64"},
			"map[b:fd00::/64 overlaps fd00::/64, which node a has]"},
		{"a loser takes nothing", []string{"a 10.0.0.0/24", "b 10.0.0.0/24 fd00::/64", "c 10.0.1.0/24 fd00::/64"},
			"map[b:10.0.0.0/24 overlaps 10.0.0.0/24, which node a has]"},
		{"wide, and nobody's", []string{"a 10.0.2.0/23"}, "map[]"},
	} {
		var nodes []*corev1.Node
		for i, line := range c.nodes {
			f := strings.Fields(line)
			nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f[0], CreationTimestamp: metav1.Unix(int64(i), 0)},
				Spec: corev1.NodeSpec{PodCIDRs: f[1:]}})
		}
		for range 2 {
			if got := fmt.Sprint(strays(nodes, cfg)); got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
			}
			slices.Reverse(nodes)
		}
	}
}

// TestForeignCIDR: a node with a network outside the range, all of it, or another node's, keeps no control plane from starting, now
// or later, and takes nothing from anybody. It is told, until it is gone (N-3.55).
func TestForeignCIDR(t *testing.T) {
	cfg := NodeCIDRs{Clusters: []netip.Prefix{net("10.0.0.0/22")}, Bits: []int{24}}
	address := func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2." + n.Name[1:]}}
	}
	plane(t, Config{}, func(r *rig) {
		r.bare("n1", "10.0.2.0/24")
		r.bare("n2", "192.0.2.0/24")
		r.bare("n3", "10.0.2.0/24")
		r.bare("n4", "10.0.0.0/22")
		ctx, cancel := context.WithCancel(r.ctx)
		done := make(chan error, 1)
		go func() { done <- Run(ctx, Config{Client: r.Client, NodeCIDRs: cfg}) }()
		synctest.Wait()
		r.bare("n5")
		r.bare("n6", "10.0.0.0/24")
		r.bare("n7", "8.8.8.0/24")
		for _, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7"} {
			n := r.getNode(name)
			address(n)
			_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
			must(r, n, err)
		}
		synctest.Wait()
		told := func() string {
			c, err := api.Get[*corev1.ConfigMap](r.ctx, r.Client, api.ConfigMaps, "kube-system", api.PodNetworksName)
			return fmt.Sprint(must(r, c, err).Data)
		}
		if got := told(); got != "map[n1:10.0.2.0/24 via 192.0.2.1 n5:10.0.0.0/24 via 192.0.2.5]" {
			t.Error(got)
		}
		in := func(name string) (out string) {
			for _, c := range r.getNode(name).Status.Conditions {
				if c.Type == podNetworkConflict {
					out = fmt.Sprint(c.Status, " ", c.Message)
				}
			}
			return out
		}
		for name, want := range map[string]string{"n1": "", "n5": "", "n2": "True 192.0.2.0/24 is not in",
			"n3": "True 10.0.2.0/24 overlaps 10.0.2.0/24, which node n1 has",
			"n4": "True 10.0.0.0/22 is all of", "n6": "True 10.0.0.0/24 overlaps", "n7": "True 8.8.8.0/24 is not in"} {
			if got := in(name); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if got := r.events("PodCIDRConflict"); len(got) != 5 {
			t.Errorf("events: %q", got)
		}
		r.unmake("n1")
		if got := told(); got != "map[n3:10.0.2.0/24 via 192.0.2.3 n5:10.0.0.0/24 via 192.0.2.5]" || !strings.HasPrefix(in("n3"), "False") {
			t.Error(got, in("n3"))
		}
		r.bare("n8") // what is n3's by now is not given out
		if got := r.getNode("n8").Spec.PodCIDR; got != "10.0.1.0/24" {
			t.Error(got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNodeCIDRProperties: nodes come and go, are made by hand with networks of their own, writes fail or are done and not
// acknowledged, and the control plane restarts: no two nodes ever share, none changes, and when all is quiet each has
// its parts as long as there are any (N-3.54 to N-3.58).
func TestNodeCIDRProperties(t *testing.T) {
	cfg := NodeCIDRs{Clusters: []netip.Prefix{net("10.0.0.0/21"), net("fd00::/60")}, Bits: []int{24, 64}} // 8 and 16 parts
	for seed := range uint64(testrun.Rounds(6)) {
		rng := rand.New(rand.NewPCG(seed, 7))
		plane(t, Config{}, func(r *rig) {
			var stop func()
			start := func() {
				ctx, cancel := context.WithCancel(r.ctx)
				done := make(chan error, 1)
				go func() { done <- Run(ctx, Config{Client: faulty{Client: lossy{r.Client}, r: r}, NodeCIDRs: cfg}) }()
				stop = func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
			}
			start()
			had := map[string][]string{}
			for step := range 60 {
				name := fmt.Sprint("n", rng.IntN(10))
				switch _, err := r.Get(r.ctx, api.Nodes, "", name); {
				case rng.IntN(8) == 0:
					stop()
					start()
				case rng.IntN(6) == 0:
					r.fail([]string{"", "update nodes"}[rng.IntN(2)])
				case err == nil:
					r.unmake(name)
					delete(had, name)
				default:
					r.bare(name)
				}
				r.pass(time.Duration(rng.IntN(20)) * time.Second)
				now := r.cidrsOf()
				for name, was := range had {
					if len(was) > 0 && !slices.Equal(was, now[name]) {
						t.Fatalf("seed %d, step %d: %s has %v, had %v", seed, step, name, now[name], was)
					}
				}
				had = now
			}
			r.fail("")
			r.pass(time.Hour)
			with := 0
			for _, c := range r.cidrsOf() {
				if len(c) == 2 {
					with++
				}
			}
			if want := min(len(r.cidrsOf()), 8); with != want {
				t.Errorf("seed %d: %d nodes have networks, %d could: %v", seed, with, want, r.cidrsOf())
			}
			stop()
		})
	}
}

// lossy does every tenth update of a node and says that it timed out.
type lossy struct {
	api.Client
}

func (l lossy) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	out, err := l.Client.Update(ctx, k, o, opts)
	if k == api.Nodes && err == nil && o.GetResourceVersion() != "" && len(o.(*corev1.Node).Spec.PodCIDRs) > 0 && o.GetUID()[0]%10 == 0 {
		return nil, apierrors.NewTimeoutError("injected", 0)
	}
	return out, err
}
