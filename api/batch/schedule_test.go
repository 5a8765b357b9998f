package batch

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func moment(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAround(t *testing.T) {
	const from, now = "2026-11-25T10:00:00Z", "2026-11-25T12:30:00Z"
	for _, tc := range []struct {
		schedule, zone, from, now, last, next string
		missed                                int
	}{
		{"0 * * * *", "", from, now, "2026-11-25T12:00:00Z", "2026-11-25T13:00:00Z", 2},
		{"*/20 * * * *", "", from, now, "2026-11-25T12:20:00Z", "2026-11-25T12:40:00Z", 7},
		{"30 12 * * *", "", from, now, "2026-11-25T12:30:00Z", "2026-11-26T12:30:00Z", 1}, // now is due
		{"0 10 * * *", "", from, now, "", "2026-11-26T10:00:00Z", 0},                      // what was done is not
		{"@daily", "", from, now, "", "2026-11-26T00:00:00Z", 0},
		{"@every 40m", "", from, now, "2026-11-25T12:00:00Z", "2026-11-25T12:40:00Z", 3},
		{"0 12 * * mon", "", from, now, "", "2026-11-30T12:00:00Z", 0},
		{"0 12 1 * mon", "", from, now, "", "2026-11-30T12:00:00Z", 0}, // one or the other
		{"0 0 29 2 *", "", "2020-03-01T00:00:00Z", now, "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z", 1},
		{"* * * * *", "", "1970-01-01T00:00:00Z", now, "2026-11-25T12:30:00Z", "2026-11-25T12:31:00Z", 101},
		{"* 0 1 1 *", "", "2019-12-31T00:00:00Z", now, "2026-01-01T00:59:00Z", "2027-01-01T00:00:00Z", 101},
		{"0 0 31 2 *", "", from, now, "", "", 0},
		// 02:30 is left out that day
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "", "2026-03-30T00:30:00Z", 0},
		{"0 9 * * *", "Asia/Kolkata", from, now, "", "2026-11-26T03:30:00Z", 0},
		{"0 9 * * *", "Pacific/Auckland", "2026-11-24T10:00:00Z", now, "2026-11-24T20:00:00Z", "2026-11-25T20:00:00Z", 1},
	} {
		var zone *string
		if tc.zone != "" {
			zone = &tc.zone
		}
		s, err := ParseSchedule(tc.schedule, zone)
		if err != nil {
			t.Errorf("%s: %v", tc.schedule, err)
			continue
		}
		from, now := moment(t, tc.from), moment(t, tc.now)
		last, next := s.Around(from, now)
		show := func(at time.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.UTC().Format(time.RFC3339)
		}
		if show(last) != tc.last || show(next) != tc.next {
			t.Errorf("%s %s: last %s, next %s; want %s and %s", tc.schedule, tc.zone, show(last), show(next), tc.last, tc.next)
		}
		if n := s.Missed(from, now, 101); n != tc.missed {
			t.Errorf("%s: missed %d, want %d", tc.schedule, n, tc.missed)
		}
	}
}

// TestAroundWalks: the last moment is the one that walking from moment to moment ends at.
func TestAroundWalks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	for range 300 {
		text := strings.Join([]string{pick("*", "0", "*/7", "5-20/5", "59"), pick("*", "0", "3", "2,14", "*/5"), pick("*", "1", "31", "*/9"),
			pick("*", "*", "2", "3,10"), pick("*", "*", "sun", "1-5")}, " ")
		zone := pick("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo")
		s, err := ParseSchedule(text, &zone)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		from := time.Unix(1_700_000_000+random.Int64N(100_000_000), 0)
		now := from.Add(time.Duration(random.Int64N(40*24*3600)) * time.Second)
		var want time.Time
		for at := s.next(from); !at.IsZero() && !at.After(now); at = s.next(at) {
			want = at
		}
		if last, next := s.Around(from, now); !last.Equal(want) || !next.IsZero() && !next.After(now) {
			t.Errorf("%s in %s from %v to %v: %v, want %v; next %v", text, zone, from, now, last, want, next)
		}
	}
}

// TestClocksThatChange: over every change of the clocks a CronJob is due at each minute whose reading the schedule names, and at no other.
func TestClocksThatChange(t *testing.T) {
	for _, tc := range []struct{ zone, from string }{
		{"Europe/Berlin", "2025-03-28T00:00:00Z"},
		{"Europe/Berlin", "2025-10-24T00:00:00Z"},
		{"Australia/Lord_Howe", "2025-04-03T00:00:00Z"}, // by half an hour
		{"Australia/Lord_Howe", "2025-10-03T00:00:00Z"},
		{"America/Sao_Paulo", "2018-11-02T00:00:00Z"}, // at midnight
		{"Pacific/Apia", "2011-12-28T00:00:00Z"},      // by a day
	} {
		for _, text := range []string{"0 0 * * *", "30 2 * * *", "*/7 1,2 * * *", "0 0 * * sun", "15 23 * * *", "59 * * * *", "45 1 6 4 *"} {
			s, err := ParseSchedule(text, &tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			from := moment(t, tc.from)
			next := s.next(from.Add(-time.Second))
			for at := from; at.Before(from.Add(9 * 24 * time.Hour)); at = at.Add(time.Minute) {
				_, offset := at.In(s.zone).Zone()
				reading := at.UTC().Add(time.Duration(offset) * time.Second)
				if !s.cron.Next(reading.Add(-time.Second)).Equal(reading) {
					continue
				}
				if !next.Equal(at) {
					t.Fatalf("%s in %s: %v, want %v", text, tc.zone, next, at.In(s.zone))
				}
				next = s.next(at)
			}
		}
	}
}

// FuzzSchedule: whatever is taken is answered soon, and within the bounds that it was asked for.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"* * * * *", "0 0 31 2 *", "@every 1s", "@every -5h", "@every 2562047h", ", * * * *", "59 23 29 feb sun", "TZ=",
		"*/99 * * * *",
		"0 0 1-31/2 */5 ?", "9999999999999999999 * * * *", "\x00 * * * *", "1-2-3 * * * *"} {
		f.Add(s, int64(0), int64(1<<33))
	}
	f.Fuzz(func(t *testing.T, text string, after, until int64) {
		s, err := ParseSchedule(text, nil)
		if err != nil {
			return
		}
		from := time.Unix(max(after, 0)%(1<<34), 0)
		now := time.Unix(max(until, 0)%(1<<34), 0)
		began := time.Now()
		last, next := s.Around(from, now)
		missed := s.Missed(from, now, 101)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%q took %s", text, took)
		}
		if !last.IsZero() && (!last.After(from) || last.After(now)) || last.IsZero() != (missed == 0) {
			t.Errorf("%q from %v to %v: last %v, %d missed", text, from, now, last, missed)
		}
		if from.Before(now) && !next.IsZero() && !next.After(now) {
			t.Errorf("%q: next %v is not after %v", text, next, now)
		}
	})
}
