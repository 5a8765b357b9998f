package openapi

import (
	"strings"
	"testing"
)

func TestUnknown(t *testing.T) {
	all := schemas(t)
	for body, want := range map[string]string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","labels":{"any":"thing"},"creationTimestamp":null},"spec":{"replicas":2,
		  "strategy":{"rollingUpdate":{"maxSurge":"25%"}},"selector":{"matchLabels":{"a":"b"}},
		  "template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":1,"example.com/x":"2"}},"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"x"}}}]}]}}},"status":{}}`: "",
		`{"spec":{"unknownField":"foo","replicas":2,"replicas":3}}`:                                       `unknown field "spec.unknownField", duplicate field "spec.replicas"`,
		`{"metadata":{"unknownMeta":{"a":[{}]}}}`:                                                         `unknown field "metadata.unknownMeta"`,
		`{"spec":{"template":{"spec":{"containers":[{},{"ports":[{"containerPart":1}]}]}}},"spek":[1,2]}`: `unknown field "spec.template.spec.containers[1].ports[0].containerPart", unknown field "spek"`,
		`{"metadata":{"labels":{"a":"b","a":"c"}}}`:                                                       `duplicate field "metadata.labels.a"`,
		`null`: "", `{}`: "", `[1]`: "", `7`: "",
	} {
		got, err := Unknown(all, "io.k8s.api.apps.v1.Deployment", []byte(body))
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
	for _, body := range []string{"", "{", `{"a"`, `{"spec":[}`} {
		if _, err := Unknown(all, "io.k8s.api.apps.v1.Deployment", []byte(body)); err == nil {
			t.Errorf("%q is whole", body)
		}
	}
	if _, err := Unknown(all, "no.such.Kind", []byte("{}")); err == nil {
		t.Error("a schema that is not there")
	}
}
