// Package upgrade decides which version of ledge a board runs, and keeps the versions and that decision on disk.
//
// The program that the machine's units start, of a package or an image, is the base. It is also the launcher: at its start
// it reads the state below and runs the version that this names in its own place. What is decided are pure functions of the
// state; Dir makes them durable. A version that is new is on trial: its starts are counted before it runs, and when it has
// not been found well after a few of them the one before it is run again.
//
// The state is read by launchers of any age: of what is in it nothing may change its meaning.
package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Base is the name of the program that the machine starts.
const Base = "base"

// MostTries is how often a version is started that was not well.
const MostTries = 3

// DefaultWithin is how long one start may take to be well.
const DefaultWithin = 3 * time.Minute

// Stamp is what a program says of itself.
type Stamp struct {
	Version string `json:"version"`
	Built   string `json:"built"` // RFC 3339, UTC
	Store   int    `json:"store"` // the newest layout of the store that it knows
}

// State is everything a launcher needs to know. The zero value is a board that was never upgraded.
type State struct {
	Current  string           `json:"current,omitempty"`  // the last that was found well; empty: the base
	Previous string           `json:"previous,omitempty"` // the one before; empty: there is none
	Pending  *Trial           `json:"pending,omitempty"`
	Keeper   Keeper           `json:"keeper"`
	Base     Stamp            `json:"base"` // as it was last seen
	Versions map[string]Stamp `json:"versions,omitempty"`
	Last     *Outcome         `json:"last,omitempty"`
}

// Trial is of a version that has to show that it is well.
type Trial struct {
	Name   string        `json:"name"`
	Tries  int           `json:"tries"`           // starts so far
	Within time.Duration `json:"within"`          // what one of them may take
	Wants  string        `json:"wants,omitempty"` // what the last one lacked
}

// Keeper is the same for the process that holds the containers. It starts seldom, and runs no version that the brain has not
// found well; that one it may still be unable to run itself.
type Keeper struct {
	Name   string `json:"name,omitempty"`
	Tries  int    `json:"tries,omitempty"`
	Proven string `json:"proven,omitempty"` // empty: the base
}

// Outcome is how the last trial ended.
type Outcome struct {
	Name string `json:"name"`
	Back string `json:"back,omitempty"` // what runs instead; empty: it was well
	Why  string `json:"why,omitempty"`
	Told bool   `json:"told,omitempty"` // the node's events say so
}

func (s State) clone() State {
	s.Versions = maps.Clone(s.Versions)
	if s.Pending != nil {
		p := *s.Pending
		s.Pending = &p
	}
	if s.Last != nil {
		l := *s.Last
		s.Last = &l
	}
	return s
}

// Running is the version that was last found well.
func (s State) Running() string { return orBase(s.Current) }

func orBase(name string) string {
	if name == "" {
		return Base
	}
	return name
}

// Of is the stamp of a version.
func (s State) Of(name string) Stamp {
	if name == Base {
		return s.Base
	}
	return s.Versions[name]
}

// Tell is how a version is called to people.
func (s State) Tell(name string) string {
	if name == Base {
		return s.Base.Version + " (as installed)"
	}
	return name
}

// What a version may not be chosen for.
var (
	ErrOlder   = errors.New("is older than what runs")
	ErrStore   = errors.New("does not know the store that this board has")
	ErrSame    = errors.New("is what runs already")
	ErrNowhere = errors.New("there is no version to go back to: the last upgrade is the first, or what was before it has been removed")
)

// Begin puts a version on trial, in the place of another that is. Whoever wants an older one says so.
func (s State) Begin(name string, st Stamp, within time.Duration, older bool) (State, error) {
	now := s.Of(s.Running())
	switch {
	case name == s.Running() && s.Pending == nil:
		return s, fmt.Errorf("%s %w", name, ErrSame)
	case st.Store < now.Store:
		return s, fmt.Errorf("%s %w (it knows layout %d, the store may have %d)", name, ErrStore, st.Store, now.Store)
	case Newer(now, st) && !older:
		return s, fmt.Errorf("%s %w (%s)", name, ErrOlder, now.Version)
	}
	s = s.clone()
	if name == s.Running() { // a trial is called off
		s.Pending, s.Last = nil, nil
		return s, nil
	}
	if name != Base {
		if s.Versions == nil {
			s.Versions = map[string]Stamp{}
		}
		s.Versions[name] = st
	}
	s.Pending, s.Last = &Trial{Name: name, Within: within}, nil
	return s, nil
}

