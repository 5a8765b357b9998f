package main

import (
	"os"
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
	const path = "../../scripts/deb/config.yaml"
	installed, err := loadConfig(path, "")
	must(t, err)
	first, err := loadConfig(written(t, firstConfig), "")
	must(t, err)
	if !reflect.DeepEqual(installed, first) {
		t.Errorf("installed: %+v\nwritten: %+v", installed, first)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	all := regexp.MustCompile(`(?m)^#([a-zA-Z]+:)`).ReplaceAllString(string(text), "$1")
	if _, err := loadConfig(written(t, all), ""); err != nil {
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
	keys(reflect.TypeFor[fileConfig]())
}
