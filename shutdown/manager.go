package shutdown

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"ledge/api"
)

// Kind says what an event is about.
type Kind int

// The kinds of event.
const (
	Down      Kind = iota + 1 // the board is going down: stop the pods
	Cancelled                 // it is not, after all
)

// Event is news about power.
type Event struct {
	Kind   Kind
	Source string // "signal", "logind"
	// Budget is the time really granted; zero means as much as the configuration asks for.
	Budget time.Duration
	// After is what ledge itself is to do with the machine then. Nobody else remembers such a word: it outlives this process.
	After After
	// Done is called once the pods have stopped, or as many as could: release the lock, exit, power off. It may be
	// nil. It is not called if the shutdown is cancelled first.
	Done func()
}

// After is what becomes of the machine when its pods have stopped.
type After string

// What ledge can do with a machine. The zero value leaves that to whoever the event came from.
const (
	ThenOff    After = "poweroff"
	ThenReboot After = "reboot"
)

// Source hears of power events and tells them until ctx ends. tell does not block.
type Source interface {
	Run(ctx context.Context, tell func(Event)) error
}

// Liver is a Source that can say whether it hears anything at all: its name, or nothing. Elsewhere such things fail in
// silence (N-5.39).
type Liver interface{ Live() string }

// Recorder takes events for users to read; *api.Recorder is one.
type Recorder interface {
	Event(object api.Object, eventType, reason, message string)
}

// ManagerConfig is what a Manager needs.
type ManagerConfig struct {
	Node     Node
	NodeName string
	Shutdown Config // when it asks for nothing and an event comes all the same, Default counts
	Sources  []Source
	Events   Recorder // may be nil
	// FinishFirst lets the stopping end before a cancellation counts, as a kubelet does (N-5.19).
	FinishFirst bool
	Record      string // file that keeps when the last shutdown began and ended; empty keeps it nowhere
	BootID      string // of the machine
	// Off ends the machine after a shutdown that an earlier process began and did not live to end.
	Off func(reboot bool)
}

// Manager waits for power events from all sources and runs one shutdown at a time.
type Manager struct {
	cfg    ManagerConfig
	events chan Event // bounded: sources are few and slow

	mu     sync.Mutex
	status Status
}

// Status is what a person wants to know of shutdowns.
type Status struct {
	Running bool
	Stopped bool      // the pods have been stopped and the node is closed
	Source  string    // of the shutdown that runs or ran
	Wanted  []string  // the sources that want it
	Until   time.Time // when the time granted is over; zero: it takes what it takes
	Last    Record
}

// NewManager prepares a Manager; Run waits for events.
func NewManager(cfg ManagerConfig) (*Manager, error) {
	if cfg.Node == nil {
		return nil, errors.New("shutdown: no node")
	}
	if err := cfg.Shutdown.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Shutdown.Periods()) == 0 {
		cfg.Shutdown = Default
	}
	m := &Manager{cfg: cfg, events: make(chan Event, 16)}
	if cfg.Record != "" {
		last, err := LoadRecord(cfg.Record)
		if err != nil { // nothing hangs on it but two figures and a message
			slog.Warn("the last shutdown is not known", "err", err)
		}
		m.status.Last = last
	}
	return m, nil
}

// Status is how things stand.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status // nobody changes a list that is in it
}

// Live names the sources that would hear of a shutdown now.
func (m *Manager) Live() (names []string) {
	for _, s := range m.cfg.Sources {
		if l, ok := s.(Liver); ok && l.Live() != "" {
			names = append(names, l.Live())
		}
	}
	return names
}

// Plan returns the stages of a shutdown that would begin now, or those left of the one that runs.
func (m *Manager) Plan() Plan {
	budget := Unlimited
	if s := m.Status(); s.Running && !s.Until.IsZero() {
		budget = time.Until(s.Until)
	} else if !s.Running {
		budget = m.granted()
	}
	return Make(m.cfg.Node.Pods(), m.cfg.Shutdown, budget)
}

