package host

import (
	"slices"
	"testing"
)

func TestHeat(t *testing.T) {
	h := machine(t, map[string]string{
		"sys/class/thermal/thermal_zone0/type": "acpitz\n", "sys/class/thermal/thermal_zone0/temp": "90000\n",
		"sys/class/thermal/thermal_zone1/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone1/temp": "48312\n",
		"sys/class/thermal/thermal_zone2/type": "soc_thermal\n", "sys/class/thermal/thermal_zone2/temp": "50001\n",
		"sys/class/thermal/thermal_zone3/type": "cpu1\n", "sys/class/thermal/thermal_zone3/temp": "-274000\n",
		"sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
	})
	if c, ok := Celsius(h); !ok || c != 50.001 {
		t.Errorf("%v °C, %v", c, ok)
	}
	want := []string{"the voltage is too low: the power supply or its cable is weak", "throttled", "the voltage was too low since the start",
		"throttled since the start"}
	if got := Throttled(h); !slices.Equal(got, want) {
		t.Errorf("throttled: %q", got)
	}
	bare := machine(t, nil)
	if c, ok := Celsius(bare); ok || Throttled(bare) != nil {
		t.Errorf("a board that tells nothing says %v, %v", c, Throttled(bare))
	}
	only := machine(t, map[string]string{"sys/class/thermal/thermal_zone0/type": "acpitz\n", "sys/class/thermal/thermal_zone0/temp": "31000\n"})
	if c, ok := Celsius(only); !ok || c != 31 {
		t.Errorf("%v, %v", c, ok)
	}
}
