// Package rbac has the kinds of the group rbac.authorization.k8s.io: roles, and whom they are given to. What they mean together is here
// too, and pure: who may do what (Policy), who may give what (Missing), what an aggregated role holds (Aggregate), and the roles that
// every cluster has (DefaultClusterRoles).
package rbac

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// nameRule is what they may be called: as on Kubernetes, anything that can stand in a path (system:x).
func nameRule(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
