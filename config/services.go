package config

import (
	"fmt"
	"net/netip"

	"ledge/api/local/allocate"
)

// serviceKeys say where services get their addresses and ports from. A board that has joined another one has no use for them.
type serviceKeys struct {
	ServiceCIDR          string `json:"serviceCIDR,omitempty"`
	ServiceNodePortRange string `json:"serviceNodePortRange,omitempty"`
}

func (k serviceKeys) check() error {
	if _, err := serviceRanges(k.ServiceCIDR); err != nil {
		return fmt.Errorf("serviceCIDR: %w", err)
	}
	if _, err := servicePorts(k.ServiceNodePortRange); err != nil {
		return fmt.Errorf("serviceNodePortRange: %w", err)
	}
	return nil
}

func (s *Settings) checkServices() (err error) {
	if !s.set["service-cidr"] {
		s.serviceCIDR = s.File.ServiceCIDR
	}
	if !s.set["service-node-port-range"] {
		s.nodePorts = s.File.ServiceNodePortRange
	}
	if s.ServiceRanges, err = serviceRanges(s.serviceCIDR); err != nil {
		return Usagef("--service-cidr: %v", err)
	}
	if s.ServicePorts, err = servicePorts(s.nodePorts); err != nil {
		return Usagef("--service-node-port-range: %v", err)
	}
	return nil
}

// serviceRanges reads one network, or one of each family; none of "".
func serviceRanges(text string) (out []netip.Prefix, err error) {
	for _, item := range splitList(text) {
		p, err := netip.ParsePrefix(item)
		if err != nil || p != p.Masked() || p.Addr().BitLen()-p.Bits() < 3 {
			return nil, fmt.Errorf("%q is no network such as 10.43.0.0/16, of eight addresses or more", item)
		}
		out = append(out, p)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, fmt.Errorf("%q is more than one network of each family", text)
	}
	return out, nil
}

func servicePorts(text string) (allocate.Ports, error) {
	if text == "" {
		return allocate.DefaultPorts, nil
	}
	return allocate.ParsePorts(text)
}
