package api

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodNetworksName is the ConfigMap in kube-system where the control plane writes which board has which pods: what boards
// need of each other to reach their pods, and all that they may know of each other. A node may read it by its name.
const PodNetworksName = "ledge-pod-networks"

// IsPodNetworks says whether that is the ConfigMap.
func IsPodNetworks(namespace, name string) bool {
	return namespace == metav1.NamespaceSystem && name == PodNetworksName
}

// PodNetwork is where the pods of one board are.
type PodNetwork struct {
	Node      string
	CIDRs     []netip.Prefix
	Addresses []netip.Addr // of the board
}

// PodNetworksOf is the content of the ConfigMap: a line for each node that has a network and an address.
func PodNetworksOf(nodes []*corev1.Node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		var via []string
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				via = append(via, a.Address)
			}
		}
		line := strings.Join(n.Spec.PodCIDRs, ",") + " via " + strings.Join(via, ",")
		if _, err := parsePodNetwork(n.Name, line); err == nil && n.DeletionTimestamp == nil {
			out[n.Name] = line
		}
	}
	return out
}

// ParsePodNetworks reads the ConfigMap, sorted by node. Lines that are no such thing are left out.
func ParsePodNetworks(data map[string]string) []PodNetwork {
	var out []PodNetwork
	for _, node := range slices.Sorted(maps.Keys(data)) {
		if p, err := parsePodNetwork(node, data[node]); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func parsePodNetwork(node, line string) (PodNetwork, error) {
	p := PodNetwork{Node: node}
	cidrs, via, ok := strings.Cut(line, " via ")
	if !ok {
		return p, fmt.Errorf("%q does not say which networks are reached via which addresses", line)
	}
	for _, text := range strings.Split(cidrs, ",") {
		c, err := netip.ParsePrefix(text)
		if err != nil || c != c.Masked() {
			return p, fmt.Errorf("%q is not a network", text)
		}
		p.CIDRs = append(p.CIDRs, c)
	}
	for _, text := range strings.Split(via, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return p, fmt.Errorf("%q is not an address", text)
		}
		p.Addresses = append(p.Addresses, a)
	}
	return p, nil
}
