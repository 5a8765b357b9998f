package shutdown

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
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

type news struct {
	mu   sync.Mutex
	list []string
}

func (n *news) messages() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

func (n *news) Event(o api.Object, _, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, o.GetName()+"/"+string(o.GetUID())+" "+reason+": "+message)
}

// managing runs a Manager with a scripted source.
func managing(t *testing.T, b func() *board, fn func(b *board, tell script, n *news)) {
	managingWith(t, func(*ManagerConfig) {}, b, func(_ *Manager, b *board, tell script, n *news) { fn(b, tell, n) })
}

func managingWith(t *testing.T, edit func(*ManagerConfig), b func() *board, fn func(m *Manager, b *board, tell script, n *news)) {
	synctest.Test(t, func(t *testing.T) {
		bd, src, n := b(), make(script), &news{}
		cfg := ManagerConfig{Node: bd, NodeName: "n", Sources: []Source{src}, Events: n}
		edit(&cfg)
		m, err := NewManager(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		fn(m, bd, src, n)
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
		wantLog(t, n.messages(), "n/n Shutdown: Shutdown manager detected shutdown event")
		// SIGTERM follows when systemd goes on: nothing is left to do, and nobody waits for it.
		again := false
		tell <- Event{Kind: Down, Done: func() { again = true }}
		synctest.Wait()
		if !again {
			t.Error("a second event waits for ever")
		}
	})
}

// TestTermInDrain: logind's delay runs out while the pods stop, and systemd ends the process: the stages go on as they are,
// and the process ends after them.
func TestTermInDrain(t *testing.T) {
	var b *board
	var left []string
	told := func(what string) func() {
		return func() { left = append(left, time.Since(b.began).String()+" "+what) }
	}
	signals := &Signals{GoingDown: func(context.Context) bool { return true }}
	signals.Detach, signals.Exit = told("detach"), told("exit")
	managingWith(t, func(c *ManagerConfig) { c.Sources = append(c.Sources, signals) }, func() *board {
		b = newBoard(pod("a", 0, 30), pod("b", 2000000000, 30))
		b.takes["a"], b.takes["b"] = 2*sec, 2*sec
		signals.Incoming = make(chan os.Signal, 1) // of this bubble
		return b
	}, func(m *Manager, b *board, tell script, n *news) {
		tell <- Event{Kind: Down, Source: "logind", Done: told("release")}
		time.Sleep(sec)
		signals.Incoming <- syscall.SIGTERM
		time.Sleep(time.Minute)
		wantLog(t, b.lines(), `0s close "node is shutting down"`, "0s stop a 20s", "2s flush", "2s stop b 10s", "4s flush", "4s clear")
		wantLog(t, left, "4s release", "4s exit")
		wantLog(t, n.messages(), "n/n Shutdown: Shutdown manager detected shutdown event")
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
		if len(n.messages()) != 2 || n.messages()[1] != "n/n Shutdown: Shutdown manager detected shutdown cancellation" {
			t.Errorf("events %q", n.messages())
		}
		tell <- Event{Kind: Cancelled} // nothing to cancel
		synctest.Wait()
		if len(n.messages()) != 2 {
			t.Errorf("events %q", n.messages())
		}
	})
}

// TestManagerSources: what one source takes back goes on for another, without its own end; when all have stopped, logind's word
// that the machine stays up counts for all.
func TestManagerSources(t *testing.T) {
	for name, c := range map[string]struct {
		then []Event
		want []string
		log  []string
	}{
		"mains are back while logind goes down": {[]Event{{Kind: Cancelled, Source: "ups"}}, []string{"released"},
			[]string{`0s close "node is shutting down"`, "0s stop a 20s", "15s flush", "15s stop b 10s", "15s flush", "15s clear"}},
		"both take it back": {[]Event{{Kind: Cancelled, Source: "ups"}, {Kind: Cancelled, Source: logindSource}}, nil,
			[]string{`0s close "node is shutting down"`, "0s stop a 20s", `4s close ""`}},
		"logind alone": {[]Event{{Kind: Cancelled, Source: logindSource}}, []string{"off"},
			[]string{`0s close "node is shutting down"`, "0s stop a 20s", "15s flush", "15s stop b 10s", "15s flush", "15s clear"}},
		"who has not asked": {[]Event{{Kind: Cancelled, Source: RequestSource}}, []string{"off", "released"},
			[]string{`0s close "node is shutting down"`, "0s stop a 20s", "15s flush", "15s stop b 10s", "15s flush", "15s clear"}},
	} {
		t.Run(name, func(t *testing.T) {
			managing(t, func() *board {
				b := newBoard(pod("a", 0, 30), pod("b", 2000000000, 30))
				b.takes["a"] = 15 * sec
				return b
			}, func(b *board, tell script, _ *news) {
				var got []string
				tell <- Event{Kind: Down, Source: "ups", Done: func() { got = append(got, "off") }}
				tell <- Event{Kind: Down, Source: logindSource, Done: func() { got = append(got, "released") }}
				time.Sleep(4 * sec)
				for _, e := range c.then {
					tell <- e
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				wantLog(t, got, c.want...)
				wantLog(t, b.lines(), c.log...)
				open := len(c.want) == 0
				tell <- Event{Kind: Cancelled, Source: logindSource} // nothing more to cancel, or the machine stays up
				synctest.Wait()
				if lines := b.lines(); !open && lines[len(lines)-1] != `1m4s close ""` || open && len(lines) != len(c.log) {
					t.Errorf("at last: %q", lines)
				}
			})
		})
	}
}

// grantor is a source that would give so much.
type grantor struct {
	script
	d     time.Duration
	short bool
}

func (g grantor) Granted() (time.Duration, bool) { return g.d, g.short }

// TestManagerPlan: what would be done now is what can be done in the time that would be granted.
func TestManagerPlan(t *testing.T) {
	for _, short := range []bool{false, true} {
		managingWith(t, func(c *ManagerConfig) { c.Sources = append(c.Sources, grantor{make(script), 4 * sec, short}) },
			func() *board { return newBoard(pod("a", 0, 30), pod("b", 2000000000, 30)) }, func(m *Manager, _ *board, _ script, _ *news) {
				want := 30 * sec
				if short {
					want = 4 * sec
				}
				if p := m.Plan(); p.Total() != want || p.Short() != short {
					t.Errorf("short %v: %+v", short, p)
				}
			})
	}
}

// TestManagerFinishFirst: as a kubelet has it, the stopping ends before a cancellation counts; nobody is let go then
// (N-5.19).
func TestManagerFinishFirst(t *testing.T) {
	managingWith(t, func(c *ManagerConfig) { c.FinishFirst = true }, func() *board {
		b := newBoard(pod("a", 0, 30), pod("b", 2000000000, 30))
		b.takes["a"] = 15 * sec
		return b
	}, func(m *Manager, b *board, tell script, n *news) {
		tell <- Event{Kind: Down, Done: func() { t.Error("released though cancelled") }}
		time.Sleep(4 * sec)
		tell <- Event{Kind: Cancelled}
		synctest.Wait()
		if s := m.Status(); !s.Running || len(n.messages()) != 1 {
			t.Errorf("%+v, events %q", s, n.messages())
		}
		time.Sleep(time.Minute)
		wantLog(t, b.lines(), `0s close "node is shutting down"`, "0s stop a 20s", "15s flush", "15s stop b 10s", "15s flush", `15s close ""`)
		if s := m.Status(); s.Running || s.Stopped || len(n.messages()) != 2 {
			t.Errorf("%+v, events %q", s, n.messages())
		}
		down := 0 // a word after the cancellation counts again
		b.mu.Lock()
		clear(b.stopped)
		b.mu.Unlock()
		tell <- Event{Kind: Down}
		time.Sleep(sec)
		tell <- Event{Kind: Cancelled}
		tell <- Event{Kind: Down, Done: func() { down++ }}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := m.Status(); !s.Stopped || down != 1 {
			t.Errorf("%+v, %d released", s, down)
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
			`6s close "node is shutting down"`, "6s stop a 0s", "6s stop b 3s", "9s clear", "9s flush")
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

// TestManagerStatus: what is said of a shutdown before, during and after it, and what is left on disk (N-5.33, N-5.34).
func TestManagerStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), RecordName)
	onDisk := func() Record {
		r, err := LoadRecord(path)
		if err != nil {
			t.Error(err)
		}
		return r
	}
	managingWith(t, func(c *ManagerConfig) { c.Record = path }, func() *board {
		b := newBoard(pod("a", 0, 30), pod("b", 2000000000, 30))
		b.takes["a"] = 5 * sec
		b.takes["b"] = 2 * sec
		return b
	}, func(m *Manager, b *board, tell script, _ *news) {
		if s := m.Status(); s.Running || s.Stopped || s.Last != (Record{}) {
			t.Errorf("before: %+v", s)
		}
		if p := m.Plan(); len(p.Stages) != 2 || p.Total() != 30*sec {
			t.Errorf("plan before: %+v", p)
		}
		tell <- Event{Kind: Down, Source: "script", Budget: 20 * sec, Done: func() {
			if onDisk().Unfinished() {
				t.Error("the lock is let go before the end is on disk")
			}
		}}
		time.Sleep(6 * sec)
		if s := m.Status(); !s.Running || s.Source != "script" || !s.Until.Equal(b.began.Add(20*sec)) || !onDisk().Unfinished() {
			t.Errorf("during: %+v, on disk %+v", s, onDisk())
		}
		if p := m.Plan(); len(p.Stages) != 1 || p.Budget != 14*sec {
			t.Errorf("plan during: %+v", p)
		}
		time.Sleep(time.Minute)
		s := m.Status()
		if s.Running || !s.Stopped || !s.Last.Ended.Equal(b.began.Add(7*sec)) || !onDisk().Ended.Equal(s.Last.Ended) {
			t.Errorf("after: %+v, on disk %+v", s, onDisk())
		}
		tell <- Event{Kind: Down, Source: "signal"} // the same shutdown
		synctest.Wait()
		if r := onDisk(); !r.Begun.Equal(b.began) || r.Unfinished() {
			t.Errorf("after a second word: %+v", r)
		}
		tell <- Event{Kind: Cancelled, Source: "signal"}
		synctest.Wait()
		if s := m.Status(); !s.Stopped || !slices.Equal(s.Wanted, []string{"script"}) {
			t.Errorf("while another wants it: %+v", s)
		}
		tell <- Event{Kind: Cancelled, Source: "script"}
		synctest.Wait()
		if s := m.Status(); s.Running || s.Stopped {
			t.Errorf("after a cancellation: %+v", s)
		}
	})
}

// TestRequests: a wait, a second request in its place, a cancellation before and after the begin.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	var off []bool
	var src *Requests
	managingWith(t, func(c *ManagerConfig) {
		src = NewRequests(func(reboot bool) {
			mu.Lock()
			defer mu.Unlock()
			off = append(off, reboot)
		})
		c.Sources = append(c.Sources, src)
	}, func() *board { return newBoard(pod("a", 0, 30)) }, func(m *Manager, b *board, _ script, _ *news) {
		ask := func(err error) {
			t.Helper()
			synctest.Wait()
			if err != nil {
				t.Error(err)
			}
		}
		ask(src.Ask(time.Hour, false))
		if d := src.Due(); !d.Equal(b.began.Add(time.Hour)) {
			t.Errorf("due %s", d)
		}
		time.Sleep(time.Minute)
		ask(src.Cancel())
		time.Sleep(2 * time.Hour)
		if s := m.Status(); !src.Due().IsZero() || s.Stopped || len(b.lines()) > 0 {
			t.Errorf("cancelled in time: %+v %q", s, b.lines())
		}
		ask(src.Ask(time.Hour, false))
		ask(src.Ask(time.Minute, true))
		time.Sleep(2 * time.Minute)
		if s := m.Status(); !s.Stopped || s.Source != "request" {
			t.Errorf("%+v", s)
		}
		ask(src.Cancel())
		if m.Status().Stopped || b.closed != "" {
			t.Error("still closed")
		}
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(off, []bool{true}) { // the request that was replaced did not come all the same
			t.Errorf("off %v", off)
		}
	})
}
