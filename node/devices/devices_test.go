package devices

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// aBoard is what a board may show.
func aBoard() []Found {
	return []Found{
		{Path: "/dev/ttyS0", Major: 4, Minor: 64, Subsystem: "tty", Console: true},
		{Path: "/dev/ttyS1", Major: 4, Minor: 65, Subsystem: "tty"},
		{Path: "/dev/ttyS2", Major: 4, Minor: 66, Subsystem: "tty", Bare: true},
		{Path: "/dev/tty1", Major: 4, Minor: 1, Subsystem: "tty"},
		{Path: "/dev/console", Major: 5, Minor: 1, Subsystem: "tty"},
		{Path: "/dev/mem", Major: 1, Minor: 1, Subsystem: "mem"},
		{Path: "/dev/kmsg", Major: 1, Minor: 11, Subsystem: "mem"},
		{Path: "/dev/watchdog", Major: 10, Minor: 130, Subsystem: "misc"},
		{Path: "/dev/watchdog0", Major: 248, Minor: 0, Subsystem: "watchdog"},
		{Path: "/dev/nvme0", Major: 240, Minor: 0, Subsystem: "nvme"},
		{Path: "/dev/sg0", Major: 21, Minor: 0, Subsystem: "scsi_generic"},
		{Path: "/dev/input/event0", Major: 13, Minor: 64, Subsystem: "input"},
		{Path: "/dev/ttyUSB0", Links: []string{"/dev/serial/by-id/usb-Silicon_Labs_CP2102_0001-if00"}, Major: 188, Subsystem: "usb-serial",
			USB: "10c4:ea60", Serial: "0001", Port: "1-1.2", Part: "1.0"},
		{Path: "/dev/ttyUSB1", Links: []string{"/dev/serial/by-path/x"}, Major: 188, Minor: 1, USB: "10c4:ea60", Serial: "0001", Port: "1-1.3", Part: "1.0"},
		{Path: "/dev/bus/usb/001/004", Major: 189, Minor: 3, USB: "10c4:ea60", Serial: "0001", Port: "1-1.2"},
		{Path: "/dev/gpiochip0", Major: 254},
		{Path: "/dev/i2c-1", Major: 89, Minor: 1},
		{Path: "/dev/spidev0.0", Major: 153},
		{Path: "/dev/video0", Major: 81, Captures: true}, {Path: "/dev/video1", Major: 81, Minor: 1},
		{Path: "/dev/video10", Major: 81, Minor: 10, Captures: true, Converts: true},
		{Path: "/dev/dri/renderD128", Major: 226, Minor: 128}, {Path: "/dev/dri/card0", Major: 226},
		{Path: "/dev/snd/controlC0", Major: 116}, {Path: "/dev/snd/pcmC0D0p", Major: 116, Minor: 16}, {Path: "/dev/snd/pcmC1D0p", Major: 116, Minor: 17},
		{Path: "/dev/snd/seq", Major: 116, Minor: 1},
	}
}

