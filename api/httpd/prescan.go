package httpd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// prescan looks through JSON before anything is built from it. It knows only strings and brackets: what else is
// wrong, the decoder finds.
func prescan(data []byte, most int) error {
	_, err := countJSON(data, most)
	return err
}

func countJSON(data []byte, most int) (elements int, err error) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = endOfString(data, i+1); i < 0 {
				return 0, errors.New("a string has no end")
			}
		case '{', '[':
			depth++
			elements++
		case '}', ']':
			depth--
		case ',':
			elements++
		}
		if depth > maxDepth {
			return 0, fmt.Errorf("nested more than %d deep", maxDepth)
		}
		if elements > most {
			return 0, fmt.Errorf("more than %d elements", most)
		}
	}
	return elements, nil
}

// endOfString is the index of the quote that ends the string beginning at i; -1 when there is none.
func endOfString(data []byte, i int) int {
	for i < len(data) {
		n := bytes.IndexAny(data[i:], `"\`)
		if n < 0 {
			return -1
		}
		if i += n; data[i] == '"' {
			return i
		}
		i += 2
	}
	return -1
}

// checkYAML refuses what YAML can do beyond JSON: aliases, with which a few lines unfold to gigabytes
// (CVE-2019-11253), merge keys, which need them, and more than one document.
func checkYAML(data []byte, most int) error {
	if len(data) > maxYAML {
		return fmt.Errorf("YAML may have %d bytes; send JSON", maxYAML)
	}
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc, more yamlv3.Node
	if err := dec.Decode(&doc); err != nil {
		return err
	}
	if err := walkYAML(&doc, 0, &most); err != nil {
		return err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document")
	}
	return nil
}

// walkYAML looks at every node; left is how many may still come.
func walkYAML(n *yamlv3.Node, depth int, left *int) error {
	*left--
	switch {
	case n.Kind == yamlv3.AliasNode || n.Anchor != "":
		return fmt.Errorf("line %d: YAML anchors and aliases are not accepted", n.Line)
	case depth > maxDepth+1: // the document itself is a node
		return fmt.Errorf("nested more than %d deep", maxDepth)
	case *left < 0:
		return errors.New("too many elements")
	}
	for _, c := range n.Content {
		if err := walkYAML(c, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// countProtobuf bounds what a protobuf message may unfold to. Two bytes make an empty container of 900, so the
// fields are counted first, down to deepest messages within messages. Without a schema a string cannot be told
// from a message: what can be read as one to its last byte is counted as one.
func countProtobuf(data []byte, most, deepest int) error {
	fields, whole := protobufFields(data, most, deepest)
	if !whole {
		return errors.New("the protobuf message is damaged")
	}
	if fields > most {
		return fmt.Errorf("more than %d protobuf fields", most)
	}
	return nil
}

// envelopeFields is how many fields stand around a message of Kubernetes: runtime.Unknown and its TypeMeta.
const envelopeFields = 8

// textPerField: a run of spaces or digits can be read as fields of two bytes, but what unfolds is fields with
// a length, and without control characters those take eleven bytes at least. So texts count for less.
const textPerField = 32

func isText(data []byte) bool {
	return utf8.Valid(data) && bytes.IndexFunc(data, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' }) < 0
}

func protobufFields(data []byte, most, deeper int) (fields int, whole bool) {
	for len(data) > 0 && fields <= most {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 {
			return 0, false
		}
		data = data[n:]
		fields++
		switch tag & 7 {
		case 0: // varint
			_, size := binary.Uvarint(data)
			if size <= 0 {
				return 0, false
			}
			data = data[size:]
		case 1, 5: // fixed 64 and 32 bits
			size := 8
			if tag&7 == 5 {
				size = 4
			}
			if len(data) < size {
				return 0, false
			}
			data = data[size:]
		case 2: // bytes: a message, a string, a packed list
			size, n := binary.Uvarint(data)
			if n <= 0 || size > uint64(len(data)-n) {
				return 0, false
			}
			inner := data[n : n+int(size)]
			data = data[n+int(size):]
			if deeper > 0 {
				more, _ := protobufFields(inner, most, deeper-1)
				if more > 0 && isText(inner) {
					more = min(more, len(inner)/textPerField)
				}
				fields += more
			}
		default:
			return 0, false
		}
	}
	return fields, true
}
