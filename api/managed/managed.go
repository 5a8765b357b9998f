// Package managed keeps track of who set which field of an object, and merges what managers apply (server-side apply).
// structured-merge-diff does the work, from the schemas of package openapi.
//
// An object is tracked from the first time somebody applies to it, on the server's side or, as kubectl apply does, on
// the client's; until then it has no managedFields. On Kubernetes every object has them from its creation, which doubles
// its size on disk and the work of each write of its status: a board pays for it only where it is used. What was there
// before the first apply belongs to "before-first-apply".
package managed

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"ledge/api"
	"ledge/api/kinds"
)

// Fields tracks fields. The zero value is ready; the types it needs are read at first use.
type Fields struct {
	Now   func() time.Time // nil: time.Now
	Kinds *api.Kinds       // nil: those of a board

	once  sync.Once
	types map[*api.Kind]typed.ParseableType
	err   error
}

const (
	beforeFirst = "before-first-apply"
	// kubectl keeps what it applied on the client's side in an annotation; only it moves an object to the server's.
	kubectl     = "kubectl"
	lastApplied = corev1.LastAppliedConfigAnnotation
)

// Tracked says whether the fields of an object have managers.
func Tracked(obj api.Object) bool { return len(obj.GetManagedFields()) > 0 }

// Apply merges an applied configuration, a JSON tree, into live as manager. live may be an empty object: what comes
// out is then to be created. The error for fields that others manage is a 409 with a cause for each, unless force takes
// them over.
func (f *Fields) Apply(kind *api.Kind, live api.Object, applied map[string]any, sub, manager string, force bool) (api.Object, error) {
	w, err := f.work(kind, sub)
	if err != nil {
		return nil, err
	}
	if meta, ok := applied["metadata"].(map[string]any); ok && meta["managedFields"] != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	config, err := w.typ.FromUnstructured(applied)
	if err != nil {
		return nil, apierrors.NewBadRequest("the applied configuration does not fit: " + err.Error())
	}
	was, live, err := w.begin(live)
	if err != nil {
		return nil, err
	}
	if len(was.fields) == 0 && live.GetUID() != "" {
		if was, err = w.everything(live); err != nil {
			return nil, err
		}
	}
	from, err := w.typ.FromStructured(live, typed.AllowDuplicates)
	if err != nil {
		return nil, api.NewInternal("read %s %s: %w", kind.Singular, live.GetName(), err)
	}
	owner := ownerOf(metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: sub})
	to, fields, err := w.updater.Apply(from, config, w.version, was.fields.Copy(), owner, force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) && manager == kubectl {
		if conflicts = w.notFromClient(conflicts, live); len(conflicts) == 0 {
			to, fields, err = w.updater.Apply(from, config, w.version, was.fields.Copy(), owner, true)
		}
	}
	switch {
	case len(conflicts) > 0:
		return nil, conflictError(conflicts)
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := live
	if to != nil {
		if obj, err = w.object(to); err != nil {
			return nil, err
		}
		kind.Default(obj)
	}
	if manager == kubectl && appliedByClient(obj) {
		if err := setLastApplied(obj, applied); err != nil {
			return nil, err
		}
	}
	return obj, w.end(obj, was, fields, owner, f.now())
}

// Create notes on a new object that manager set all of it, if it is one that clients apply. What the server adds later
// has no manager.
func (f *Fields) Create(kind *api.Kind, obj api.Object, manager string) error {
	obj.SetManagedFields(nil)
	if !appliedByClient(obj) {
		return nil
	}
	return f.note(kind, kind.New(), obj, "", manager)
}

// Update notes on obj, which takes the place of live by another way than apply, that manager set what changed. It does
// nothing to objects that nobody applied to.
func (f *Fields) Update(kind *api.Kind, live, obj api.Object, sub, manager string) error {
	switch {
	case reset(obj):
		obj.SetManagedFields(nil)
		return nil
	case Tracked(live) || Tracked(obj):
	case appliedByClient(obj):
		// Without this the one who applies first would seem to have set all that the server added before.
		live = live.DeepCopyObject().(api.Object)
		if err := f.note(kind, kind.New(), live, "", beforeFirst); err != nil {
			return err
		}
	default:
		return nil
	}
	return f.note(kind, live, obj, sub, manager)
}

func (f *Fields) note(kind *api.Kind, live, obj api.Object, sub, manager string) error {
	w, err := f.work(kind, sub)
	if err != nil {
		return err
	}
	entries := live.GetManagedFields()
	if sub == "" && Tracked(obj) {
		entries = obj.GetManagedFields() // a client may set them
	}
	was, err := open(entries)
	if err != nil {
		was, err = open(live.GetManagedFields())
	}
	if err != nil {
		return api.NewInternal("%w", err)
	}
	_, live, err = w.begin(live)
	if err != nil {
		return err
	}
	obj.SetManagedFields(nil)
	kind.Stamp(obj)
	from, err := w.typ.FromStructured(live, typed.AllowDuplicates)
	if err != nil {
		return api.NewInternal("read %s %s: %w", kind.Singular, obj.GetName(), err)
	}
	to, err := w.typ.FromStructured(obj, typed.AllowDuplicates)
	if err != nil {
		return api.NewInternal("read %s %s: %w", kind.Singular, obj.GetName(), err)
	}
	if manager == "" {
		manager = "unknown"
	}
	owner := ownerOf(metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: kind.APIVersion(), Subresource: sub})
	// The change is worked out as nobody's: what the manager had set before stays its own.
	const now = "\x00Update\x00\x00"
	_, fields, err := w.updater.Update(from, to, w.version, was.fields.Copy(), now)
	if err != nil {
		return api.NewInternal("track the fields of %s %s: %w", kind.Singular, obj.GetName(), err)
	}
	if set, ok := fields[now]; ok {
		delete(fields, now)
		if before, ok := fields[owner]; ok {
			set = fieldpath.NewVersionedSet(set.Set().Union(before.Set()), set.APIVersion(), false)
		}
		fields[owner] = set
	}
	return w.end(obj, was, fields, owner, f.now())
}