func shown(list []Device) string {
	var out []string
	for _, d := range list {
		text := d.Class.Name
		for _, n := range d.Nodes {
			text += " " + n.Path
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestSort(t *testing.T) {
	const builtin = `audio /dev/snd/controlC0 /dev/snd/pcmC0D0p
audio /dev/snd/pcmC1D0p
camera /dev/video0
gpio /dev/gpiochip0
gpu-render /dev/dri/renderD128
i2c /dev/i2c-1
serial /dev/ttyS1
serial /dev/ttyUSB0
serial /dev/ttyUSB1
spi /dev/spidev0.0
video-codec /dev/video10`
	if got := shown(Sort(aBoard(), With(nil))); got != builtin {
		t.Errorf("without a configuration:\n%s", got)
	}
	for _, c := range []struct {
		class Class
		want  string // of the class
	}{
		{Class{Name: "zigbee", Globs: []string{"/dev/serial/by-id/usb-Silicon_Labs*"}, Share: 1}, "zigbee /dev/ttyUSB0"},
		{Class{Name: "stick", USB: "10c4:ea60", Share: 1}, "stick /dev/bus/usb/001/004"},
		{Class{Name: "stick", USB: "10c4:ea60", Globs: []string{"/dev/ttyUSB*"}, Share: 1}, "stick /dev/ttyUSB0\nstick /dev/ttyUSB1"},
		{Class{Name: "all", Globs: []string{"/dev/tty*", "/dev/*", "/dev/input/*"}, Share: 1}, "all /dev/gpiochip0\nall /dev/i2c-1\nall /dev/spidev0.0\n" +
			"all /dev/ttyS1\nall /dev/ttyS2\nall /dev/ttyUSB0\nall /dev/ttyUSB1\nall /dev/video0\nall /dev/video1\nall /dev/video10"},
		{Class{Name: "key", Globs: []string{"/dev/input/event0"}, Share: 1}, "key /dev/input/event0"},
		{Class{Name: "dog", Globs: []string{"/dev/watchdog"}, Share: 1}, "dog /dev/watchdog"},
		{Class{Name: "screen", Globs: []string{"/dev/tty1", "/dev/ttyS0"}, Share: 1}, "screen /dev/tty1\nscreen /dev/ttyS0"},
		{Class{Name: "bad", Globs: []string{"/dev/mem", "/dev/kmsg", "/dev/nvme0", "/dev/sg0"}, Share: 1}, ""},
		{Class{Name: "serial", Share: 0}, ""},
		{Class{Name: "gpio", Share: -1}, "gpio /dev/gpiochip0"},
		{Class{Name: "serial", Globs: []string{"/dev/ttyS2"}, Share: -1}, "serial /dev/ttyS2"},
	} {
		list := slices.DeleteFunc(Sort(aBoard(), With([]Class{c.class})), func(d Device) bool { return d.Class.Name != c.class.Name })
		if got := shown(list); got != c.want {
			t.Errorf("%+v:\n%s\nwant:\n%s", c.class, got, c.want)
		}
	}
}

func TestWants(t *testing.T) {
	wants := Wants(With([]Class{{Name: "zigbee", Globs: []string{"/dev/serial/by-id/a*"}}}))
	for path, want := range map[string]bool{"/dev/ttyUSB0": true, "/dev/serial/by-id/ab": true, "/dev/serial/by-id/b": false, "/dev/tty1": false,
		"/dev/ttyUSB": false, "/dev/snd/seq": false, "/dev/mem": false} {
		if wants(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// TestTwins: of two sticks with one number each the port tells which is whose; a single stick may move.
func TestTwins(t *testing.T) {
	b := Book{Devices: Sort(aBoard(), With(nil))}
	class := With(nil)[0]
	for _, pod := range []string{"a", "b"} {
		gifts, err := b.Give(Ask{Pod: pod, Name: "default/" + pod, Container: "c"}, class, 2)
		if err == nil && pod == "b" || err != nil && pod == "a" {
			t.Fatal(gifts, err)
		}
		b.Gifts = append(b.Gifts, gifts...)
	}
	for _, g := range b.Gifts {
		if d, ok := b.Of(g); !ok || d.Port != g.Port {
			t.Errorf("%+v is %+v", g, d)
		}
	}
	stick := Device{Class: class, ID: "usb-1:1-7", Port: "1-1"}
	mine := Gift{Pod: "a", Class: "serial", ID: "usb-1:1-7", Port: "1-2"}
	if _, ok := (Book{Devices: []Device{stick}, Gifts: []Gift{mine}}).Of(mine); !ok {
		t.Error("a stick that was moved is not known again")
	}
	his := Gift{Pod: "b", Class: "serial", ID: "usb-1:1-7", Port: "1-1"}
	if _, ok := (Book{Devices: []Device{stick}, Gifts: []Gift{mine, his}}).Of(mine); ok {
		t.Error("a stick that another pod has was taken for one's own")
	}
}

// TestSharedInOnePod: init containers leave what they had to the main ones; those share nothing that is exclusive.
func TestSharedInOnePod(t *testing.T) {
	b := Book{Devices: Sort(aBoard(), With(nil))}
	serial := b.Devices[slices.IndexFunc(b.Devices, func(d Device) bool { return d.Class.Name == "serial" })].Class
	give := func(container string, init bool, n int) ([]Gift, error) {
		gifts, err := b.Give(Ask{Pod: "p", Name: "default/p", Container: container, Init: init}, serial, n)
		b.Gifts = append(b.Gifts, gifts...)
		return gifts, err
	}
	first, err := give("init", true, 1)
	main, err2 := give("main", false, 1)
	if err != nil || err2 != nil || first[0].ID != main[0].ID || first[0].Port != main[0].Port {
		t.Fatal(first, main, err, err2)
	}
	side, err := give("side", false, 2)
	if err != nil || slices.ContainsFunc(side, func(g Gift) bool { return g.ID == main[0].ID && g.Port == main[0].Port }) {
		t.Fatal(side, err)
	}
	if _, err := give("more", false, 1); err == nil || !strings.Contains(err.Error(), "is given to default/p") {
		t.Error(err)
	}
}

// TestGive is a life of sticks and pods by chance: no device has more holders than its class says, what a pod was given stays its own, and
// what is counted can be given.
func TestGive(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	classes := []Class{{Name: "one", Share: 1, Globs: []string{"/dev/a*"}}, {Name: "many", Share: 3, Globs: []string{"/dev/b*"}}}
	all := []Found{}
	for i := range 4 {
		all = append(all, Found{Path: fmt.Sprint("/dev/a", i)}, Found{Path: fmt.Sprint("/dev/b", i)})
	}
	var b Book
	living, given := map[string]bool{}, 0
	defer func() {
		if given < 500 {
			t.Errorf("seed %d: only %d were given", seed, given)
		}
	}()
	for range 4000 {
		var there []Found
		for _, f := range all {
			if rnd.IntN(4) > 0 {
				there = append(there, f)
			}
		}
		b.Devices = Sort(there, classes)
		pod := fmt.Sprint("p", rnd.IntN(6))
		if rnd.IntN(8) == 0 {
			delete(living, pod)
			b = b.Prune(func(p string) bool { return living[p] })
			continue
		}
		living[pod] = true
		a := Ask{Pod: pod, Name: "default/" + pod, Container: fmt.Sprint("c", rnd.IntN(2))}
		class := classes[rnd.IntN(2)]
		had := slices.DeleteFunc(slices.Clone(b.Gifts), func(g Gift) bool { return !a.has(g) || g.Class != class.Name })
		n := len(had)
		if n == 0 {
			n = 1 + rnd.IntN(2)
		}
		free := b.Counts(classes)[Domain+class.Name].Allocatable
		for _, g := range b.Gifts {
			if _, there := b.Of(g); there && g.Class == class.Name {
				free--
			}
		}
		gifts, err := b.Give(a, class, n)
		if err != nil {
			if len(had) == 0 && free >= int64(n) {
				t.Fatalf("seed %d: %d are free, %v gets none of %d: %v", seed, free, a, n, err)
			}
			continue
		}
		given++
		if len(had) > 0 && !slices.Equal(had, gifts) {
			t.Fatalf("seed %d: %v had %v and gets %v", seed, a, had, gifts)
		}
		for _, g := range gifts {
			if !slices.Contains(b.Gifts, g) {
				b.Gifts = append(b.Gifts, g)
			}
		}
		units := map[string]int{}
		for _, g := range b.Gifts {
			units[g.ID]++
		}
		for _, f := range all {
			most := map[byte]int{'a': 1, 'b': 3}[f.Path[5]]
			if units[f.Path] > most {
				t.Fatalf("seed %d: %s has %d holders: %v", seed, f.Path, units[f.Path], b.Gifts)
			}
		}
	}
}

func TestCounts(t *testing.T) {
	classes := With(nil)
	b := Book{Devices: Sort(aBoard(), classes)}
	g, ok, err := b.Named(Ask{Pod: "p", Name: "default/p", Container: "c"}, 188, 0)
	if !ok || err != nil || !g.Beside {
		t.Fatal(g, ok, err)
	}
	b.Gifts = append(b.Gifts, g)
	counts := b.Counts(classes)
	for name, want := range map[string]Count{"serial": {3, 2}, "gpio": {8, 8}, "gpu-render": {16, 16}, "audio": {2, 2}} {
		if counts[Domain+name] != want {
			t.Errorf("%s: %v", name, counts[Domain+name])
		}
	}
	if _, _, err := b.Named(Ask{Pod: "q", Name: "default/q", Container: "c"}, 188, 0); err == nil || !strings.Contains(err.Error(), "default/p") {
		t.Error(err)
	}
	if _, ok, _ := b.Named(Ask{}, 1, 1); ok {
		t.Error("/dev/mem was given")
	}
}

// TestPast: the next pod of a name gets what the last one had, if it is free.
func TestPast(t *testing.T) {
	classes := With(nil)
	b := Book{Devices: Sort(aBoard(), classes)}
	b.Gifts = []Gift{{Pod: "1", Name: "default/p", Container: "c", Class: "serial", ID: "usb-10c4:ea60-0001-1.0", Port: "1-1.3"}}
	b = b.Prune(func(string) bool { return false })
	serial := classes[slices.IndexFunc(classes, func(c Class) bool { return c.Name == "serial" })]
	gifts, err := b.Give(Ask{Pod: "2", Name: "default/p", Container: "c"}, serial, 1)
	if err != nil || gifts[0].ID != "usb-10c4:ea60-0001-1.0" {
		t.Fatal(gifts, err)
	}
	gifts, err = b.Give(Ask{Pod: "2", Name: "default/q", Container: "c"}, serial, 1)
	if err != nil || gifts[0].ID != "/dev/ttyS1" {
		t.Fatal(gifts, err)
	}
}
