package brain

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ledge/host"
)

func TestBookOfWrites(t *testing.T) {
	monday := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	night, tuesday := monday.Add(11*time.Hour), monday.Add(24*time.Hour)
	counter := func(of string, since time.Time, n int64) map[string]host.Counter {
		return map[string]host.Counter{"brain": {Of: of, Since: since, Bytes: n}}
	}
	var k book
	for i, step := range []struct {
		now                    time.Time
		boot                   string
		counters               map[string]host.Counter
		wantToday, wantAllTold int64
	}{
		{monday, "1", counter("a", monday, 100), 100, 100},
		{monday, "1", counter("a", monday, 150), 150, 150},
		{monday, "1", nil, 150, 150},                        // it cannot be read for a moment
		{monday, "1", counter("b", monday, 30), 180, 180},   // restarted
		{night, "1", counter("b", monday, 20), 170, 170},    // it removed what had not come to the disk
		{tuesday, "1", counter("b", monday, 25), 5, 175},    // the day begins with what is new
		{tuesday, "1", counter("c", monday, 7), 5, 182},     // begun before midnight, seen after it
		{tuesday, "1", counter("c", monday, 9), 7, 184},     //
		{tuesday, "2", counter("d", tuesday, 4), 4, 4},      // another boot
		{tuesday, "3", counter("e", monday, 1000), 0, 1000}, // first seen the day after
		{monday, "3", counter("e", monday, 1001), 1, 1001},  // a clock that is put back
		{tuesday, "4", counter("f", tuesday, 50), 50, 50},   //
		{tuesday, "4", counter("f", tuesday, 0), 0, 0},      // never below nothing
		{tuesday, "4", counter("g", tuesday, 1<<40), 1 << 40, 1 << 40},
	} {
		k.note(step.now, step.boot, step.counters)
		if a := k.Accounts["brain"]; a.Today != step.wantToday || a.SinceBoot != step.wantAllTold {
			t.Errorf("step %d: %+v, want %d and %d", i, a, step.wantToday, step.wantAllTold)
		}
	}
}

// However a writer is restarted and looked at, within a day all is counted once.
func TestBookCountsOnce(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 1, 0, time.Local)
	var k book
	sum, counters := int64(0), map[string]host.Counter{"x": {Of: "0", Since: now}}
	for i := range 1000 {
		if rand.IntN(20) == 0 {
			counters["x"] = host.Counter{Of: time.Duration(i).String(), Since: now}
		}
		n := rand.Int64N(1 << 30)
		c := counters["x"]
		c.Bytes += n
		counters["x"], sum = c, sum+n
		for range 1 + rand.IntN(2) {
			k.note(now.Add(time.Duration(i)*time.Minute), "b", maps.Clone(counters))
		}
		if a := k.Accounts["x"]; a.Today != sum || a.SinceBoot != sum {
			t.Fatalf("after %d: %+v, want %d", i, a, sum)
		}
	}
}

// A book in which nothing is new is not written again.
func TestBookIsKeptOnce(t *testing.T) {
	m := &writesMeter{runDir: t.TempDir(), book: book{BootID: "1"}}
	file := filepath.Join(m.runDir, writesFile)
	must(t, m.save())
	must(t, os.Remove(file))
	must(t, m.save())
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the same book is written again: %v", err)
	}
	m.book.BootID = "2"
	must(t, m.save())
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
