package managed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// owners are the managedFields of an object, opened: by owner, the fields and when they were last set. An owner is
// everything that tells two entries apart, as text.
type owners struct {
	fields fieldpath.ManagedFields
	times  map[string]metav1.Time
}

// ownerOf is the key of an entry. Who applies is one owner whatever version is applied.
func ownerOf(e metav1.ManagedFieldsEntry) string {
	if e.Operation == metav1.ManagedFieldsOperationApply {
		e.APIVersion = ""
	}
	return strings.Join([]string{e.Manager, string(e.Operation), e.APIVersion, e.Subresource}, "\x00")
}

// entryOf is an owner as an entry, without its fields.
func entryOf(owner string) metav1.ManagedFieldsEntry {
	part := strings.Split(owner, "\x00")
	return metav1.ManagedFieldsEntry{Manager: part[0], Operation: metav1.ManagedFieldsOperationType(part[1]), APIVersion: part[2],
		Subresource: part[3]}
}

// open reads managedFields.
func open(entries []metav1.ManagedFieldsEntry) (owners, error) {
	o := owners{fieldpath.ManagedFields{}, map[string]metav1.Time{}}
	for _, e := range entries {
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.APIVersion == "" || strings.ContainsRune(e.Manager+e.APIVersion+e.Subresource, 0) {
			return o, fmt.Errorf("metadata.managedFields: the entry of %q has no operation or version", e.Manager)
		}
		set := &fieldpath.Set{}
		if e.FieldsV1 != nil {
			if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
				return o, fmt.Errorf("metadata.managedFields: the fields of %q: %w", e.Manager, err)
			}
		}
		owner := ownerOf(e)
		o.fields[owner] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(e.APIVersion), e.Operation == metav1.ManagedFieldsOperationApply)
		if e.Time != nil {
			o.times[owner] = *e.Time
		}
	}
	return o, nil
}

// close writes managedFields, in an order that does not change.
func (o owners) close() ([]metav1.ManagedFieldsEntry, error) {
	var out []metav1.ManagedFieldsEntry
	for _, owner := range slices.Sorted(maps.Keys(o.fields)) {
		set := o.fields[owner]
		if set.Set().Empty() && !set.Applied() {
			continue
		}
		e := entryOf(owner)
		e.APIVersion, e.FieldsType = string(set.APIVersion()), "FieldsV1"
		data, err := set.Set().ToJSON()
		if err != nil {
			return nil, fmt.Errorf("write the fields of %q: %w", e.Manager, err)
		}
		e.FieldsV1 = metav1.NewFieldsV1(string(data))
		if t, ok := o.times[owner]; ok {
			e.Time = &t
		}
		out = append(out, e)
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Operation != b.Operation {
			return a.Operation < b.Operation
		}
		return timeOf(a).Before(timeOf(b))
	})
	return out, nil
}

func timeOf(e metav1.ManagedFieldsEntry) time.Time {
	if e.Time == nil {
		return time.Time{}
	}
	return e.Time.Time
}

// What identifies an object belongs to nobody.
var nobodys = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"), fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "selfLink"), fieldpath.MakePathOrDie("metadata", "resourceVersion"),
	fieldpath.MakePathOrDie("metadata", "managedFields"))

func (o owners) strip(owner string) {
	set, ok := o.fields[owner]
	if !ok {
		return
	}
	left := set.Set().Difference(nobodys)
	if left.Empty() && !set.Applied() {
		delete(o.fields, owner)
		return
	}
	o.fields[owner] = fieldpath.NewVersionedSet(left, set.APIVersion(), set.Applied())
}

const (
	maxUpdaters = 10                // entries of writes other than apply; beyond it the oldest become one
	ancient     = "ancient-changes" // whose that one is
)

// limit joins the oldest entries of writes, so that many writers do not make an object grow without end.
func (o owners) limit() {
	var updaters []string
	for owner, set := range o.fields {
		if !set.Applied() && entryOf(owner).Manager != ancient {
			updaters = append(updaters, owner)
		}
	}
	if len(updaters) <= maxUpdaters {
		return
	}
	slices.SortFunc(updaters, func(a, b string) int {
		if c := o.times[a].Time.Compare(o.times[b].Time); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	for _, owner := range updaters[:len(updaters)-maxUpdaters] {
		set := o.fields[owner]
		bucket := ownerOf(metav1.ManagedFieldsEntry{Manager: ancient, Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: string(set.APIVersion())})
		all := set.Set()
		if have, ok := o.fields[bucket]; ok {
			all = all.Union(have.Set())
		}
		o.fields[bucket], o.times[bucket] = fieldpath.NewVersionedSet(all, set.APIVersion(), false), o.times[owner]
		delete(o.fields, owner)
		delete(o.times, owner)
	}
}

// same says whether two sets of owners are the same but for times.
func (o owners) same(other owners) bool {
	return maps.EqualFunc(o.fields, other.fields, func(a, b fieldpath.VersionedSet) bool {
		return a.APIVersion() == b.APIVersion() && a.Applied() == b.Applied() && a.Set().Equals(b.Set())
	})
}

// treeOf reads what kubectl says it applied.
func treeOf(text string) (map[string]any, error) {
	var tree map[string]any
	err := json.Unmarshal([]byte(text), &tree)
	return tree, err
}
