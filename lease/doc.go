// Package lease is both ends of a node's heartbeat.
//
// Renewer is the node's end: it renews the node's Lease, whatever else the node is busy with.
//
// Monitor is the control plane's end: fed what can be seen of nodes and leases, it says which node is no longer
// heard, which taints and conditions follow, and how fast. It is deterministic and does no I/O. Liveness is "the
// lease or the heartbeat changed, seen here at this moment", on the observer's own monotonic clock: times that
// others wrote are compared with each other for change only, because boards without a clock boot in 1970.
//
// It may import api and nothing else of ledge.
package lease
