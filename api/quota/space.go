package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

// Space is what the objects of a namespace take of its quotas. It is told of every change (Apply), beginning with all that there is.
type Space struct {
	kinds  *api.Kinds
	quotas []*account
	ending map[string]ending
}

// account is one quota and what has been taken of it.
type account struct {
	quota  *corev1.ResourceQuota // shared
	scopes []corev1.ScopedResourceSelectorRequirement
	names  map[*api.Kind][]corev1.ResourceName // of its hard bounds, those that are about a kind; kept once asked for
	used   corev1.ResourceList
}

// ending is an object that is there and takes something until a time.
type ending struct {
	kind  *api.Kind
	obj   api.Object
	until time.Time
}

// NewSpace is a namespace of these quotas in which there is nothing yet. They are not changed.
func NewSpace(kinds *api.Kinds, quotas []*corev1.ResourceQuota) *Space {
	s := &Space{kinds: kinds, ending: map[string]ending{}}
	for _, q := range quotas {
		s.quotas = append(s.quotas, &account{quota: q, scopes: api.QuotaScopes(q), names: map[*api.Kind][]corev1.ResourceName{},
			used: corev1.ResourceList{}})
	}
	return s
}

// Clone is a copy that may be told of what may not come to be.
func (s *Space) Clone() *Space {
	c := &Space{kinds: s.kinds, ending: maps.Clone(s.ending)}
	for _, a := range s.quotas {
		one := *a
		one.used = maps.Clone(a.used) // Apply replaces amounts, and changes none
		c.quotas = append(c.quotas, &one)
	}
	return c
}

// Counted says whether there can be a quota of a kind. Events are made for others, and go by themselves.
func Counted(kind *api.Kind) bool {
	return kind.Namespaced && kind.Charge() != nil && kind != api.Events
}

// Kinds are those that some quota is about.
func (s *Space) Kinds() (out []*api.Kind) {
	for _, kind := range s.kinds.Kept {
		if s.about(kind) {
			out = append(out, kind)
		}
	}
	return out
}

// countName is what the number of objects of a kind is called in a quota.
func countName(kind *api.Kind) corev1.ResourceName {
	return corev1.ResourceName("count/" + kind.GR().String())
}

// oldName is what it was called before; "": it was not. The one of pods means those that run.
func oldName(kind *api.Kind) corev1.ResourceName {
	name := corev1.ResourceName(kind.Resource)
	if kind.Group != "" || kind == api.Pods || !api.IsQuotaName(name) {
		return ""
	}
	return name
}

// about are the names of the quota that are about a kind.
func (a *account) about(kind *api.Kind) []corev1.ResourceName {
	names, asked := a.names[kind]
	if !asked && Counted(kind) {
		for name := range a.quota.Spec.Hard {
			if name == countName(kind) || name == oldName(kind) || kind.Charge().Covers(name) {
				names = append(names, name)
			}
		}
	}
	a.names[kind] = names
	return names
}

// covers says whether a quota is about an object.
func (a *account) covers(kind *api.Kind, obj api.Object) bool {
	if obj == nil || len(a.about(kind)) == 0 {
		return false
	}
	for _, r := range a.scopes {
		if !kind.Charge().In(obj, r) {
			return false
		}
	}
	return true
}

// use is what an object takes of quotas.
func use(kind *api.Kind, obj api.Object) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{countName(kind): one}
	if name := oldName(kind); name != "" {
		out[name] = one
	}
	maps.Copy(out, kind.Charge().Uses(obj))
	return out
}

// Apply tells that an object is what it is now; old is nil where it is new, obj where it is gone. Both are shared. It says whether any
// quota is about such objects.
func (s *Space) Apply(kind *api.Kind, old, obj api.Object) bool {
	if !s.about(kind) {
		return false
	}
	for _, step := range []struct {
		obj  api.Object
		more bool
	}{{old, false}, {obj, true}} {
		if step.obj == nil {
			continue
		}
		amounts := use(kind, step.obj)
		for _, a := range s.quotas {
			if a.covers(kind, step.obj) {
				a.add(amounts, step.more)
			}
		}
		key := endingKey(kind, step.obj)
		if until := kind.Charge().Until(step.obj); step.more && !until.IsZero() {
			s.ending[key] = ending{kind, step.obj, until}
		} else {
			delete(s.ending, key)
		}
	}
	return true
}

func (s *Space) about(kind *api.Kind) bool {
	return slices.ContainsFunc(s.quotas, func(a *account) bool { return len(a.about(kind)) > 0 })
}

