package api

import (
	"strings"
)

// Kubernetes is the release of Kubernetes whose types and rules ledge follows.
const Kubernetes = "v1.37.2"

// VersionOf is how a version of ledge names itself to clients of Kubernetes: in /version and as the kubeletVersion of Nodes. Clients
// compare the part before the "+" with versions of Kubernetes.
func VersionOf(ledge string) string {
	return Kubernetes + "+ledge." + strings.TrimPrefix(ledge, "v")
}
