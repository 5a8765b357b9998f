package config

import (
	"flag"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ledge/node/pressure"
)

// evictionSettings are what a file and flags make together.
func evictionSettings(t *testing.T, file string, args ...string) (Settings, error) {
	t.Helper()
	cfg, err := Load(written(t, file), t.TempDir())
	if err != nil {
		return Settings{}, err
	}
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o := ServeFlags(f)
	if err := f.Parse(args); err != nil {
		return Settings{}, err
	}
	s := Settings{Options: o, File: cfg}
	s.set = map[string]bool{}
	f.Visit(func(f *flag.Flag) { s.set[f.Name] = true })
	return s, s.eviction()
}

// evictionOf is the policy of these.
func evictionOf(t *testing.T, file string, args ...string) (pressure.Policy, error) {
	t.Helper()
	s, err := evictionSettings(t, file, args...)
	if err != nil {
		return pressure.Policy{}, err
	}
	st, err := s.File.status()
	return st.Eviction, err
}

// TestReclaimSetting: the flag beats the file, and the agent is given what takes memory back or not.
func TestReclaimSetting(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
		want string
	}{{"", nil, "unset"}, {"reclaimBeforeEvict: false\n", nil, "false"},
		{"reclaimBeforeEvict: true\n", []string{"--reclaim-before-evict=false"}, "false"},
		{"reclaimBeforeEvict: false\n", []string{"--reclaim-before-evict"}, "true"}} {
		s, err := evictionSettings(t, c.file, c.args...)
		must(t, err)
		got := "unset"
		if r := s.File.ReclaimBeforeEvict; r != nil {
			got = strconv.FormatBool(*r)
		}
		if got != c.want {
			t.Errorf("%q %v: %s, want %s", c.file, c.args, got, c.want)
		}
		if s.File.Reclaims() != (c.want != "false") {
			t.Errorf("%q %v: the agent can take memory back: %v", c.file, c.args, s.File.Reclaims())
		}
	}
}

func TestEvictionSettings(t *testing.T) { // N-6.8 to N-6.14
	file := "evictionHard: {memory.available: 200Mi}\nevictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod: {nodefs.available: 1m}\n" +
		"evictionMinimumReclaim: {nodefs.available: 1Gi}\nevictionMaxPodGracePeriod: 20\nevictionPressureTransitionPeriod: 30s\n"
	p, err := evictionOf(t, file)
	must(t, err)
	if p.Hard(pressure.MemoryAvailable).Amount != 200<<20 || p.Hard(pressure.PIDAvailable) != pressure.Default().Hard(pressure.PIDAvailable) ||
		p.MaxPodGrace != 20*time.Second || p.Transition != 30*time.Second || !slices.ContainsFunc(p.Thresholds, func(t pressure.Threshold) bool {
		return t.Soft && t.Signal == pressure.NodeFSAvailable && t.Grace == time.Minute && t.Reclaim.Amount == 1<<30
	}) {
		t.Errorf("%+v", p)
	}
	p, err = evictionOf(t, file+"mergeDefaultEvictionSettings: false\n", "--eviction-hard", "pid.available<10%", "--eviction-soft=",
		"--eviction-minimum-reclaim", "pid.available=5",
		"--eviction-soft-grace-period", "pid.available=1s", "--eviction-max-pod-grace-period", "7", "--eviction-pressure-transition-period", "1m")
	must(t, err)
	if len(p.Thresholds) != 1 || p.Thresholds[0] != (pressure.Threshold{Signal: pressure.PIDAvailable, Below: pressure.Limit{Percent: 0.1},
		Reclaim: p.Thresholds[0].Reclaim}) || p.Thresholds[0].Reclaim.Amount != 5 || p.MaxPodGrace != 7*time.Second ||
		p.Transition != time.Minute {
		t.Errorf("a flag beats the file: %+v", p)
	}
	for _, c := range []struct { // N-6.14: 0s in a file is what kubeadm writes for the default
		file string
		args []string
		want time.Duration
	}{{"evictionPressureTransitionPeriod: 0s\n", nil, pressure.Transition}, {"evictionPressureTransitionPeriod: 1m\n",
		[]string{"--eviction-pressure-transition-period=0"}, -1}} {
		if p, err := evictionOf(t, c.file, c.args...); err != nil || p.WithDefaults().Transition != c.want {
			t.Errorf("%q %v: %v %v, want %v", c.file, c.args, p.Transition, err, c.want)
		}
	}
	for want, bad := range map[string][]string{
		"neither MemAvailable nor":       {"evictionMemorySignal: x\n"},
		"unknown signal":                 {"evictionHard: {memory: 1Gi}\n"},
		"grace period must be specified": {"evictionSoft: {memory.available: 1Gi}\n"},
		`--eviction-hard: "memory.available>1Gi": write signal<value`: {"", "--eviction-hard", "memory.available>1Gi"},
		"evictionPressureTransitionPeriod: -1s is negative":           {"", "--eviction-pressure-transition-period=-1s"},
		"is not a positive quantity":                                  {"", "--eviction-hard", "memory.available<-1Gi"},
	} {
		if _, err := evictionOf(t, bad[0], bad[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
