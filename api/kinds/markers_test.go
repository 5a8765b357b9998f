package kinds_test

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/valid"
)

// TestMarkers holds our rules to what the markers of the pinned k8s.io modules say of the kinds that we keep (decision 108): for
// each fact it makes an object that breaks it, and wants the field refused by its path; each default has to be set, each value of an
// enum to be taken.
func TestMarkers(t *testing.T) {
	facts := readFacts(t)
	all := slices.Concat(kinds.All.Kept, kinds.All.Views)
	asked := map[string]bool{}
	for _, k := range all {
		t.Run(k.Group+"/"+k.Name, func(t *testing.T) {
			sample := sampleOf(t, k)
			if errs := causes(t, validate(k, sample)); len(errs) > 0 {
				t.Fatalf("the sample is refused: %v", errs)
			}
			walk(reflect.TypeOf(sample).Elem(), nil, nil, func(at path, owner, name string) {
				for _, f := range facts[owner+"."+name] {
					asked[f.line] = true
					(&check{t: t, kind: k, at: at, fact: f}).run()
				}
			})
		})
	}
	for _, list := range facts {
		for _, f := range list {
			if !asked[f.line] {
				t.Errorf("%s: no kind has this field", f.line)
			}
		}
	}
	for value := range fewer {
		if !used[value] {
			t.Errorf("%s is taken everywhere", value)
		}
	}
}

// fact is a line of the table.
type fact struct{ line, owner, field, rule, value string }

func readFacts(t *testing.T) map[string][]fact {
	data, err := os.ReadFile("testdata/markers.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]fact{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := append(strings.Split(line, "\t"), "")
		f := fact{line, parts[0], parts[1], parts[2], parts[3]}
		out[f.owner+"."+f.field] = append(out[f.owner+"."+f.field], f)
	}
	return out
}

// path leads from an object to a field: names on the wire, and "[0]" for an element.
type path []string

func (p path) String() string {
	return strings.ReplaceAll(strings.Join(p, "."), ".[", "[")
}

// walk calls fn for each field of a type that has a name on the wire, and of the types of its fields. A type inside itself is not entered.
func walk(typ reflect.Type, at path, in []reflect.Type, fn func(at path, owner, name string)) {
	switch typ.Kind() {
	case reflect.Pointer:
		walk(typ.Elem(), at, in, fn)
		return
	case reflect.Slice:
		walk(typ.Elem(), append(slices.Clone(at), "[0]"), in, fn)
		return
	case reflect.Struct:
	default:
		return
	}
	if slices.Contains(in, typ) {
		return
	}
	in = append(slices.Clone(in), typ)
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "":
			walk(f.Type, at, in, fn)
		default:
			here := append(slices.Clone(at), name)
			fn(here, typ.PkgPath()+"."+typ.Name(), name)
			walk(f.Type, here, in, fn)
		}
	}
}

// reach is the field at a path; what leads there is made.
func reach(v reflect.Value, at path) reflect.Value {
	for _, step := range at {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if step != "[0]" {
			f, _ := valid.FieldByJSON(v.Type(), step)
			v = v.FieldByIndex(f.Index)
			continue
		}
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		v = v.Index(0)
	}
	return v
}

