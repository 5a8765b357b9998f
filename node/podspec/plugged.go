package podspec

import (
	"maps"
	"path"
	"slices"
	"strings"

	"ledge/runtime"
)

// Plugged is what device plugins give to a container.
type Plugged struct {
	Env     map[string]string
	Mounts  []runtime.Mount
	Devices []runtime.Device
}

// vars stand behind the container's own, as on Kubernetes.
func (p Plugged) vars() (vars []envVar) {
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		vars = append(vars, envVar{name, p.Env[name]})
	}
	return vars
}

// add puts mounts and devices into what the engine runs. The pod's own mounts stand above them, and a node is not made in what is mounted.
func (p Plugged) add(out *runtime.Container) {
	at := func(target string) func(runtime.Mount) bool {
		return func(m runtime.Mount) bool { return path.Clean(m.Target) == target }
	}
	var below []runtime.Mount
	for _, m := range p.Mounts {
		if !slices.ContainsFunc(out.Mounts, at(m.Target)) {
			below = append(below, m)
		}
	}
	out.Mounts = slices.Concat(below, out.Mounts)
	for _, d := range p.Devices {
		covered := func(m runtime.Mount) bool {
			return path.Clean(m.Target) == d.Path || path.Clean(m.Target) == "/dev" || strings.HasPrefix(d.Path, path.Clean(m.Target)+"/")
		}
		taken := func(o runtime.Device) bool { return o.Path == d.Path }
		switch {
		case ownNode(d.Path), slices.ContainsFunc(out.Mounts, covered):
			d.Path = ""
		case slices.ContainsFunc(out.Devices, taken): // the same device, or what the pod asked for itself
			d.Path = ""
		}
		if !slices.Contains(out.Devices, d) {
			out.Devices = append(out.Devices, d)
		}
	}
}
