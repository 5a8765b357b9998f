package shutdown

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestJudge: when a board on battery goes down, and with how much time.
func TestJudge(t *testing.T) {
	const total = 30 * sec
	for name, c := range map[string]struct {
		s      Supply
		limits Limits
		down   bool
		budget time.Duration
	}{
		"on mains":              {s: Supply{Charge: 3}},
		"on mains, forced":      {s: Supply{Charge: -1, Forced: true}, down: true, budget: 30 * sec},
		"forced with a runtime": {s: Supply{Charge: -1, Forced: true, Runtime: 50 * sec}, down: true, budget: 20 * sec},
		"nothing known":         {s: Supply{OnBattery: true, Charge: -1}},
		"low":                   {s: Supply{OnBattery: true, Charge: -1, Low: true}, down: true, budget: 30 * sec},
		"low, a reserve of its own": {s: Supply{OnBattery: true, Charge: -1, Low: true}, limits: Limits{Reserve: 8 * sec}, down: true,
			budget: 8 * sec},
		"at the limit":             {s: Supply{OnBattery: true, Charge: 10}, down: true},
		"above the limit":          {s: Supply{OnBattery: true, Charge: 11}},
		"above its own limit":      {s: Supply{OnBattery: true, Charge: 11}, limits: Limits{Charge: 20}, down: true},
		"time enough":              {s: Supply{OnBattery: true, Charge: 50, Runtime: 61 * sec}},
		"just enough":              {s: Supply{OnBattery: true, Charge: 50, Runtime: 60 * sec}, down: true, budget: 30 * sec},
		"too little":               {s: Supply{OnBattery: true, Charge: 50, Runtime: 10 * sec}, down: true, budget: leastBudget},
		"a reserve of its own":     {s: Supply{OnBattery: true, Charge: 50, Runtime: 60 * sec}, limits: Limits{Reserve: 5 * sec}},
		"low, but it lasts longer": {s: Supply{OnBattery: true, Low: true, Runtime: 10 * time.Minute}, down: true, budget: 570 * sec},
	} {
		why, budget := c.limits.Judge(c.s, total)
		if (why != "") != c.down || budget != c.budget {
			t.Errorf("%s: %q, %s", name, why, budget)
		}
	}
}

// readings is a supply that says what it is told to.
type readings struct {
	mu  sync.Mutex
	now Supply
	err error
}

func (r *readings) Read(context.Context) (Supply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.err
}

func (r *readings) says(s Supply, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.err = s, err
}

func TestWatch(t *testing.T) {
	onBattery := Supply{OnBattery: true, Charge: 60, Runtime: 20 * time.Minute}
	lasting := func(d time.Duration) Supply { s := onBattery; s.Runtime = d; return s }
	t.Run("down once, then faster, then mains", func(t *testing.T) {
		watch(t, func(r *readings, heard func() []Event) {
			r.says(onBattery, nil)
			if e := heard(); len(e) != 0 {
				t.Fatalf("%+v", e)
			}
			r.says(lasting(55*sec), nil)
			if e := heard(); len(e) != 1 || e[0].Kind != Down || e[0].Budget != 25*sec || e[0].Done == nil || e[0].Source != "ups" {
				t.Fatalf("%+v", e)
			}
			r.says(lasting(34*sec), nil)
			e := heard()
			if len(e) < 2 || e[1].Budget != 4*sec || e[1].Done != nil {
				t.Fatalf("%+v", e)
			}
			r.says(Supply{Charge: 50}, nil)
			if e := heard(); e[len(e)-1].Kind != Cancelled {
				t.Errorf("%+v", e)
			}
		})
	})
	t.Run("low at last, and nobody knows how long", func(t *testing.T) {
		watch(t, func(r *readings, heard func() []Event) {
			r.says(Supply{OnBattery: true, Charge: 9}, nil)
			if e := heard(); len(e) != 1 || e[0].Budget != 0 {
				t.Fatalf("%+v", e)
			}
			r.says(Supply{OnBattery: true, Charge: 5, Low: true}, nil)
			if e := heard(); len(e) != 2 || e[1].Budget != 30*sec || e[1].Done != nil {
				t.Fatalf("%+v", e)
			}
		})
	})
	t.Run("runtime that falls with the clock is no news", func(t *testing.T) {
		watch(t, func(r *readings, heard func() []Event) {
			r.says(lasting(60*sec), nil)
			heard()
			r.says(lasting(60*sec-askOnBattery), nil) // so says the next look, and the four after it say more
			if e := heard(); len(e) != 1 {
				t.Errorf("%+v", e)
			}
		})
	})
	gone := errors.New("gone")
	t.Run("silence on battery is the end", func(t *testing.T) {
		watch(t, func(r *readings, heard func() []Event) {
			r.says(onBattery, nil)
			heard()
			r.says(Supply{}, gone)
			if e := heard(); len(e) != 0 {
				t.Fatalf("at once: %+v", e)
			}
			if e := heard(); len(e) != 1 || e[0].Kind != Down || e[0].Budget != 30*sec {
				t.Errorf("%+v", e)
			}
		})
	})
	t.Run("silence on mains is not", func(t *testing.T) {
		watch(t, func(r *readings, heard func() []Event) {
			heard()
			r.says(Supply{}, gone)
			for range 10 {
				if e := heard(); len(e) != 0 {
					t.Fatalf("%+v", e)
				}
			}
		})
	})
}

