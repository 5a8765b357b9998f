package page

import (
	"strings"
	"testing"
)

func TestTextIsNeverMarkup(t *testing.T) {
	for _, s := range []string{`<script>alert(1)</script>`, `" onload="x`, `'`, "a&b", "\x00\x1b[31m", "\u202egnp", "\xff"} {
		got := string(el("td", at("title", s), s))
		for _, bad := range []string{"<script", `" onload`, "\x1b", "\x00", "\u202e", "\xff"} {
			if strings.Contains(got, bad) {
				t.Errorf("%q in %q", bad, got)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("<b>", "x")
	f.Fuzz(func(t *testing.T, value, body string) {
		got := string(el("p", at("title", value), body))
		inner := strings.TrimSuffix(strings.TrimPrefix(got, "<p"), "</p>")
		if strings.Count(inner, "<") != 0 || strings.Count(inner, ">") != 1 || strings.Count(inner, `"`) != 2 {
			t.Errorf("%q", got)
		}
	})
}
