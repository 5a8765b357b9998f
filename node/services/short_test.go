package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/grumble"
	"ledge/network/fake"
	"ledge/network/service"
)

// loopWithEvents runs a Loop in a bubble, and notes what Services are told.
func loopWithEvents(t *testing.T, plane *plane, f func(l *Loop, c *counted, told *toldEvents)) {
	synctest.Test(t, func(t *testing.T) {
		var told toldEvents
		c := &counted{Forwarder: fake.NewForwarder(&fake.Kernel{})}
		l := New(Config{Client: plane, Forwarder: c, Node: "shed", Events: &told})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		f(l, c, &told)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// expectTold waits, and compares what was told since the last call by its beginnings.
func expectTold(t *testing.T, what string, told *toldEvents, want ...string) {
	t.Helper()
	time.Sleep(3 * grumble.Look)
	synctest.Wait()
	if got := told.take(); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

// TestShortServicesHear: a Service whose address or port an older one has is told so once, and again when that comes again.
func TestShortServicesHear(t *testing.T) {
	plane := newPlane()
	loopWithEvents(t, plane, func(_ *Loop, _ *counted, told *toldEvents) {
		of := func(name, ip string, created int64, port int32) *corev1.Service {
			s := svc(name, ip)
			s.UID, s.CreationTimestamp = types.UID("uid-"+name), metav1.Unix(created, 0)
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, port
			return s
		}
		old, port, address := of("old", "10.43.0.1", 1, 30080), of("port", "10.43.0.2", 2, 30080), of("address", "10.43.0.1", 3, 30081)
		plane.put(api.Services, port)
		plane.put(api.Services, address)
		plane.put(discovery.EndpointSlices, slice("old-1", "old", "10.42.0.2"))
		expectTold(t, "nobody has what another wants", told)
		plane.put(api.Services, old)
		const address1 = "v1 Service default address uid-address Warning NotForwarded Board shed does not forward address 10.43.0.1 " +
			"to this Service: the older Service default/old has it"
		const port1 = "v1 Service default port uid-port Warning NotForwarded Board shed does not forward TCP port 30080 of its own " +
			"addresses to this Service: the older Service default/old has it"
		expectTold(t, "an older one comes", told, address1, port1)
		plane.remove(api.Services, old)
		expectTold(t, "it goes", told)
		plane.put(api.Services, old)
		expectTold(t, "it comes again", told, address1, port1)
	})
}

// TestLeftOutServicesHear: who has no room on a board is told, though the board keeps nothing of it; a few at a time.
func TestLeftOutServicesHear(t *testing.T) {
	plane := newPlane()
	loopWithEvents(t, plane, func(l *Loop, _ *counted, told *toldEvents) {
		for i := range service.MostServices {
			l.heard.SetService(&service.Service{Name: fmt.Sprint("default/s", i), Target: "elsewhere."})
		}
		late := svc("late", "10.43.0.1")
		late.UID = "4711"
		plane.put(api.Services, late)
		const want = "v1 Service default late 4711 Warning NotForwarded Board shed does not forward this Service, nor answer for its name: "
		expectTold(t, "there is no room", told, want)
		plane.remove(api.Services, late)
		expectTold(t, "it goes", told)
		for i := range service.MostSlices {
			n := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("x", i)}
			l.heard.SetSlice(n, &service.Slice{Service: "default/s0"})
		}
		more := slice("more", "s1", "10.42.0.2")
		plane.put(discovery.EndpointSlices, more)
		expectTold(t, "there is no room for a slice", told,
			"v1 Service default s1  Warning NotForwarded Board shed does not lead to all endpoints of this Service: ")
		plane.remove(discovery.EndpointSlices, more)
		expectTold(t, "the slice goes", told)
		for i := range 2 * mostLeftOut {
			late := svc(fmt.Sprint("late", i), "10.43.0.1")
			plane.put(api.Services, late)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		soon := len(told.take())
		if soon == 0 || soon > 2*mostTold {
			t.Errorf("%d are told in a second", soon)
		}
		time.Sleep(30 * grumble.Look)
		synctest.Wait()
		if all := soon + len(told.take()); all != mostLeftOut {
			t.Errorf("%d are told in the end, want %d", all, mostLeftOut)
		}
	})
}

// TestRoomIsFound: who had no room on a board gets it once something goes, without being written again; noted or not.
func TestRoomIsFound(t *testing.T) {
	plane := newPlane()
	loopWithEvents(t, plane, func(l *Loop, _ *counted, told *toldEvents) {
		plane.put(api.Services, svc("old", "10.43.0.1"))
		synctest.Wait()
		for i := range service.MostServices {
			l.heard.SetService(&service.Service{Name: fmt.Sprint("default/s", i), Target: "elsewhere."})
		}
		const late = mostLeftOut + 4
		for i := range late {
			plane.put(api.Services, svc(fmt.Sprint("late", i), fmt.Sprintf("10.43.%d.%d", 1+i/250, 1+i%250)))
		}
		here := func() (n int) {
			time.Sleep(2 * readmitAfter)
			synctest.Wait()
			l.heard.RLock()
			defer l.heard.RUnlock()
			for i := range late {
				if l.heard.Service(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("late", i)}) != nil {
					n++
				}
			}
			return n
		}
		if n := here(); n != 0 {
			t.Errorf("%d are here, there is no room", n)
		}
		plane.remove(api.Services, svc("old", "10.43.0.1"))
		if n := here(); n != late {
			t.Errorf("%d of %d are here", n, late)
		}
		told.take()
		expectTold(t, "all are here", told)
	})
}

// TestRoomOfSlices: a slice that loses its last endpoint makes room as one that goes.
func TestRoomOfSlices(t *testing.T) {
	plane := newPlane()
	loopWithEvents(t, plane, func(l *Loop, _ *counted, _ *toldEvents) {
		plane.put(api.Services, svc("web", "10.43.0.1"))
		plane.put(discovery.EndpointSlices, slice("old", "web", "10.42.0.1"))
		synctest.Wait()
		for i := range service.MostSlices {
			l.heard.SetSlice(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("x", i)}, &service.Slice{Service: "default/s"})
		}
		late := types.NamespacedName{Namespace: "default", Name: "late"}
		plane.put(discovery.EndpointSlices, slice("late", "web", "10.42.0.2"))
		time.Sleep(2 * readmitAfter)
		if synctest.Wait(); l.heard.Has(service.OfSlices, late) {
			t.Error("there is no room, and it is here")
		}
		plane.put(discovery.EndpointSlices, slice("old", "web"))
		time.Sleep(2 * readmitAfter)
		if synctest.Wait(); !l.heard.Has(service.OfSlices, late) {
			t.Error("there is room, and it is not here")
		}
	})
}

// TestCutServicesHear: what a board leaves out of a Service that asks for very much is told, until it asks for less.
func TestCutServicesHear(t *testing.T) {
	plane := newPlane()
	loopWithEvents(t, plane, func(_ *Loop, _ *counted, told *toldEvents) {
		wide := svc("wide", "10.43.0.1")
		for i := range 300 {
			wide.Spec.Ports = append(wide.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1000 + i)})
		}
		plane.put(api.Services, wide)
		plane.put(api.Services, svc("deep", "10.43.0.2"))
		var addrs []string
		for i := range service.MostEndpoints {
			addrs = append(addrs, fmt.Sprintf("10.42.%d.%d", i/250, i%250+1))
		}
		plane.put(discovery.EndpointSlices, slice("wide-1", "wide", "10.42.0.2"))
		plane.put(discovery.EndpointSlices, slice("deep-1", "deep", addrs...))
		expectTold(t, "one has many ports", told,
			"v1 Service default wide  Warning NotForwarded Board shed forwards the first 256 ports of this Service, not more")
		plane.put(discovery.EndpointSlices, slice("deep-2", "deep", "10.42.9.9"))
		expectTold(t, "one has many endpoints", told, "v1 Service default deep  Warning NotForwarded Board shed leads to 1000 of the endpoints "+
			"behind port 80 of this Service, those with the lowest addresses")
		plane.put(api.Services, svc("wide", "10.43.0.1"))
		plane.remove(discovery.EndpointSlices, slice("deep-2", "deep", "10.42.9.9"))
		expectTold(t, "they have fewer", told)
	})
}
