package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// shape is what a schema says of the fields of an object.
type shape struct {
	Ref        string            `json:"$ref"`
	AllOf      []shape           `json:"allOf"`
	Properties map[string]*shape `json:"properties"`
	Items      *shape            `json:"items"`
	Values     *shape            `json:"additionalProperties"`
}

// Unknown lists the fields of a JSON object that its schema does not have, and those that are there twice, in their
// order and in the words of a strict decoder of Kubernetes. It is for kinds whose Go types are not linked.
func Unknown(all map[string]json.RawMessage, name string, data []byte) ([]string, error) {
	c := &checker{all: all, dec: json.NewDecoder(bytes.NewReader(data))}
	err := c.value(&shape{Ref: refV3 + name}, "")
	return c.problems, err
}

type checker struct {
	all      map[string]json.RawMessage
	dec      *json.Decoder
	problems []string
}

// resolve follows references. nil: nothing is known of what is inside.
func (c *checker) resolve(s *shape) (*shape, error) {
	for s != nil {
		if s.Ref == "" && len(s.AllOf) == 1 {
			s = &s.AllOf[0]
		}
		if s.Ref == "" {
			break
		}
		next := &shape{}
		if err := json.Unmarshal(c.all[strings.TrimPrefix(s.Ref, refV3)], next); err != nil {
			return nil, fmt.Errorf("ledge bug: schema %s: %w", s.Ref, err)
		}
		s = next
	}
	if s == nil || s.Properties == nil && s.Items == nil && s.Values == nil {
		return nil, nil
	}
	return s, nil
}

func (c *checker) value(s *shape, path string) error {
	s, err := c.resolve(s)
	if err != nil {
		return err
	}
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return c.object(s, path)
	case json.Delim('['):
		var items *shape
		if s != nil {
			items = s.Items
		}
		for i := 0; c.dec.More(); i++ {
			if err := c.value(items, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		_, err = c.dec.Token()
	}
	return err
}

func (c *checker) object(s *shape, path string) error {
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		at := strings.TrimPrefix(path+"."+key, ".")
		var inner *shape
		if s != nil {
			inner = s.Properties[key]
			switch {
			case inner == nil && s.Values == nil:
				c.problems = append(c.problems, fmt.Sprintf("unknown field %q", at))
			case seen[key]:
				c.problems = append(c.problems, fmt.Sprintf("duplicate field %q", at))
			}
			if inner == nil {
				inner = s.Values
			}
		}
		seen[key] = true
		if err := c.value(inner, at); err != nil {
			return err
		}
	}
	_, err := c.dec.Token()
	return err
}