func endingKey(kind *api.Kind, obj api.Object) string {
	return string(countName(kind)) + "/" + obj.GetName()
}

func (a *account) add(amounts corev1.ResourceList, more bool) {
	for name := range a.quota.Spec.Hard {
		q, takes := amounts[name]
		if !takes || q.IsZero() {
			continue
		}
		a.used[name] = plus(a.used[name], q, more)
	}
}

func plus(sum, q resource.Quantity, more bool) resource.Quantity {
	sum = sum.DeepCopy()
	if more {
		sum.Add(q)
	} else {
		sum.Sub(q)
	}
	return sum
}

// taken is what has been taken of a quota at a time.
func (s *Space) taken(a *account, now time.Time) corev1.ResourceList {
	out, own := a.used, false
	for _, e := range s.ending {
		if !now.After(e.until) || !a.covers(e.kind, e.obj) {
			continue
		}
		if !own {
			out, own = maps.Clone(out), true
		}
		for name, q := range e.kind.Charge().Uses(e.obj) {
			if _, counted := out[name]; counted {
				out[name] = plus(out[name], q, false)
			}
		}
	}
	return out
}

// Next is when something may stop being taken although nothing changes; zero: never.
func (s *Space) Next(now time.Time) (next time.Time) {
	for _, e := range s.ending {
		if !now.After(e.until) && (next.IsZero() || e.until.Before(next)) {
			next = e.until
		}
	}
	return next
}

// Check says why an object may not be written, in Kubernetes' words: a quota wants it to say more, or has too little left. old is nil for
// a new one. The Space is as it was before the write.
func (s *Space) Check(kind *api.Kind, obj, old api.Object, now time.Time) error {
	type demand struct {
		on   *account
		more corev1.ResourceList
	}
	var demands []demand
	asked, had := use(kind, obj), corev1.ResourceList{}
	if old != nil {
		had = use(kind, old)
	}
	for _, a := range s.quotas {
		if !a.covers(kind, obj) {
			continue
		}
		more := asked
		if a.covers(kind, old) {
			more = beyond(asked, had)
		}
		if len(more) == 0 {
			continue
		}
		if lacks := kind.Charge().Lacks(obj, a.about(kind)); lacks != "" {
			return fmt.Errorf("failed quota: %s: %s", a.quota.Name, lacks)
		}
		demands = append(demands, demand{a, more})
	}
	for _, d := range demands {
		if err := d.on.fits(d.more, s.taken(d.on, now)); err != nil {
			return err
		}
	}
	return nil
}

// beyond is what a list has more than another one.
func beyond(list, than corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if q := plus(q, than[name], false); q.Sign() > 0 {
			out[name] = q
		}
	}
	return out
}

// fits says of which names there is too little left.
func (a *account) fits(more, used corev1.ResourceList) error {
	var lacking []corev1.ResourceName
	for name, hard := range a.quota.Spec.Hard {
		if q, asked := more[name]; asked && !q.IsZero() {
			q.Add(used[name]) // a copy
			if q.Cmp(hard) > 0 {
				lacking = append(lacking, name)
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	text := func(list corev1.ResourceList) string {
		var all []string
		for _, name := range lacking {
			q := list[name]
			all = append(all, fmt.Sprintf("%s=%s", name, q.String()))
		}
		return strings.Join(all, ",")
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s", a.quota.Name, text(more), text(used), text(a.quota.Spec.Hard))
}

// Status is what the status of each quota is to say, by name.
func (s *Space) Status(now time.Time) map[string]corev1.ResourceQuotaStatus {
	out := map[string]corev1.ResourceQuotaStatus{}
	for _, a := range s.quotas {
		taken := s.taken(a, now)
		st := corev1.ResourceQuotaStatus{Hard: a.quota.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
		for name := range a.quota.Spec.Hard {
			if q, ok := taken[name]; ok {
				st.Used[name] = q.DeepCopy()
			} else if s.known(name) {
				st.Used[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
		out[a.quota.Name] = st
	}
	return out
}

// known says whether it is known what a name means. What is not is bounded by nothing, as on Kubernetes, and has no number.
func (s *Space) known(name corev1.ResourceName) bool {
	return api.IsQuotaName(name) || strings.Contains(string(name), api.OfClass) || slices.ContainsFunc(s.kinds.All(), func(k *api.Kind) bool {
		return k.Namespaced && k != api.Events && (name == countName(k) || Counted(k) && k.Charge().Covers(name))
	})
}
