package openapi

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	kjson "sigs.k8s.io/json"
)

// FuzzUnknown: where a strict decoder reads a body into the Go type, the schema finds faults where that one does, and nothing unknown where
// it does not.
func FuzzUnknown(f *testing.F) {
	all := schemas(f)
	for _, body := range []string{`{"spec":{"unknownField":"foo","replicas":2,"replicas":3}}`,
		`{"metadata":{"unknownMeta":{"a":[{}]},"labels":{"a":"b","a":"c"}}}`,
		`{"spec":{"template":{"spec":{"containers":[{},{"ports":[{"containerPart":1}]}]}}},"spek":[1,2]}`, `null`, `[1]`, `{"spec":[}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := Unknown(all, "io.k8s.api.apps.v1.Deployment", body)
		for _, p := range found {
			if !strings.HasPrefix(p, "unknown field ") && !strings.HasPrefix(p, "duplicate field ") {
				t.Fatalf("%q", p)
			}
		}
		var obj appsv1.Deployment
		want, fatal := kjson.UnmarshalStrict(body, &obj)
		if fatal != nil {
			return
		}
		if err != nil {
			t.Fatalf("%v, and a decoder reads it", err)
		}
		theirs := ""
		for _, w := range want { // they are 100 at most
			theirs += w.Error() + "\n"
		}
		ours := strings.Join(found, "\n")
		if strings.Contains(ours, "unknown field ") != strings.Contains(theirs, "unknown field ") || !strings.Contains(ours, "duplicate") &&
			strings.Contains(theirs, "duplicate") {
			t.Fatalf("%q, a decoder says %q", ours, theirs)
		}
	})
}
