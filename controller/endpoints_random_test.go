//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/controller/endpoints"
	"ledge/internal/testrun"
	"ledge/storage"
)

// street is a store with Services, what is behind them, and loops that are killed again and again: the last write of each is done, and
// nobody hears of it.
type street struct {
	workshop
}

func (w *street) live(ctx context.Context, writes int) {
	if w.kill != nil {
		w.kill()
		<-w.ran
	}
	w.left.Store(int64(writes))
	w.kills++
	ctx, w.kill = context.WithCancel(ctx)
	w.ran = make(chan struct{})
	world := NewWorld(doomed{w.Client, &w.workshop}, kinds.All)
	loops := []interface{ Run(context.Context) error }{NewEndpoints(world, "", quiet{}), NewMirrors(world, quiet{}),
		NewBalancers(world, quiet{}), world}
	ended := make(chan struct{}, len(loops))
	for _, l := range loops {
		go func() {
			l.Run(ctx)
			ended <- struct{}{}
		}()
	}
	go func() {
		for range loops {
			<-ended
		}
		close(w.ran)
	}()
}

// ok lets pass that something is gone, there already, or another by now.
func (w *street) ok(_ api.Object, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		w.Fatal(err)
	}
}

// happen does something to a Service, a pod or Endpoints.
func (w *street) happen(ctx context.Context) {
	c, name := w.Client, []string{"web", "db"}[w.random.IntN(2)]
	switch w.random.IntN(10) {
	case 0:
		w.ok(c.Delete(ctx, api.Services, "default", name, api.DeleteOptions{}))
	case 1:
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		e.Subsets = []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}},
			Addresses: []corev1.EndpointAddress{{IP: fmt.Sprint("192.0.2.", 1+w.random.IntN(9))}}}}
		w.ok(c.Create(ctx, api.Endpoints, e, api.WriteOptions{}))
	case 2, 3:
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}}
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		s.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer}[w.random.IntN(2)]
		w.ok(c.Create(ctx, api.Services, s, api.WriteOptions{}))
		was, err := api.Get[*corev1.Service](ctx, c, api.Services, "default", name)
		if err != nil {
			w.Fatal(err)
		}
		was.Spec.Selector = []map[string]string{nil, {"app": name}}[w.random.IntN(2)]
		w.ok(c.Update(ctx, api.Services, was, api.WriteOptions{}))
	default:
		n := w.random.IntN(6)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", n), Labels: map[string]string{"app": name}}}
		p.Spec.NodeName, p.Spec.Containers = "n1", []corev1.Container{{Name: "c", Image: "i"}}
		if w.random.IntN(4) == 0 {
			w.ok(c.Delete(ctx, api.Pods, "default", p.Name, force()))
			return
		}
		w.ok(c.Create(ctx, api.Pods, p, api.WriteOptions{}))
		p, err := api.Get[*corev1.Pod](ctx, c, api.Pods, "default", p.Name)
		if err != nil {
			w.Fatal(err)
		}
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, fmt.Sprint("10.0.0.", n+1)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		ready := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[w.random.IntN(2)]
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		w.ok(c.Update(ctx, api.Pods, p, api.WriteOptions{Subresource: "status"}))
	}
}

func (w *street) list(kind *api.Kind) []api.Object {
	list, err := w.List(context.Background(), kind, api.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// look holds what is there at last to what there is to be.
func (w *street) look() {
	want, addresses := map[string]string{}, map[string]string{}
	for _, o := range w.list(api.Endpoints) {
		e := o.(*corev1.Endpoints)
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				addresses[e.Name] += " " + a.IP + "+"
			}
			for _, a := range s.NotReadyAddresses {
				addresses[e.Name] += " " + a.IP + "-"
			}
		}
	}
	for _, o := range w.list(api.Services) {
		s := o.(*corev1.Service)
		switch {
		case s.Name == "kubernetes":
		case len(s.Spec.Selector) == 0:
			if text := addresses[s.Name]; text != "" {
				want[s.Name] = endpoints.Mirrorer + sorted(text)
			}
		default:
			text := ""
			for _, p := range w.pods() {
				if contains(p.Labels, s.Spec.Selector) {
					text += " " + p.Status.PodIP + map[bool]string{true: "+", false: "-"}[api.PodReady(p)]
				}
			}
			want[s.Name] = endpoints.Manager + sorted(text)
			if sorted(text) != sorted(addresses[s.Name]) {
				w.Errorf("the Endpoints of %s say%s, want%s", s.Name, sorted(addresses[s.Name]), sorted(text))
			}
		}
	}
	got := map[string]string{}
	for _, o := range w.list(discovery.EndpointSlices) {
		s := o.(*discoveryv1.EndpointSlice)
		text := ""
		for _, e := range s.Endpoints {
			text += " " + e.Addresses[0] + map[bool]string{true: "+", false: "-"}[*e.Conditions.Ready]
		}
		if s.Labels[discoveryv1.LabelServiceName] == "kubernetes" { // the server's own
			continue
		}
		got[s.Labels[discoveryv1.LabelServiceName]] += s.Labels[discoveryv1.LabelManagedBy] + sorted(text)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("slices are\n%v, want\n%v", got, want)
	}
}

func sorted(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return fmt.Sprint(words)
}

// TestEndpointsAtRandom: loops that are killed after any of their writes leave something from which the next ones come to what there is
// to be.
func TestEndpointsAtRandom(t *testing.T) {
	runs := testrun.Rounds(8)
	if os.Getenv("LEDGE_LONG") != "" {
		runs = 300
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range runs {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { runStreet(t, dir, random) })
		})
	}
}

func runStreet(t *testing.T, dir string, random *rand.Rand) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true, Kinds: kinds.All})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := local.New(local.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	w := &street{workshop{T: t, Client: c, random: random}}
	ctx, cancel := context.WithCancel(t.Context())
	w.ok(c.Create(ctx, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, api.WriteOptions{}))
	for range 120 {
		if w.left.Load() <= 0 {
			synctest.Wait()
			w.live(ctx, 1+random.IntN(5))
		}
		w.happen(ctx)
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		synctest.Wait()
	}
	w.live(ctx, 1<<30)
	time.Sleep(time.Minute)
	synctest.Wait()
	w.look()
	if w.kills < 5 {
		t.Errorf("killed %d times", w.kills)
	}
	before := w.left.Load()
	time.Sleep(time.Hour)
	synctest.Wait()
	if left := w.left.Load(); left != before {
		t.Errorf("%d writes in an hour in which nothing happened", before-left)
	}
	cancel()
	<-w.ran
}
