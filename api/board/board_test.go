package board

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The table says all that a reference needs, once for each request, and what it names as an answer is one.
func TestRequests(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Requests {
		if seen[r.Pattern()] {
			t.Errorf("%s stands there twice", r.Pattern())
		}
		seen[r.Pattern()] = true
		if !strings.HasPrefix(r.Path, "/ledge/v1/") || r.Does == "" || strings.HasSuffix(r.Does, ".") {
			t.Errorf("%s: %q", r.Pattern(), r.Does)
		}
		for _, q := range r.Query {
			if q.Name == "" || q.Means == "" {
				t.Errorf("%s: query %+v", r.Pattern(), q)
			}
		}
		if _, err := json.Marshal(r.Answer); err != nil {
			t.Errorf("%s: %v", r.Pattern(), err)
		}
		if says := r.Answer != nil || r.Stream != ""; says != (r.Code == http.StatusOK) {
			t.Errorf("%s: %d, and an answer: %v", r.Pattern(), r.Code, says)
		}
	}
}
