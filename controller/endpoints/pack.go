package endpoints

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan is what is to be written, in this order.
type Plan struct {
	Create, Update, Delete []*discoveryv1.EndpointSlice
}

// Empty says that there is nothing to write.
func (p *Plan) Empty() bool { return len(p.Create)+len(p.Update)+len(p.Delete) == 0 }

// frame is what the slices of one owner have alike.
type frame struct {
	namespace, service  string
	labels, annotations map[string]string
	owner               metav1.OwnerReference
	capacity            int
	born                time.Time // of the Service
}

// group is what belongs into the same slices: endpoints of one family with the same ports.
type group struct {
	family discoveryv1.AddressType
	ports  []discoveryv1.EndpointPort
	want   []discoveryv1.Endpoint // of two with one identity the last
	since  map[identity]time.Time // when what they come from changed
	empty  bool                   // has a slice though it has no endpoints
}

// identity tells endpoints of a group apart. An endpoint that changes otherwise is changed in its place.
type identity struct{ address, hostname, namespace, name string }

func identify(e *discoveryv1.Endpoint) (id identity) {
	if len(e.Addresses) > 0 {
		id.address = e.Addresses[0]
	}
	if e.Hostname != nil {
		id.hostname = *e.Hostname
	}
	if e.TargetRef != nil {
		id.namespace, id.name = e.TargetRef.Namespace, e.TargetRef.Name
	}
	return id
}

