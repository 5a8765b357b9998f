package config

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSecurityKeys: each key of the file is read, or refused with its name.
func TestSecurityKeys(t *testing.T) {
	for text, want := range map[string]string{ // part of the refusal; "" for none
		"{}":                    "",
		FirstFile:               "",
		"podSecurity: baseline": "",
		"audit: {medium: disk}": "",
		"audit: {medium: memory, totalSize: 2Mi}": "",
		"audit: {medium: paper}":                  `audit.medium: "paper" is neither disk nor memory`,
		"audit: {totalSize: 2Mi}":                 "audit.totalSize says nothing without audit.medium",
		"audit: {medium: disk, totalSize: 64Ki}":  "audit.totalSize must be at least 128Ki",
		"audit: {medium: disk, totalSize: much}":  `audit.totalSize: "much" is not a size`,
		"audit: {medium: disk, level: Request}":   "level",
		"podSecurity: strict":                     `podSecurity: "strict" must be one of privileged, baseline, restricted`,
	} {
		var c File
		err := yaml.UnmarshalStrict([]byte(text), &c)
		if err == nil {
			err = c.check()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
