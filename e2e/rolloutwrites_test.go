package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
)

// TestWritesOfARollout says what a rollout of ten pods and a Job write to a card, and holds them to a bound (docs/measured/workloads.md).
func TestWritesOfARollout(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("a minute; LEDGE_LONG=1 runs it")
	}
	b := newBoard(t)
	b.runDir = "/dev/shm/" + b.name // in memory, as on a board
	b.serve()
	b.importBusybox()
	written := func() (brain, keeper int) {
		var s board.Status
		must(t, json.Unmarshal([]byte(b.page(board.StatusPath)), &s))
		for _, w := range s.Writes.Writers {
			switch w.Name {
			case "brain":
				brain = int(w.SinceBoot)
			case "keeper":
				keeper = int(w.SinceBoot)
			}
		}
		return brain, keeper
	}
	costs := func(what string, most int, do func()) {
		time.Sleep(10 * time.Second) // what is lazy is written by then
		brain, keeper := written()
		do()
		time.Sleep(10 * time.Second)
		brainNow, keeperNow := written()
		brain, keeper = brainNow-brain, keeperNow-keeper
		t.Logf("%s: %d KiB by the brain, %d KiB by the keeper", what, brain>>10, keeper>>10)
		if brain == 0 || brain+keeper > most {
			t.Errorf("%s: %d bytes, may be %d", what, brain+keeper, most)
		}
	}
	b.apply(strings.Replace(kubectlDeployment, "replicas: 2", "replicas: 10", 1))
	b.must("rollout", "status", "deployment", "shop", "--timeout", "120s")
	costs("a rollout of ten pods", 5<<20, func() {
		b.must("rollout", "restart", "deployment", "shop")
		b.must("rollout", "status", "deployment", "shop", "--timeout", "120s")
	})
	costs("a Job of one pod", 1<<20, func() {
		b.apply(strings.NewReplacer("fifty", "one", "completions: 50", "completions: 1").Replace(fifty))
		b.eventually("the job ends", func() error { return contains(b.ledge("get", "jobs"), "1/1") })
	})
	b.must("delete", "job", "one")
	b.must("delete", "deployment", "shop")
}