// watch runs a Watch; heard waits for a look and returns all that was told.
func watch(t *testing.T, fn func(r *readings, heard func() []Event)) {
	synctest.Test(t, func(t *testing.T) {
		r := &readings{now: Supply{Charge: 100, Runtime: time.Hour}}
		w := &Watch{Name: "ups", Supply: r, Total: 30 * sec, Off: func() {}}
		var mu sync.Mutex
		var events []Event
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- w.Run(ctx, func(e Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) })
		}()
		synctest.Wait() // the first look is on mains: from then on all looks fall on known seconds
		fn(r, func() []Event {
			time.Sleep(askOnMains)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(events)
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestBatteries reads trees such as the kernel shows.
func TestBatteries(t *testing.T) {
	type tree map[string]map[string]string
	battery := func(more ...string) map[string]string {
		m := map[string]string{"type": "Battery", "present": "1", "status": "Discharging", "capacity": "40"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	off, on := map[string]string{"type": "Mains", "online": "0"}, map[string]string{"type": "USB", "online": "1"}
	for name, c := range map[string]struct {
		tree tree
		want Supply
	}{
		"none":                      {tree{}, Supply{Absent: true, Charge: -1}},
		"mains only":                {tree{"AC": on}, Supply{Absent: true, Charge: -1}},
		"discharging":               {tree{"BAT": battery()}, Supply{OnBattery: true, Charge: 40}},
		"charger unplugged":         {tree{"BAT": battery(), "AC": off}, Supply{OnBattery: true, Charge: 40}},
		"a load beyond the charger": {tree{"BAT": battery(), "AC": off, "USB": on}, Supply{Charge: 40}},
		"full":                      {tree{"BAT": battery("status", "Full", "capacity", "100"), "AC": on}, Supply{Charge: 100}},
		"critical":                  {tree{"BAT": battery("capacity_level", "Critical")}, Supply{OnBattery: true, Low: true, Charge: 40}},
		"critical but on mains":     {tree{"BAT": battery("capacity_level", "Critical", "status", "Charging")}, Supply{Charge: 40}},
		"one of two is empty": {tree{"BAT0": battery("capacity_level", "Critical", "capacity", "1", "time_to_empty_now", "30"),
			"BAT1": battery("time_to_empty_avg", "600")}, Supply{OnBattery: true, Charge: 40, Runtime: 630 * sec}},
		"taken out":         {tree{"BAT": battery("present", "0")}, Supply{Absent: true, Charge: -1}},
		"of a mouse":        {tree{"hid": battery("scope", "Device", "capacity", "2")}, Supply{Absent: true, Charge: -1}},
		"a UPS by USB":      {tree{"ups": battery("type", "UPS")}, Supply{OnBattery: true, Charge: 40}},
		"says little":       {tree{"BAT": {"type": "Battery", "status": "Discharging"}}, Supply{OnBattery: true, Charge: -1}},
		"nonsense in files": {tree{"BAT": battery("capacity", "?", "time_to_empty_now", "-1")}, Supply{OnBattery: true, Charge: -1}},
	} {
		root := t.TempDir()
		for dir, files := range c.tree {
			if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(root, dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, err := (&Batteries{Root: root}).Read(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
	}
	if got, err := (&Batteries{Root: "/nonexistent"}).Read(t.Context()); err != nil || got.OnBattery {
		t.Errorf("a kernel without batteries: %+v %v", got, err)
	}
}

// TestReadPresses: presses count, not releases, repeats or other keys.
func TestReadPresses(t *testing.T) {
	var in bytes.Buffer
	put := func(kind, code uint16, value uint32) {
		in.Write(make([]byte, 2*strconv.IntSize/8))
		in.Write(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, kind), code), value))
	}
	put(evKey, keyPower, 1)
	put(0, 0, 0)
	put(evKey, keyPower, 2)
	put(evKey, keyPower, 0)
	put(evKey, 30, 1)
	put(4, keyPower, 1)
	put(evKey, keyPower, 1)
	n := 0
	if err := readPresses(&in, func() { n++ }); err == nil || n != 2 {
		t.Errorf("%d presses, %v", n, err)
	}
	null, err := openPowerKey("/dev/null")
	if err == nil {
		null.Close()
		t.Error("/dev/null has a power key")
	}
}

// TestRelayedPresses: what was pressed before anybody listened counts, and a second press in haste asks for speed.
func TestRelayedPresses(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	if _, err := in.Write([]byte("p")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, ended := make(chan Event), make(chan error, 1)
	var elsewhere atomic.Bool
	k := &PowerKey{From: out, Off: func() {}, Dir: t.TempDir(), Elsewhere: elsewhere.Load}
	go func() { ended <- k.Run(ctx, func(e Event) { heard <- e }) }()
	if e := <-heard; e.Kind != Down || e.Budget != 0 || e.Done == nil {
		t.Errorf("%+v", e)
	}
	if _, err := in.Write([]byte("p")); err != nil {
		t.Fatal(err)
	}
	if e := <-heard; e.Kind != Down || e.Budget != hurry || e.Done != nil {
		t.Errorf("again: %+v", e)
	}
	if live := k.Live(); live != "" {
		t.Errorf("%q is there, without a device", live)
	}
	elsewhere.Store(true) // logind hears the key: nothing is told
	if _, err := in.Write([]byte("p")); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-heard:
		t.Errorf("while logind hears it: %+v", e)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
