package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/node/devices"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// socketed is a machine into which sticks are plugged.
type socketed struct {
	mu   sync.Mutex
	list []devices.Found
	born uint64
	news chan struct{}
}

func (s *socketed) Look(wants func(string) bool) ([]devices.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(f devices.Found) bool { return !wants(f.Path) }), nil
}

func (s *socketed) Wait(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.news:
	case <-time.After(most):
	}
}

func (s *socketed) Drain() {}

// begin starts an agent that knows of its devices what a new process does.
func (s *socketed) begin(r *rig) {
	r.Helper()
	r.end()
	r.cfg.Devices = devices.New(devices.Config{Machine: s, Classes: devices.With([]devices.Class{{Name: "spi", Share: -1, Gone: devices.Leave}}),
		File: filepath.Join(r.dir, "data", "devices.json")})
	r.begin()
}

// plug has these sticks there, each as a serial port: its number is its name, and the ports are counted from first.
func (s *socketed) plug(first int, numbers ...string) {
	s.mu.Lock()
	was := s.list
	s.list = nil
	for i, n := range numbers {
		s.born++
		f := devices.Found{Path: fmt.Sprint("/dev/ttyUSB", first+i), Major: 188, Minor: uint32(first + i), Born: s.born,
			USB: "0403:6001", Serial: n, Port: fmt.Sprint("1-", i)}
		for _, o := range was { // it stays
			if o.Path == f.Path && o.Serial == f.Serial {
				f.Born = o.Born
			}
		}
		s.list = append(s.list, f)
	}
	s.mu.Unlock()
	s.news <- struct{}{}
	time.Sleep(time.Second)
	synctest.Wait()
}

// withDevices is with for an agent that gives devices.
func withDevices(t *testing.T, fn func(r *rig, s *socketed, started func() []runtime.Container)) {
	var mu sync.Mutex
	var list []runtime.Container
	with(t, nil, func(r *rig) {
		r.engine = enginefake.New(enginefake.Config{Script: func(c runtime.Container) enginefake.Behaviour {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, c)
			return enginefake.Behaviour{TermCode: 143}
		}})
		s := &socketed{news: make(chan struct{}, 1)}
		r.cfg.Engine = r.engine
		fn(r, s, func() []runtime.Container {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(list)
		})
	})
}

func wantsDevices(class string, n int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceName(devices.Domain + class): *resource.NewQuantity(n, resource.DecimalSI)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	}
}

func (r *rig) counted(class string) string {
	n := r.node()
	name := corev1.ResourceName(devices.Domain + class)
	if _, ok := n.Status.Capacity[name]; !ok {
		return "none"
	}
	c, a := n.Status.Capacity[name], n.Status.Allocatable[name]
	return c.String() + "/" + a.String()
}

