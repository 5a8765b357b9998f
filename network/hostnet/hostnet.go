// Package hostnet is the network.Setup of boards that cannot have a bridge, or are told not to: pods run on the host's
// own network, so there is nothing to make and nothing to remove. A pod has the addresses of the host, and what it
// listens on is a port of the host. A pod that has a network namespace of its own all the same is refused: in it
// there would be loopback alone.
package hostnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"ledge/network"
	"ledge/network/plan"
)

// Config says where the host's addresses come from.
type Config struct {
	// Addresses gives the host's addresses now, the preferred one first. Without Addresses every pod is refused: on such a node only pods
	// run that ask for the host's network themselves, and those are not attached.
	Addresses func() ([]netip.Addr, error)
}

// ErrNoPodNetwork says that this board gives pods no network of their own.
var ErrNoPodNetwork = errors.New("this board has no pod network (--bridge none): set hostNetwork: true in the pod")

// Setup implements network.Setup. It keeps account of host ports only, so that a second pod with the same hears a
// reason before it fails to listen.
type Setup struct {
	cfg Config

	mu   sync.Mutex
	pods map[string]network.Pod // by UID
}

var _ network.Setup = (*Setup)(nil)

// New makes a Setup.
func New(cfg Config) (*Setup, error) { return &Setup{cfg: cfg, pods: map[string]network.Pod{}}, nil }

// Ready says whether the host has an address to give.
func (s *Setup) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil || s.cfg.Addresses == nil {
		return err
	}
	_, err := s.addresses()
	return err
}

func (s *Setup) addresses() ([]netip.Addr, error) {
	addrs, err := s.cfg.Addresses()
	if err != nil {
		return nil, fmt.Errorf("find the host's addresses: %w", err)
	}
	if len(addrs) == 0 {
		return nil, errors.New("this machine has no address, and with --bridge none pods have no others: connect it to a network, or start it without --bridge none")
	}
	return addrs, nil
}

// Attach gives the host's addresses. A port can only be itself here, on all addresses: anything else is refused.
func (s *Setup) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fail := func(err error) ([]netip.Addr, error) {
		return nil, fmt.Errorf("connect pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if pod.UID == "" {
		return fail(errors.New("it has no UID"))
	}
	if s.cfg.Addresses == nil || pod.NetNS != "" {
		return fail(ErrNoPodNetwork)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ports, err := plan.CheckPorts(pod, slices.Collect(maps.Values(s.pods)))
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		if p.HostPort != p.ContainerPort || p.HostIP.IsValid() {
			return fail(fmt.Errorf("host port %s to container port %d: this board has no pod network, where a port is itself and on "+
				"all addresses", plan.PortString(p), p.ContainerPort))
		}
	}
	addrs, err := s.addresses()
	if err != nil {
		return fail(err)
	}
	pod.Ports = ports
	s.pods[pod.UID] = pod
	return addrs, nil
}

// Detach frees the pod's host ports.
func (s *Setup) Detach(ctx context.Context, uid string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
	return nil
}

// Retain frees the host ports of all pods that are not listed.
func (s *Setup) Retain(ctx context.Context, uids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.pods, func(uid string, _ network.Pod) bool { return !slices.Contains(uids, uid) })
	return nil
}

// Close forgets all pods.
func (s *Setup) Close(ctx context.Context) error { return s.Retain(ctx, nil) }