// granted is the least that a source would give a shutdown now.
func (m *Manager) granted() time.Duration {
	least := Unlimited
	for _, s := range m.cfg.Sources {
		if g, ok := s.(interface{ Granted() (time.Duration, bool) }); ok {
			if d, short := g.Granted(); short {
				least = min(least, d)
			}
		}
	}
	return least
}

// note changes the status, and the record with it where that changes.
func (m *Manager) note(change func(*Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.status.Last
	change(&m.status)
	if m.cfg.Record == "" || m.status.Last == before {
		return
	}
	if err := m.status.Last.save(m.cfg.Record); err != nil {
		slog.Warn("cannot record the shutdown", "err", err)
	}
}

// Run follows the sources until ctx ends. A shutdown that is running then is broken off; pods run on. One that an earlier
// process of this boot was asked for, and died in, is taken up: whoever pressed the power key does not know of processes.
func (m *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if last := m.Status().Last; last.resumes(m.cfg.BootID) && m.cfg.Off != nil {
		m.tell(Event{Kind: Down, Source: last.Source, After: last.After, Done: func() { m.cfg.Off(last.After == ThenReboot) }})
	} else if last.Unfinished() && last.Tries >= mostTries && last.BootID == m.cfg.BootID {
		slog.Error("a shutdown has failed too often and is given up; ask for it again", "source", last.Source, "tries", last.Tries)
	}
	for _, s := range m.cfg.Sources {
		g.Go(func() error { return s.Run(ctx, m.tell) })
	}
	g.Go(func() error { m.loop(ctx); return nil })
	return g.Wait()
}

func (m *Manager) tell(e Event) {
	select {
	case m.events <- e:
	default:
		slog.Warn("power event dropped, too many at once", "source", e.Source)
	}
}

// Why a running shutdown is broken off.
var (
	errCancelled = errors.New("shutdown cancelled")
	errSooner    = errors.New("less time than thought")
)

// current is the shutdown that is going on.
type current struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when Run has returned
	err    error         // valid after ended
	until  time.Time
	claims []claim // of every event that asked for it
	undone bool    // cancelled, and heard of only when it has ended
}

// claim is what a source's event wants when all have stopped.
type claim struct {
	source string
	after  After
	done   func() // may be nil
}

// after is what becomes of the machine: the first word counts.
func (c *current) after() After {
	for _, c := range c.claims {
		if c.after != "" {
			return c.after
		}
	}
	return ""
}

func (e Event) claim() claim { return claim{e.Source, e.After, e.Done} }

func (m *Manager) loop(ctx context.Context) {
	var cur *current
	closed := false            // pods were stopped; the node stays closed until a cancellation or the end
	wants := map[string]bool{} // the sources that want the board down: it stays up when none is left
	for {
		var ended chan struct{}
		if cur != nil {
			ended = cur.ended
		}
		select {
		case <-ctx.Done():
			if cur != nil {
				cur.cancel(context.Cause(ctx))
				<-cur.ended
			}
			return
		case <-ended:
			if cur.undone {
				m.cancel(cur, closed)
				cur, closed = nil, false
				continue
			}
			closed = cur.err == nil || closed
			m.finish(cur)
			cur = nil
		case e := <-m.events:
			off := true
			if e.Kind == Down {
				wants[e.Source] = true
			} else {
				off = withdraw(wants, cur, e.Source)
			}
			m.note(func(s *Status) { s.Wanted = slices.Sorted(maps.Keys(wants)) })
			switch {
			case !off:
				if cur != nil { // what becomes of the machine was its word, maybe
					m.note(func(s *Status) { s.Last.After = cur.after() })
				}
			case e.Kind == Cancelled && cur != nil && m.cfg.FinishFirst:
				cur.undone = true
			case e.Kind == Cancelled:
				m.cancel(cur, closed)
				cur, closed = nil, false
			case cur == nil:
				m.note(func(s *Status) { // before anything else: it may be all that is left of this word
					if s.Stopped { // SIGTERM after logind's word is the same shutdown
						return
					}
					next := Record{Begun: time.Now(), BootID: m.cfg.BootID, Source: e.Source, After: e.After}
					if s.Last.resumes(m.cfg.BootID) {
						next.Tries = s.Last.Tries + 1
					}
					s.Last = next
				})
				m.say("Shutdown manager detected shutdown event")
				slog.Info("stopping the pods of this board", "source", e.Source)
				cur = m.begin(ctx, nil, e)
			default:
				cur = m.again(ctx, cur, e)
			}
		}
	}
}

