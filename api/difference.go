package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How much of a difference is shown.
const (
	mostDifferences = 5
	longestShown    = 80
)

// difference names the fields in which two values differ, as JSON has them, with what they were and are to be.
func difference(at *field.Path, now, old any) []string {
	var out []string
	compare(at, plain(now), plain(old), &out)
	if more := len(out) - mostDifferences; more > 0 {
		out = append(out[:mostDifferences], fmt.Sprintf("and %d more", more))
	}
	return out
}

// plain is a value of nothing but maps, lists and scalars.
func plain(v any) (out any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil // it came as JSON
	}
	return out
}

func compare(at *field.Path, now, old any, out *[]string) {
	switch now := now.(type) {
	case map[string]any:
		if old, same := old.(map[string]any); same {
			keys := slices.AppendSeq(slices.Collect(maps.Keys(now)), maps.Keys(old))
			slices.Sort(keys)
			for _, k := range slices.Compact(keys) {
				compare(at.Child(k), now[k], old[k], out)
			}
			return
		}
	case []any:
		if old, same := old.([]any); same && len(old) == len(now) {
			for i := range now {
				compare(at.Index(i), now[i], old[i], out)
			}
			return
		}
	}
	if was, is := shown(old), shown(now); was != is {
		*out = append(*out, fmt.Sprintf("%s: %s -> %s", at, short(was), short(is)))
	}
}

func shown(v any) string {
	if v == nil {
		return "unset"
	}
	data, _ := json.Marshal(v) // it was JSON
	return string(data)
}

func short(text string) string {
	if len(text) <= longestShown {
		return text
	}
	return strings.ToValidUTF8(text[:longestShown-3], "") + "..."
}
