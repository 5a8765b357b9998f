package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// visible passes words on to who reads them. Whatever comes from the API was chosen by pods, boards and clients: what in it would
// steer a terminal, or turn round the order of letters, is shown as an escape instead. Lines stay lines; words that must not
// begin one of their own go through inLine.
type visible struct{ to io.Writer }

// Write implements io.Writer.
func (v visible) Write(p []byte) (int, error) {
	if _, err := io.WriteString(v.to, escaped(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// stream is where bytes go that are somebody's own, as they are: logs, what a command writes, archives, bars on a terminal.
func stream(out io.Writer) io.Writer {
	if v, ok := out.(visible); ok {
		return v.to
	}
	return out
}

// inLine is text that begins no line and no cell of a table.
func inLine(s string) string { return escaped(s, "") }

// indented is text of several lines, of which only the first stands at the margin.
func indented(s string) string {
	return strings.ReplaceAll(escaped(strings.TrimRight(s, "\n"), "\n\t"), "\n", "\n  ")
}

// say is fmt.Fprintf whose texts stay in their line.
func say(w io.Writer, format string, args ...any) (int, error) {
	for i, a := range args {
		switch text := a.(type) {
		case error:
			args[i] = inLine(text.Error())
		case fmt.Stringer:
			args[i] = inLine(text.String())
		default:
			if v := reflect.ValueOf(a); v.Kind() == reflect.String {
				args[i] = inLine(v.String())
			}
		}
	}
	return fmt.Fprintf(w, format, args...)
}

// row writes the cells of a line of a table.
func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			io.WriteString(w, "\t")
		}
		io.WriteString(w, inLine(fmt.Sprint(c)))
	}
	io.WriteString(w, "\n")
}

// visibleJSON writes out in JSON what would be escaped elsewhere; it says the same.
func visibleJSON(data []byte) []byte {
	var out []byte
	for _, c := range string(data) {
		if c == '\n' || unicode.IsGraphic(c) {
			out = utf8.AppendRune(out, c)
			continue
		}
		for _, u := range utf16.AppendRune(nil, c) {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	return out
}

// visibleYAML writes out what YAML's reader refuses otherwise, such as a control character in a string.
func visibleYAML(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(visibleJSON(data))
}

// escaped shows what is no letter, mark, number, sign or space as Go writes it in a string; allowed are left.
func escaped(s, allowed string) string {
	ordinary := func(c rune) bool { return unicode.IsGraphic(c) || strings.ContainsRune(allowed, c) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(c rune) bool { return !ordinary(c) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		c, n := utf8.DecodeRuneInString(s)
		switch {
		case c == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case ordinary(c):
			b.WriteString(s[:n])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
		}
		s = s[n:]
	}
	return b.String()
}
