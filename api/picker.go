package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Picker is a Selection made ready for many objects that are there as JSON, as json.Marshal writes them. It looks at the few
// values that it needs, and decodes nothing.
type Picker struct {
	kind  *Kind
	sel   Selection
	all   bool   // of the namespace
	empty Object // what fields are that JSON leaves out

	// needs are texts of which an object has one in it, wherever, if the selection picks it: for each label and field that must have one of
	// some values these values. To look for them is ten times as fast as to find a label or a field; json.Marshal writes what a label may
	// consist of as it is.
	needs [][][]byte
}

// Picker makes a selection ready.
func (s Selection) Picker(kind *Kind) *Picker {
	p := &Picker{kind: kind, sel: s, all: true}
	if s.Fields != nil && !s.Fields.Empty() {
		p.all, p.empty = false, kind.New()
		p.needs = p.ofFields(s.Fields.Requirements())
	}
	if s.Labels != nil && !s.Labels.Empty() {
		p.all, p.needs = false, append(p.needs, ofLabels(s.Labels)...)
	}
	return p
}

// ofFields are the values of fields that an object has as it is in JSON, or not at all.
func (p *Picker) ofFields(requirements fields.Requirements) (all [][][]byte) {
	for _, r := range requirements {
		switch {
		case r.Operator == selection.NotEquals, r.Field == nameField, r.Field == namespaceField, p.kind.Computes(r.Field):
		case r.Value == "", r.Value == p.kind.Fields(p.empty).Get(r.Field), len(validation.IsValidLabelValue(r.Value)) > 0:
		default:
			all = append(all, [][]byte{[]byte(r.Value)})
		}
	}
	return all
}

// ofLabels are the values of labels.
func ofLabels(s labels.Selector) (all [][][]byte) {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}
		var some [][]byte
		for v := range r.Values() {
			if len(validation.IsValidLabelValue(v)) > 0 {
				return nil
			}
			some = append(some, []byte(`"`+v+`"`))
		}
		all = append(all, some)
	}
	return all
}

// Whole says that there is no selector: it picks all of its namespace.
func (p *Picker) Whole() bool { return p.all }

// Picks says whether the selection picks an object with a key ("namespace/name"). It is what Matches says of the same object decoded.
func (p *Picker) Picks(key, data []byte) bool {
	if p.all && p.sel.Namespace == "" {
		return true
	}
	namespace, name, _ := strings.Cut(string(key), "/")
	if p.sel.Namespace != "" && namespace != p.sel.Namespace {
		return false
	}
	if p.all {
		return true
	}
	for _, some := range p.needs {
		if !slices.ContainsFunc(some, func(text []byte) bool { return bytes.Contains(data, text) }) {
			return false
		}
	}
	if f := p.sel.Fields; p.empty != nil && !f.Matches(&jsonFields{p, namespace, name, data, nil}) {
		return false
	}
	if l := p.sel.Labels; l != nil && !l.Empty() {
		set, _ := jsonAt(data, "metadata.labels")
		return l.Matches(jsonLabels(set))
	}
	return true
}

// jsonFields is what a field selector can see of an object in JSON.
type jsonFields struct {
	*Picker
	namespace, name string
	data            []byte
	decoded         Object // where a field is not in the JSON as it is
}

func (f *jsonFields) Has(name string) bool { return f.kind.hasField(name) }

func (f *jsonFields) Get(name string) string {
	switch name {
	case nameField:
		return f.name
	case namespaceField:
		return f.namespace
	}
	if f.kind.Computes(name) {
		if f.decoded == nil {
			f.decoded = f.kind.New()
			if json.Unmarshal(f.data, f.decoded) != nil {
				f.decoded = f.empty
			}
		}
		return f.kind.Fields(f.decoded).Get(name)
	}
	value, there := jsonAt(f.data, name)
	if !there {
		return f.kind.Fields(f.empty).Get(name)
	}
	return jsonText(value)
}

// jsonLabels are the labels of an object, in JSON.
type jsonLabels []byte

func (l jsonLabels) Has(key string) bool { _, there := jsonMember(l, key); return there }

func (l jsonLabels) Get(key string) string { value, _ := l.Lookup(key); return value }

func (l jsonLabels) Lookup(key string) (string, bool) {
	value, there := jsonMember(l, key)
	return jsonText(value), there
}

var _ labels.Labels = jsonLabels(nil)

// jsonText is a string, number or truth value of JSON as text; null is "".
func jsonText(value []byte) string {
	switch {
	case len(value) == 0 || value[0] == 'n':
		return ""
	case value[0] != '"':
		return string(value)
	case bytes.IndexByte(value, '\\') < 0:
		return string(value[1 : len(value)-1])
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// jsonIs says whether a string of JSON is a text.
func jsonIs(value []byte, text string) bool {
	if bytes.IndexByte(value, '\\') >= 0 {
		return jsonText(value) == text
	}
	return string(value[1:len(value)-1]) == text
}

// jsonAt finds the value at a path of keys and dots in an object as json.Marshal writes it: without spaces, each key once. What is not
// such an object has no values.
func jsonAt(data []byte, path string) (value []byte, there bool) {
	for {
		key, rest, more := strings.Cut(path, ".")
		if value, there = jsonMember(data, key); !there || !more {
			return value, there
		}
		data, path = value, rest
	}
}

func jsonMember(data []byte, key string) (value []byte, there bool) {
	if len(data) < 2 || data[0] != '{' {
		return nil, false
	}
	for at := 1; at < len(data) && data[at] == '"'; at++ {
		colon := jsonEnd(data, at)
		if colon >= len(data) || data[colon] != ':' {
			return nil, false
		}
		end := jsonEnd(data, colon+1)
		if end >= len(data) {
			return nil, false
		}
		if jsonIs(data[at:colon], key) {
			return data[colon+1 : end], true
		}
		at = end // a comma, or the end
	}
	return nil, false
}

// jsonEnd is where the value that begins at a place ends; len(data) where it does not.
func jsonEnd(data []byte, at int) int {
	depth := 0
	for at < len(data) {
		switch data[at] {
		case '"':
			if at = stringEnd(data, at); depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // of what a number stood in
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}

// stringEnd is the place after the string that begins at a place.
func stringEnd(data []byte, at int) int {
	for at++; at < len(data); at++ {
		switch data[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(data)
}
