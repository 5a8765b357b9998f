package api

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodNetworks: what the control plane writes of boards is what they read, and what is none is left out on both sides.
func TestPodNetworks(t *testing.T) {
	node := func(name, address string, cidrs ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
		if address != "" {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
		}
		return n
	}
	two := node("two", "10.99.0.2", "10.42.2.0/24", "fd00:2::/64")
	two.Status.Addresses = append(two.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd99::2"})
	data := PodNetworksOf([]*corev1.Node{two, node("one", "10.99.0.1", "10.42.1.0/24"), node("new", "10.99.0.3"),
		node("away", "", "10.42.3.0/24"),
		node("odd", "10.99.0.4", "10.42.4.1/24")})
	if got := fmt.Sprint(data); got != "map[one:10.42.1.0/24 via 10.99.0.1 two:10.42.2.0/24,fd00:2::/64 via 10.99.0.2,fd99::2]" {
		t.Error(got)
	}
	for _, bad := range []string{"", "10.42.9.0/24", "10.42.9.0/24 via", "10.42.9.0/24 via somewhere", "all via 10.99.0.9",
		"10.42.9.9/24 via 10.99.0.9"} {
		data["bad"] = bad
		if got := fmt.Sprint(ParsePodNetworks(data)); got != "[{one [10.42.1.0/24] [10.99.0.1]} {two [10.42.2.0/24 fd00:2::/64] [10.99.0.2 fd99::2]}]" {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
