package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ledge/network"
)

// stuckNetwork does not come back from Retain before it is let.
type stuckNetwork struct {
	network.Setup
	let chan struct{}
}

func (n stuckNetwork) Retain(ctx context.Context, uids []string) error {
	<-n.let
	return n.Setup.Retain(ctx, uids)
}

// TestTurn: the loop that hands out pods says that it turns, not while it hangs, and with many pods as well.
func TestTurn(t *testing.T) {
	with(t, nil, func(r *rig) {
		let := make(chan struct{})
		r.cfg.Network = stuckNetwork{r.cfg.Network, let}
		r.begin()
		turn := func() error {
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			return r.agent.Turn(ctx)
		}
		if err := turn(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it hangs, and says %v", err)
		}
		handed := func() bool {
			select {
			case <-r.agent.Handed():
				return true
			default:
				return false
			}
		}
		if handed() {
			t.Error("the pods are said to be known before they are")
		}
		close(let)
		synctest.Wait()
		if !handed() {
			t.Error("the pods are not said to be known")
		}
		for i := range 50 {
			r.pod(fmt.Sprint("p", i))
			if err := turn(); err != nil {
				t.Fatalf("with %d pods: %v", i+1, err)
			}
		}
	})
}
