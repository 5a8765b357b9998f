package podspec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"ledge/node/devices"
	"ledge/node/podstate"
	"ledge/node/volume"
	"ledge/runtime"
)

// A container finds its devices where the board has them, and those of one node also at a path that never changes: /dev/ledge/CLASS, the
// second of a class at /dev/ledge/CLASS-2. Variables tell which they are: LEDGE_DEVICE_SERIAL=/dev/ttyUSB0, of several with commas.

// stable is where the n-th device of a class is for its container, whatever the board calls it.
func stable(class string, n int) string {
	if n > 1 {
		class += "-" + strconv.Itoa(n)
	}
	return "/dev/ledge/" + class
}

// deviceVars tell a container what it has been given.
func deviceVars(given []devices.Given) (vars []envVar) {
	var classes []string
	paths := map[string][]string{}
	for _, g := range given {
		if len(g.Nodes) == 0 {
			continue
		}
		at := g.Nodes[0].Path
		if g.At != "" {
			at = g.At
		}
		if !slices.Contains(classes, g.Class) {
			classes = append(classes, g.Class)
		}
		if !slices.Contains(paths[g.Class], at) {
			paths[g.Class] = append(paths[g.Class], at)
		}
	}
	for _, c := range classes {
		name := "LEDGE_DEVICE_" + strings.ToUpper(strings.ReplaceAll(c, "-", "_"))
		vars = append(vars, envVar{name, strings.Join(paths[c], ",")})
	}
	return vars
}

// ownNode says whether every container has something of its own at a path.
func ownNode(at string) bool {
	for _, dir := range []string{"/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd"} {
		if at == dir || strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return slices.Contains([]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/console",
		"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/core"}, at)
}

// giveDevices puts the devices into what the engine runs. One that a volume names has its node where the volume is mounted: in the
// container's own /dev as one of its own, which everybody in it may open, else as the board's, for whose group the container then has.
func giveDevices(out *runtime.Container, given []devices.Given) {
	mounts := slices.Clone(out.Mounts)
	covered := func(p string) bool { // by a mount: a node made there would be made in what is mounted
		return slices.ContainsFunc(mounts, func(m runtime.Mount) bool {
			at := path.Clean(m.Target)
			return at == p || at == "/dev" || strings.HasPrefix(p, at+"/")
		})
	}
	add := func(p string, n devices.Node, readOnly bool) {
		d := runtime.Device{Path: p, Major: n.Major, Minor: n.Minor, ReadOnly: readOnly}
		if !slices.Contains(out.Devices, d) {
			out.Devices = append(out.Devices, d)
		}
	}
	nth := map[string]int{}
	for _, g := range given {
		if g.At == "" || len(g.Nodes) == 0 {
			continue
		}
		at, n := path.Clean(g.At), g.Nodes[0]
		if ownNode(at) { // the mount hides what every container has there
			add("", n, g.ReadOnly)
			continue
		}
		mounts = slices.DeleteFunc(mounts, func(m runtime.Mount) bool { return path.Clean(m.Target) == at })
		if strings.HasPrefix(at, "/dev/") && !covered(at) {
			out.Mounts = slices.DeleteFunc(slices.Clone(out.Mounts), func(m runtime.Mount) bool { return path.Clean(m.Target) == at })
			add(at, n, g.ReadOnly)
			continue
		}
		add("", n, g.ReadOnly)
		if !slices.Contains(out.User.Groups, n.Group) && n.Group != 0 {
			out.User.Groups = append(slices.Clone(out.User.Groups), n.Group)
			out.Labels[podstate.LabelUser] = podstate.UserKey(out.User)
		}
	}
	mounts = out.Mounts
	for _, g := range given {
		if g.At != "" {
			continue
		}
		nth[g.Class]++
		for _, n := range g.Nodes {
			if covered(n.Path) {
				add("", n, false)
				continue
			}
			add(n.Path, n, false)
			if p := stable(g.Class, nth[g.Class]); len(g.Nodes) == 1 && !covered(p) {
				add(p, n, false)
			}
		}
	}
	if label := devices.LabelOf(given); label != "" {
		out.Labels[devices.Label] = label
	}
}

// giveBlocks puts the devices that are volumes into what the engine runs. In the container's own /dev everybody in it may open one, as any
// device; elsewhere the board's node is mounted, for root.
func giveBlocks(out *runtime.Container, blocks []volume.Block) error {
	for _, b := range blocks {
		at := path.Join("/", b.At)
		d := runtime.Device{Major: b.Major, Minor: b.Minor, ReadOnly: b.ReadOnly}
		over := slices.IndexFunc(out.Mounts, func(m runtime.Mount) bool {
			to := path.Clean(m.Target)
			return at == to || strings.HasPrefix(at, to+"/") || strings.HasPrefix(to, at+"/")
		})
		taken := func(o runtime.Device) bool { return o.Path == at }
		switch {
		case ownNode(at) || at == "/" || at == "/dev" || slices.ContainsFunc(out.Devices, taken) || slices.ContainsFunc(out.Blocks, taken):
			return fmt.Errorf("volume %s: something else is at %s in the container: choose another devicePath", b.Volume, at)
		case over >= 0:
			return fmt.Errorf("volume %s: the devicePath %s meets what is mounted at %s: choose another one", b.Volume, at, out.Mounts[over].Target)
		case strings.HasPrefix(at, "/dev/"):
			d.Path = at
		default:
			out.Mounts = append(slices.Clone(out.Mounts), runtime.Mount{Source: b.Place, Target: at, ReadOnly: b.ReadOnly})
		}
		out.Blocks = append(out.Blocks, d)
	}
	return nil
}
