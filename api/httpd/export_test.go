package httpd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"ledge/api"
)

// RanksAsAdministrator says whether somebody has an administrator's place at a board's port with a request, let in or not.
func RanksAsAdministrator(door http.Handler, u api.User, method, path string) (is bool, err error) {
	w, r := &response{}, httptest.NewRequest(method, path, nil)
	_, _, err = door.(interface {
		admit(*response, *http.Request) (api.User, []string, error)
	}).admit(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, u)))
	return w.party.rank == administrators, err
}

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

// LookForGone has it looked that often whether a client has left, until restore is called.
func LookForGone(every time.Duration) (restore func()) {
	was := goneLook
	goneLook = every
	return func() { goneLook = was }
}
