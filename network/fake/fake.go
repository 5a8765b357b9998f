// Package fake is a network.Setup in memory, for simulation. It passes the same suite as the real one.
package fake

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"ledge/network"
	"ledge/network/plan"
)

// Machine is what survives a restart of the process that runs a Setup: the kernel's side.
type Machine struct {
	mu    sync.Mutex
	book  *plan.Book
	ready error
}

// NewMachine begins a machine without pods.
func NewMachine(cidr netip.Prefix, cidr6 ...netip.Prefix) (*Machine, error) {
	b, err := plan.NewBook(cidr, append(cidr6, netip.Prefix{})[0])
	return &Machine{book: b}, err
}

// SetReady makes Ready fail with err, until it is set to nil.
func (m *Machine) SetReady(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = err
}

// Pods are the UIDs that are connected, sorted.
func (m *Machine) Pods() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.Others(nil)
}

// Setup connects pods of a Machine.
type Setup struct{ m *Machine }

var _ network.Setup = (*Setup)(nil)

// New is what a process does when it starts: any number may follow each other on one Machine.
func New(m *Machine) *Setup { return &Setup{m: m} }

// Pods is how many are connected.
func (s *Setup) Pods() int { return len(s.m.Pods()) }

// Ready says what SetReady was told.
func (s *Setup) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.ready
}

// Attach remembers a pod and gives it an address.
func (s *Setup) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	pod.Ports = slices.Clone(pod.Ports)
	e, _, err := s.m.book.Claim(pod)
	if err != nil {
		return nil, err
	}
	return e.Addrs(), nil
}

// Detach forgets a pod.
func (s *Setup) Detach(ctx context.Context, uid string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.book.Release(uid)
	return nil
}

// Retain forgets every pod that is not listed.
func (s *Setup) Retain(ctx context.Context, uids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, uid := range s.m.book.Others(uids) {
		s.m.book.Release(uid)
	}
	return nil
}

// Close forgets everything.
func (s *Setup) Close(ctx context.Context) error { return s.Retain(ctx, nil) }
