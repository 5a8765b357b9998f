package config

import (
	"slices"
	"strings"
	"testing"

	"ledge/node/devices"
)

func TestDeviceClasses(t *testing.T) {
	for text, want := range map[string]string{
		"devices: [{name: zigbee, globs: [/dev/serial/by-id/usb-ITead*]}]":     "",
		"devices: [{name: zigbee, usb: 10c4:ea60}]":                            "",
		"devices: [{name: gpio, share: 0}, {name: serial, unplugged: leave}]":  "",
		"devices: [{name: Zigbee, usb: 10c4:ea60}]":                            "no name of a class",
		"devices: [{name: zigbee-2, usb: 10c4:ea60}]":                          "ends in a number",
		"devices: [{name: zigbee}]":                                            "by globs or usb",
		"devices: [{name: zigbee, usb: '10C4:EA60'}]":                          "as lsusb shows",
		"devices: [{name: zigbee, globs: [ttyUSB0]}]":                          "no pattern of names",
		"devices: [{name: zigbee, globs: [/dev/../etc/x]}]":                    "no pattern of names",
		"devices: [{name: zigbee, globs: ['/dev/[']}]":                         "no pattern of names",
		"devices: [{name: zigbee, globs: [/dev/x], share: -1}]":                "at a time",
		"devices: [{name: zigbee, globs: [/dev/x], share: 1001}]":              "at a time",
		"devices: [{name: zigbee, globs: [/dev/x], unplugged: stop}]":          "neither restart nor leave",
		"devices: [{name: a, usb: 10c4:ea60}, {name: a, usb: 10c4:ea60}]":      "twice",
		"devices: [{name: zigbee, path: /dev/x}]":                              "path",
		"devices: [" + strings.Repeat("{name: a, usb: 10c4:ea60},", 33) + "]":  "more than 32",
		"devices: [{name: a, globs: [" + strings.Repeat("/dev/x,", 33) + "]}]": "more than 32",
		"devices: [{name: a, globs: [/dev/" + strings.Repeat("x", 200) + "]}]": "no pattern",
		"devices: [{name: " + strings.Repeat("x", 41) + ", globs: [/dev/x]}]":  "no name of a class",
	} {
		_, err := Load(written(t, text+"\n"), "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	f, err := Load(written(t, "devices: [{name: zigbee, usb: 10c4:ea60, unplugged: leave}, {name: gpio, share: 0}]\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	list := f.DeviceClasses()
	at := func(name string) devices.Class {
		return list[slices.IndexFunc(list, func(c devices.Class) bool { return c.Name == name })]
	}
	if z := at("zigbee"); z.Share != 1 || z.Gone != devices.Leave || list[0].Name != "zigbee" {
		t.Errorf("%+v", z)
	}
	if g := at("gpio"); g.Share != 0 || len(g.Globs) == 0 || g.Gone != devices.Restart {
		t.Errorf("%+v", g)
	}
}