// Rollback puts the version before this one on trial, or calls a trial off.
func (s State) Rollback(within time.Duration) (State, error) {
	to := s.Previous
	if s.Pending != nil {
		to = s.Running()
	}
	if to == "" {
		return s, ErrNowhere
	}
	return s.Begin(to, s.Of(to), within, true)
}

// Launch is which version a brain starts as; the state must be durable before it does.
func (s State) Launch(base Stamp) (State, string) {
	s = s.clone().rebase(base)
	switch {
	case s.Pending == nil:
	case s.Pending.Tries >= MostTries:
		why := fmt.Sprintf("it was not well after %d starts", s.Pending.Tries)
		if s.Pending.Wants != "" {
			why += ": " + s.Pending.Wants
		}
		s = s.back(why)
	default:
		s.Pending.Tries++
		return s, s.Pending.Name
	}
	return s, s.Running()
}

// rebase takes notice of a base that has been replaced, by a package's upgrade. One that is newer than what runs is tried;
// one that is older stays the launcher.
func (s State) rebase(base Stamp) State {
	was := s.Base
	s.Base = base
	if was == base || was == (Stamp{}) { // or it was not known
		return s
	}
	onTrial := s.Pending != nil && s.Pending.Name != Base
	switch {
	case onTrial && !Newer(base, s.Of(s.Pending.Name)):
	case s.Running() == Base:
		s.Pending = nil
	case Newer(base, s.Of(s.Running())):
		s.Pending, s.Last = &Trial{Name: Base, Within: DefaultWithin}, nil
	}
	return s
}

func (s State) back(why string) State {
	s.Last = &Outcome{Name: s.Pending.Name, Back: s.Running(), Why: why}
	s.Pending = nil
	return s
}

// Cannot notes that a version does not even start, and says what to run instead.
func (s State) Cannot(name, why string) (State, string) {
	s = s.clone()
	if s.Keeper.Proven == name {
		s.Keeper = Keeper{}
	}
	switch {
	case s.Pending != nil && s.Pending.Name == name:
		s = s.back(why)
	case s.Running() == name:
		to := orBase(s.Previous)
		if to == name || s.Of(to).Store < s.Of(name).Store {
			to = Base
		}
		s.Last = &Outcome{Name: name, Back: to, Why: why}
		s.Current, s.Previous = to, ""
	}
	return s, s.Running()
}

// LaunchKeeper is which version a keeper starts as.
func (s State) LaunchKeeper() (State, string) {
	if s.Running() == orBase(s.Keeper.Proven) {
		return s, s.Running()
	}
	if s.Keeper.Name != s.Running() {
		s.Keeper.Name, s.Keeper.Tries = s.Running(), 0
	}
	if s.Keeper.Tries >= MostTries {
		return s, orBase(s.Keeper.Proven)
	}
	s.Keeper.Tries++
	return s, s.Running()
}

// KeeperReady notes that a keeper of a version answers.
func (s State) KeeperReady(name string) State {
	if s.Keeper.Name == name {
		s.Keeper = Keeper{Proven: name}
	}
	return s
}

// OnTrial says whether a version is.
func (s State) OnTrial(name string) bool { return s.Pending != nil && s.Pending.Name == name }

// Commit notes that the version on trial is well.
func (s State) Commit(name string) State {
	if !s.OnTrial(name) {
		return s
	}
	s = s.clone()
	s.Previous, s.Current, s.Pending = s.Running(), name, nil
	s.Last = &Outcome{Name: name}
	return s
}

// Lacked notes what a start on trial lacked; Ended, that it was told to end before it could show anything: it does not count.
func (s State) Lacked(name, what string) State {
	if s.OnTrial(name) {
		s = s.clone()
		s.Pending.Wants = what
	}
	return s
}

// Ended is described at Lacked.
func (s State) Ended(name string) State {
	if s.OnTrial(name) && s.Pending.Tries > 0 {
		s = s.clone()
		s.Pending.Tries--
	}
	return s
}

// Told notes that the outcome has been told.
func (s State) Told() State {
	if s.Last != nil {
		s = s.clone()
		s.Last.Told = true
	}
	return s
}

// keeps returns the versions that are still needed: the current one, the one to go back to, the one on trial, and the
// keeper's.
func (s State) keeps() []string {
	names := []string{s.Current, s.Previous, s.Keeper.Name, s.Keeper.Proven}
	if s.Pending != nil {
		names = append(names, s.Pending.Name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || n == Base })
}

// Name is a version's name on disk: the digest tells builds of one version apart.
func Name(version string, digest []byte) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".+-~", r) {
			return r
		}
		return '-'
	}, version)
	return fmt.Sprintf("ledge-%.60s-%x", clean, digest[:4])
}
