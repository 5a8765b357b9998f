// Package upgrade decides which version of ledge a board runs, and keeps the versions and that decision on disk.
//
// The base is the program that a package or an image installed, and that the machine's units start. It is also the launcher: when it
// starts, it reads the state below and replaces itself by the version that the state names. The decisions are pure functions of the
// state; Dir makes them durable. A new version is on trial: each start is counted before it happens, and after MostTries starts without
// the version being found well, the launcher runs the version before it again.
//
// Launchers of any age read the state: no field may ever change its meaning.
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

// MostTries is how often a version on trial is started before the launcher gives it up.
const MostTries = 3

// DefaultWithin is how long after a start a version has to be found well.
const DefaultWithin = 3 * time.Minute

// Stamp is what a ledge binary tells about itself.
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

// Trial is about the version that has to show that it is well.
type Trial struct {
	Name   string        `json:"name"`
	Tries  int           `json:"tries"`           // starts so far
	Within time.Duration `json:"within"`          // what one of them may take
	Wants  string        `json:"wants,omitempty"` // what the last one lacked
}

// Keeper is about the version of the process that holds the containers. The keeper starts seldom, and only in a version in which the
// brain was found well. Even that version may fail as a keeper, so it has a trial of its own.
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

// Tell is the name of a version in messages to people.
func (s State) Tell(name string) string {
	if name == Base {
		return s.Base.Version + " (as installed)"
	}
	return name
}

// Why a version cannot be chosen.
var (
	ErrOlder   = errors.New("is older than what runs")
	ErrStore   = errors.New("does not know the store that this board has")
	ErrSame    = errors.New("is what runs already")
	ErrNowhere = errors.New("there is no version to go back to: the last upgrade is the first, or what was before it has been removed")
)

// Begin puts a version on trial. If another one is on trial, that trial ends. A version older than the one that runs is refused unless
// older is true.
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

// Rollback ends a trial if there is one; otherwise it puts the version before the current one on trial.
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

// Launch decides which version a brain starts as. The state it returns must be on disk before that version starts.
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

// rebase notes that the base is another program than the last time, as after an upgrade of the package. If the new base is newer than
// the current version, it goes on trial; if it is older, it is the launcher and nothing else.
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

// Cannot notes that a version could not be executed at all, and decides what to run instead.
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

// LaunchKeeper decides which version a keeper starts as.
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

// KeeperReady notes that the keeper of this version answers: its trial is over.
func (s State) KeeperReady(name string) State {
	if s.Keeper.Name == name {
		s.Keeper = Keeper{Proven: name}
	}
	return s
}

// OnTrial says whether this version is on trial.
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

// Lacked notes why a start on trial was not well.
func (s State) Lacked(name, what string) State {
	if s.OnTrial(name) {
		s = s.clone()
		s.Pending.Wants = what
	}
	return s
}

// Ended notes that a start on trial was told to end before it could show that it is well: that start does not count.
func (s State) Ended(name string) State {
	if s.OnTrial(name) && s.Pending.Tries > 0 {
		s = s.clone()
		s.Pending.Tries--
	}
	return s
}

// Told notes that an event has told the outcome of the last trial.
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
