package shutdown

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestVoltage: a board without a sensor says nothing; a dip is told once, is remembered for a while, and then over.
func TestVoltage(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []bool
		v := &Voltage{Root: root, Changed: func(low bool) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, low)
		}}
		go func() { _ = v.Run(t.Context(), nil) }()
		pass := func(d time.Duration, want Sag, all ...bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if v.Now() != want || !slices.Equal(told, all) {
				t.Errorf("%v, told %v; want %v, %v", v.Now(), told, want, all)
			}
		}
		pass(time.Second, NoSensor)
		write("hwmon0/name", "coretemp")
		write("hwmon0/in0_min_alarm", "1") // a limit that nobody set
		write("hwmon1/in0_lcrit_alarm", "0")
		pass(voltageRescan, Steady)
		write("hwmon1/in0_lcrit_alarm", "1")
		pass(voltageLook, Low, true)
		write("hwmon1/in0_lcrit_alarm", "0")
		pass(voltageHold-2*voltageLook, Low, true)
		write("hwmon1/in0_lcrit_alarm", "1") // again: the time begins anew
		pass(voltageLook, Low, true)
		write("hwmon1/in0_lcrit_alarm", "0")
		pass(voltageHold-2*voltageLook, Low, true)
		pass(3*voltageLook, Steady, true, false)
		if err := os.RemoveAll(filepath.Join(root, "hwmon1")); err != nil {
			t.Fatal(err)
		}
		pass(2*voltageRescan, NoSensor, true, false)
	})
}
