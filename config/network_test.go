package config

import (
	"strings"
	"testing"
)

// Only a board of a Kubernetes has its network made by plugins, and then by nobody else.
func TestNetworkOfPlugins(t *testing.T) {
	for _, c := range []struct {
		name, key, kubeconfig, bridge string
		set                           map[string]bool
		want, is                      string
	}{
		{name: "no key", bridge: "ledge0", is: "ledge0"},
		{name: "a Kubernetes", key: "cni", kubeconfig: "/x", bridge: "ledge0", is: PluginNetwork},
		{name: "a plane of ledge's", key: "cni", bridge: "ledge0", want: "has joined a Kubernetes"},
		{name: "a bridge too", key: "cni", kubeconfig: "/x", bridge: "br0", set: map[string]bool{"bridge": true}, want: "leave one of them out"},
		{name: "a network too", key: "cni", kubeconfig: "/x", bridge: "ledge0", set: map[string]bool{"pod-cidr": true}, want: "leave one of them out"},
		{name: "as a flag", bridge: "cni", kubeconfig: "/x", want: "network: cni"},
	} {
		s := Settings{Options: &Options{Kubeconfig: c.kubeconfig, Bridge: c.bridge, set: c.set}, File: File{networkKeys: networkKeys{c.key}}}
		err := s.network()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && s.Bridge != c.is {
			t.Errorf("%s: %q, %v", c.name, s.Bridge, err)
		}
	}
}
