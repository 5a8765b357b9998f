package local

import (
	"slices"
	"testing"

	"ledge/api"
	"ledge/api/apitest"
	"ledge/storage"
)

// open makes a client over a fresh store. Nothing is synced: these tests cut no power. Every transaction is rehearsed, as it is when
// a commit it shared failed.
func open(t testing.TB, cfg Config) *Client {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true, RingSize: 512, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Store = s
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// once keeps each warning once, as the server does.
func once(heard *[]string) func(string) {
	return func(text string) {
		if !slices.Contains(*heard, text) {
			*heard = append(*heard, text)
		}
	}
}

func fresh(t *testing.T) api.Client { return open(t, Config{}) }

func TestConformance(t *testing.T) { apitest.Run(t, fresh) }

func TestConformanceInBubble(t *testing.T) { apitest.RunBubble(t, fresh) }
