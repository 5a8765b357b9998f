package registry

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzChallenge: a registry's challenge, range or error can be anything.
func FuzzChallenge(f *testing.F) {
	f.Add(`realm="https://auth.example/token",service="s",scope="repository:a:pull"`)
	f.Add(`realm=x, service=`)
	f.Add(`bytes 5-9/10`)
	f.Fuzz(func(t *testing.T, s string) {
		for name := range parseParams(s) {
			if name != strings.ToLower(name) {
				t.Errorf("%q", name)
			}
		}
		if n, err := rangeStart(s); err == nil && n < 0 {
			t.Errorf("range from %d", n)
		}
		if p := printable(s); len(p) > 210 || strings.ContainsAny(p, "\n\r\x00\x1b") {
			t.Errorf("%q", p)
		}
		e := &StatusError{Code: http.StatusTooManyRequests, after: s}
		if d := e.RetryAfter(); d < 0 || d.Hours() > 1 {
			t.Errorf("wait %v", d)
		}
	})
}
