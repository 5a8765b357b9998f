// Package rbac has the kinds of the group rbac.authorization.k8s.io: the roles that the server keeps, and whom they are
// given to, which is for those to say who hold them.
package rbac

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// nameRule is what bindings may be called: as on Kubernetes, anything that can stand in a path (system:x).
func nameRule(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
