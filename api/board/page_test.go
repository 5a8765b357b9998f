package board

import (
	"encoding"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write the reference anew")

const pageHead = `# /ledge/v1

What a board can be asked that Kubernetes has no word for. Administrators may ask: root over the board's socket, elsewhere a client certificate of the
control plane's administrator. What changes something needs
the header ` + "`Ledge-Meant: yes`" + `, which no redirect and no page in a browser sends by accident. Errors
are Kubernetes' Status objects.

    curl --unix-socket /run/ledge/ledge.sock http://ledge/ledge/v1/status

This page is written from the table in ` + "`api/board`" + `: ` + "`make pages`" + ` writes it anew, and a test compares.
`

// TestPage: docs/manual/ledge-v1.md is what the table says.
func TestPage(t *testing.T) {
	const path = "../../docs/manual/ledge-v1.md"
	want := page()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: make pages", path)
	}
}

func page() string {
	var out strings.Builder
	out.WriteString(pageHead)
	for _, r := range Requests {
		fmt.Fprintf(&out, "\n## %s\n\n%s%s.", r.Pattern(), strings.ToUpper(r.Does[:1]), r.Does[1:])
		if r.Plane {
			out.WriteString(" Only a board with a control plane answers.")
		}
		out.WriteString("\n")
		if len(r.Query) > 0 {
			out.WriteString("\n| parameter | meaning |\n|---|---|\n")
			for _, q := range r.Query {
				fmt.Fprintf(&out, "| `%s` | %s |\n", q.Name, q.Means)
			}
		}
		if r.Body != "" {
			fmt.Fprintf(&out, "\nBody: %s.\n", r.Body)
		}
		fmt.Fprintf(&out, "\nAnswer: %d", r.Code)
		if r.Stream != "" {
			fmt.Fprintf(&out, ", %s", r.Stream)
		}
		out.WriteString(".\n")
		if r.Answer != nil {
			out.WriteString("\n    " + shape(reflect.TypeOf(r.Answer), "    ") + "\n")
		}
	}
	return out.String()
}

// shape draws the JSON of a type: its keys, and in place of values what they are. A key that may be missing has a question mark.
func shape(typ reflect.Type, indent string) string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[time.Time]() || typ == reflect.TypeFor[metav1.Time]():
		return "time"
	case typ == reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "text"
	}
	switch typ.Kind() {
	case reflect.Struct:
		return "{\n" + fields(typ, indent+"  ") + indent + "}"
	case reflect.Slice:
		return "[" + shape(typ.Elem(), indent) + ", ...]"
	case reflect.Map:
		return "{" + shape(typ.Key(), indent) + ": " + shape(typ.Elem(), indent) + ", ...}"
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "text"
	}
	return "number"
}

func fields(typ reflect.Type, indent string) string {
	var out strings.Builder
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out.WriteString(fields(f.Type, indent))
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			name = f.Name
		}
		if strings.Contains(options, "omit") {
			name += "?"
		}
		fmt.Fprintf(&out, "%s%s: %s\n", indent, name, shape(f.Type, indent))
	}
	return out.String()
}
