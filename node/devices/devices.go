// Package devices decides which of a board's devices pods may have, and which one a container gets. What is plugged in, what the
// configuration says and what was given before come in; what to count on the Node and what to give go out. It opens nothing.
//
//	Machine: /dev, /sys --> Sort: allow-list, classes --> devices --> Counts: capacity of the Node
//	                                                        |
//	gifts of containers that run or will again ---------> Give: which one --> runtime.Device
//
// A device belongs to one class, and no more pods have it at a time than its class says. What a pod was given is its own as long as the
// pod lives, whether the device is plugged in or not: another one is never put in its place.
package devices

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"
)

// Domain is what the names of resources begin with: ledge.local/serial.
const Domain = "ledge.local/"

// Found is a character device as the machine shows it.
type Found struct {
	Path         string   // /dev/ttyUSB0
	Links        []string // what leads to it: /dev/serial/by-id/...
	Major, Minor uint32
	Born         uint64 // another number: it was plugged in anew
	Group        uint32 // who may open it, beside root
	Subsystem    string // tty
	Console      bool   // the board speaks to people there
	Bare         bool   // a serial port of the kernel's without hardware behind it
	USB          string // 0403:6001, of the USB device that it is a part of
	Serial       string // of that
	Port         string // where that is plugged in: 1-1.2
	Part         string // which part of that: the interface 1.0, and the port of several
	Speaks       string // the classes of a USB device's interfaces, with spaces between: 03 08
	Captures     bool   // video comes out of it
	Converts     bool   // video goes in and comes out
}

// Node is a device node that a container gets.
type Node struct {
	Path         string
	Major, Minor uint32
	Born         uint64
	Group        uint32
}

// Device is one thing that is given as a whole.
type Device struct {
	Class Class
	ID    string // the same after each boot and wherever it is plugged in, if it has a number of its own
	Port  string // where it is plugged in, if that is known
	Nodes []Node
}

func (d Device) has(major, minor uint32) bool {
	return slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.Major == major && n.Minor == minor })
}

// Pulled is what happens to a container whose device is unplugged.
type Pulled string

// What may happen.
const (
	Restart Pulled = "restart" // it is ended, and begins anew once the device is back
	Leave   Pulled = "leave"   // it is left alone; an event says so
)

// Class is a kind of device that pods may ask for as ledge.local/NAME.
type Class struct {
	Name  string
	Globs []string // of paths below /dev; what one of them, or of a link to it, matches belongs to the class. None: those of USB devices
	USB   string   // only devices of this vendor and product: 0403:6001
	Share int      // how many containers may have one at a time; 0: none, nor by another class
	Gone  Pulled

	need func(Found) bool   // what else must be so; nil: nothing
	card func(Found) string // several nodes are one device; nil: each is one
}

// usbNodes are those by which programs speak to USB devices without a driver of the kernel's.
const usbNodes = "/dev/bus/usb/*/*"

func (c Class) globs() []string {
	if len(c.Globs) == 0 && c.USB != "" {
		return []string{usbNodes}
	}
	return c.Globs
}

// Builtin are the classes that come with ledge. A bluetooth adapter has no device node to give: its users open a socket.
func Builtin() []Class {
	solid := func(f Found) bool { return !f.Bare }
	return []Class{
		{Name: "serial", Globs: serialPorts(), Share: 1, need: solid},
		{Name: "gpio", Globs: []string{"/dev/gpiochip*"}, Share: 8}, // the kernel gives each line to one
		{Name: "i2c", Globs: []string{"/dev/i2c-*"}, Share: 8},      // a bus with several chips on it
		{Name: "spi", Globs: []string{"/dev/spidev*"}, Share: 1},
		{Name: "camera", Globs: []string{"/dev/video*"}, Share: 1, need: func(f Found) bool { return f.Captures && !f.Converts }},
		{Name: "video-codec", Globs: []string{"/dev/video*"}, Share: 8, need: func(f Found) bool { return f.Converts }},
		{Name: "gpu-render", Globs: []string{"/dev/dri/renderD*"}, Share: 16},
		{Name: "audio", Globs: []string{"/dev/snd/*C[0-9]*"}, Share: 1, card: soundCard},
	}
}

