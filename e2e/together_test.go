package e2e

import (
	"net"
	"testing"
)

// TestNodesAtOnce: nodes of one machine that start in the same moment have pod networks of their own.
func TestNodesAtOnce(t *testing.T) {
	onHost(t)
	nodes := []*testBoard{newBoard(t), newBoard(t), newBoard(t)}
	for _, b := range nodes {
		b.start()
	}
	taken := map[string]string{}
	for _, b := range nodes {
		b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
		bridge, err := net.InterfaceByName(b.name)
		must(t, err)
		addrs, err := bridge.Addrs()
		must(t, err)
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
				if other := taken[n.String()]; other != "" {
					t.Errorf("%s and %s have both %s", other, b.name, n)
				}
				taken[n.String()] = b.name
			}
		}
	}
	if len(taken) != len(nodes) {
		t.Errorf("%d networks of %d nodes: %v", len(taken), len(nodes), taken)
	}
}
