package runtime

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
)

// CheckID refuses what cannot name a pod or a container: it becomes the name of a directory and of a cgroup, and must
// not lead out of theirs.
func CheckID(what, id string) error {
	ok := id != "" && len(id) <= 200 && id != "." && id != ".."
	for _, c := range []byte(id) {
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%s %q: only letters, digits, _ . - and at most 200 of them", what, id)
	}
	return nil
}

// Check refuses a place that is not exactly one, and a group that is not one of pods.
func (p Place) Check() error {
	n := 0
	for _, s := range []string{p.Container, p.Pod, p.Group} {
		if s != "" {
			n++
		}
	}
	if n != 1 {
		return errors.New("limit: name a container, a pod or a group, and only one of them")
	}
	if g := p.Group; g != "" && (path.Clean(g) != g || g != "kubepods" && !strings.HasPrefix(g, "kubepods/")) {
		return fmt.Errorf("limit: %q is not a cgroup of pods", g)
	}
	return nil
}

// With is r after a Limit to what c names. What is fixed at the start of a container stays.
func (r Resources) With(c Resources) Resources {
	set(&r.CPUShares, c.CPUShares)
	set(&r.CPUQuotaUS, c.CPUQuotaUS)
	set(&r.CPUPeriodUS, c.CPUPeriodUS)
	set(&r.MemoryBytes, c.MemoryBytes)
	set(&r.PidsLimit, c.PidsLimit)
	set(&r.CPUSet, c.CPUSet)
	set(&r.IOWeight, c.IOWeight)
	set(&r.SwapBytes, c.SwapBytes)
	if c.HugePages != nil {
		r.HugePages = maps.Clone(c.HugePages)
	}
	r.Unified = maps.Clone(r.Unified)
	for file, value := range c.Unified {
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified[file] = value
	}
	return r
}

func set[T comparable](to *T, from T) {
	var none T
	if from != none {
		*to = from
	}
}
