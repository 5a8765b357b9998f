package pki

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tokens(t *testing.T, dir string) *Tokens {
	t.Helper()
	a, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTokens are known again, by the next process too, and nobody else's are.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	keys := tokens(t, dir)
	token, err := keys.Sign([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for who, k := range map[string]*Tokens{"itself": keys, "the next process": tokens(t, dir)} {
		if got, err := k.Verify(token); err != nil || string(got) != `{"a":1}` {
			t.Errorf("%s: %q %v", who, got, err)
		}
	}
	other := tokens(t, t.TempDir())
	if _, err := other.Verify(token); !errors.Is(err, ErrBadToken) {
		t.Errorf("another authority: %v", err)
	}
	st, err := os.Stat(filepath.Join(dir, tokenFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	parts := strings.Split(token, ".")
	head := func(alg, kid string) string {
		b, _ := json.Marshal(map[string]string{"alg": alg, "kid": kid})
		return base64.RawURLEncoding.EncodeToString(b)
	}
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"a":2}`))
	foreign, err := other.Sign([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	fp := strings.Split(foreign, ".")
	for what, bad := range map[string]string{
		"nothing": "", "words": "a.b.c", "two parts": parts[0] + "." + parts[1], "four parts": token + ".x",
		"no signature":              parts[0] + "." + parts[1] + ".",
		"other claims":              parts[0] + "." + claims + "." + parts[2],
		"unsigned":                  head("none", keys.id) + "." + parts[1] + ".",
		"none, signed":              head("none", keys.id) + "." + parts[1] + "." + parts[2],
		"other algorithm":           head("HS256", keys.id) + "." + parts[1] + "." + parts[2],
		"other key":                 head("ES256", "x") + "." + parts[1] + "." + parts[2],
		"our name, their signature": parts[0] + "." + parts[1] + "." + fp[2],
		"zero signature":            parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
		"padded":                    token + "=",
		"spaces":                    " " + token,
		"long":                      parts[0] + "." + strings.Repeat("A", maxToken) + "." + parts[2],
	} {
		if got, err := keys.Verify(bad); !errors.Is(err, ErrBadToken) {
			t.Errorf("%s: %q %v", what, got, err)
		}
	}
	for i := range token { // no single character may be changed
		flipped := []byte(token)
		if flipped[i] == 'A' {
			flipped[i] = 'B'
		} else {
			flipped[i] = 'A'
		}
		if got, err := keys.Verify(string(flipped)); err == nil {
			t.Errorf("character %d changed: %q", i, got)
		}
	}
}

// TestTokenKeyDamaged: a key that cannot be used, or that others may have read, is replaced.
func TestTokenKeyDamaged(t *testing.T) {
	for what, harm := range map[string]func(path string) error{
		"cut":   func(path string) error { return os.Truncate(path, 20) },
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"open":  func(path string) error { return os.Chmod(path, 0o644) },
		"gone":  os.Remove,
	} {
		dir := t.TempDir()
		old := tokens(t, dir)
		if err := harm(filepath.Join(dir, tokenFile)); err != nil {
			t.Fatal(err)
		}
		now := tokens(t, dir)
		if now.id == old.id {
			t.Errorf("%s: the key is still in use", what)
		}
		st, err := os.Stat(filepath.Join(dir, tokenFile))
		if err != nil || st.Mode().Perm() != 0o600 || tokens(t, dir).id != now.id {
			t.Errorf("%s: %v %v", what, st, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	a, err := Open(Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	keys, err := a.Tokens()
	if err != nil {
		f.Fatal(err)
	}
	good, err := keys.Sign([]byte(`{}`))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{good, "", "..", "a.b.c", strings.ReplaceAll(good, ".", "..")} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if claims, err := keys.Verify(s); err == nil && s != good {
			t.Errorf("%q says %q", s, claims)
		}
	})
}
