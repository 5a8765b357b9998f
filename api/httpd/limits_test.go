package httpd

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"ledge/api"
)

// No more than eight bodies are decoded at once, and nobody waits longer than it wants.
func TestDecodesAreCounted(t *testing.T) {
	l := newLimits(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
	var leave []func()
	for range maxDecodes {
		done, err := l.decoding(r)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	cancel()
	if _, err := l.decoding(r); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
	leave[0]()
	if _, err := l.decoding(httptest.NewRequest("POST", "/", nil)); err != nil {
		t.Errorf("after one left: %v", err)
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
