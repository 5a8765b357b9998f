package shutdown

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestTakenUp: a shutdown that ledge was asked for outlives the process that was told, and nothing else does.
func TestTakenUp(t *testing.T) {
	begun := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	whole := Record{Begun: begun, BootID: "this", Source: "power key", After: ThenOff}
	for name, tt := range map[string]struct {
		edit func(*Record)
		off  string // "": nothing happens
	}{
		"power key":           {func(*Record) {}, "off"},
		"reboot":              {func(r *Record) { r.After = ThenReboot }, "reboot"},
		"tried before":        {func(r *Record) { r.Tries = mostTries - 1 }, "off"},
		"given up":            {func(r *Record) { r.Tries = mostTries }, ""},
		"of another boot":     {func(r *Record) { r.BootID = "that" }, ""},
		"of an older ledge":   {func(r *Record) { r.BootID, r.After = "", "" }, ""},
		"somebody else's":     {func(r *Record) { r.After = "" }, ""}, // logind's, a signal: they come again, or do not
		"taken back or ended": {func(r *Record) { r.Ended = begun.Add(time.Second) }, ""},
		"none":                {func(r *Record) { *r = Record{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, last, off := filepath.Join(t.TempDir(), RecordName), whole, ""
			tt.edit(&last)
			if err := last.save(path); err != nil {
				t.Fatal(err)
			}
			managingWith(t, func(c *ManagerConfig) {
				c.Record, c.BootID = path, "this"
				c.Off = func(reboot bool) {
					off = "off"
					if reboot {
						off = "reboot"
					}
				}
			}, func() *board { b := newBoard(pod("a", 0, 30)); b.takes["a"] = 5 * sec; return b }, func(m *Manager, b *board, _ script, _ *news) {
				time.Sleep(2 * sec)
				if tt.off != "" {
					if r, err := LoadRecord(path); err != nil || !r.Unfinished() || r.Tries != last.Tries+1 || r.After != last.After ||
						r.Source != last.Source {
						t.Errorf("meanwhile %+v %v", r, err)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if m.Status().Stopped != (tt.off != "") || off != tt.off || len(b.lines()) == 0 != (tt.off == "") {
					t.Errorf("%+v, %q, %q", m.Status(), off, b.lines())
				}
			})
		})
	}
}

// TestWordIsKept: what is to become of the machine is on disk before the first pod is told, also when it comes second.
func TestWordIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), RecordName)
	after := func() After {
		r, err := LoadRecord(path)
		if err != nil {
			t.Error(err)
		}
		return r.After
	}
	managingWith(t, func(c *ManagerConfig) { c.Record, c.BootID = path, "this" }, func() *board {
		b := newBoard(pod("a", 0, 30))
		b.takes["a"] = 20 * sec
		return b
	}, func(_ *Manager, _ *board, tell script, _ *news) {
		tell <- Event{Kind: Down, Source: "battery"}
		synctest.Wait()
		if got := after(); got != "" {
			t.Errorf("%q", got)
		}
		tell <- Event{Kind: Down, Source: "power key", After: ThenOff}
		synctest.Wait()
		if got := after(); got != ThenOff {
			t.Errorf("%q", got)
		}
		tell <- Event{Kind: Cancelled, Source: "power key"}
		synctest.Wait()
		if got := after(); got != "" {
			t.Errorf("after it was taken back: %q", got)
		}
	})
}
