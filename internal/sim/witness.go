package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"

	"ledge/api"
	"ledge/api/coordination"
)

// witness watches as a user's programs do, and checks what any watcher may count on: revisions only go up, through
// every restart, and what the events add up to is what a list says. It also has an ear for the lease.
type witness struct {
	fail func(format string, args ...any)

	mu      sync.Mutex
	objects map[*api.Kind]map[string]api.Object
	rev     map[*api.Kind]uint64
	excused bool // the next renewal may be late
	beats   int
}

var witnessed = []*api.Kind{api.Pods, api.Nodes, coordination.Leases, api.ConfigMaps}

func newWitness() *witness {
	w := &witness{objects: map[*api.Kind]map[string]api.Object{}, rev: map[*api.Kind]uint64{}}
	for _, k := range witnessed {
		w.objects[k] = map[string]api.Object{}
	}
	return w
}

// Run watches until ctx ends. A watch that breaks is begun anew, as every client must.
func (w *witness) Run(ctx context.Context, c api.Client) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range witnessed {
		g.Go(func() error {
			for ctx.Err() == nil {
				w.follow(ctx, c, kind)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (w *witness) follow(ctx context.Context, c api.Client, kind *api.Kind) {
	list, err := c.List(ctx, kind, api.ListOptions{})
	if err != nil {
		return
	}
	w.listed(kind, list)
	watch, err := c.Watch(ctx, kind, api.WatchOptions{Revision: list.Revision, Bookmarks: true})
	if err != nil {
		return
	}
	defer watch.Close()
	for {
		e, err := watch.Next()
		if err != nil {
			return
		}
		w.saw(kind, e)
	}
}

func (w *witness) listed(kind *api.Kind, list api.List) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rev := number(list.Revision)
	if rev < w.rev[kind] {
		w.fail("%s: a list of revision %d after one of %d", kind.Resource, rev, w.rev[kind])
	}
	w.rev[kind] = rev
	old := w.objects[kind]
	w.objects[kind] = map[string]api.Object{}
	for _, o := range list.Items {
		key := api.Key(o).String()
		w.objects[kind][key] = o
		if l, ok := old[key].(*coordinationv1.Lease); ok {
			w.beat(l, o.(*coordinationv1.Lease))
		}
	}
}

func (w *witness) saw(kind *api.Kind, e api.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rev, key := number(e.Object.GetResourceVersion()), api.Key(e.Object).String()
	if e.Type == api.Bookmark {
		if rev < w.rev[kind] {
			w.fail("%s: a bookmark of %d after an event of %d", kind.Resource, rev, w.rev[kind])
		}
		w.rev[kind] = rev
		return
	}
	if rev <= w.rev[kind] {
		w.fail("%s: an event of revision %d after one of %d", kind.Resource, rev, w.rev[kind])
	}
	w.rev[kind] = rev
	old, known := w.objects[kind][key]
	if (e.Type == api.Added) == known {
		w.fail("%s %s: %s, and known before: %v", kind.Resource, key, e.Type, known)
	}
	if e.Type == api.Deleted {
		delete(w.objects[kind], key)
		return
	}
	w.objects[kind][key] = e.Object
	if known && kind == coordination.Leases {
		w.beat(old.(*coordinationv1.Lease), e.Object.(*coordinationv1.Lease))
	}
}

// How far apart two renewals may be: 10 s and up to 4 % (N-2.2).
const (
	beatLeast = 10 * time.Second
	beatMost  = 10*time.Second + 401*time.Millisecond
)

func (w *witness) beat(old, new *coordinationv1.Lease) {
	if old.Spec.RenewTime == nil || new.Spec.RenewTime == nil || old.Spec.RenewTime.Equal(new.Spec.RenewTime) {
		return
	}
	gap := new.Spec.RenewTime.Sub(old.Spec.RenewTime.Time)
	if gap < 0 { // heartbeats may be lost with the brain; the next one comes at once
		w.excused = true
		return
	}
	if !w.excused && (gap < beatLeast || gap > beatMost) {
		w.fail("the lease was renewed after %s", gap)
	}
	w.excused = false
	w.beats++
}

// excuse forgives the next renewal its time: something happened that may delay it.
func (w *witness) excuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused = true
}

// Beats is how many renewals were heard.
func (w *witness) Beats() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beats
}

// compare says how what was watched differs from a list of the same moment.
func (w *witness) compare(kind *api.Kind, items []api.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := map[string]string{}
	for _, o := range items {
		want[api.Key(o).String()] = o.GetResourceVersion()
	}
	have := map[string]string{}
	for key, o := range w.objects[kind] {
		have[key] = o.GetResourceVersion()
	}
	if maps.Equal(want, have) {
		return nil
	}
	var diff []string
	for _, key := range slices.Sorted(maps.Keys(union(want, have))) {
		if want[key] != have[key] {
			diff = append(diff, fmt.Sprintf("%s: watched %q, listed %q", key, have[key], want[key]))
		}
	}
	return fmt.Errorf("%s: %v", kind.Resource, diff)
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
