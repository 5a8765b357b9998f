package devices

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Gift is a device that a container has, or had when it last ran. As long as its pod lives nobody else gets it.
type Gift struct {
	Pod       string `json:"pod"`  // its UID
	Name      string `json:"name"` // of the pod: namespace/name
	Container string `json:"container"`
	Init      bool   `json:"init,omitempty"` // it ends before the pod's main containers begin, which may have the same
	Class     string `json:"class"`
	ID        string `json:"id"`
	Port      string `json:"port,omitempty"`
	Beside    bool   `json:"beside,omitempty"` // asked for by its path, not by the resource
	Nth       int    `json:"nth,omitempty"`    // where one device is given to a container more than once
	Twin      bool   `json:"twin,omitempty"`   // another with the same number was plugged in: only the port tells which it is
}

// Ask is a container that wants devices.
type Ask struct {
	Pod, Name, Container string
	Init                 bool
}

func (b Book) gift(a Ask, d Device, beside bool) Gift {
	twin := slices.ContainsFunc(b.Devices, func(o Device) bool { return o.ID == d.ID && o.Class.Name == d.Class.Name && o.Port != d.Port })
	return Gift{Pod: a.Pod, Name: a.Name, Container: a.Container, Init: a.Init, Class: d.Class.Name, ID: d.ID, Port: d.Port, Beside: beside,
		Twin: twin}
}

func (a Ask) has(g Gift) bool { return g.Pod == a.Pod && g.Container == a.Container }

// Book is what is known of a board's devices: which there are, who has which, and who had which before.
type Book struct {
	Devices []Device
	Gifts   []Gift
	Past    []Gift
}

// Of finds the device of a gift. Cheap sticks bear the same number each: then the port tells them apart. A stick that has moved to another
// port is known by its number, unless that would take one from somebody else.
func (b Book) Of(g Gift) (Device, bool) {
	var moved []Device
	for _, d := range b.Devices {
		switch {
		case d.ID != g.ID || d.Class.Name != g.Class:
		case d.Port == g.Port:
			return d, true
		case g.Twin: // it may be the other one
		default:
			moved = append(moved, d)
		}
	}
	if len(moved) != 1 {
		return Device{}, false
	}
	taken := slices.ContainsFunc(b.Gifts, func(o Gift) bool {
		return o.ID == g.ID && o.Class == g.Class && o.Port == moved[0].Port && moved[0].Class.Share == 1
	})
	return moved[0], !taken
}

func (b Book) holds(g Gift, d Device) bool {
	of, ok := b.Of(g)
	return ok && of.ID == d.ID && of.Port == d.Port
}

// used is how many containers have a device at a time at the most, so far.
func (b Book) used(d Device, gifts []Gift) (n int) {
	mains, inits := map[string]int{}, map[string]bool{}
	for _, g := range gifts {
		if !b.holds(g, d) {
			continue
		}
		if g.Init {
			inits[g.Pod] = true
		} else {
			mains[g.Pod]++
		}
	}
	for pod := range inits {
		mains[pod] = max(mains[pod], 1)
	}
	for _, m := range mains {
		n += m
	}
	return n
}

// Give chooses n devices of a class. It takes first those that the container had, then one of its pod's where that costs nothing more,
// then one that an earlier pod of this name had, then the one that fewest have. The gifts are all that the container has of the class by
// its resource. After an error nothing is given.
func (b Book) Give(a Ask, class Class, n int) ([]Gift, error) {
	var mine []Gift
	for _, g := range b.Gifts {
		if a.has(g) && g.Class == class.Name && !g.Beside {
			mine = append(mine, g)
		}
	}
	mine = mine[:min(len(mine), n)]
	for _, g := range mine {
		if _, ok := b.Of(g); !ok {
			return nil, &Absent{g}
		}
	}
	gifts := slices.Clone(b.Gifts)
	for len(mine) < n {
		d, ok := b.choose(a, class, gifts)
		if !ok {
			return nil, b.none(class)
		}
		g := b.gift(a, d, false)
		for slices.Contains(mine, g) {
			g.Nth++
		}
		mine, gifts = append(mine, g), append(gifts, g)
	}
	return mine, nil
}

