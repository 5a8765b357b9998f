package devices

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// machine shows what a test plugs in.
type machine struct{ found []Found }

func (m *machine) Look(func(string) bool) ([]Found, error)   { return m.found, nil }
func (m *machine) Wait(ctx context.Context, _ time.Duration) { <-ctx.Done() }
func (m *machine) Drain()                                    {}

// stick is a serial adapter.
func stick(path string, minor uint32, born uint64, serial, port string) Found {
	return Found{Path: path, Major: 188, Minor: minor, Born: born, Subsystem: "usb-serial", USB: "10c4:ea60", Serial: serial, Port: port, Part: "1.0"}
}

type rig struct {
	*testing.T
	*Board
	machine machine
	living  map[string]bool
	file    string
}

func board(t *testing.T, own []Class, found ...Found) *rig {
	r := &rig{T: t, living: map[string]bool{}, file: filepath.Join(t.TempDir(), "devices.json")}
	r.machine.found = found
	r.again(own)
	return r
}

// again is the next process.
func (r *rig) again(own []Class) {
	r.Board = New(Config{Machine: &r.machine, Classes: With(own), File: r.file})
	r.Serve(func() {}, func(pod string) bool { return r.living[pod] })
}

func (r *rig) plugged(found ...Found) { r.machine.found = found; r.look() }

func (r *rig) give(pod string, w Want) ([]Given, error) {
	r.living[pod] = true
	w.Ask = Ask{Pod: pod, Name: "default/" + pod, Container: "c"}
	given, _, err := r.Give(w)
	return given, err
}

func (r *rig) serial(pod string, labels ...string) ([]Given, error) {
	return r.give(pod, Want{Count: map[string]int{"serial": 1}, Labels: labels})
}

// TestBackOnTheNode: what a volume took counts again when its pod has gone, for this process and for the next one.
func TestBackOnTheNode(t *testing.T) {
	r := board(t, nil, stick("/dev/ttyUSB0", 0, 1, "A", "1-1"))
	free := func(what string, want int64) {
		t.Helper()
		if c := r.Counts()[Domain+"serial"]; c.Capacity != 1 || c.Allocatable != want {
			t.Errorf("%s: %+v, want %d", what, c, want)
		}
	}
	free("at first", 1)
	if _, err := r.give("a", Want{Paths: []Path{{Major: 188, At: "/dev/x"}}}); err != nil {
		t.Fatal(err)
	}
	free("a volume has it", 0)
	r.again(nil)
	free("the next process knows", 0)
	delete(r.living, "a")
	free("its pod has gone", 1)
	r.again(nil)
	free("and for the next process", 1)
	if _, err := r.serial("b"); err != nil {
		t.Error(err)
	}
}

// TestNumbersOfAnother: a container that runs may open whatever has the numbers of what it was given. Nobody else gets that, and the
// container is ended, also where its class would leave it.
func TestNumbersOfAnother(t *testing.T) {
	own := []Class{{Name: "serial", Share: 1, Gone: Leave}}
	r := board(t, own, stick("/dev/ttyUSB0", 0, 1, "A", "1-1"))
	given, err := r.serial("a")
	if err != nil {
		t.Fatal(err)
	}
	label := LabelOf(given)
	if lost := r.Lost(label); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	r.plugged()
	if lost := r.Lost(label); len(lost) != 1 || lost[0].Gone != Leave {
		t.Errorf("pulled: %v", lost)
	}
	r.plugged(stick("/dev/ttyUSB0", 0, 2, "B", "1-2"))
	if lost := r.Lost(label); len(lost) != 1 || lost[0].Gone != Restart {
		t.Errorf("another has its numbers: %v", lost)
	}
	if got, err := r.serial("b", label); err == nil {
		t.Errorf("b gets %v, which a's container may open", got)
	}
	if got, err := r.give("v", Want{Paths: []Path{{Major: 188, At: "/dev/x"}}, Labels: []string{label}}); err == nil {
		t.Errorf("a volume gets %v, which a's container may open", got)
	}
	if got, err := r.serial("b"); err != nil || got[0].ID != "usb-10c4:ea60-B-1.0" {
		t.Errorf("a's container has ended: %v %v", got, err)
	}
}

