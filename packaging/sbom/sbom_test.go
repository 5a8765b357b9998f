package sbom

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	thing := Thing{Name: "ledge-rpi-appliance-v1", Version: "v1", Epoch: 1000000000, Arch: "arm64", Debs: "busybox-static 1:1.35.0-4+b1\n",
		Binary: &debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{{Path: "go.etcd.io/bbolt", Version: "v1.5.0"}}}}
	text, err := Of(thing)
	if err != nil {
		t.Fatal(err)
	}
	var s spdx
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for i, p := range s.Packages {
		refs = append(refs, p.Refs[0].Locator)
		if s.Relationships[i].To != p.ID {
			t.Errorf("%s is not described", p.ID)
		}
	}
	want := "pkg:generic/ledge@v1 pkg:deb/debian/busybox-static@1%3A1.35.0-4%2Bb1?arch=arm64&distro=bookworm pkg:golang/std@1.26.8 pkg:golang/go.etcd.io/bbolt@v1.5.0"
	if strings.Join(refs, " ") != want || s.Creation.Created != "2001-09-09T01:46:40Z" {
		t.Errorf("%q, %s", refs, s.Creation.Created)
	}
	if again, err := Of(thing); err != nil || !bytes.Equal(text, again) {
		t.Errorf("two lists of the same differ: %v", err)
	}
}
