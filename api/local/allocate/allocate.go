// Package allocate decides which addresses and ports a service gets (pure). Where they come from, and which are taken, a Source
// says; what is given up again is the difference between what a service had and what it has.
//
//	families <- what the service says, or the cluster's   (families.go)
//	addresses <- one of each family                        a number of a Range
//	node ports <- one for each port that wants one         a number of a Ports
package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// Why there is no address or port.
var (
	ErrFull  = errors.New("range is full")
	ErrTaken = errors.New("provided IP is already allocated")
	ErrPort  = errors.New("provided port is already allocated")
	ErrRange = errors.New("the provided network does not match the current range")
)

// Source has the addresses and ports of a cluster. What it gives is taken from then on.
type Source interface {
	Families() ([]corev1.IPFamily, error) // the cluster's, its own first
	Take(netip.Addr) error
	Next(corev1.IPFamily) (netip.Addr, error)
	TakePort(int32) error
	NextPort() (int32, error)
}

// Service gives a service what it needs. old is what it was before, or nil; what both have is not asked for again. The error is one
// for the client.
func Service(s, old *corev1.Service, from Source) error {
	if old == nil {
		api.MatchClusterIPs(s)
	}
	if err := addresses(s, old, from); err != nil {
		return err
	}
	return ports(s, old, from)
}

// Addresses are those that a service has of its own.
func Addresses(s *corev1.Service) []string {
	if s == nil || !api.HasClusterIP(s) {
		return nil
	}
	return s.Spec.ClusterIPs
}

// Freed are the addresses that a service had and has no more.
func Freed(s, old *corev1.Service) (out []string) {
	has := Addresses(s)
	for _, ip := range Addresses(old) {
		if !slices.Contains(has, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// PortsOf are the ports that a service has on the boards.
func PortsOf(s *corev1.Service) (out []int32) {
	if s == nil || !api.IsExternal(s) {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	if n := s.Spec.HealthCheckNodePort; n != 0 {
		out = append(out, n)
	}
	return out
}

func addresses(s, old *corev1.Service, from Source) error {
	if s.Spec.Type == corev1.ServiceTypeExternalName || samePreference(s, old) {
		return nil
	}
	known, err := from.Families()
	if err != nil {
		return err
	}
	if errs := families(s, old, known); len(errs) > 0 {
		return invalid(s, errs)
	}
	// A service without an address stays one, and the first address stays: validation says so to who changed them.
	if !api.HasClusterIP(s) || old != nil && old.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	for i := len(Addresses(old)); i < len(s.Spec.IPFamilies); i++ {
		if i >= len(s.Spec.ClusterIPs) {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs[:len(s.Spec.ClusterIPs):len(s.Spec.ClusterIPs)], "")
		}
		if s.Spec.ClusterIPs[i], err = address(s, i, from); err != nil {
			return err
		}
	}
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

// address is the i-th of a service: the one that it asks for, or a free one.
func address(s *corev1.Service, i int, from Source) (string, error) {
	asked := s.Spec.ClusterIPs[i]
	if asked == "" {
		ip, err := from.Next(s.Spec.IPFamilies[i])
		if err != nil {
			return "", api.NewInternal("failed to allocate a serviceIP for Service %q: %w", s.Name, err)
		}
		return ip.String(), nil
	}
	ip, err := netip.ParseAddr(asked)
	if err == nil {
		err = from.Take(ip)
	}
	if err != nil {
		return "", invalid(s, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs,
			fmt.Sprintf("failed to allocate IP %s: %v", asked, err))})
	}
	return asked, nil
}

// ports gives the ports that are asked for before those that are any.
func ports(s, old *corev1.Service, from Source) error {
	if !api.IsExternal(s) {
		return nil
	}
	had := PortsOf(old)
	for i, p := range s.Spec.Ports {
		if p.NodePort == 0 || slices.Contains(had, p.NodePort) {
			continue
		}
		if err := from.TakePort(p.NodePort); err != nil {
			return invalid(s, field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), p.NodePort, err.Error())})
		}
		had = append(had, p.NodePort) // of TCP and UDP, it is one
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort != 0 || !api.WantsNodePorts(s) {
			continue
		}
		if p.NodePort = alike(s, p); p.NodePort != 0 {
			continue
		}
		var err error
		if p.NodePort, err = from.NextPort(); err != nil {
			return api.NewInternal("failed to allocate a nodePort: %w", err)
		}
	}
	return healthPort(s, had, from)
}

// alike is the port on the boards that the same port has under another protocol.
func alike(s *corev1.Service, p *corev1.ServicePort) int32 {
	for _, q := range s.Spec.Ports {
		if q.Port == p.Port && q.Protocol != p.Protocol && q.NodePort != 0 &&
			!slices.ContainsFunc(s.Spec.Ports, func(r corev1.ServicePort) bool { return r.NodePort == q.NodePort && r.Protocol == p.Protocol }) {
			return q.NodePort
		}
	}
	return 0
}

func healthPort(s *corev1.Service, had []int32, from Source) (err error) {
	n := &s.Spec.HealthCheckNodePort
	switch {
	case !api.HasHealthCheck(s) || *n != 0 && slices.Contains(had, *n):
		return nil
	case *n != 0:
		err = from.TakePort(*n)
	default:
		*n, err = from.NextPort()
	}
	if err != nil {
		return api.NewInternal("failed to allocate a HealthCheck NodePort: %w", err)
	}
	return nil
}

func invalid(s *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(api.Services.GVK().GroupKind(), s.Name, errs)
}