// reset: an explicit empty list, or a list of one empty entry, ends the tracking.
func reset(obj api.Object) bool {
	m := obj.GetManagedFields()
	return m != nil && len(m) == 0 || len(m) == 1 && m[0].Manager == "" && m[0].Operation == "" && m[0].APIVersion == ""
}

func (f *Fields) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

// work is what one call works with.
type work struct {
	kind    *api.Kind
	typ     typed.ParseableType
	version fieldpath.APIVersion
	updater *merge.Updater
	mine    fieldpath.Filter // leaves out what a write of this subresource cannot set; nil: nothing
}

func (f *Fields) work(kind *api.Kind, sub string) (*work, error) {
	f.once.Do(func() {
		if f.Kinds == nil {
			f.Kinds = kinds.All
		}
		f.types, f.err = types(f.Kinds)
	})
	if f.err != nil {
		return nil, api.NewInternal("read the schemas: %w", f.err)
	}
	typ, ok := f.types[kind]
	if !ok {
		return nil, api.NewInternal("%s have no schema", kind)
	}
	version := fieldpath.APIVersion(kind.APIVersion())
	w := &work{kind: kind, typ: typ, version: version, mine: resetFields(kind, sub)}
	build := merge.UpdaterBuilder{Converter: oneVersion{version}, ReturnInputOnNoop: false}
	if w.mine != nil {
		build.IgnoreFilter = map[fieldpath.APIVersion]fieldpath.Filter{version: w.mine}
	}
	w.updater = build.BuildUpdater()
	return w, nil
}

// resetFields are the fields that a write of one subresource cannot set: nobody manages them there.
func resetFields(kind *api.Kind, sub string) fieldpath.Filter {
	if !kind.HasStatus() {
		return nil
	}
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if sub != "" {
		set = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"))
	}
	return fieldpath.NewExcludeSetFilter(set)
}

// begin opens the managers of an object and takes them off a copy of it.
func (w *work) begin(live api.Object) (owners, api.Object, error) {
	was, err := open(live.GetManagedFields())
	if err != nil {
		return was, nil, api.NewInternal("%w", err)
	}
	live = live.DeepCopyObject().(api.Object)
	live.SetManagedFields(nil)
	w.kind.Stamp(live)
	return was, live, nil
}

// everything makes one owner of all that an object has.
func (w *work) everything(live api.Object) (owners, error) {
	o := owners{fieldpath.ManagedFields{}, map[string]metav1.Time{}}
	v, err := w.typ.FromStructured(live, typed.AllowDuplicates)
	if err != nil {
		return o, api.NewInternal("read %s %s: %w", w.kind.Singular, live.GetName(), err)
	}
	set, err := v.ToFieldSet()
	if err != nil {
		return o, api.NewInternal("list the fields of %s %s: %w", w.kind.Singular, live.GetName(), err)
	}
	if w.mine != nil {
		set = w.mine.Filter(set)
	}
	owner := ownerOf(metav1.ManagedFieldsEntry{Manager: beforeFirst, Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: w.kind.APIVersion()})
	o.fields[owner] = fieldpath.NewVersionedSet(set, w.version, false)
	o.strip(owner)
	return o, nil
}

// end writes the managers into an object. The time of the one who acted moves only when something of it did.
func (w *work) end(obj api.Object, was owners, fields fieldpath.ManagedFields, owner string, now time.Time) error {
	is := owners{fields, was.times}
	is.strip(owner)
	if !is.same(was) {
		is.times[owner] = metav1.NewTime(now.Truncate(time.Second))
	}
	is.limit()
	entries, err := is.close()
	if err != nil {
		return api.NewInternal("%w", err)
	}
	obj.SetManagedFields(entries)
	return nil
}

// object turns a merged tree into the kind's own type.
func (w *work) object(v *typed.TypedValue) (api.Object, error) {
	tree, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, api.NewInternal("the merged %s is no object", w.kind.Singular)
	}
	obj := w.kind.New()
	if err := k8sruntime.DefaultUnstructuredConverter.FromUnstructured(tree, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w.kind.Stamp(obj)
	return obj, nil
}

// oneVersion converts nothing: there is no other version of a kind. Entries of one are dropped.
type oneVersion struct{ version fieldpath.APIVersion }

var errNoVersion = errors.New("there is no such version")

func (o oneVersion) Convert(v *typed.TypedValue, to fieldpath.APIVersion) (*typed.TypedValue, error) {
	if to != o.version {
		return nil, errNoVersion
	}
	return v, nil
}

func (o oneVersion) IsMissingVersionError(err error) bool { return errors.Is(err, errNoVersion) }
