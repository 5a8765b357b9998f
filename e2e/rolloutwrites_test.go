package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
)

// TestWritesOfARollout says what a rollout of ten pods writes to a card, and holds it to a bound (docs/measured/workloads.md).
func TestWritesOfARollout(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("a minute; LEDGE_LONG=1 runs it")
	}
	const most = 16 << 20
	b := newBoard(t)
	b.serve()
	b.importBusybox()
	written := func() (brain, keeper uint64) {
		var s board.Status
		must(t, json.Unmarshal([]byte(b.page(board.StatusPath)), &s))
		for _, w := range s.Writes.Writers {
			switch w.Name {
			case "brain":
				brain = uint64(w.SinceBoot)
			case "keeper":
				keeper = uint64(w.SinceBoot)
			}
		}
		return brain, keeper
	}
	quiet := func() (brain, keeper uint64) { // what is lazy is written by then
		time.Sleep(20 * time.Second)
		return written()
	}
	b.apply(strings.Replace(kubectlDeployment, "replicas: 2", "replicas: 10", 1))
	b.must("rollout", "status", "deployment", "shop", "--timeout", "120s")
	brain, keeper := quiet()
	b.must("rollout", "restart", "deployment", "shop")
	b.must("rollout", "status", "deployment", "shop", "--timeout", "120s")
	brainNow, keeperNow := quiet()
	brain, keeper = brainNow-brain, keeperNow-keeper
	t.Logf("a rollout of ten pods: %d KiB by the brain, %d KiB by the keeper", brain>>10, keeper>>10)
	if brain == 0 || brain+keeper > most {
		t.Errorf("%d bytes, may be %d", brain+keeper, most)
	}
	b.must("delete", "deployment", "shop")
}