// put makes a field, or the first of its elements, say something: text where it is text.
func put(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		put(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		put(v.Index(0), text)
	case reflect.Map:
		key := reflect.New(v.Type().Key()).Elem()
		put(key, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, reflect.New(v.Type().Elem()).Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.CanSet() && (f.Kind() == reflect.String || f.Kind() == reflect.Map || f.Type() == reflect.TypeFor[metav1.ObjectMeta]()) {
				put(f, text)
			}
		}
	case reflect.String:
		v.SetString(text)
	case reflect.Int32, reflect.Int64:
		n, _ := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func validate(k *api.Kind, obj api.Object) error {
	if k.View != nil {
		k, obj = k.View.Of, k.View.Read(obj)
	}
	k.Default(obj)
	return k.Validate(obj)
}

func causes(t *testing.T, err error) []metav1.StatusCause {
	if err == nil {
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	return status.ErrStatus.Details.Causes
}

// check asks one fact of one field.
type check struct {
	t    *testing.T
	kind *api.Kind
	at   path
	fact fact
}

const nonsense = "No+Such+Value"

func (c *check) run() {
	rule := c.fact.rule
	state, rest, gated := strings.Cut(rule, "(")
	feature, inner, _ := strings.Cut(rest, ") ")
	if gated {
		rule = inner
	}
	switch {
	case slices.Contains(c.at, "status"): // who writes it is part of ledge; in a template it says nothing
		return
	case gated && slices.Contains(features, feature) != (state == "Enabled"): // what holds without the feature, or with it
		return
	case c.unsupported():
		return
	}
	limit, _ := strconv.Atoi(c.fact.value)
	switch rule {
	case "feature":
		if !slices.Contains(features, c.fact.value) {
			c.t.Errorf("%s is taken: refuse it, or make it true and name its feature %s in features", c.at, c.fact.value)
		}
	case "required":
		c.refused(func(v reflect.Value) { v.SetZero() })
	case "enum":
		c.refused(func(v reflect.Value) { put(v, nonsense) })
		c.values()
	case "default":
		c.isDefault()
	case "maxItems":
		c.refused(func(v reflect.Value) { v.Set(reflect.MakeSlice(v.Type(), limit+1, limit+1)) })
	case "maxLength":
		c.refused(func(v reflect.Value) { put(v, strings.Repeat("a", limit+1)) })
	case "minimum":
		c.refused(func(v reflect.Value) { put(v, strconv.Itoa(limit-1)) })
	case "format":
		c.refused(func(v reflect.Value) { put(v, nonsense) })
	case "dependentRequired":
		c.refused(func(v reflect.Value) { put(v, "1") })
	case "immutable", "update":
		c.unchanged()
	default:
		c.t.Errorf("%s: this test does not know how to ask that", c.fact.line)
	}
}

// made is a sample with what a change makes of the field.
func (c *check) made(change func(reflect.Value)) api.Object {
	obj := sampleOf(c.t, c.kind)
	change(reach(reflect.ValueOf(obj), c.at))
	return obj
}

// unsupported says that the field, or what it stands in, is refused whatever it holds.
func (c *check) unsupported() bool {
	if c.kind == api.PodTemplates { // refused when a pod is made
		of := *c
		if of.kind, of.at = api.Pods, c.at[1:]; of.unsupported() {
			return true
		}
	}
	return slices.ContainsFunc(c.errors(func(v reflect.Value) { put(v, "1") }), func(e metav1.StatusCause) bool {
		over := e.Field == c.at.String() || strings.HasPrefix(c.at.String(), e.Field+".") || strings.HasPrefix(c.at.String(), e.Field+"[")
		return over && slices.ContainsFunc(whole, func(words string) bool { return strings.Contains(e.Message, words) })
	})
}

// whole are the words with which a field is refused whatever it holds.
var whole = []string{"not supported by ledge", "cannot be set on create", "cannot be set for an Ephemeral Container",
	"must specify exactly one of inlineVolumeSpec and persistentVolumeName"}

// errors are those of a sample with what a change makes of the field. Ephemeral containers come into a pod that is there.
func (c *check) errors(change func(reflect.Value)) []metav1.StatusCause {
	obj := c.made(change)
	if c.kind != api.Pods || c.at[1] != "ephemeralContainers" {
		return causes(c.t, validate(c.kind, obj))
	}
	old := sampleOf(c.t, c.kind)
	for _, o := range []api.Object{obj, old} {
		o.SetResourceVersion("1")
		c.kind.Default(o)
	}
	return causes(c.t, c.kind.ValidateUpdate(obj, old, api.Ephemeral))
}

// refused wants an error at the field, or below it, or, where some value is what is bad, above it with that in its words.
func (c *check) refused(change func(reflect.Value)) {
	errs := c.errors(change)
	at := c.at.String()
	if !slices.ContainsFunc(errs, func(e metav1.StatusCause) bool {
		named := strings.Contains(e.Message, nonsense)
		here := e.Field == at || strings.HasPrefix(e.Field, at+".") || strings.HasPrefix(e.Field, at+"[")
		return here && (named || c.fact.rule != "enum") || named && strings.HasPrefix(at, e.Field+".")
	}) {
		c.t.Errorf("%s %s %s is not refused: %v", at, c.fact.rule, c.fact.value, errs)
	}
}

// values: each value of an enum is taken, or stands in fewer.
func (c *check) values() {
	for _, quoted := range strings.Fields(c.fact.value) {
		value, _ := strconv.Unquote(quoted)
		refused := slices.ContainsFunc(c.errors(func(v reflect.Value) { put(v, value) }),
			func(e metav1.StatusCause) bool {
				return e.Field == c.at.String() && e.Type == metav1.CauseTypeFieldValueNotSupported
			})
		key := c.fact.owner + "." + c.fact.field + " " + value
		used[key] = used[key] || refused
		if refused && fewer[key] == "" {
			c.t.Errorf("%s: %s is refused", c.at, quoted)
		}
	}
}

func (c *check) isDefault() {
	obj := c.made(func(v reflect.Value) { v.SetZero() })
	c.kind.Default(obj)
	got := reach(reflect.ValueOf(obj), c.at)
	text, err := json.Marshal(got.Interface())
	if err != nil || string(text) != c.fact.value {
		c.t.Errorf("%s is %s without being said, want %s (%v)", c.at, text, c.fact.value, err)
	}
}

// unchanged: a later object may not say something else.
func (c *check) unchanged() {
	old := c.made(func(v reflect.Value) { put(v, "one") })
	old.SetResourceVersion("1")
	count := func(text string) (n int) {
		obj := c.made(func(v reflect.Value) { put(v, text) })
		obj.SetResourceVersion("1")
		for _, e := range causes(c.t, c.kind.ValidateUpdate(obj, old, "")) {
			if e.Field == c.at.String() {
				n++
			}
		}
		return n
	}
	if same := count("one"); count("two") <= same || count("") <= same {
		c.t.Errorf("%s may become another", c.at)
	}
}

// features are those of Kubernetes that bring fields, and are true here. The first bring fields of CSIDrivers, which are kept for others.
var features = strings.Fields(`CSIServiceAccountTokenSecrets CSIStorageCapacity MutableCSINodeAllocatableCount SELinuxMountReadWriteOncePod
	VolumeLimitScaling
	ContainerRestartRules EmptyDirVolumeMode EnvFiles HPAConfigurableTolerance HPAScaleToZero
	HostnameOverride InPlacePodVerticalScaling MaxUnavailableStatefulSet PodLevelResources SELinuxChangePolicy SupplementalGroupsPolicy`)

// fewer are values of enums that are refused, and why.
var fewer = map[string]string{
	"k8s.io/api/core/v1.Toleration.operator Gt":                                     "an alpha of Kubernetes, off",
	"k8s.io/api/core/v1.Toleration.operator Lt":                                     "an alpha of Kubernetes, off",
	"k8s.io/api/core/v1.PodSpec.restartPolicy Never":                                "pods that are made again do not end",
	"k8s.io/api/core/v1.PodSpec.restartPolicy OnFailure":                            "pods that are made again do not end",
	"k8s.io/api/core/v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy Recycle": "deprecated for years",
	"k8s.io/api/storage/v1.StorageClass.reclaimPolicy Recycle":                      "Kubernetes refuses it in classes",
}

// used are the values of fewer that something refused.
var used = map[string]bool{}
