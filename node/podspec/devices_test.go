package podspec

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ledge/images"
	"ledge/node/devices"
	"ledge/node/volume"
	"ledge/runtime"
)

// TestDevices: where a container finds what it was given, and what else it gets for that: nothing but what it needs.
func TestDevices(t *testing.T) {
	serial := devices.Given{Gift: devices.Gift{Class: "serial", ID: "usb-1"}, Nodes: []devices.Node{{Path: "/dev/ttyUSB3", Major: 188, Minor: 3, Group: 20}}}
	second := devices.Given{Gift: devices.Gift{Class: "serial", ID: "usb-2"}, Nodes: []devices.Node{{Path: "/dev/ttyACM0", Major: 166, Group: 20}}}
	card := devices.Given{Gift: devices.Gift{Class: "audio", ID: "card0"}, Nodes: []devices.Node{{Path: "/dev/snd/controlC0", Major: 116},
		{Path: "/dev/snd/pcmC0D0p", Major: 116, Minor: 16}}}
	named := func(at string) devices.Given {
		g := serial
		g.At = at
		return g
	}
	mount := func(at string) runtime.Mount { return runtime.Mount{Source: "/dev/ttyUSB3", Target: at} }
	dev := func(path string, major, minor uint32) runtime.Device {
		return runtime.Device{Path: path, Major: major, Minor: minor}
	}
	img := images.Image{Config: images.Config{Cmd: []string{"app"}}}
	for _, c := range []struct {
		name   string
		given  []devices.Given
		mounts []runtime.Mount
		want   []runtime.Device
		env    string
		left   int // mounts, beside the usual one
		groups []uint32
	}{
		{name: "none"},
		{name: "two", given: []devices.Given{serial, second}, want: []runtime.Device{dev("/dev/ttyUSB3", 188, 3), dev("/dev/ledge/serial", 188, 3),
			dev("/dev/ttyACM0", 166, 0), dev("/dev/ledge/serial-2", 166, 0)}, env: "LEDGE_DEVICE_SERIAL=/dev/ttyUSB3,/dev/ttyACM0"},
		{name: "a card", given: []devices.Given{card}, want: []runtime.Device{dev("/dev/snd/controlC0", 116, 0), dev("/dev/snd/pcmC0D0p", 116, 16)},
			env: "LEDGE_DEVICE_AUDIO=/dev/snd/controlC0"},
		{name: "by a volume, in /dev", given: []devices.Given{named("/dev/modem")}, mounts: []runtime.Mount{mount("/dev/modem")},
			want: []runtime.Device{dev("/dev/modem", 188, 3)}, env: "LEDGE_DEVICE_SERIAL=/dev/modem"},
		{name: "by a volume, where every container has something", given: []devices.Given{named("/dev/tty")}, mounts: []runtime.Mount{mount("/dev/tty")},
			want: []runtime.Device{dev("", 188, 3)}, env: "LEDGE_DEVICE_SERIAL=/dev/tty", left: 1},
		{name: "by a volume, elsewhere", given: []devices.Given{named("/x/tty")}, mounts: []runtime.Mount{mount("/x/tty")},
			want: []runtime.Device{dev("", 188, 3)}, env: "LEDGE_DEVICE_SERIAL=/x/tty", left: 1, groups: []uint32{20}},
		{name: "the board's /dev", given: []devices.Given{serial}, mounts: []runtime.Mount{{Source: "/dev", Target: "/dev/"}},
			want: []runtime.Device{dev("", 188, 3)}, env: "LEDGE_DEVICE_SERIAL=/dev/ttyUSB3", left: 1},
		{name: "a volume over it", given: []devices.Given{named("/dev/v/tty")},
			mounts: []runtime.Mount{{Source: "/v", Target: "/dev/v"}, mount("/dev/v/tty")},
			want:   []runtime.Device{dev("", 188, 3)}, env: "LEDGE_DEVICE_SERIAL=/dev/v/tty", left: 2, groups: []uint32{20}},
	} {
		pod := aPod("p")
		pod.Spec.Containers[0].Args = []string{"$(LEDGE_DEVICE_SERIAL)"}
		out, err := Board{Node: "n"}.Container(t.Context(), Attempt{Pod: pod, Container: &pod.Spec.Containers[0], ID: "id", Image: img,
			Rootfs: rootfs(t, map[string]string{})}, justMounts{played{devices: c.given, mounts: c.mounts}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		groups := append([]uint32{0}, c.groups...)
		if !reflect.DeepEqual(out.Devices, c.want) || len(out.Mounts) != c.left || !slices.Equal(out.User.Groups, groups) {
			t.Errorf("%s: %+v\n%+v %v", c.name, out.Devices, out.Mounts, out.User.Groups)
		}
		if c.env != "" && !slices.Contains(out.Env, c.env) || (out.Labels[devices.Label] != "") != (c.given != nil) || out.Privileged {
			t.Errorf("%s: %v %v", c.name, out.Env, out.Labels)
		}
	}
}

// justMounts has no mounts but those of the test.
type justMounts struct{ played }

func (j justMounts) Mounts(context.Context, func(string) (string, error)) ([]runtime.Mount, error) {
	return j.mounts, nil
}

// TestBlocks: where a container finds a device that is a volume, and what is refused as something else is there.
func TestBlocks(t *testing.T) { // N-13.18
	block := func(at string, readOnly bool) volume.Block {
		return volume.Block{Volume: "b", At: at, Place: "/run/p", Major: 8, Minor: 16, ReadOnly: readOnly}
	}
	img := images.Image{Config: images.Config{Cmd: []string{"app"}}}
	for _, c := range []struct {
		name   string
		blocks []volume.Block
		want   []runtime.Device
		mounts []runtime.Mount // beside the usual one, and those at /v and /dev/v
		err    string
	}{
		{name: "none"},
		{name: "in /dev", blocks: []volume.Block{block("/dev/xvda", false)}, want: []runtime.Device{{Path: "/dev/xvda", Major: 8, Minor: 16}}},
		{name: "to be read", blocks: []volume.Block{block("dev/x/../a", true)},
			want: []runtime.Device{{Path: "/dev/a", Major: 8, Minor: 16, ReadOnly: true}}},
		{name: "elsewhere", blocks: []volume.Block{block("/data", true)}, want: []runtime.Device{{Major: 8, Minor: 16, ReadOnly: true}},
			mounts: []runtime.Mount{{Source: "/run/p", Target: "/data", ReadOnly: true}}},
		{name: "every container's", blocks: []volume.Block{block("/dev/null", false)}, err: "something else is at /dev/null"},
		{name: "all of them", blocks: []volume.Block{block("/dev", false)}, err: "something else is at /dev"},
		{name: "a terminal", blocks: []volume.Block{block("/dev/pts/9", false)}, err: "something else is at /dev/pts/9"},
		{name: "twice", blocks: []volume.Block{block("/dev/a", false), block("/dev/a", false)}, err: "something else is at /dev/a"},
		{name: "in a volume", blocks: []volume.Block{block("/v/a", false)}, err: "meets what is mounted at /v"},
		{name: "in a volume in /dev", blocks: []volume.Block{block("/dev/v/a", false)}, err: "meets what is mounted at /dev/v"},
		{name: "above a volume", blocks: []volume.Block{block("/", false)}, err: "something else is at /"},
	} {
		pod := aPod("p")
		out, err := Board{Node: "n"}.Container(t.Context(), Attempt{Pod: pod, Container: &pod.Spec.Containers[0], ID: "id", Image: img,
			Rootfs: rootfs(t, map[string]string{})}, justMounts{played{blocks: c.blocks,
			mounts: []runtime.Mount{{Source: "/s", Target: "/v"}, {Source: "/s", Target: "/dev/v/"}}}})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || !slices.Equal(out.Blocks, c.want) || len(out.Devices) > 0:
			t.Errorf("%s: %v, %+v", c.name, err, out.Blocks)
		case !reflect.DeepEqual(out.Mounts[len(out.Mounts)-len(c.mounts):], append([]runtime.Mount{}, c.mounts...)):
			t.Errorf("%s: mounts %+v", c.name, out.Mounts)
		}
	}
}
