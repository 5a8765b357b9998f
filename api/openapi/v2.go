package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
)

// V2 turns a schema of v3 into one of v2, which has neither oneOf nor a $ref inside allOf.
func V2(schema json.RawMessage) (map[string]any, error) {
	var tree map[string]any
	if err := json.Unmarshal(schema, &tree); err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	lower(tree)
	return tree, nil
}

// lower rewrites a schema and those inside it.
func lower(s map[string]any) {
	if all, ok := s["allOf"].([]any); ok && len(all) == 1 {
		if inner, ok := all[0].(map[string]any); ok {
			delete(s, "allOf")
			delete(s, "default") // of a struct: v2 has it with the struct
			for k, v := range inner {
				s[k] = v
			}
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		s["$ref"] = refV2 + strings.TrimPrefix(ref, refV3)
	}
	if _, ok := s["oneOf"]; ok { // a quantity, or a number or name: strings on the wire as far as v2 can say
		delete(s, "oneOf")
		s["type"] = "string"
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			lower(inner)
		}
	}
	if props, ok := s["properties"].(map[string]any); ok {
		for _, p := range props {
			if inner, ok := p.(map[string]any); ok {
				lower(inner)
			}
		}
	}
}