func (b Book) choose(a Ask, class Class, gifts []Gift) (Device, bool) {
	type option struct {
		Device
		more, past, used int
	}
	var best *option
	for _, d := range b.Devices {
		if d.Class.Name != class.Name {
			continue
		}
		used := b.used(d, gifts)
		after := b.used(d, append(slices.Clip(gifts), b.gift(a, d, false)))
		if after > class.Share {
			continue
		}
		o := option{d, after - used, 2, used}
		for _, g := range b.Past {
			switch {
			case g.Name != a.Name || g.Container != a.Container || g.ID != d.ID || g.Class != class.Name:
			case g.Port == d.Port:
				o.past = 0
			default:
				o.past = min(o.past, 1)
			}
		}
		if best == nil || cmp.Or(cmp.Compare(o.more, best.more), cmp.Compare(o.past, best.past), cmp.Compare(o.used, best.used)) < 0 {
			best = &o
		}
	}
	if best == nil {
		return Device{}, false
	}
	return best.Device, true
}

// Named gives the one device that has a node, by its numbers. False: no class has it.
func (b Book) Named(a Ask, major, minor uint32) (g Gift, ok bool, err error) {
	for _, d := range b.Devices {
		if !d.has(major, minor) {
			continue
		}
		for _, g := range b.Gifts {
			if a.has(g) && b.holds(g, d) {
				return g, true, nil
			}
		}
		g := b.gift(a, d, true)
		if b.used(d, append(slices.Clip(b.Gifts), g)) > d.Class.Share {
			return Gift{}, true, fmt.Errorf("device %s: %s", d.Nodes[0].Path, b.holders(d))
		}
		return g, true, nil
	}
	return Gift{}, false, nil
}

// Absent says that a container's device is not plugged in.
type Absent struct{ Gift Gift }

func (e *Absent) Error() string {
	return fmt.Sprintf("it waits for its %s, device %s: plug it in again, or delete the pod so that the next one gets another", e.Gift.Class, e.Gift.ID)
}

func (b Book) none(class Class) error {
	var taken []string
	for _, d := range b.Devices {
		if d.Class.Name == class.Name {
			taken = append(taken, d.Nodes[0].Path+" "+b.holders(d))
		}
	}
	if len(taken) == 0 {
		return fmt.Errorf("%s%s: none is plugged in", Domain, class.Name)
	}
	return fmt.Errorf("%s%s: none is free: %s", Domain, class.Name, strings.Join(taken, ", "))
}

func (b Book) holders(d Device) string {
	who := b.Holders(d)
	if len(who) == 0 {
		return "is given to nobody"
	}
	return "is given to " + strings.Join(who, " and ")
}

// Holders are the pods that have a device.
func (b Book) Holders(d Device) (names []string) {
	for _, g := range b.Gifts {
		if b.holds(g, d) && !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Count is what a Node says of a class.
type Count struct{ Capacity, Allocatable int64 }

// Counts are those of every class. What was asked for by its path is not there for who asks for the resource.
func (b Book) Counts(classes []Class) map[string]Count {
	out := map[string]Count{}
	for _, c := range classes {
		out[Domain+c.Name] = Count{}
	}
	for _, d := range b.Devices {
		n := out[Domain+d.Class.Name]
		n.Capacity += int64(d.Class.Share)
		byName := slices.DeleteFunc(slices.Clone(b.Gifts), func(g Gift) bool { return !g.Beside })
		n.Allocatable += int64(max(0, d.Class.Share-b.used(d, byName)))
		out[Domain+d.Class.Name] = n
	}
	return out
}

// mostPast is more pods than a board runs.
const mostPast = 256

// Prune lets go of what pods had that are no more, and remembers it by their names.
func (b Book) Prune(lives func(pod string) bool) Book {
	out := Book{Devices: b.Devices, Past: b.Past}
	for _, g := range b.Gifts {
		if lives(g.Pod) {
			out.Gifts = append(out.Gifts, g)
			continue
		}
		out.Past = slices.DeleteFunc(slices.Clone(out.Past), func(o Gift) bool {
			return o.Name == g.Name && o.Container == g.Container && o.Class == g.Class && o.ID == g.ID
		})
		out.Past = append(out.Past, g)
	}
	out.Past = out.Past[max(0, len(out.Past)-mostPast):]
	return out
}