func serialPorts() (globs []string) {
	for _, driver := range []string{"S", "USB", "ACM", "AMA", "AML", "HS", "LP", "MAX", "O", "PS", "SAC", "SC", "SIF", "STM", "THS", "XRUSB", "mxc"} {
		globs = append(globs, "/dev/tty"+driver+"[0-9]*")
	}
	return globs
}

// soundCard is the number in pcmC0D0p: all nodes of a card are used together.
func soundCard(f Found) string {
	_, rest, _ := strings.Cut(path.Base(f.Path), "C")
	number, _, _ := strings.Cut(rest, "D")
	return "card" + number
}

// With puts the classes of the configuration before those that come with ledge: what matches several belongs to the first. One that has
// the name of one of ledge's changes that.
func With(own []Class) []Class {
	out := make([]Class, 0, len(own))
	from := Builtin()
	for _, c := range own {
		if i := slices.IndexFunc(from, func(b Class) bool { return b.Name == c.Name }); i >= 0 {
			if len(c.Globs) == 0 && c.USB == "" {
				c.Globs, c.need, c.card = from[i].Globs, from[i].need, from[i].card
			}
			if c.Share < 0 {
				c.Share = from[i].Share
			}
			from = slices.Delete(from, i, i+1)
		}
		if c.Share < 0 {
			c.Share = 1
		}
		out = append(out, c)
	}
	out = append(out, from...)
	for i := range out {
		out[i].Gone = cmp.Or(out[i].Gone, Restart)
	}
	return out
}

// Wants says whether a look has to learn more of a path.
func Wants(classes []Class) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(classes, func(c Class) bool { return c.matches(p) })
	}
}

func (c Class) matches(p string) bool {
	return slices.ContainsFunc(c.globs(), func(g string) bool {
		ok, _ := path.Match(g, p)
		return ok
	})
}

func (c Class) takes(f Found) bool {
	names := append([]string{f.Path}, f.Links...)
	return (c.USB == "" || c.USB == f.USB) && slices.ContainsFunc(names, c.matches) && (c.need == nil || c.need(f))
}

// named: the class names the device itself, by no pattern.
func (c Class) named(f Found) bool {
	return slices.Contains(c.Globs, f.Path) || slices.ContainsFunc(f.Links, func(l string) bool { return slices.Contains(c.Globs, l) })
}

// Sort finds the devices among what the machine shows. Each belongs to the first class that takes it.
func Sort(found []Found, classes []Class) (out []Device) {
	found = slices.Clone(found)
	sort.Slice(found, func(i, j int) bool { return found[i].Path < found[j].Path })
	at := map[string]int{}
	for _, f := range found {
		i := slices.IndexFunc(classes, func(c Class) bool { return c.takes(f) })
		if i < 0 || classes[i].Share == 0 || Forbidden(f) || Guarded(f) && !classes[i].named(f) {
			continue
		}
		c, id, card := classes[i], identity(f), ""
		if c.card != nil {
			card = c.card(f) // another one after each start, so that it is no part of what a USB device is
			if id = "/dev/snd/" + card; f.USB != "" {
				whole := f
				whole.Part = ""
				id = identity(whole)
			}
		}
		n := Node{f.Path, f.Major, f.Minor, f.Born, f.Group}
		key := c.Name + " " + id + " " + f.Port + " " + card
		if j, ok := at[key]; ok && c.card != nil {
			out[j].Nodes = append(out[j].Nodes, n)
			continue
		}
		at[key] = len(out)
		out = append(out, Device{Class: c, ID: id, Port: f.Port, Nodes: []Node{n}})
	}
	sort.SliceStable(out, func(i, j int) bool {
		return cmp.Or(cmp.Compare(out[i].ID, out[j].ID), cmp.Compare(out[i].Port, out[j].Port)) < 0
	})
	return out
}

// identity is a name that a device keeps: of a USB device its numbers, else what udev calls it, else its place.
func identity(f Found) string {
	part := f.Part
	if part != "" {
		part = "-" + part
	}
	switch {
	case f.USB != "" && f.Serial != "":
		return "usb-" + f.USB + "-" + f.Serial + part
	case f.USB != "":
		return "usb-" + f.USB + "@" + f.Port + part
	}
	for _, l := range slices.Sorted(slices.Values(f.Links)) {
		if strings.Contains(l, "/by-id/") {
			return l
		}
	}
	return f.Path
}
