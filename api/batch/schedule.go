package batch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule says when a CronJob is due.
type Schedule struct {
	cron  *cron.SpecSchedule // nil: at every
	every time.Duration
	zone  *time.Location
}

// ParseSchedule reads a schedule, in a time zone or, where none is named, in that of the board.
func ParseSchedule(text string, zone *string) (s Schedule, err error) {
	s.zone = time.Local
	if zone != nil {
		if s.zone, err = parseZone(*zone); err != nil {
			return s, err
		}
	}
	if strings.Contains(text, "TZ") { // the parser panics at some of these
		return s, errors.New("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return s, err
	}
	switch parsed := parsed.(type) {
	case cron.ConstantDelaySchedule:
		s.every = parsed.Delay
	case *cron.SpecSchedule:
		for _, field := range []uint64{parsed.Minute, parsed.Hour, parsed.Dom, parsed.Month, parsed.Dow} {
			if field == 0 { // ",": looking for the next moment would take seconds
				return s, fmt.Errorf("a field names no moment: %s", text)
			}
		}
		parsed.Location = time.UTC // next knows of zones
		s.cron = parsed
	default:
		return s, fmt.Errorf("unknown kind of schedule: %s", text)
	}
	return s, nil
}

// zonePart is what may stand between the slashes of the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, errors.New("timeZone must be nil or non-empty string")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) { // it becomes the name of a file
			return nil, fmt.Errorf("unknown time zone %s", name)
		}
	}
	if strings.EqualFold(name, "Local") {
		return nil, errors.New("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	return loadZone(name)
}

// next is the first moment after a given one, zero if there is none within five years. An hour that the clocks leave out is left out,
// one that they show twice counts twice. Between two changes of its clocks a zone is a fixed time ahead of UTC: the parser, which loses
// its way where clocks change by half an hour, is asked about each such span as if it were UTC.
func (s Schedule) next(after time.Time) time.Time {
	const years = 5 * 366 * 24 * time.Hour
	for first := after.Truncate(time.Second).Add(time.Second); first.Sub(after) < years; {
		local := first.In(s.zone)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		ahead := time.Duration(offset) * time.Second
		due := s.cron.Next(first.UTC().Add(ahead - time.Second))
		if due.IsZero() {
			break
		}
		if due = due.Add(-ahead).In(after.Location()); end.IsZero() || due.Before(end) {
			return due
		}
		first = end
	}
	return time.Time{}
}

// Around finds the last moment after from and until now at which a CronJob is due, and the first one after now. Either is zero if there
// is none. What has happened every hour since from is due at whole hours after it.
func (s Schedule) Around(from, now time.Time) (last, next time.Time) {
	if s.cron == nil {
		n := max(now.Sub(from)/s.every, 0)
		at := from.Add(n * s.every)
		if n > 0 {
			last = at
		}
		return last, at.Add(s.every)
	}
	next = s.next(now)
	due := func(after time.Time) bool {
		at := s.next(after)
		return !at.IsZero() && !at.After(now)
	}
	if !due(from) {
		return last, next
	}
	// There is a moment after lo, and none after hi. Halving finds it among those of years as fast as among those of an hour.
	lo, hi := int64(0), int64(now.Sub(from)/time.Second)+1
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; due(from.Add(time.Duration(mid) * time.Second)) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return s.next(from.Add(time.Duration(lo) * time.Second)), next
}

// Missed counts the moments after from and until now, up to most.
func (s Schedule) Missed(from, now time.Time, most int) (n int) {
	if s.cron == nil {
		return int(min(max(now.Sub(from)/s.every, 0), time.Duration(most)))
	}
	for at := s.next(from); n < most && !at.IsZero() && !at.After(now); at = s.next(at) {
		n++
	}
	return n
}

// Stamp writes a moment in the time zone that a CronJob names, or UTC.
func (s Schedule) Stamp(at time.Time) string {
	if s.zone == time.Local {
		at = at.UTC()
	} else {
		at = at.In(s.zone)
	}
	return at.Format(time.RFC3339)
}
