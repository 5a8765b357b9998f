package libct

import (
	"fmt"
	"slices"
	"sync"

	"github.com/opencontainers/runc/libcontainer/capabilities"
	"github.com/opencontainers/runc/libcontainer/configs"

	"ledge/runtime"
)

// capNumbers gives the number of each capability by name. The library lists them in the kernel's order.
var capNumbers = sync.OnceValue(func() map[string]int {
	m := map[string]int{}
	for n, name := range capabilities.KnownCapabilities() {
		m[name] = n
	}
	return m
})

// capSets gives a container exactly the capabilities it lists. Inheritable and ambient stay empty: a non-empty
// inheritable set lets any program with file capabilities gain them (CVE-2022-29162). The result is never nil,
// which to libcontainer would mean "leave all of the keeper's".
func capSets(c runtime.Container, host hostFacts) (*configs.Capabilities, error) {
	var list []string
	if c.Privileged {
		list = allCaps(host)
	} else {
		for _, name := range c.Capabilities {
			if name == "ALL" {
				list = append(list, allCaps(host)...)
				continue
			}
			n, ok := capNumbers()[name]
			if !ok {
				return nil, fmt.Errorf("capability %q is not known", name)
			}
			if !host.hasCap(n) {
				return nil, fmt.Errorf("capability %s cannot be given: the keeper does not have it", name)
			}
			list = append(list, name)
		}
	}
	if !c.Privileged {
		list = slices.DeleteFunc(list, func(name string) bool { return slices.Contains(c.DropCaps, name) })
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return &configs.Capabilities{Bounding: list, Effective: list, Permitted: list}, nil
}

// allCaps are those that the kernel knows and this process has.
func allCaps(host hostFacts) []string {
	var list []string
	for name, n := range capNumbers() {
		if host.hasCap(n) {
			list = append(list, name)
		}
	}
	return list
}
