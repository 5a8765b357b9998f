package httpd

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"ledge/api"
)

// The bytes of bodies that are decoded at once are bounded, those of YAML more tightly, and nobody waits longer than it
// wants.
func TestDecodesAreCounted(t *testing.T) {
	for media, n := range map[string]int{mediaJSON: maxDecoding / 4, mediaYAML: maxDecoding / 4 / yamlWeight, "application/apply-patch+yaml": maxDecoding / 4 / yamlWeight} {
		l := newLimits(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
		var leave []func()
		for range 4 {
			done, err := l.decoding(r, n, media)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, done)
		}
		cancel()
		if _, err := l.decoding(r, n, media); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: one more: %v", media, err)
		}
		leave[0]()
		done, err := l.decoding(httptest.NewRequest("POST", "/", nil), n, media)
		if err != nil {
			t.Errorf("%s: after one left: %v", media, err)
		}
		for _, done := range append(leave[1:], done) {
			done()
		}
		if _, err := l.decoding(httptest.NewRequest("POST", "/", nil), 100*maxDecoding, media); err != nil {
			t.Errorf("%s: a large one alone: %v", media, err)
		}
	}
}

// The bytes of bodies held at once are bounded; heartbeats, which are small, get through all the same.
func TestBodiesAreCounted(t *testing.T) {
	h := &handler{limits: newLimits(Config{})}
	ctx, cancel := context.WithCancel(t.Context())
	read := func(n int) (done func(), err error) {
		hr := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n))).WithContext(ctx)
		_, done, err = h.readBody(httptest.NewRecorder(), &request{Request: hr}, boundData.bytes)
		return done, err
	}
	var leave []func()
	for range maxBodies >> 20 {
		done, err := read(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	if _, err := read(1000); err != nil {
		t.Errorf("a small body: %v", err)
	}
	leave[0]()
	if _, err := read(1 << 20); err != nil {
		t.Errorf("after one was done: %v", err)
	}
	cancel()
	if _, err := read(1 << 20); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
}

// The sizes are those the API promises, kind by kind.
func TestBounds(t *testing.T) {
	for k, want := range map[*api.Kind]int64{api.Pods: 256 << 10, api.ConfigMaps: 1536 << 10, api.Secrets: 1536 << 10, api.Nodes: 512 << 10, api.Events: 512 << 10} {
		if got := boundOf(k).bytes; got != want {
			t.Errorf("%s: %d, want %d", k, got, want)
		}
	}
}
