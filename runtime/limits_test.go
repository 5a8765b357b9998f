package runtime

import (
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "0b5e7c1e-8f5c-4a1e-9d2f-1c2d3e4f5a6b": true, "web_1.2": true, "...": true, strings.Repeat("x", 200): true,
		"": false, ".": false, "..": false, "a/b": false, "../a": false, "a b": false, "a\x00": false, "ä": false,
		"a\n": false, strings.Repeat("x", 201): false,
	} {
		if err := CheckID("container", id); (err == nil) != ok {
			t.Errorf("%q: %v, want good: %v", id, err, ok)
		}
	}
}
