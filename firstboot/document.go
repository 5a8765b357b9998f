package firstboot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// clean turns what editors on laptops write into plain UTF-8: it removes the byte order mark, decodes UTF-16, and makes every line
// end with LF.
func clean(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte{0xef, 0xbb, 0xbf}):
		data = data[3:]
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		data = wide(data[2:], binary.LittleEndian)
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		data = wide(data[2:], binary.BigEndian)
	}
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
}

func wide(data []byte, order binary.ByteOrder) []byte {
	letters := make([]uint16, len(data)/2)
	for i := range letters {
		letters[i] = order.Uint16(data[2*i:])
	}
	return []byte(string(utf16.Decode(letters)))
}

// field is a key with its value.
type field struct {
	key   string
	line  int
	value *yaml.Node
}

// document returns the keys of a file. If the whole is no YAML, it returns the keys of the parts that are.
func (r *reader) document(text string) []field {
	if !utf8.ValidString(text) {
		for i, line := range strings.Split(text, "\n") {
			if !utf8.ValidString(line) {
				r.lost = cmp.Or(r.lost, i+1)
				r.mistake(i+1, "this line is not in UTF-8, and is left out", "Save the file as UTF-8")
			}
		}
		text = strings.Join(keepLines(text, utf8.ValidString), "\n")
	}
	r.lines = strings.Split(text, "\n")
	root, err := decode(text)
	if err == nil {
		return r.mapping(root, 0)
	}
	var out []field
	before := len(r.mistakes)
	for _, p := range parts(text) {
		root, err := decode(p.text)
		if err != nil {
			r.broken(p, err)
			continue
		}
		out = append(out, r.mapping(root, p.line-1)...)
	}
	if len(r.mistakes) == before && !errors.Is(err, errMore) { // each part is good, together they are not
		r.mistake(errorLine(err), "this is no YAML: "+plain(err), "")
	}
	return out
}

// keepLines makes the lines that are not good empty, so that the other lines keep their numbers.
func keepLines(text string, good func(string) bool) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !good(line) {
			lines[i] = ""
		}
	}
	return lines
}

var errMore = errors.New("more than one document") // which the parts are read from alike

// decode reads the one document of a text; nil if there is nothing in it.
func decode(text string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // nothing but comments
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errMore
	}
	if len(doc.Content) == 0 {
		return nil, nil //nolint:nilnil // likewise
	}
	return doc.Content[0], nil
}

// part is a key that begins at the left margin, with the indented lines below it.
type part struct {
	text string
	line int // its first
}

// parts cuts a text before each line that begins at the left margin, unless it is a comment, an item of a list, or the end of one.
func parts(text string) (out []part) {
	for i, line := range strings.Split(text, "\n") {
		if line == "---" || line == "..." {
			continue
		}
		if line != "" && !strings.ContainsAny(line[:1], " \t#-]}") || len(out) == 0 {
			out = append(out, part{line: i + 1})
		}
		out[len(out)-1].text += line + "\n"
	}
	return out
}

// broken says what is wrong with a part that is no YAML.
func (r *reader) broken(p part, err error) {
	for i, line := range strings.Split(p.text, "\n") {
		if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") && line != indent {
			r.mistake(p.line+i, "this line begins with a tab, which YAML does not allow", "Put spaces there instead")
			return
		}
	}
	line := p.line
	if n := errorLine(err); n > 0 {
		line = min(p.line+n-1, p.line+strings.Count(p.text, "\n")-1)
	}
	r.mistake(line, "this is no YAML, and is left out: "+plain(err), "Look for a missing quote, colon or space")
}

// errorLine is the line number in the text of a decoder's error. The error has it nowhere else.
func errorLine(err error) int {
	_, rest, _ := strings.Cut(err.Error(), "line ")
	digits, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.Atoi(digits)
	return n
}

func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if n := errorLine(err); n > 0 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return brief(text)
}

// mapping gives the pairs of a mapping. Lines are counted from above.
func (r *reader) mapping(n *yaml.Node, above int) (out []field) {
	if n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	shift(n, above)
	if n.Kind != yaml.MappingNode {
		r.mistake(n.Line, "a line such as \"hostname: shed\" is expected", "Put a colon and a space behind the key")
		return nil
	}
	return r.pairs(n)
}

func (r *reader) pairs(n *yaml.Node) (out []field) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, what := unfolds(key, value); line > 0 {
			r.mistake(line, what+" is not taken here", "Write the value out")
			continue
		}
		out = append(out, field{key: key.Value, line: key.Line, value: value})
	}
	return out
}

