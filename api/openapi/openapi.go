// Package openapi has the schemas of everything the API speaks: as one document for each group and version (OpenAPI v3),
// as one for all of them (v2, as JSON and as protobuf), and by name for those who work with them.
//
// The schemas are generated from the sources of the pinned k8s.io modules by scripts/openapi and embedded compressed.
// Nothing is kept unpacked: a board that nobody asks for them pays for the compressed bytes only.
package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

//go:generate go run ../../scripts/openapi schemas.json.gz ../kinds/testdata/markers.tsv

//go:embed schemas.json.gz
var packed []byte

// Where a schema of v3, and of v2, is found in its document.
const (
	refV3 = "#/components/schemas/"
	refV2 = "#/definitions/"
)

// Hash names this set of schemas.
func Hash() string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:16])
}

// Schemas are all schemas by name, in the form of v3.
func Schemas() (map[string]json.RawMessage, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the schemas: %w", err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpack the schemas: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("unpack the schemas: %w", err)
	}
	return all, nil
}

// Select is the part of all schemas that the named ones need: themselves and what they refer to.
func Select(all map[string]json.RawMessage, names []string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	var add func(name string)
	add = func(name string) {
		schema, ok := all[name]
		if !ok || out[name] != nil {
			return
		}
		out[name] = schema
		for rest := string(schema); ; {
			_, after, found := strings.Cut(rest, refV3)
			if !found {
				return
			}
			to, tail, _ := strings.Cut(after, `"`)
			add(to)
			rest = tail
		}
	}
	for _, n := range names {
		add(n)
	}
	return out
}