// withdraw takes back one source's wish and tells whether no other source wants the shutdown: returning mains do not
// cancel a shutdown that was asked of logind. Once all pods have stopped, a cancellation by logind counts for every
// source, since it is about the machine.
func withdraw(wants map[string]bool, cur *current, source string) (nobody bool) {
	if cur == nil && source == logindSource {
		clear(wants)
		return true
	}
	if !wants[source] {
		return false
	}
	delete(wants, source)
	if cur != nil {
		cur.claims = slices.DeleteFunc(cur.claims, func(c claim) bool { return c.source == source })
	}
	if len(wants) > 0 {
		slog.Info("a shutdown is taken back, and goes on for others", "source", source, "others", slices.Sorted(maps.Keys(wants)))
	}
	return len(wants) == 0
}

// begin starts a shutdown; earlier are the claims of the one it takes over from.
func (m *Manager) begin(ctx context.Context, earlier []claim, e Event) *current {
	budget := e.Budget
	if budget == 0 {
		budget = Unlimited
	}
	run, cancel := context.WithCancelCause(ctx)
	cur := &current{cancel: cancel, ended: make(chan struct{}), until: deadline(e.Budget), claims: append(earlier, e.claim())}
	m.note(func(s *Status) { s.Running, s.Source, s.Until = true, e.Source, cur.until })
	go func() {
		defer close(cur.ended)
		_, cur.err = Run(run, m.cfg.Node, m.cfg.Shutdown, budget)
	}()
	return cur
}

func deadline(budget time.Duration) time.Time {
	if budget == 0 {
		return time.Time{}
	}
	return time.Now().Add(budget)
}

// again handles a second event during a shutdown: one with less time replaces the plan at once, any other only waits
// for the end with the first.
func (m *Manager) again(ctx context.Context, cur *current, e Event) *current {
	cur.undone = false
	m.note(func(s *Status) {
		if s.Last.After == "" {
			s.Last.After = e.After
		}
	})
	until := deadline(e.Budget)
	if until.IsZero() || (!cur.until.IsZero() && !until.Before(cur.until)) {
		cur.claims = append(cur.claims, e.claim())
		return cur
	}
	slog.Warn("shutting down faster", "source", e.Source, "granted", e.Budget)
	cur.cancel(errSooner)
	<-cur.ended
	return m.begin(ctx, cur.claims, e)
}

func (m *Manager) finish(cur *current) {
	cur.cancel(nil)
	if cur.err != nil {
		slog.Error("shutdown did not complete", "err", cur.err)
	}
	// Before the lock is let go.
	m.note(func(s *Status) { s.Running, s.Stopped, s.Last.Ended = false, true, time.Now() })
	m.cfg.Node.Clear() // does not wait; whoever ends this process waits for it
	for _, c := range cur.claims {
		if c.done != nil {
			c.done()
		}
	}
}

// cancel ends what is going on and opens the node again (N-5.18). Pods that have been stopped stay so here.
func (m *Manager) cancel(cur *current, closed bool) {
	if cur == nil && !closed {
		return
	}
	m.say("Shutdown manager detected shutdown cancellation")
	slog.Info("shutdown cancelled")
	if cur != nil {
		cur.cancel(errCancelled)
		<-cur.ended
	}
	m.cfg.Node.Close("")
	m.note(func(s *Status) { *s = Status{Last: Record{Begun: s.Last.Begun, Ended: time.Now()}} })
}

// say records an event on the Node; its UID is the node's name, as describe looks for it (N-11.38).
func (m *Manager) say(message string) {
	if m.cfg.Events == nil {
		return
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.cfg.NodeName, UID: types.UID(m.cfg.NodeName)}}
	m.cfg.Events.Event(n, corev1.EventTypeNormal, "Shutdown", message)
}
