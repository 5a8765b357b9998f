package images_test

import (
	"testing"
	"time"

	"ledge/images"
)

// TestTally: what took long and was large is counted where a kubelet would.
func TestTally(t *testing.T) {
	var c images.Tally
	for _, p := range []struct {
		mib  int64
		took time.Duration
	}{{0, 0}, {9, time.Second}, {10, time.Minute}, {99, 61 * time.Second}, {100, 0}, {100 << 10, 2 * time.Hour}, {1 << 20, time.Hour}} {
		c.Pulled(images.Pulled{Image: images.Image{Size: p.mib << 20}, Took: p.took})
	}
	got := c.Counts().Pulls
	want := []struct {
		size         string
		count        int
		second, hour int
	}{{"0-10MB", 2, 2, 2}, {"10MB-100MB", 2, 0, 2}, {"100MB-500MB", 1, 1, 1}, {"GT100GB", 2, 0, 1}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		g := got[i]
		if g.Size != w.size || g.Count != w.count || g.Within[0] != w.second || g.Within[len(g.Within)-1] != w.hour {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
	if got[1].Took != 121*time.Second {
		t.Errorf("%s together", got[1].Took)
	}
}
