package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Supply is what a battery or a UPS says about itself.
type Supply struct {
	Absent    bool // there is none: the board lives on mains alone
	OnBattery bool
	Low       bool          // it says that the end is near
	Forced    bool          // somebody who decides for all boards on it says: down, now
	Charge    int           // percent; negative: not known
	Runtime   time.Duration // until it is empty; zero: not known
}

// Limits say when a board on battery goes down. The zero value means the defaults.
type Limits struct {
	Charge  int           // at or below this percent; default 10
	Reserve time.Duration // runtime that is kept for what comes after the pods, and what one has that only says it is low; default 30 s
}

func (l Limits) withDefaults() Limits {
	if l.Charge == 0 {
		l.Charge = 10
	}
	if l.Reserve == 0 {
		l.Reserve = 30 * time.Second
	}
	return l
}

// leastBudget is what pods get from a battery that is empty already: to be told, not to be waited for.
const leastBudget = time.Second

// Judge says whether it is time to go down, why, and how much of it there is; a budget of zero means as much as the
// configuration wants, which is total.
func (l Limits) Judge(s Supply, total time.Duration) (why string, budget time.Duration) {
	l = l.withDefaults()
	switch {
	case s.Forced:
		why = "the UPS orders it"
	case !s.OnBattery:
		return "", 0
	case s.Low:
		why = "the battery is low"
	case s.Charge >= 0 && s.Charge <= l.Charge:
		why = fmt.Sprintf("the battery is at %d %%", s.Charge)
	case s.Runtime > 0 && s.Runtime <= total+l.Reserve:
		why = fmt.Sprintf("the battery lasts %s", s.Runtime)
	default:
		return "", 0
	}
	switch {
	case s.Runtime > 0:
		budget = max(s.Runtime-l.Reserve, leastBudget)
	case s.Forced || s.Low: // nobody says how long it will be; it is not long
		budget = l.Reserve
	}
	return why, budget
}

// SupplyReader asks a battery or a UPS.
type SupplyReader interface {
	Read(ctx context.Context) (Supply, error)
}

// Watch is the power source of boards that outlive the mains for a while.
type Watch struct {
	Name   string // "battery", "ups"
	Supply SupplyReader
	Limits Limits
	Total  time.Duration // what an unhurried shutdown takes: Config.Total()
	Off    func()        // called once the pods have stopped

	live atomic.Bool // it is there and answers
}

// Live implements Liver.
func (w *Watch) Live() string {
	if !w.live.Load() {
		return ""
	}
	return w.Name
}

// How often it is asked. Who falls silent while on battery is taken for empty after a while, as NUT does.
const (
	askOnMains   = 10 * time.Second
	askOnBattery = 2 * time.Second
	silence      = 15 * time.Second
)

// watching is what a Watch remembers from one look to the next.
type watching struct {
	last   Supply
	heard  time.Time
	told   bool      // the board has been told to go down
	until  time.Time // with this deadline; zero: none
	failed bool      // said already
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context, tell func(Event)) error {
	st := watching{heard: time.Now()}
	for {
		s, err := w.Supply.Read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.live.Store(err == nil && !s.Absent)
		w.look(&st, s, err, time.Now(), tell)
		rest := askOnMains
		if st.last.OnBattery {
			rest = askOnBattery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// look takes one reading in.
func (w *Watch) look(st *watching, s Supply, err error, now time.Time, tell func(Event)) {
	if err != nil {
		if !st.failed {
			slog.Warn("cannot ask the power supply", "supply", w.Name, "err", err)
		}
		st.failed = true
		if !st.last.OnBattery || now.Sub(st.heard) < silence {
			return
		}
		s = st.last
		s.Low, s.Runtime = true, 0 // what it said is no longer true
	} else {
		st.heard, st.failed = now, false
	}
	if s.OnBattery != st.last.OnBattery {
		slog.Warn("mains power changed", "supply", w.Name, "on battery", s.OnBattery, "charge", s.Charge, "runtime", s.Runtime)
	}
	st.last = s
	why, budget := w.Limits.Judge(s, w.Total)
	switch {
	case why == "" && st.told && !s.OnBattery:
		st.told = false
		tell(Event{Kind: Cancelled, Source: w.Name})
	case why == "":
	case !st.told:
		slog.Warn("going down", "supply", w.Name, "because", why, "granted", budget)
		st.told, st.until = true, deadline(budget)
		tell(Event{Kind: Down, Source: w.Name, Budget: budget, Done: w.Off})
	case budget > 0 && (st.until.IsZero() || deadline(budget).Before(st.until.Add(-askOnBattery))):
		// It empties faster than it thought.
		st.until = deadline(budget)
		tell(Event{Kind: Down, Source: w.Name, Budget: budget})
	}
}
