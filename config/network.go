package config

import "fmt"

// networkKeys say who makes the pods' network.
type networkKeys struct {
	Network string `json:"network,omitempty"`
}

// PluginNetwork is the network of a cluster that brings plugins of the Container Network Interface for it. It stands where the name of a
// bridge would, which then is none.
const PluginNetwork = "cni"

func (k networkKeys) check() error {
	if k.Network != "" && k.Network != PluginNetwork {
		return fmt.Errorf("network: %q is not known: %s has the plugins of the cluster make the pods' network; without the key ledge makes it",
			k.Network, PluginNetwork)
	}
	return nil
}

// network gives the pods the network that the configuration names.
func (s *Settings) network() error {
	switch {
	case s.Bridge == PluginNetwork:
		return Usagef("--bridge %s: no bridge can be called so: plugins make the pods' network where the configuration says network: %[1]s", PluginNetwork)
	case s.File.Network == "":
		return nil
	case s.set["bridge"] || s.set["pod-cidr"]:
		return Usagef("--bridge and --pod-cidr are of the network that ledge makes, and the configuration says network: %s: leave one of them out", PluginNetwork)
	case s.Kubeconfig == "":
		return fmt.Errorf("network: %s: it is for a board that has joined a Kubernetes: Services, names and network policies of a control plane of ledge's "+
			"hold on the network that ledge makes; remove the key", PluginNetwork)
	}
	s.Bridge = PluginNetwork
	return nil
}
