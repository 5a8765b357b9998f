package local

import (
	"testing"

	"ledge/api"
	"ledge/api/apitest"
	"ledge/storage"
)

// open makes a client over a fresh store. Nothing is synced: these tests cut no power.
func open(t testing.TB, cfg Config) *Client {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true, RingSize: 512})
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

func fresh(t *testing.T) api.Client { return open(t, Config{}) }

func TestConformance(t *testing.T) { apitest.Run(t, fresh) }

func TestConformanceInBubble(t *testing.T) { apitest.RunBubble(t, fresh) }
