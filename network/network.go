// Package network is the contract for connecting pods: plain types and one interface. network/bridge does it
// with netlink and nftables; network/hostnet for boards that give every pod the host's network.
package network

import (
	"context"
	"errors"
	"net/netip"
)

// What a caller may want to tell apart; wrapped with the pod and the reason.
var (
	// ErrExhausted: the pod CIDR has no free address.
	ErrExhausted = errors.New("no free pod address")
	// ErrPortInUse: another pod, or a process of the machine, has that host port.
	ErrPortInUse = errors.New("host port is in use")
	// ErrBlocked, from Ready: everything is made, but another firewall of this machine drops what goes to and from
	// pods. The board still reaches them.
	ErrBlocked = errors.New("another firewall drops forwarded packets")
)

// Setup connects pods that have a network namespace of their own. Every method is idempotent.
type Setup interface {
	// Ready makes or repairs what all pods share (bridge, tables, forwarding) and says why it cannot.
	Ready(ctx context.Context) error
	// Attach connects a pod and gives its addresses. Called again for the same pod it repairs what is missing
	// and gives the same addresses.
	Attach(ctx context.Context, pod Pod) ([]netip.Addr, error)
	// Detach disconnects a pod and frees its addresses and host ports. An unknown pod is not an error.
	Detach(ctx context.Context, uid string) error
	// Retain detaches every pod that is not listed; for after a restart.
	Retain(ctx context.Context, uids []string) error
	// Close removes everything that was made, pods first. It is not for a restart: pods lose their network.
	Close(ctx context.Context) error
}

// Answerer is a Setup that knows whether pods reach the board itself.
type Answerer interface {
	// Answerable is why they do not, as far as the last look could tell: another firewall drops what they send.
	Answerable() error
}

// Router is a Setup that can lead to the pods of other machines.
type Router interface {
	// Reach makes the ways to exactly these, by their own addresses where these are neighbours', and takes back those it
	// made before to others. What was made by others is never touched. It tells whose pods cannot be reached, and why.
	Reach(ctx context.Context, peers []Peer) ([]Missed, error)
}

// Peer is another machine with pods.
type Peer struct {
	Name      string
	CIDRs     []netip.Prefix // of its pods
	Addresses []netip.Addr   // its own
}

// Missed is a network of pods that there is no way to.
type Missed struct {
	Peer string
	CIDR netip.Prefix
	Why  string
}

// Pod is what the network needs to know of a pod.
type Pod struct {
	UID             string
	Namespace, Name string
	NetNS           string // path of the pinned network namespace
	Ports           []Port
}

// Port maps a port of the host to one of the pod.
type Port struct {
	HostIP        netip.Addr // zero: all addresses of the host
	HostPort      uint16
	ContainerPort uint16
	Protocol      string // "TCP", "UDP", "SCTP"
}
