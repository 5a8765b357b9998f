package endpoints

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// few is a capacity at which a few pods make several slices.
const few = 4

// world is a Service, its pods and its slices, which change at random.
type world struct {
	*rand.Rand
	svc  *corev1.Service
	pods []*corev1.Pod
	have []*discoveryv1.EndpointSlice
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 31))}
	w.svc = service("http:80->web", "more:90->9000")
	if w.IntN(3) == 0 {
		families4and6(w.svc)
	}
	return w
}

// happen changes something.
func (w *world) happen() {
	for range 1 + w.IntN(6) {
		n := w.IntN(20)
		at := slices.IndexFunc(w.pods, func(p *corev1.Pod) bool { return p.Name == fmt.Sprint("p", n) })
		if at >= 0 {
			w.pods = slices.Delete(w.pods, at, at+1)
		}
		if w.IntN(4) > 0 {
			words := []string{"", "ready", "ready going", "done", "ready on=gone"}[w.IntN(5)]
			w.pods = append(w.pods, pod(fmt.Sprintf("p%d ip=10.0.0.%d ip=fd00::%d port=web:%d %s", n, n+1, n+1, 80+w.IntN(2), words)))
		}
	}
	switch w.IntN(20) {
	case 0:
		w.svc.Spec.PublishNotReadyAddresses = !w.svc.Spec.PublishNotReadyAddresses
	case 1:
		w.svc.Labels = map[string]string{"n": fmt.Sprint(w.IntN(3))}
	case 2:
		w.svc.UID += "x"
	case 3:
		w.pods = nil
	}
}

func (w *world) plan() Plan { return slicesOf(few, w.svc, w.pods, zones, w.have) }

// wanted is what there is to be, by family, ports and address.
func (w *world) wanted() map[string]string {
	out := map[string]string{}
	for _, family := range families(w.svc) {
		for _, p := range w.pods {
			if e, ok := endpointOf(w.svc, p, zones, family); ok {
				out[string(family)+portsKey(portsOf(w.svc, p))+e.Addresses[0]] = one(&e)
			}
		}
	}
	return out
}

// holds is what there is, and how often.
func (w *world) holds() (is map[string]string, times map[string]int) {
	is, times = map[string]string{}, map[string]int{}
	for _, s := range w.have {
		for i := range s.Endpoints {
			key := string(s.AddressType) + portsKey(s.Ports) + s.Endpoints[i].Addresses[0]
			is[key] = one(&s.Endpoints[i])
			times[key]++
		}
	}
	return is, times
}

// bound is the number of writes that a plan may take: one for each slice in which something is not as it is to be, one for each slice's
// worth of endpoints that are new, and one for each slice that is there no more.
func (w *world) bound(after int) int {
	want := w.wanted()
	n, found := 0, map[string]bool{}
	for _, s := range w.have {
		wrong := len(s.Endpoints) == 0 || s.Labels["n"] != w.svc.Labels["n"] || s.OwnerReferences[0].UID != w.svc.UID
		for i := range s.Endpoints {
			key := string(s.AddressType) + portsKey(s.Ports) + s.Endpoints[i].Addresses[0]
			wrong = wrong || found[key] || want[key] != one(&s.Endpoints[i])
			found[key] = s.OwnerReferences[0].UID == w.svc.UID
		}
		if wrong {
			n++
		}
	}
	fresh := map[string]int{}
	for _, family := range families(w.svc) {
		for _, p := range w.pods {
			if e, ok := endpointOf(w.svc, p, zones, family); ok {
				if group := string(family) + portsKey(portsOf(w.svc, p)); !found[group+e.Addresses[0]] {
					fresh[group]++
				}
			}
		}
	}
	for _, k := range fresh {
		n += (k + few - 1) / few
	}
	return n + max(len(w.have)-after, 0) + len(families(w.svc))
}

// check holds what there is against what there is to be.
func (w *world) check(t *testing.T) {
	t.Helper()
	want := w.wanted()
	is, times := w.holds()
	for key, e := range want {
		if is[key] != e || times[key] != 1 {
			t.Fatalf("%s is %q, %d times, want %q once", key, is[key], times[key], e)
		}
	}
	if len(is) != len(want) {
		t.Fatalf("%d endpoints, want %d: %q", len(is), len(want), shown(w.have))
	}
	for _, s := range w.have {
		if len(s.Endpoints) > few {
			t.Fatalf("%d endpoints in a slice", len(s.Endpoints))
		}
		if len(s.Endpoints) == 0 && slices.ContainsFunc(w.have, func(o *discoveryv1.EndpointSlice) bool {
			return o != s && o.AddressType == s.AddressType
		}) {
			t.Fatalf("a slice says that there is nobody, beside others: %q", shown(w.have))
		}
	}
	if p := w.plan(); !p.Empty() {
		t.Fatalf("at rest there is something to write: %+v", p)
	}
}

// live has things happen, with a death after any write, and comes to the end of it.
func (w *world) live(t *testing.T, rounds int) {
	t.Helper()
	for range rounds {
		w.happen()
		for w.IntN(3) > 0 { // somebody begins, and dies
			w.some(t, w.plan())
			if w.IntN(2) == 0 {
				w.happen()
			}
		}
		p := w.plan()
		after := apply(w.have, p, everything)
		if n, most := size(p), w.bound(len(after)); n > most {
			t.Fatalf("%d writes, at most %d are needed: %q becomes %q", n, most, shown(w.have), shown(after))
		}
		w.have = after
		w.check(t)
	}
}

// some does the first writes of a plan; no address is missing in between that is there before and after.
func (w *world) some(t *testing.T, p Plan) {
	t.Helper()
	before, _ := w.holds()
	uid := w.svc.UID
	mine := slices.IndexFunc(w.have, func(s *discoveryv1.EndpointSlice) bool { return s.OwnerReferences[0].UID != uid }) < 0
	w.have = apply(w.have, p, w.IntN(size(p)+1))
	between, _ := w.holds()
	for key := range w.wanted() {
		if before[key] != "" && between[key] == "" && mine {
			t.Fatalf("%s is missing for a moment: %q", key, shown(w.have))
		}
	}
}

func seed(t *testing.T) uint64 {
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("LEDGE_SEED"); text != "" {
		n, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("LEDGE_SEED=%d", n)
	return n
}

// TestAtRandom: each pod is once where it belongs, whatever happened and whoever died; at rest nothing is written, and no more than
// is needed is.
func TestAtRandom(t *testing.T) {
	first := seed(t)
	for i := range uint64(40) {
		newWorld(first+i).live(t, 30)
	}
}

func FuzzSlices(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { newWorld(seed).live(t, 20) })
}

// Slices do not become many and almost empty, however slowly pods go.
func TestFewSlices(t *testing.T) {
	svc := service("http:80->8080")
	const capacity = 20
	list := many(0, 200)
	have := apply(nil, slicesOf(capacity, svc, list, zones, nil), everything)
	random := rand.New(rand.NewPCG(seed(t), 1))
	for len(list) > 4 {
		at := random.IntN(len(list))
		list = slices.Delete(list, at, at+1)
		have = apply(have, slicesOf(capacity, svc, list, zones, have), everything)
		if most := 4*len(list)/capacity + 2; len(have) > most {
			t.Fatalf("%d slices for %d endpoints", len(have), len(list))
		}
	}
}
