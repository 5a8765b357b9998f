package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"ledge/images"
)

func imageKeysOf(t *testing.T, text string) (imageKeys, error) {
	t.Helper()
	var c File
	must(t, yaml.UnmarshalStrict([]byte(text), &c))
	return c.imageKeys, c.imageKeys.check()
}

func TestImageConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		"":                           true,
		"serializeImagePulls: false": true,
		"serializeImagePulls: false\nmaxParallelImagePulls: 3":  true,
		"maxParallelImagePulls: 1":                              true,
		"maxParallelImagePulls: 2":                              false,
		"serializeImagePulls: true\nmaxParallelImagePulls: 2":   false,
		"serializeImagePulls: false\nmaxParallelImagePulls: -1": false,
		"keepBlobs: all":                   true,
		"imageArchives: images":            false,
		"imageArchives: /boot/images":      true,
		"keepBlobs: some":                  false,
		"imageGCHighThresholdPercent: 80":  false, // not above the low one
		"imageGCHighThresholdPercent: 101": false,
		"imageGCLowThresholdPercent: -1":   false,
		"imageGCHighThresholdPercent: 100": true,
		"imageMaximumGCAge: 1m":            false, // shorter than the minimum
		"imageMaximumGCAge: 24h":           true,
		"imageMinimumGCAge: -1s":           false,
		"registries: [{name: docker.io, mirrors: ['http://10.0.0.1:5000']}]": true,
		"registries: [{name: 'r:5000', plainHTTP: true}, {name: 'r:5000'}]":  false,
		"registries: [{name: 'https://r'}]":                                  false,
		"registries: [{name: r.example, caFile: /nowhere}]":                  false,
	} {
		if _, err := imageKeysOf(t, text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	k, _ := imageKeysOf(t, "")
	if k.Pulls() != 1 || k.Keep() != images.KeepPinned || k.Gc() != (images.GCPolicy{High: 85, Low: 80, MinAge: 2 * time.Minute}) { // N-6.24
		t.Errorf("defaults: %d, %q, %+v", k.Pulls(), k.Keep(), k.Gc())
	}
	if k, _ := imageKeysOf(t, "serializeImagePulls: false\nkeepBlobs: pinned"); k.Pulls() != 4 || k.Keep() != images.KeepPinned {
		t.Errorf("%d, %q", k.Pulls(), k.Keep())
	}
}

// What the file says of a registry is what the client goes by.
func TestRegistryKeys(t *testing.T) {
	k, err := imageKeysOf(t, "registryCredentials: /keys\nregistries: [{name: docker.io, mirrors: ['http://10.0.0.1:5000', 'https://m']}, "+
		"{name: 'r:5000', plainHTTP: true}, {name: r.example, caFile: "+filepath.Join(t.TempDir(), "none")+"}]")
	if err == nil { // the file is read when the client is made
		t.Error("a file of authorities that is not there was taken")
	}
	cfg, err := k.hosts("")
	if h := cfg.Hosts; err != nil || len(h) != 3 || cfg.Keys == nil ||
		!slices.Equal(h["docker.io"].Mirrors, []string{"http://10.0.0.1:5000", "https://m"}) ||
		h["docker.io"].PlainHTTP || !h["r:5000"].PlainHTTP || !strings.HasSuffix(h["r.example"].CAFile, "none") {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// The node's credentials are read anew when the file has changed, and only then.
func TestKeyFile(t *testing.T) {
	f := &keyFile{path: filepath.Join(t.TempDir(), "keys")}
	if ring, err := f.keys(); err != nil || len(ring) != 0 {
		t.Errorf("%d, %v", len(ring), err)
	}
	must(t, os.WriteFile(f.path, []byte(`{"auths":{"a.example":{"username":"u","password":"p"}}}`), 0o600))
	if ring, err := f.keys(); err != nil || len(ring.For("a.example", "x")) != 1 {
		t.Errorf("%d, %v", len(ring), err)
	}
	must(t, os.WriteFile(f.path, []byte(`{"auths":{}}`), 0o600))
	if ring, err := f.keys(); err != nil || len(ring) != 0 {
		t.Errorf("%d, %v", len(ring), err)
	}
	must(t, os.WriteFile(f.path, []byte(`password: p`), 0o600))
	if _, err := f.keys(); err == nil {
		t.Error("read what is not a Docker configuration")
	}
}
