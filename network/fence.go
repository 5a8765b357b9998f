package network

import (
	"context"
	"net/netip"
)

// Fencer keeps pods of this board from what network policies do not let them have, by rules of the kernel: they outlive the process that
// made them. Every method is idempotent, and all that it does happens at once, or nothing of it.
type Fencer interface {
	// Add makes of these addresses what a fence says of them, and leaves all others as they are.
	Add(ctx context.Context, about []netip.Addr, f Fence) error
	// Prune fences exactly these. It reads what the kernel has, where others may have changed it, and changes only what differs.
	Prune(ctx context.Context, f Fence) error
	// Merge fences exactly these, as Prune, but lets those in whom the kernel lets in already: who else may be is not all known. That does not
	// hold for own, the addresses of this board's pods, of which all is known. Of an own address that is false only part of what it may is:
	// it stays fenced as it is.
	Merge(ctx context.Context, own map[netip.Addr]bool, f Fence) error
	// Delete removes every rule.
	Delete(ctx context.Context) error
}

// Fence says what may reach addresses of pods, and what they may reach. An address without a chain of a direction is open in that
// direction.
type Fence struct {
	In, Out map[netip.Addr]string // the names of chains
	Chains  map[string][]Pass     // the name of one says all that is in it
	Sets    map[string][]Span     // of pods, by the names that passes have; others are what a pass says
}

// Pass is one kind of connection that a chain lets through. What no pass of it matches is dropped.
type Pass struct {
	Pods     string // name of a set that the other end is in; "": Nets, or anybody
	Nets     []Span // what the other end is in, sorted and apart
	Protocol string // "": any
	// First and Last port of the end that is connected to; 0, 0: any.
	First, Last uint16
}

// Span is the addresses from First to Last, of one family.
type Span struct{ First, Last netip.Addr }

// Empty says that no address is fenced.
func (f Fence) Empty() bool { return len(f.In) == 0 && len(f.Out) == 0 }

// Guarded is a Setup that asks before it connects a pod, with the addresses that it will have. While there is an error the pod has no
// connection.
type Guarded interface {
	Guard(ask func(ctx context.Context, pod Pod, addrs []netip.Addr) error)
}
