package main

import (
	"strings"
	"testing"
)

// TestPages: what stands in the help stands in the page, and nothing of it is taken for a request of roff.
func TestPages(t *testing.T) {
	verbs, err := readUsage("ledge [--run-dir DIR] VERB ...\n  images ls | rm one line\n  status      what is short\n")
	if err != nil || len(verbs) != 2 || verbs[1].name != "status" || verbs[1].line != "what is short" {
		t.Fatalf("%+v, %v", verbs, err)
	}
	v := verbs[0]
	if err := v.readHelp("ledge images [flags] ls | rm\n  -n string\n    \tname\n    \t.of it\n  -w\tgo on\n  -long duration\n    \ta\\b (default 1s)\n"); err != nil {
		t.Fatal(err)
	}
	if v.args != "ls | rm" || v.line != "one line" || len(v.flags) != 3 || v.flags[0] != (option{"n", "string", "name .of it"}) {
		t.Errorf("%+v", v)
	}
	b := book{date: "2026-01-02", pages: map[string][]byte{}}
	b.verb(v)
	b.configuration("a: 1\n.b\n")
	b.overview([]verb{v})
	page := string(b.pages["ledge-images.8"])
	for _, want := range []string{".TH LEDGE\\-IMAGES 8 2026-01-02 ledge\n", `\fB\-n\fR \fIstring\fR`, `\fB\-\-long\fR \fIduration\fR`,
		`a\eb (default 1s)`, `\fB\-w\fR` + "\ngo on"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if text := string(b.pages["ledge-config.5"]); !strings.Contains(text, "a: 1\n\\&.b\n") {
		t.Errorf("the configuration is %s", text)
	}
	if text := string(b.pages["ledge.8"]); !strings.Contains(text, `one line; see ledge\-images(8)`) {
		t.Errorf("the overview is %s", text)
	}
	for _, bad := range []string{"something else\n", "ledge images [flags] x\nstray\n"} {
		v := verb{name: "images"}
		if err := v.readHelp(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, v)
		}
	}
	if _, err := readUsage("nothing"); err == nil {
		t.Error("a usage without verbs was read")
	}
}
