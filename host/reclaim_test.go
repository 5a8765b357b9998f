package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
)

func TestReclaim(t *testing.T) {
	h := machine(t, map[string]string{"sys/fs/cgroup/kubepods/podx/memory.reclaim": ""})
	if n, err := h.Reclaim(t.Context(), "/kubepods/podx", reclaimChunk+100); err != nil || n != reclaimChunk+100 {
		t.Errorf("%d %v", n, err)
	}
	text, err := os.ReadFile(h.cfg.Sys + "/fs/cgroup/kubepods/podx/memory.reclaim")
	if err != nil || string(text) != "1048576"+"100" { // one after the other, as this is no cgroup
		t.Errorf("asked for %q, %v", text, err)
	}
	if _, err := h.Reclaim(t.Context(), "/kubepods/gone", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a kernel that cannot: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := h.Reclaim(over, "/kubepods/podx", 100); n != 0 || err != nil {
		t.Errorf("after the end: %d %v", n, err)
	}
}
