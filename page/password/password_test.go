package password_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ledge/page/password"
)

func TestHash(t *testing.T) {
	h, err := password.Make("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	back, err := password.Parse(h.String())
	if err != nil || !back.Opens("correct horse") || back.Opens("correct hors") || back.Opens("") {
		t.Fatalf("%s: %v", h, err)
	}
	if other, _ := password.Make("correct horse"); other.String() == h.String() {
		t.Error("two hashes of a password are the same")
	}
	if (password.Hash{}).Opens("") {
		t.Error("no password opens")
	}
	for _, bad := range []string{"", "scrypt:", "correct horse", strings.Replace(h.String(), ":14:", ":30:", 1),
		strings.Replace(h.String(), ":8:", ":800:", 1),
		strings.Replace(h.String(), ":1:", ":99:", 1), h.String() + ":x", h.String()[:40]} {
		if _, err := password.Parse(bad); err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
	for _, bad := range []string{"short", strings.Repeat("x", 300)} {
		if _, err := password.Make(bad); err == nil {
			t.Errorf("%q is a password", bad)
		}
	}
}

func TestHide(t *testing.T) {
	for _, c := range []struct{ before, plain, password, after string }{
		{"page:\n  listen: :443\n  password: geheim123 # mine\nmaxPods: 3\n", "geheim123", "page:\n  listen: :443\n  password: ", " # mine\nmaxPods: 3\n"},
		{"page: {listen: \":443\", password: geheim123}\r\nmaxPods: 3\r\n", "geheim123", "page: {listen: \":443\", password: ", "}\r\nmaxPods: 3\r\n"},
		{"page:\n  password: \"a \\\" b#c d\"\n", `a " b#c d`, "page:\n  password: ", "\n"},
		{"page:\n  password: 'it''s mine now'", "it's mine now", "page:\n  password: ", ""},
		{"# ü\nö: {ä: 1}\npage: {ü: ä, password: pässwört}\n", "pässwört", "# ü\nö: {ä: 1}\npage: {ü: ä, password: ", "}\n"},
	} {
		out, err := password.Hide([]byte(c.before))
		if err != nil || !strings.HasPrefix(string(out), c.password) || !strings.HasSuffix(string(out), c.after) {
			t.Errorf("%q became %q, %v", c.before, out, err)
			continue
		}
		var got struct{ Page struct{ Password string } }
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if h, err := password.Parse(got.Page.Password); err != nil || !h.Opens(c.plain) {
			t.Errorf("%q does not open %q: %v", c.plain, out, err)
		}
		if again, err := password.Hide(out); again != nil || err != nil {
			t.Errorf("hidden once more: %q, %v", again, err)
		}
	}
	for _, plain := range []string{"", "a: b\n", "page: {}\n", "page: x\n", "]["} {
		if out, err := password.Hide([]byte(plain)); out != nil || err != nil {
			t.Errorf("%q: %q, %v", plain, out, err)
		}
	}
	for _, bad := range []string{"page:\n  password: |\n    geheim123\n", "page: {password: kurz}\n", "page: {password: 12345678}\n", "page: {password: 1.50000000}\n",
		"page:\n  password: \"geheim\n    123\"\n"} {
		if out, err := password.Hide([]byte(bad)); out != nil || err == nil {
			t.Errorf("%q: %q, %v", bad, out, err)
		}
	}
}

// FuzzHide: a file is hidden whole, or left alone and said to be wrong.
func FuzzHide(f *testing.F) {
	f.Add("page: {listen: x, password: geheim123}\n")
	f.Add("page:\n  password: \"geheim 123\" #\n")
	f.Fuzz(func(t *testing.T, before string) {
		var was, is struct{ Page struct{ Password string } }
		out, err := password.Hide([]byte(before))
		if err != nil || out == nil {
			return
		}
		if yaml.Unmarshal([]byte(before), &was) != nil || yaml.Unmarshal(out, &is) != nil {
			t.Fatalf("%q became %q", before, out)
		}
		if h, err := password.Parse(is.Page.Password); err != nil || !h.Opens(was.Page.Password) {
			t.Fatalf("%q became %q: %v", before, out, err)
		}
	})
}
