package config

import (
	"flag"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/node/pressure"
)

// evictionKeys are the keys of the configuration file that say when the board is short of something. They are a
// kubelet's, but for the default of mergeDefaultEvictionSettings, which is true: who names one signal means that one.
type evictionKeys struct {
	EvictionHard                     map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft                     map[string]string `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim,omitempty"`
	EvictionMaxPodGracePeriod        int32             `json:"evictionMaxPodGracePeriod,omitempty"`
	EvictionPressureTransitionPeriod metav1.Duration   `json:"evictionPressureTransitionPeriod,omitempty"`
	MergeDefaultEvictionSettings     *bool             `json:"mergeDefaultEvictionSettings,omitempty"`
	// EvictionMemorySignal says what memory.available is: MemAvailable (default) is the kernel's word, less
	// programs at work (docs/decisions/0066), WorkingSet what a kubelet reckons. Ledge's own key.
	EvictionMemorySignal string `json:"evictionMemorySignal,omitempty"`
	// ReclaimBeforeEvict has the kernel take memory back from the pod that is furthest above its request before one is
	// evicted (default true). Ledge's own key.
	ReclaimBeforeEvict *bool `json:"reclaimBeforeEvict,omitempty"`

	// atOnce is --eviction-pressure-transition-period=0. In a file 0s is the default, as a kubelet has it: kubeadm writes it so.
	atOnce bool
}

func (k evictionKeys) policy() (pressure.Policy, []string, error) {
	if !slices.Contains([]string{"", "MemAvailable", workingSet}, k.EvictionMemorySignal) {
		return pressure.Policy{}, nil, fmt.Errorf("evictionMemorySignal: %q is neither MemAvailable nor WorkingSet", k.EvictionMemorySignal)
	}
	return pressure.Parse(pressure.Settings{Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod,
		MinReclaim: k.EvictionMinimumReclaim, Bare: k.MergeDefaultEvictionSettings != nil && !*k.MergeDefaultEvictionSettings,
		Transition: k.EvictionPressureTransitionPeriod.Duration, AtOnce: k.atOnce, MaxPodGrace: int64(k.EvictionMaxPodGracePeriod)})
}

const workingSet = "WorkingSet"

// evictionOpts are the same as flags.
type evictionOpts struct {
	hard, soft, softGrace, minReclaim string
	maxPodGrace                       int
	transition                        time.Duration
	reclaim                           bool
}

func evictionFlags(f *flag.FlagSet, o *evictionOpts) {
	f.StringVar(&o.hard, "eviction-hard", "",
		"thresholds below which pods are evicted, such as memory.available<100Mi,nodefs.available<10%; signals that are left out keep their defaults")
	f.StringVar(&o.soft, "eviction-soft", "", "thresholds that have to be met for a while, as in --eviction-soft-grace-period")
	f.StringVar(&o.softGrace, "eviction-soft-grace-period", "", "how long, such as memory.available=1m30s")
	f.StringVar(&o.minReclaim, "eviction-minimum-reclaim", "",
		"how much more than the threshold is to be freed, such as nodefs.available=500Mi")
	f.IntVar(&o.maxPodGrace, "eviction-max-pod-grace-period", 0, "seconds that a pod gets at most which goes for a soft threshold")
	f.BoolVar(&o.reclaim, "reclaim-before-evict", true,
		"take memory back from the pod that is furthest above its request, for a second at most, before one is evicted; cgroup v2")
	f.DurationVar(&o.transition, "eviction-pressure-transition-period", pressure.Transition,
		"how long a pressure condition of the Node outlasts its cause; 0: not at all")
}

// eviction puts the flags over the file and tells what cannot be set.
func (s *Settings) eviction() (err error) {
	keys := &s.File.evictionKeys
	for _, f := range []struct {
		name, text, operator string
		to                   *map[string]string
	}{
		{"eviction-hard", s.evict.hard, "<", &keys.EvictionHard}, {"eviction-soft", s.evict.soft, "<", &keys.EvictionSoft},
		{"eviction-soft-grace-period", s.evict.softGrace, "=", &keys.EvictionSoftGracePeriod},
		{"eviction-minimum-reclaim", s.evict.minReclaim, "=", &keys.EvictionMinimumReclaim},
	} {
		if !s.set[f.name] {
			continue
		}
		if *f.to, err = pressure.Statements(f.text, f.operator); err != nil {
			return Usagef("--%s: %v", f.name, err)
		}
	}
	if s.set["eviction-max-pod-grace-period"] {
		keys.EvictionMaxPodGracePeriod = int32(min(max(s.evict.maxPodGrace, -1), 1<<30))
	}
	if s.set["eviction-pressure-transition-period"] {
		keys.EvictionPressureTransitionPeriod.Duration, keys.atOnce = s.evict.transition, s.evict.transition == 0
	}
	if s.set["reclaim-before-evict"] {
		keys.ReclaimBeforeEvict = &s.evict.reclaim
	}
	_, ignored, err := keys.policy()
	for _, what := range ignored { // N-6.16
		s.note("this threshold follows from others and cannot be set; it is left out", "threshold", what)
	}
	return err
}

// Reclaims says whether memory is taken back from pods before one is evicted.
func (k evictionKeys) Reclaims() bool { return k.ReclaimBeforeEvict == nil || *k.ReclaimBeforeEvict }
