package pressure

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

type values = map[string]string

func lines(p Policy) []string {
	var out []string
	for _, t := range p.Thresholds {
		kind := "hard"
		if t.Soft {
			kind = "soft " + t.Grace.String()
		}
		out = append(out, fmt.Sprintf("%s %s<%s +%s", kind, t.Signal, t.Below.quantity(1000), t.Reclaim.quantity(1000)))
	}
	return out
}

func TestParse(t *testing.T) {
	defaults := []string{"hard memory.available<100 +0", "hard nodefs.available<100 +0", "hard nodefs.inodesFree<50 +0",
		"hard imagefs.available<150 +0", "hard imagefs.inodesFree<50 +0", "hard pid.available<50 +0"}
	for name, c := range map[string]struct {
		in   Settings
		want []string
	}{
		"nothing": {Settings{}, defaults}, // N-6.8, N-6.10
		// N-6.9: there is nothing that replaces them
		"bare nothing": {Settings{Bare: true}, defaults},
		"bare":         {Settings{Bare: true, Hard: values{"pid.available": "7"}}, []string{"hard pid.available<7 +0"}}, // N-6.9
		"one named": {Settings{Hard: values{"memory.available": "200Mi"}},
			append([]string{"hard memory.available<200Mi +0"}, defaults[1:]...)},
		"one off":     {Settings{Hard: values{"pid.available": "0%", "memory.available": "100%"}}, defaults[1:5]}, // N-6.11
		"none at all": {Settings{Bare: true, Hard: values{}}, nil},
		"soft": {Settings{Bare: true, Hard: values{}, Soft: values{"nodefs.available": "2G", "memory.available": "50%"}, // N-6.12, N-6.13
			SoftGrace:  values{"nodefs.available": "1m30s", "memory.available": "0s", "pid.available": "1s"},
			MinReclaim: values{"nodefs.available": "500Mi", "memory.available": "10%"}},
			[]string{"soft 0s memory.available<500 +100", "soft 1m30s nodefs.available<2G +500Mi"}},
	} {
		p, ignored, err := Parse(c.in)
		if err != nil || len(ignored) > 0 || !slices.Equal(lines(p), c.want) {
			t.Errorf("%s: %v %v\ngot  %q\nwant %q", name, err, ignored, lines(p), c.want)
		}
		if p.Transition != Transition || p.Thresholds == nil {
			t.Errorf("%s: transition %v, thresholds %v", name, p.Transition, p.Thresholds)
		}
	}
	p, ignored, err := Parse(Settings{Hard: values{"containerfs.available": "5%"}, Soft: values{"containerfs.inodesFree": "5%"},
		MaxPodGrace: 30, Transition: time.Second})
	// N-6.16
	if err != nil || !slices.Equal(lines(p), defaults) || p.MaxPodGrace != 30*time.Second || p.Transition != time.Second || len(ignored) != 2 {
		t.Errorf("%v %v %+v", err, ignored, p)
	}
}

func TestParseRefuses(t *testing.T) { // N-6.11 to N-6.13
	hard := func(s, v string) Settings { return Settings{Hard: values{s: v}} }
	for want, in := range map[string]Settings{
		`evictionHard: unknown signal "memory"`:                          hard("memory", "1"),
		`unknown signal "allocatableMemory.available"`:                   hard("allocatableMemory.available", "1Gi"),
		`"0" is not a positive quantity`:                                 hard("memory.available", "0"),
		`"-1Mi" is not a positive quantity`:                              hard("memory.available", "-1Mi"),
		`"x" is not a positive quantity`:                                 hard("memory.available", "x"),
		`"101%" is not a percentage`:                                     hard("memory.available", "101%"),
		`"-1%" is not a percentage`:                                      hard("memory.available", "-1%"),
		`"NaN%" is not a percentage`:                                     hard("memory.available", "NaN%"),
		`"%" is not a percentage`:                                        hard("memory.available", "%"),
		"grace period must be specified for the soft eviction threshold": {Soft: values{"pid.available": "5%"}},
		`evictionSoftGracePeriod: pid.available: "-1s"`:                  {SoftGrace: values{"pid.available": "-1s"}},
		`evictionSoftGracePeriod: unknown signal "x"`:                    {SoftGrace: values{"x": "1s"}},
		`"0%" is not a percentage above 0%`:                              {MinReclaim: values{"memory.available": "0%"}},
		`"-1" is not a quantity of 0 or more`:                            {MinReclaim: values{"memory.available": "-1"}},
		`evictionMinimumReclaim: unknown signal "x"`:                     {MinReclaim: values{"x": "1"}},
		"evictionPressureTransitionPeriod: -1s is negative":              {Transition: -time.Second},
	} {
		if _, _, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestStatements(t *testing.T) {
	got, err := Statements(" memory.available<100Mi, nodefs.available<10% ,", "<")
	if err != nil || !maps.Equal(got, values{"memory.available": "100Mi", "nodefs.available": "10%"}) {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"memory.available", "memory.available>100Mi", "a<1,a<2"} {
		if _, err := Statements(bad, "<"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzParse: whatever stands in the configuration, what comes of it can be used: no threshold without a line, and none
// that is met when all of a capacity is free.
func FuzzParse(f *testing.F) {
	for _, s := range [][3]string{{"memory.available", "100Mi", "1m"}, {"nodefs.inodesFree", "5%", "0s"}, {"pid.available", "1e3", "-1s"},
		{"imagefs.available", "1e-50%", "1h"}, {"containerfs.available", "0x1p-2%", "x"}, {"", "9E", ""}} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, name, value, grace string) {
		p, _, err := Parse(Settings{Hard: values{name: value}, Soft: values{name: value}, SoftGrace: values{name: grace},
			MinReclaim: values{name: value}})
		if err != nil {
			return
		}
		for _, x := range p.Thresholds {
			if x.Below == (Limit{}) || x.Below.Amount < 0 || x.Below.Percent < 0 || x.Below.Percent >= 1 || x.Reclaim.Of(1<<40) < 0 || x.Grace < 0 {
				t.Errorf("%+v", x)
			}
			if x.Below.Percent > 0 && x.Met(Reading{Available: 1 << 40, Capacity: 1 << 40}) {
				t.Errorf("%+v is met by a board that is all free", x)
			}
		}
	})
}
