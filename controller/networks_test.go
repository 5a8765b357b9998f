package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// TestNetworks: what boards are told of each other's pods follows the Nodes, whoever else writes to it, and costs nothing
// while nothing changes.
func TestNetworks(t *testing.T) {
	clusters := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	plane(t, Config{NodeCIDRs: NodeCIDRs{Clusters: clusters, Bits: []int{24}}}, func(r *rig) {
		told := func() *corev1.ConfigMap {
			synctest.Wait()
			c, err := api.Get[*corev1.ConfigMap](r.ctx, r.Client, api.ConfigMaps, "kube-system", api.PodNetworksName)
			return must(r, c, err)
		}
		says := func(what, want string) {
			t.Helper()
			if got := fmt.Sprint(told().Data); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		says("no nodes", "map[]")
		at := func(name, address string) {
			n := r.getNode(name)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
			_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
			must(r, n, err)
		}
		r.node("a")
		defer r.alive("a")()
		says("no address yet", "map[]")
		at("a", "10.99.0.1")
		says("one", "map[a:10.42.0.0/24 via 10.99.0.1]")
		r.node("b")
		stop := r.alive("b")
		at("b", "10.99.0.2")
		says("two", "map[a:10.42.0.0/24 via 10.99.0.1 b:10.42.1.0/24 via 10.99.0.2]")
		at("b", "10.99.0.7")
		says("moved", "map[a:10.42.0.0/24 via 10.99.0.1 b:10.42.1.0/24 via 10.99.0.7]")

		before := told().ResourceVersion
		r.pass(time.Hour)
		if got := told().ResourceVersion; got != before {
			t.Error("written in a quiet hour")
		}
		c := told()
		c.Data = nil
		_, err := api.Update(r.ctx, r.Client, api.ConfigMaps, c)
		must(r, c, err)
		says("emptied by somebody", "map[a:10.42.0.0/24 via 10.99.0.1 b:10.42.1.0/24 via 10.99.0.7]")
		if _, err := r.Delete(r.ctx, api.ConfigMaps, "kube-system", api.PodNetworksName, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		says("deleted by somebody", "map[a:10.42.0.0/24 via 10.99.0.1 b:10.42.1.0/24 via 10.99.0.7]")

		stop()
		r.fail("update configmaps")
		if _, err := r.Delete(r.ctx, api.Nodes, "", "b", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		says("cannot be written", "map[a:10.42.0.0/24 via 10.99.0.1 b:10.42.1.0/24 via 10.99.0.7]")
		r.fail("")
		r.pass(networksRetry)
		says("gone", "map[a:10.42.0.0/24 via 10.99.0.1]")
	})
}
