package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestPackagedConfiguration: the file that packages install means what the one written at the first start means, and what
// stands in it as a default can be uncommented as it is; no key is missing there.
func TestPackagedConfiguration(t *testing.T) {
	if os.Getenv("LEDGE_VM") != "" {
		t.Skip("the sources are not in the guest")
	}
	const path = "../packaging/deb/config.yaml"
	installed, err := Load(path, "")
	must(t, err)
	first, err := Load(written(t, FirstFile), "")
	must(t, err)
	if installed.MDNS == nil || !*installed.MDNS || first.MDNS != nil {
		t.Error("packages have a board found, and a program alone does not (decision 128)")
	}
	first.MDNS = installed.MDNS
	if !reflect.DeepEqual(installed, first) {
		t.Errorf("installed: %+v\nwritten: %+v", installed, first)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	all := regexp.MustCompile(`(?m)^#([a-zA-Z]+:)`).ReplaceAllString(string(text), "$1")
	if _, err := Load(written(t, all), ""); err != nil {
		t.Errorf("with every line uncommented: %v", err)
	}
	var keys func(reflect.Type)
	keys = func(typ reflect.Type) {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				keys(f.Type)
			case !f.IsExported(): // no key
			case name != "apiVersion" && name != "kind" && !strings.Contains(all, "\n"+name+":"):
				t.Errorf("%s is not in %s", name, path)
			}
		}
	}
	keys(reflect.TypeFor[File]())
}

// The first configuration is written whole, once, and never over somebody's own.
func TestFirstConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "config.yaml")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, want := range []string{FirstFile, "maxPods: 5\n"} {
		if err := KeepFirst(path); err != nil {
			t.Fatal(err)
		}
		if want != FirstFile {
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := KeepFirst(path); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q %v", got, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Error("left:", entries, err)
	}
}
