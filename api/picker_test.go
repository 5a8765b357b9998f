package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzJSONAt: what is found in an object as json.Marshal writes it is what the decoder finds there, and nothing else breaks it.
func FuzzJSONAt(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","labels":{"app":"web","x\"y":"\u003c\\"}},"n":[1,{"metadata":2}],"spec":{}}`), "metadata", "labels")
	f.Add([]byte(`{"a":{"b":-1.5e3},"a\\":"]}","b":null,"c":true}`), "a", "b")
	f.Add([]byte(`{"a":{"b":"`), "a", "b")
	f.Fuzz(func(t *testing.T, data []byte, first, second string) {
		jsonAt(data, first+"."+second)
		if strings.Contains(first+second, ".") {
			return
		}
		var whole map[string]any
		if json.Unmarshal(data, &whole) != nil {
			return
		}
		data, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		want, there := whole[first]
		checkAt(t, data, want, there, first)
		inner, _ := want.(map[string]any)
		want, there = inner[second]
		checkAt(t, data, want, there, first, second)
	})
}

func checkAt(t *testing.T, data []byte, want any, there bool, path ...string) {
	t.Helper()
	got, found := jsonAt(data, strings.Join(path, "."))
	if found != there {
		t.Fatalf("%s in %s: found %v, there %v", path, data, found, there)
	}
	if text, err := json.Marshal(want); there && (err != nil || !bytes.Equal(text, got)) {
		t.Fatalf("%s in %s: %s, want %s (%v)", path, data, got, text, err)
	}
	if text, ok := want.(string); ok && jsonText(got) != text {
		t.Fatalf("%s in %s: %q, want %q", path, data, jsonText(got), text)
	}
}
