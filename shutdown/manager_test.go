package shutdown

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api"
)

// script is a Source that tells what it is told to.
type script chan Event

func (s script) Run(ctx context.Context, tell func(Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s:
			tell(e)
		}
	}
}

type news struct{ messages []string }

func (n *news) Event(o api.Object, _, reason, message string) {
	n.messages = append(n.messages, o.GetName()+"/"+string(o.GetUID())+" "+reason+": "+message)
}

// managing runs a Manager with a scripted source.
func managing(t *testing.T, b func() *board, fn func(b *board, tell script, n *news)) {
	synctest.Test(t, func(t *testing.T) {
		bd, src, n := b(), make(script), &news{}
		m, err := NewManager(ManagerConfig{Node: bd, NodeName: "n", Sources: []Source{src}, Events: n})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		fn(bd, src, n)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestManagerDown: N-5.17; the lock is released after the pods, in every case.
func TestManagerDown(t *testing.T) {
	managing(t, func() *board { b := newBoard(pod("a", 0, 30)); b.takes["a"] = 2 * sec; return b }, func(b *board, tell script, n *news) {
		var released time.Duration
		tell <- Event{Kind: Down, Done: func() { released = time.Since(b.began) }}
		time.Sleep(time.Minute)
		synctest.Wait()
		if released != 2*sec {
			t.Errorf("released at %s", released)
		}
		wantLog(t, n.messages, "n/n Shutdown: Shutdown manager detected shutdown event")
		// SIGTERM follows when systemd goes on: nothing is left to do, and nobody waits for it.
		again := false
		tell <- Event{Kind: Down, Done: func() { again = true }}
		synctest.Wait()
		if !again {
			t.Error("a second event waits for ever")
		}
	})
}

// TestManagerCancel: at once, and the node opens again (N-5.18, N-5.19).
func TestManagerCancel(t *testing.T) {
	managing(t, func() *board {
		b := newBoard(pod("a", 0, 30), pod("b", 2000000000, 30))
		b.takes["a"] = 15 * sec
		return b
	}, func(b *board, tell script, n *news) {
		tell <- Event{Kind: Down, Done: func() { t.Error("released though cancelled") }}
		time.Sleep(4 * sec)
		tell <- Event{Kind: Cancelled}
		time.Sleep(time.Minute)
		wantLog(t, b.lines(), `0s close "node is shutting down"`, "0s stop a 20s", `4s close ""`)
		if len(n.messages) != 2 || n.messages[1] != "n/n Shutdown: Shutdown manager detected shutdown cancellation" {
			t.Errorf("events %q", n.messages)
		}
		tell <- Event{Kind: Cancelled} // nothing to cancel
		synctest.Wait()
		if len(n.messages) != 2 {
			t.Errorf("events %q", n.messages)
		}
	})
}

// TestManagerCancelAfterwards opens a node whose pods have all been stopped already.
func TestManagerCancelAfterwards(t *testing.T) {
	managing(t, func() *board { return newBoard(pod("a", 0, 30)) }, func(b *board, tell script, _ *news) {
		tell <- Event{Kind: Down}
		time.Sleep(time.Minute)
		tell <- Event{Kind: Cancelled}
		synctest.Wait()
		if b.closed != "" {
			t.Error("still closed")
		}
	})
}

// TestManagerFaster: less time replaces the plan at once, more or equal does not; the node never opens meanwhile.
func TestManagerFaster(t *testing.T) {
	managing(t, func() *board {
		b := newBoard(pod("a", 0, 300), pod("b", 2000000000, 300))
		b.takes["a"], b.takes["b"] = time.Hour, time.Hour
		return b
	}, func(b *board, tell script, _ *news) {
		released := 0
		done := func() { released++ }
		tell <- Event{Kind: Down, Done: done, Budget: 30 * sec}
		time.Sleep(5 * sec)
		tell <- Event{Kind: Down, Done: done, Budget: 60 * sec}
		tell <- Event{Kind: Down, Done: done}
		time.Sleep(sec)
		tell <- Event{Kind: Down, Done: done, Budget: 3 * sec}
		time.Sleep(time.Minute)
		got := b.lines()
		slices.Sort(got) // stages without time begin together
		wantLog(t, got, `0s close "node is shutting down"`, "0s stop a 20s",
			`6s close "node is shutting down"`, "6s stop a 0s", "6s stop b 3s", "9s flush")
		if released != 4 {
			t.Errorf("%d of 4 released", released)
		}
	})
}

// TestManagerEnds: the process may end while pods stop; they run on.
func TestManagerEnds(t *testing.T) {
	managing(t, func() *board { b := newBoard(pod("a", 0, 30)); b.takes["a"] = time.Hour; return b }, func(_ *board, tell script, _ *news) {
		tell <- Event{Kind: Down}
		synctest.Wait()
	})
}
