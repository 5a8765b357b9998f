package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSecurityKeys: each key of the file is read, or refused with its name.
func TestSecurityKeys(t *testing.T) {
	for text, want := range map[string]string{ // part of the refusal; "" for none
		"{}":                    "",
		firstConfig:             "",
		"podSecurity: baseline": "",
		"podSecurity: strict":   `podSecurity: "strict" must be one of privileged, baseline, restricted`,
	} {
		var c fileConfig
		err := yaml.UnmarshalStrict([]byte(text), &c)
		if err == nil {
			err = c.check()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