// TestTwinPulled: two sticks that call themselves the same are told apart by their ports alone; one alone is known wherever it is
// plugged in.
func TestTwinPulled(t *testing.T) {
	r := board(t, nil, stick("/dev/ttyUSB0", 0, 1, "0001", "1-1"), stick("/dev/ttyUSB1", 1, 2, "0001", "1-2"))
	given, err := r.serial("a")
	if err != nil {
		t.Fatal(err)
	}
	at := given[0].Port
	for i, f := range r.machine.found {
		if f.Port != at {
			r.plugged(r.machine.found[i])
			break
		}
	}
	if got, err := r.serial("a"); err == nil {
		t.Errorf("a gets the other one: %v", got)
	}
	r = board(t, nil, stick("/dev/ttyUSB0", 0, 1, "0001", "1-1"))
	if _, err := r.serial("a"); err != nil {
		t.Fatal(err)
	}
	r.plugged(stick("/dev/ttyUSB4", 4, 9, "0001", "1-4"))
	if got, err := r.serial("a"); err != nil || got[0].Nodes[0].Path != "/dev/ttyUSB4" {
		t.Errorf("a stick that was moved: %v %v", got, err)
	}
}

// TestLooksAgain: a volume's device that came since the last look is of its class; what is of none is said so.
func TestLooksAgain(t *testing.T) {
	r := board(t, nil)
	r.machine.found = []Found{stick("/dev/ttyUSB0", 0, 1, "A", "1-1")}
	given, unclassed, err := r.Give(Want{Ask: Ask{Pod: "a", Container: "c"},
		Paths: []Path{{Major: 188, At: "/dev/x"}, {Major: 1, Minor: 1, At: "/dev/m"}}})
	if err != nil || len(given) != 1 || len(unclassed) != 1 || unclassed[0].At != "/dev/m" {
		t.Errorf("%v %v %v", given, unclassed, err)
	}
	if !r.look() {
		t.Error("nobody else is told that it came")
	}
	if r.look() {
		t.Error("it is told twice")
	}
}

// TestUnknownClass: a class that the configuration had and has no more is an error, and nothing is given.
func TestUnknownClass(t *testing.T) {
	r := board(t, nil, stick("/dev/ttyUSB0", 0, 1, "A", "1-1"))
	if got, err := r.give("a", Want{Count: map[string]int{"zigbee": 1, "serial": 1}}); err == nil || !strings.Contains(err.Error(), "no class zigbee") ||
		len(got) > 0 {
		t.Errorf("%v %v", got, err)
	}
}

// TestKeptLater: what could not be written is written with a later look.
func TestKeptLater(t *testing.T) {
	r := board(t, nil, stick("/dev/ttyUSB0", 0, 1, "A", "1-1"))
	if err := os.Mkdir(r.file, 0o700); err != nil { // a card that takes no file
		t.Fatal(err)
	}
	if _, err := r.serial("a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.look()
	if data, err := os.ReadFile(r.file); err != nil || !strings.Contains(string(data), `"pod":"a"`) {
		t.Errorf("%s %v", data, err)
	}
}

// TestWholeUSB: a sound card is the same whatever its number; of whole USB devices disks are nobody's, and what people type on is guarded.
func TestWholeUSB(t *testing.T) {
	card := func(number, minor string) []Found {
		return []Found{{Path: "/dev/snd/controlC" + number, USB: "0d8c:0014", Serial: "S", Port: "1-1", Part: "1.0"},
			{Path: "/dev/snd/pcmC" + number + "D0p", USB: "0d8c:0014", Serial: "S", Port: "1-1", Part: "1.1"}}
	}
	one, two := Sort(card("1", ""), With(nil)), Sort(card("2", ""), With(nil))
	if len(one) != 1 || len(one[0].Nodes) != 2 || len(two) != 1 || one[0].ID != two[0].ID {
		t.Errorf("%+v\n%+v", one, two)
	}
	own := []Class{{Name: "any", Globs: []string{usbNodes}, Share: 1}}
	for speaks, want := range map[string]bool{"ff": true, "08 06": false, "03": false, "09": false, "0e 01": true} {
		got := Sort([]Found{{Path: "/dev/bus/usb/001/002", Major: 189, Subsystem: "usb", USB: "1:1", Speaks: speaks}}, With(own))
		if (len(got) == 1) != want {
			t.Errorf("interfaces %s: %v", speaks, got)
		}
	}
	named := []Class{{Name: "board", Globs: []string{"/dev/bus/usb/001/002"}, Share: 1}}
	if got := Sort([]Found{{Path: "/dev/bus/usb/001/002", Major: 189, Subsystem: "usb", USB: "1:1", Speaks: "03"}}, With(named)); len(got) != 1 {
		t.Error("a keyboard that is named is not given")
	}
	if got := Sort([]Found{{Path: "/dev/bus/usb/001/002", Major: 189, Subsystem: "usb", USB: "1:1", Speaks: "08"}}, With(named)); len(got) != 0 {
		t.Error("a disk that is named is given")
	}
	if !slices.IsSortedFunc(one[0].Nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) }) {
		t.Errorf("%v", one[0].Nodes)
	}
}
