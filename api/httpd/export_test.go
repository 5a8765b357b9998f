package httpd

import (
	"slices"
)

// FixedPaths are the paths of the API that are no object's, with the method that they take, discovery's and OpenAPI's
// aside.
func FixedPaths() []string {
	var out []string
	for _, r := range routes {
		review := slices.ContainsFunc(reviews, func(v review) bool { return v.path == r.on })
		if r.kinds == nil && !review {
			out = append(out, r.method+":"+r.on)
		}
	}
	return out
}