// unfolds finds the first alias, anchor or tag. This file may have none: a value stands where it is used.
func unfolds(nodes ...*yaml.Node) (line int, what string) {
	for _, n := range nodes {
		switch {
		case n.Kind == yaml.AliasNode:
			return n.Line, "an alias (*" + brief(n.Value) + ")"
		case n.Anchor != "":
			return n.Line, "an anchor (&" + brief(n.Anchor) + ")"
		case n.Tag != "" && !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!timestamp"}, n.Tag):
			return n.Line, "a tag (" + brief(n.Tag) + ")"
		}
		if line, what := unfolds(n.Content...); line > 0 {
			return line, what
		}
	}
	return 0, ""
}

func shift(n *yaml.Node, by int) {
	n.Line += by
	for _, c := range n.Content {
		shift(c, by)
	}
}

func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "") || n.Kind != yaml.ScalarNode && len(n.Content) == 0
}

// text is a value of one line, as it was written: a number is one too.
func (r *reader) text(n *yaml.Node, key string) (string, bool) {
	switch v := strings.TrimSpace(n.Value); {
	case n.Kind != yaml.ScalarNode:
		r.mistake(n.Line, key+" is one value, not a list or a mapping", "")
	case isEmpty(n) || v == "":
		r.mistake(n.Line, key+" has no value", "Give it one, or remove the line")
	case strings.ContainsAny(v, "\n\x00"):
		r.mistake(n.Line, key+" is one line", "")
	case strings.ContainsAny(v[:min(3, len(v))], "“”„‘’«»") && strings.IndexAny(v, "“”„‘’«»") == 0:
		r.mistake(n.Line, key+" has typographic quotes", `Write straight ones (") or none`)
	default:
		return v, true
	}
	return "", false
}

// texts reads a list, or one value as a list of one. Commas and spaces separate values too, where no value can have one inside.
func (r *reader) texts(n *yaml.Node, key, separators string) (out []field) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	for _, item := range items {
		if v, ok := r.text(item, key); ok {
			for _, one := range strings.FieldsFunc(v, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
				out = append(out, field{key: one, line: item.Line})
			}
		}
	}
	return out
}

// Suggest finds the known key that is nearest to a misspelled one.
func Suggest[V any](key string, known map[string]V) string {
	best, far := "", 1+len(key)/3
	var all []string
	for k := range known {
		all = append(all, k)
		if d := distance(strings.ToLower(key), strings.ToLower(k)); d <= far && (d < far || best == "" || k < best) {
			best, far = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("Did you mean %s?", best)
	}
	if len(all) > 12 {
		return ""
	}
	slices.Sort(all)
	return "There are " + strings.Join(all, ", ")
}

// distance is how many letters of one word have to be changed, added, removed or swapped with the next to make the other.
func distance(a, b string) int {
	if len(a) > 60 {
		return len(a)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Where turns a decoder's error about a document into a line number and words for people. The error names a line, or a field such as
// spec.containers[0].image: then the line is that of the field, or of the nearest field above it that is there. If it names neither, the
// line is the first.
func Where(doc []byte, err error) (line int, what string) {
	complaint := err.Error()
	if n := errorLine(err); n > 0 {
		return min(n, 1+strings.Count(strings.TrimRight(string(doc), "\n"), "\n")), simply(complaint)
	}
	root, derr := decode(string(doc))
	if derr != nil || root == nil {
		return 1, simply(complaint)
	}
	_, unknown, _ := strings.Cut(complaint, "unknown field ")
	for _, word := range strings.FieldsFunc(complaint, func(c rune) bool { return strings.ContainsRune(" \",:;()", c) }) {
		path := strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune(".[]", c) })
		if line, deep := find(root, path); deep > 0 {
			return line, simply(complaint)
		}
		if n := anywhere(root, word); n > 0 && strings.HasPrefix(unknown, `"`+word+`"`) { // some decoders name the last part only
			return n, simply(complaint)
		}
	}
	return 1, simply(complaint)
}

// simply removes the words of an error that are about the decoder, not about the document.
func simply(complaint string) string {
	for _, noise := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "error converting YAML to JSON: ",
		"Go struct field "} {
		complaint = strings.ReplaceAll(complaint, noise, "")
	}
	if before, after, found := strings.Cut(complaint, "yaml: "); found {
		if _, rest, numbered := strings.Cut(after, ": "); numbered && strings.HasPrefix(after, "line ") {
			after = rest
		}
		complaint = before + after
	}
	return complaint
}

// anywhere is the line of the first key of that name; 0 if there is none.
func anywhere(n *yaml.Node, key string) int {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Value == key {
			return c.Line
		}
		if line := anywhere(c, key); line > 0 {
			return line
		}
	}
	return 0
}

// find follows a path into a document, and stops at the last key of it that is there.
func find(n *yaml.Node, path []string) (line, deep int) {
	line = n.Line
	for _, name := range path {
		var next *yaml.Node
		if i, err := strconv.Atoi(name); err == nil && n.Kind == yaml.SequenceNode && i >= 0 && i < len(n.Content) {
			next = n.Content[i]
			line = next.Line
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				next, line = n.Content[i+1], n.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		n, deep = next, deep+1
	}
	return line, deep
}
