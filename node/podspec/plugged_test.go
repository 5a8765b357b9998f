package podspec

import (
	"slices"
	"testing"

	"ledge/runtime"
)

// TestPlugged: the pod's own mounts stand above a plugin's, and no node is made where something else is.
func TestPlugged(t *testing.T) {
	own := runtime.Mount{Source: "/mine", Target: "/a/"}
	out := runtime.Container{Mounts: []runtime.Mount{own, {Source: "/x", Target: "/dev/dir"}},
		Devices: []runtime.Device{{Path: "/dev/taken", Major: 1, Minor: 1}}}
	Plugged{Mounts: []runtime.Mount{{Source: "/p", Target: "/a"}, {Source: "/p", Target: "/b"}},
		Devices: []runtime.Device{{Path: "/dev/x", Major: 5, Minor: 6}, {Path: "/dev/null", Major: 1, Minor: 3},
			{Path: "/dev/dir/y", Major: 5, Minor: 7}, {Path: "/dev/taken", Major: 5, Minor: 8}}}.add(&out)
	if len(out.Mounts) != 3 || out.Mounts[0].Target != "/b" || out.Mounts[1].Source != own.Source {
		t.Errorf("%+v", out.Mounts)
	}
	if want := []runtime.Device{{Path: "/dev/taken", Major: 1, Minor: 1}, {Path: "/dev/x", Major: 5, Minor: 6}, {Major: 1, Minor: 3},
		{Major: 5, Minor: 7}, {Major: 5, Minor: 8}}; !slices.Equal(out.Devices, want) {
		t.Errorf("%+v", out.Devices)
	}
	if vars := (Plugged{Env: map[string]string{"B": "2", "A": "1"}}).vars(); !slices.Equal(vars, []envVar{{"A", "1"}, {"B", "2"}}) {
		t.Error(vars)
	}
}