// TestDevices: what is plugged in is counted, given, kept by who has it over restarts of the agent and of the board, and taken away.
func TestDevices(t *testing.T) {
	withDevices(t, func(r *rig, s *socketed, started func() []runtime.Container) {
		s.begin(r)
		r.pass(2 * time.Second)
		r.want("counted without any", []string{r.counted("serial")}, "none")
		r.pod("waits", wantsDevices("serial", 1)) // the board is young
		r.pass(time.Second)
		if st := r.get("waits").Status.ContainerStatuses; len(st) != 1 || st[0].State.Waiting == nil ||
			!strings.Contains(st[0].State.Waiting.Message, "none is plugged in") {
			t.Errorf("%+v", st)
		}
		s.plug(0, "A", "B")
		r.want("counted", []string{r.counted("serial")}, "2/2")
		r.want("running", r.running(), "c.0")
		c := started()[0]
		if len(c.Devices) != 2 || c.Devices[0].Path != "/dev/ttyUSB0" || c.Devices[1].Path != "/dev/ledge/serial" ||
			!slices.Contains(c.Env, "LEDGE_DEVICE_SERIAL=/dev/ttyUSB0") {
			t.Errorf("%+v %v", c.Devices, c.Env)
		}
		r.pod("other", wantsDevices("serial", 1))
		s.begin(r) // as after a kill -9: the card may not have kept who has what
		if err := os.WriteFile(filepath.Join(r.dir, "data", "devices.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.begin(r)
		r.pod("third", wantsDevices("serial", 1))
		r.pass(time.Second)
		if st := r.get("third").Status; len(st.ContainerStatuses) != 1 && st.Reason == "" || len(r.running()) != 2 {
			t.Errorf("a third pod has one of two: %+v", st)
		}
		r.pass(2 * time.Minute)
		r.pod("fourth", wantsDevices("serial", 1))
		r.pass(time.Second)
		if st := r.get("fourth").Status; st.Phase != corev1.PodFailed || st.Reason != "OutOfledge.local/serial" {
			t.Errorf("%+v", st)
		}
		r.pod("unknown", wantsDevices("toaster", 1))
		r.pass(time.Second)
		if st := r.get("unknown").Status; st.Phase != corev1.PodFailed || !strings.HasPrefix(st.Reason, "OutOf") {
			t.Errorf("%+v", st)
		}
		r.delete("third", new(int64(0)))
		r.end()
		r.engine.Reboot() // and the ports are counted anew
		s.plug(5, "B", "A")
		s.begin(r)
		r.pass(time.Minute)
		for _, c := range started()[2:] {
			want := map[string]string{"waits": "/dev/ttyUSB6", "other": "/dev/ttyUSB5"}[podOf(r, c)]
			if want != "" && c.Devices[0].Path != want {
				t.Errorf("after a boot %s has %+v, want %s", podOf(r, c), c.Devices, want)
			}
		}
		r.want("running after a boot", r.running(), "c.1", "c.1")
		s.plug(5, "B")
		r.want("counted when one was pulled", []string{r.counted("serial")}, "1/1")
		r.pass(time.Minute)
		if len(r.events.of("DeviceUnplugged")) == 0 {
			t.Error("nobody was told")
		}
		r.want("running when one was pulled", r.running(), "c.1")
		s.plug(5, "B", "A")
		r.pass(10 * time.Minute)
		both := []string{"c.1", "c.2"}
		if r.get("waits").UID < r.get("other").UID {
			both = []string{"c.2", "c.1"}
		}
		r.want("running when it is back", r.running(), both...)
	})
}

func podOf(r *rig, c runtime.Container) string {
	for _, name := range []string{"waits", "other"} {
		if string(r.get(name).UID) == c.PodUID {
			return name
		}
	}
	return ""
}

// TestFlapping: a stick that comes and goes all the time does not have the Node written each time.
func TestFlapping(t *testing.T) {
	withDevices(t, func(r *rig, s *socketed, _ func() []runtime.Container) {
		s.begin(r)
		r.pass(time.Minute)
		node := func() int {
			n, err := r.Client.Get(r.Context(), api.Nodes, "", "n")
			if err != nil {
				t.Fatal(err)
			}
			rev, err := strconv.Atoi(n.GetResourceVersion())
			if err != nil {
				t.Fatal(err)
			}
			return rev
		}
		before := node()
		for range 60 {
			s.plug(0, "A")
			r.pass(time.Second)
			s.plug(0)
			r.pass(time.Second)
		}
		if wrote := node() - before; wrote > 80 { // the poster's own looks, and one more for each of them
			t.Errorf("the Node was written %d times in four minutes of 60 plugs", wrote)
		}
	})
}

// TestDevicesLeft: a class may have its containers left alone.
func TestDevicesLeft(t *testing.T) {
	withDevices(t, func(r *rig, s *socketed, started func() []runtime.Container) {
		s.begin(r)
		s.mu.Lock()
		s.list = []devices.Found{{Path: "/dev/spidev0.0", Major: 153, Born: 1}}
		s.mu.Unlock()
		s.news <- struct{}{}
		r.pass(3 * time.Second)
		r.pod("p", wantsDevices("spi", 1))
		r.pass(time.Second)
		r.want("running", r.running(), "c.0")
		s.plug(0)
		r.pass(time.Minute)
		r.want("running without it", r.running(), "c.0")
		if len(r.events.of("DeviceUnplugged")) == 0 {
			t.Error("nobody was told")
		}
	})
}

// TestDevicesRefused: a pod with users of its own can have none.
func TestDevicesRefused(t *testing.T) {
	withDevices(t, func(r *rig, s *socketed, _ func() []runtime.Container) {
		s.begin(r)
		s.plug(0, "A")
		r.pod("p", wantsDevices("serial", 1), func(p *corev1.Pod) { p.Spec.HostUsers = new(false) })
		r.pass(time.Second)
		if st := r.get("p").Status; st.Reason != "UnexpectedAdmissionError" || !strings.Contains(st.Message, "hostUsers") {
			t.Errorf("%+v", st)
		}
	})
}
