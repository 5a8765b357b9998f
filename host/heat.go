package host

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Celsius is the temperature of the processor, where the board tells one: the hottest of its zones that are about a processor, or of
// all. ok: some zone could be read.
func Celsius(h *Host) (hottest float64, ok bool) {
	zones, _ := filepath.Glob(filepath.Join(h.cfg.Sys, "class/thermal/thermal_zone*")) // the pattern is right
	ofCPU := func(kind string) bool {
		return slices.ContainsFunc([]string{"cpu", "soc", "x86_pkg"}, func(s string) bool { return strings.Contains(kind, s) })
	}
	best := false // that the hottest is about a processor
	for _, z := range zones {
		n, err := strconv.ParseInt(h.line(z, "temp"), 10, 64)
		if err != nil || n < -100_000 || n > 250_000 { // zones that nothing is connected to say such things
			continue
		}
		c, cpu := float64(n)/1000, ofCPU(strings.ToLower(h.line(z, "type")))
		if !ok || cpu && !best || cpu == best && c > hottest {
			hottest, best, ok = c, cpu, true
		}
	}
	return hottest, ok
}

// throttles are the bits by which a Raspberry Pi says what holds it back now, and what has since it was started.
var throttles = []struct {
	bit  uint
	says string
}{
	{0, "the voltage is too low: the power supply or its cable is weak"}, {1, "the clock is capped"}, {2, "throttled"},
	{3, "the soft limit of temperature is reached"},
	{16, "the voltage was too low since the start"}, {17, "the clock was capped since the start"}, {18, "throttled since the start"},
	{19, "the soft limit of temperature was reached since the start"},
}

// Throttled is what makes the board slower than it could be, in words; nothing where it does not tell.
func Throttled(h *Host) (out []string) {
	text := h.line(h.cfg.Sys, "devices/platform/soc/soc:firmware/get_throttled")
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return nil
	}
	for _, t := range throttles {
		if n&(1<<t.bit) != 0 {
			out = append(out, t.says)
		}
	}
	return out
}