// portsKey is the same for the same ports in any order.
func portsKey(ports []discoveryv1.EndpointPort) string {
	keys := make([]string, 0, len(ports))
	for _, p := range ports {
		key := strconv.Quote(value(p.Name)) + strconv.Quote(value(p.AppProtocol)) + string(value(p.Protocol))
		if p.Port != nil {
			key += strconv.Itoa(int(*p.Port))
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return strings.Join(keys, ",")
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// draft is a slice as it is to be.
type draft struct {
	was       *discoveryv1.EndpointSlice // nil: a new one
	group     *group
	endpoints []discoveryv1.Endpoint
	changed   bool
	since     time.Time // the earliest change that is the reason
}

func (d *draft) note(since time.Time) {
	d.changed = true
	if !since.IsZero() && (d.since.IsZero() || since.Before(d.since)) {
		d.since = since
	}
}

func (d *draft) put(e ...discoveryv1.Endpoint) {
	d.endpoints = append(d.endpoints, e...)
	for i := range e {
		d.note(d.group.since[identify(&e[i])])
	}
}

// plan puts what is wanted into as many slices as it takes, with as few writes as it takes.
func (f *frame) plan(groups []*group, existing []*discoveryv1.EndpointSlice) (p Plan) {
	existing = slices.SortedFunc(slices.Values(existing), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	of := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range existing {
		switch key := string(s.AddressType) + portsKey(s.Ports); {
		case s.DeletionTimestamp != nil: // it goes by itself
		case !f.owns(s): // of a former Service of that name
			p.Delete = append(p.Delete, s)
		default:
			of[key] = append(of[key], s)
		}
	}
	var drafts []*draft
	for _, g := range groups {
		key := string(g.family) + portsKey(g.ports)
		drafts = append(drafts, f.pack(g, of[key])...)
		delete(of, key)
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		for _, s := range of[key] {
			drafts = append(drafts, &draft{was: s, changed: true})
		}
	}
	f.write(&p, drafts)
	if len(existing) == len(p.Delete) { // the first of a new Service
		for _, s := range p.Create {
			stamp(s, f.born)
		}
	}
	return p
}

func (f *frame) owns(s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == f.owner.UID && o.Kind == f.owner.Kind })
}

// pack fills the slices of one group. What stands where it should stays there; what is new goes first into slices that are written anyway,
// then into one that has room for all of it, then into new ones.
func (f *frame) pack(g *group, existing []*discoveryv1.EndpointSlice) []*draft {
	drafts, rest := f.keep(g, existing)
	fill := func(d *draft) {
		n := min(len(rest), f.capacity-len(d.endpoints))
		if n > 0 {
			d.put(rest[:n]...)
			rest = rest[n:]
		}
	}
	byFullest(drafts)
	for _, d := range drafts {
		if d.changed {
			fill(d)
		}
	}
	for len(rest) > 0 {
		i := -1
		if len(rest) < f.capacity {
			i = slices.IndexFunc(drafts, func(d *draft) bool { return len(d.endpoints)+len(rest) <= f.capacity }) // the fullest
		}
		if i < 0 {
			drafts, i = append(drafts, &draft{group: g, changed: true}), len(drafts)
		}
		fill(drafts[i])
	}
	f.merge(drafts)
	if g.empty && len(drafts) == 0 {
		drafts = append(drafts, &draft{group: g, changed: true})
	}
	return drafts
}

// keep finds which of the endpoints in existing slices stay; rest are those that are in none.
func (f *frame) keep(g *group, existing []*discoveryv1.EndpointSlice) (drafts []*draft, rest []discoveryv1.Endpoint) {
	want := make(map[identity]*discoveryv1.Endpoint, len(g.want))
	for i := range g.want {
		want[identify(&g.want[i])] = &g.want[i]
	}
	for _, s := range existing {
		d := &draft{was: s, group: g, changed: !f.fits(s)}
		for i := range s.Endpoints {
			id := identify(&s.Endpoints[i])
			switch e, ok := want[id]; {
			case !ok || len(d.endpoints) == f.capacity:
				d.changed = true
				continue
			case apiequality.Semantic.DeepEqual(e, &s.Endpoints[i]):
				d.endpoints = append(d.endpoints, *e)
			case apiequality.Semantic.DeepEqual(e.Conditions, s.Endpoints[i].Conditions):
				d.endpoints, d.changed = append(d.endpoints, *e), true
			default:
				d.put(*e)
			}
			delete(want, id) // where it stands twice, once is enough
		}
		if len(d.endpoints) == 0 && !(g.empty && len(drafts) == 0) {
			d.changed = true
		}
		drafts = append(drafts, d)
	}
	for i := range g.want {
		id := identify(&g.want[i])
		if e, ok := want[id]; ok {
			rest = append(rest, *e)
			delete(want, id)
		}
	}
	return drafts, rest
}

// fits says that a slice is marked as this frame marks its slices.
func (f *frame) fits(s *discoveryv1.EndpointSlice) bool {
	if f.annotations != nil && !maps.Equal(f.annotations, s.Annotations) {
		return false
	}
	return maps.Equal(f.labels, s.Labels)
}

// merge makes one of two slices that together fill at most half of one, where one of them is written anyway: as many as a Service once had
// would stay otherwise, each almost empty.
func (f *frame) merge(drafts []*draft) {
	for {
		left := slices.DeleteFunc(slices.Clone(drafts), func(d *draft) bool { return len(d.endpoints) == 0 })
		byFullest(left)
		slices.Reverse(left)
		i := slices.IndexFunc(left, func(d *draft) bool { return d.changed })
		if i < 0 || len(left) < 2 {
			return
		}
		into, from := left[i], left[0]
		if i == 0 {
			from = left[1]
		}
		if len(into.endpoints)+len(from.endpoints) > f.capacity/2 {
			return
		}
		if into.was == nil {
			into, from = from, into
		}
		into.endpoints = append(into.endpoints, from.endpoints...)
		into.note(from.since)
		from.endpoints, from.changed = nil, true
	}
}

func byFullest(drafts []*draft) {
	slices.SortStableFunc(drafts, func(a, b *draft) int { return cmp.Compare(len(b.endpoints), len(a.endpoints)) })
}

// write turns drafts into writes. A slice that would go becomes one that would be made, of the same family: the family is what cannot be
// changed.
func (f *frame) write(p *Plan, drafts []*draft) {
	var fresh, old []*draft
	for _, d := range drafts {
		switch {
		case !d.changed:
		case d.was == nil && (len(d.endpoints) > 0 || d.group.empty):
			fresh = append(fresh, d)
		case d.was == nil:
		case len(d.endpoints) == 0 && !d.stays(drafts):
			old = append(old, d)
		default:
			p.Update = append(p.Update, f.slice(d))
		}
	}
	for _, d := range fresh {
		i := slices.IndexFunc(old, func(o *draft) bool { return o.was.AddressType == d.group.family })
		if i < 0 {
			p.Create = append(p.Create, f.slice(d))
			continue
		}
		d.was = old[i].was
		p.Update, old = append(p.Update, f.slice(d)), slices.Delete(old, i, i+1)
	}
	for _, d := range old {
		p.Delete = append(p.Delete, d.was)
	}
}

// stays says of a slice without endpoints that it is the one that says so.
func (d *draft) stays(drafts []*draft) bool {
	if d.group == nil || !d.group.empty {
		return false
	}
	first := slices.IndexFunc(drafts, func(o *draft) bool { return o.group == d.group })
	return drafts[first] == d
}

// slice is the object of a draft.
func (f *frame) slice(d *draft) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{}
	if d.was != nil {
		s = d.was.DeepCopy()
	} else {
		s.Namespace, s.GenerateName, s.AddressType = f.namespace, f.service+"-", d.group.family
		s.OwnerReferences = []metav1.OwnerReference{f.owner}
	}
	s.Labels, s.Ports, s.Endpoints = maps.Clone(f.labels), d.group.ports, d.endpoints
	if s.Endpoints == nil {
		s.Endpoints = []discoveryv1.Endpoint{}
	}
	if f.annotations != nil {
		s.Annotations = maps.Clone(f.annotations)
		return s
	}
	stamp(s, d.since)
	return s
}

// stamp says of an object when what it shows changed, by which others measure how long it took until they heard of it.
func stamp(o metav1.Object, at time.Time) {
	a := o.GetAnnotations()
	if at.IsZero() {
		delete(a, corev1.EndpointsLastChangeTriggerTime)
		return
	}
	if a == nil {
		a = map[string]string{}
	}
	a[corev1.EndpointsLastChangeTriggerTime] = at.UTC().Format(time.RFC3339Nano)
	o.SetAnnotations(a)
}
