package network

import (
	"context"
	"net/netip"
	"time"
)

// Forwarder leads connections that are made to Services to the pods behind them, by rules of the kernel: they outlive the
// process that made them. Every method is idempotent.
type Forwarder interface {
	// Update forwards what these services say, in place of what they said before; one without Forwards and ClusterIPs is
	// forgotten. Other services stay as they are. All of it happens at once, or none of it; but see HalfForwarded.
	Update(ctx context.Context, changed []Service) error
	// Prune forwards exactly these services. It reads what the kernel has, and changes only what differs: after a restart, and
	// after a failure.
	Prune(ctx context.Context, all []Service) error
	// Stands says whether the kernel has rules of Services: then it has not started anew since they were made.
	Stands(ctx context.Context) (bool, error)
	// Short are the Services that do not get all they ask for, and why: what this machine does not do, as a user reads it. Nobody
	// changes it.
	Short() map[string]string
	// Delete removes every rule.
	Delete(ctx context.Context) error
}

// HalfForwarded is the error of a Forwarder that did all it was asked for but what is of IPv6. The next Prune tries that again.
type HalfForwarded struct{ Err error }

func (e *HalfForwarded) Error() string {
	return "Services are forwarded by IPv4 only: " + e.Err.Error()
}

func (e *HalfForwarded) Unwrap() error { return e.Err }

// Service is what this machine forwards for one Service.
type Service struct {
	Name    string    // namespace/name
	Created time.Time // of two services that claim one address and port, the older has it
	// ClusterIPs are its own addresses: their other ports are refused.
	ClusterIPs []netip.Addr
	Forwards   []Forward
}

// Forward says where connections to one port of one address go. Among several endpoints the kernel picks one for each connection.
type Forward struct {
	// To is where clients connect. The address 0.0.0.0, or ::, stands for every address of this machine but those of loopback.
	To       netip.AddrPort
	Protocol string // "TCP", "UDP", "SCTP"
	// Near are the endpoints for the pods of this board, and for the machine itself.
	Near []netip.AddrPort
	// Outside: others than these may connect, to Far.
	Outside bool
	Far     []netip.AddrPort
	// Masquerade: clients' addresses are replaced by the board's, so that answers come back by this board.
	Masquerade bool
	// Drop: clients for whom there is no endpoint hear nothing. Otherwise they are refused.
	Drop bool
	// Sticky: a client stays with its endpoint until it has made no connection for this long.
	Sticky time.Duration
	// Sources may connect; none given: all may.
	Sources []netip.Prefix
}
