package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/page/password"
)

// TestHidePasswords: after the first start no file of the configuration has the password as somebody typed it, and each means the same.
func TestHidePasswords(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	files := map[string]string{
		filepath.Join(dir, "config.yaml"):     "maxPods: 7\npage: {listen: \":443\", password: first password} # of mine\n",
		filepath.Join(dir, "d", "page.conf"):  "page:\n  password: second password\n",
		filepath.Join(state, BootFile):        "page:\r\n  password: 'third password'\r\n",
		filepath.Join(dir, "d", "other.conf"): "maxPods: 8\n",
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	o := &Options{Path: filepath.Join(dir, "config.yaml"), configDir: filepath.Join(dir, "d"), BootState: state}
	o.HidePasswords()
	for path, was := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(was, "password:") == (string(text) == was) {
			t.Errorf("%s: %q became %q", path, was, text)
		}
		if strings.Contains(string(text), " password}") || strings.Contains(string(text), "second password") || strings.Contains(string(text), "third password") {
			t.Errorf("%s still has it: %q", path, text)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	cfg, err := Load(o.Path, o.configDir, BootFiles(state)...)
	if err != nil || cfg.MaxPods != 8 || cfg.Page.Listen != ":443" {
		t.Fatalf("%+v, %v", cfg.Page, err)
	}
	if h, err := password.Of(cfg.Page.Password); err != nil || !h.Opens("third password") {
		t.Errorf("the last file does not count: %v", err)
	}
}
