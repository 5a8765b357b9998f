package services

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ledge/network/service"
)

// freePort is one that nobody listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// ask gives the answer of a door: status, weight and body.
func ask(port uint16) string {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "nobody"
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), " ", strings.TrimSpace(string(body)))
}

func TestDoors(t *testing.T) {
	var d doors
	var g errgroup.Group
	port, other := freePort(t), freePort(t)
	set := func(want map[string]service.Health, healthy, all bool) {
		t.Helper()
		if err := d.set(&g, want, healthy, all); err != nil {
			t.Error(err)
		}
	}
	answer := func(what string, port uint16, want string) {
		t.Helper()
		if got := ask(port); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	body := `{"service":{"namespace":"a","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":%v}`
	set(map[string]service.Health{"a/web": {Port: port, Local: 2}, "a/none": {}}, true, true)
	answer("two here", port, "200 2 "+fmt.Sprintf(body, 2, true))
	set(map[string]service.Health{"a/web": {Port: port}}, true, false)
	answer("none here", port, "503 0 "+fmt.Sprintf(body, 0, true))
	set(map[string]service.Health{"a/web": {Port: port, Local: 1}}, false, false)
	answer("rules fail", port, "503 1 "+fmt.Sprintf(body, 1, false))
	set(map[string]service.Health{"a/other": {Port: other, Local: 1}}, true, false)
	answer("others stay", port, "200 1 "+fmt.Sprintf(body, 1, true))
	set(map[string]service.Health{"a/web": {}}, true, false)
	answer("no port any more", port, "nobody")
	if err := d.set(&g, map[string]service.Health{"a/web": {Port: other}}, true, false); err == nil || !strings.Contains(err.Error(), "a/web") {
		t.Errorf("a port that another has: %v", err)
	}
	set(map[string]service.Health{}, true, true)
	answer("all gone", other, "nobody")
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestDoorsAreShared: a namespace that makes many Services with health check ports takes doors from itself.
func TestDoorsAreShared(t *testing.T) {
	created := func(i int) time.Time { return time.Unix(1_800_000_000+int64(i), 0) }
	want := map[string]service.Health{}
	for i := range 1000 { // the greedy one was there first
		want[fmt.Sprintf("greedy/s%04d", i)] = service.Health{Port: 1, Created: created(i)}
	}
	for i := range 30 {
		want[fmt.Sprintf("modest/s%d", i)] = service.Health{Port: 1, Created: created(2000 + i)}
		want[fmt.Sprintf("n%d/late", i)] = service.Health{Port: 1, Created: created(5000 + i)}
	}
	chosen := share(want, mostDoors)
	count := map[string]int{}
	for name := range chosen {
		namespace, _, _ := strings.Cut(name, "/")
		count[namespace]++
	}
	if len(chosen) != mostDoors || count["modest"] != 30 || count["greedy"] != 40 {
		t.Errorf("%d doors: %v", len(chosen), count)
	}
	for i := range 40 {
		if _, ok := chosen[fmt.Sprintf("greedy/s%04d", i)]; !ok {
			t.Errorf("the greedy one's Service %d has none, and younger ones have", i)
		}
	}
	for range 20 { // whatever the order of a map
		if again := share(want, mostDoors); !maps.Equal(again, chosen) {
			t.Fatal("other Services have doors now")
		}
	}
	for i := range 2 * mostDoors { // no more doors than there are, for the oldest namespaces
		want[fmt.Sprintf("many%03d/only", i)] = service.Health{Port: 1, Created: created(9000 + i)}
	}
	chosen = share(want, mostDoors)
	_, last := chosen["many067/only"] // 32 others have one
	_, next := chosen["many068/only"]
	if len(chosen) != mostDoors || !last || next {
		t.Errorf("%d doors, of the 68th namespace %v, of the 69th %v", len(chosen), last, next)
	}
}

// TestDoorsTellWhoHasNone, once, and close for whom it is the turn of.
func TestDoorsTellWhoHasNone(t *testing.T) {
	var g errgroup.Group
	told := map[string][]string{}
	d := doors{teller: teller{tell: func(name, why string) { told[name] = append(told[name], why) }}}
	t.Cleanup(func() { d.closeAll(); _ = g.Wait() })
	held, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	port := uint16(held.Addr().(*net.TCPAddr).Port)
	want := map[string]service.Health{"a/held": {Port: port}}
	for range 2 {
		if err := d.set(&g, want, true, true); err == nil || !strings.Contains(err.Error(), "a/held") {
			t.Errorf("a port that another has: %v", err)
		}
	}
	if got := told["a/held"]; len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("cannot answer at health check port %d: ", port)) {
		t.Errorf("told %q", got)
	}
	_ = held.Close()
	if err := d.set(&g, nil, true, false); err != nil || !strings.HasPrefix(ask(port), "503 0 ") || len(d.told) > 0 {
		t.Errorf("the port is free: %v, %s, told %v", err, ask(port), d.told)
	}

	without := map[string]string{}
	for i := range 3 * mostTold {
		without[fmt.Sprintf("b/s%d", i)] = "no room"
	}
	clear(told)
	for look := 1; look <= 4; look++ {
		if d.say(without); len(told) != min(look, 3)*mostTold {
			t.Errorf("%d were told after look %d", len(told), look)
		}
	}
	for name, whys := range told {
		if len(whys) != 1 {
			t.Errorf("%s was told %q", name, whys)
		}
	}
}

type toldEvents struct {
	mu   sync.Mutex
	list []string
}

// take is what was told since the last call.
func (t *toldEvents) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.list
	t.list = nil
	return out
}

func (t *toldEvents) EventOn(ref corev1.ObjectReference, kind, reason, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := []string{ref.APIVersion, ref.Kind, ref.Namespace, ref.Name, string(ref.UID), kind, reason, message}
	t.list = append(t.list, strings.Join(told, " "))
}

func TestShutDoorsAreEvents(t *testing.T) {
	var got toldEvents
	l := New(Config{Node: "shed", Events: &got})
	l.doors.say(map[string]string{"a/web": "has no room"})
	l.heard.SetService(&service.Service{Name: "a/api", UID: "4711"})
	l.doors.say(map[string]string{"a/web": "has no room", "a/api": "is shut"})
	want := []string{"v1 Service a web  Warning FailedToStartServiceHealthcheck Board shed has no room",
		"v1 Service a api 4711 Warning FailedToStartServiceHealthcheck Board shed is shut"}
	if got := got.take(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	New(Config{}).doors.say(map[string]string{"a/web": "nobody hears it"})
}

// TestDoorsAreBounded: callers that hold their connections hold few, and are sent away.
func TestDoorsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &few{Listener: l, in: make(chan struct{}, 2)}
	defer f.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := f.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	<-accepted
	select {
	case <-accepted:
		t.Fatal("a third of two")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	_ = first.Close() // twice is once
	<-accepted
	select {
	case <-accepted:
		t.Error("a place that was left once was given twice")
	case <-time.After(50 * time.Millisecond):
	}
}
