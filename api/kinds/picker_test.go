package kinds_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/kinds"
)

// TestPickers: a selection picks the same objects by their JSON as decoded, by every field that each kind has and by labels.
func TestPickers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	asked := 0
	for _, kind := range kinds.All.Kept {
		for _, name := range kind.FieldLabels() {
			if !kind.Computes(name) && !inJSON(reflect.TypeOf(kind.New()).Elem(), name) {
				t.Errorf("%s: the field %s is no path of its JSON: Rules.Computed must name it", kind, name)
			}
		}
		for range 20 {
			obj := kind.New()
			fill(r, reflect.ValueOf(obj).Elem(), 0)
			obj.SetNamespace("ns")
			obj.SetName("a")
			kind.Stamp(obj)
			data, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			key := []byte(obj.GetNamespace() + "/" + obj.GetName())
			for _, s := range selections(t, r, kind, obj) {
				asked++
				if want, got := s.Matches(kind, obj), s.Picker(kind).Picks(key, data); got != want {
					t.Fatalf("%s, labels %v, fields %v: picked %v, want %v:\n%s", kind, s.Labels, s.Fields, got, want, data)
				}
				if want, got := s.Matches(kind, obj), s.Matcher(kind)(obj); got != want {
					t.Fatalf("%s, labels %v, fields %v: matched %v, want %v:\n%s", kind, s.Labels, s.Fields, got, want, data)
				}
			}
		}
	}
	if asked < 1000 {
		t.Errorf("only %d questions", asked)
	}
}

// inJSON says whether a type has a value at a path in its JSON.
func inJSON(typ reflect.Type, path string) bool {
	first, rest, more := strings.Cut(path, ".")
	for i := range typ.NumField() {
		f := typ.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == first {
			return !more && f.Type.Kind() != reflect.Struct || more && f.Type.Kind() == reflect.Struct && inJSON(f.Type, rest)
		}
	}
	return false
}

// selections are some that pick an object, and some that may not.
func selections(t *testing.T, r *rand.Rand, kind *api.Kind, obj api.Object) (out []api.Selection) {
	for _, name := range kind.FieldLabels() {
		value := kind.Fields(obj).Get(name)
		for _, value := range []string{value, "", "false", "0", words[r.IntN(len(words))]} {
			out = append(out,
				api.Selection{Fields: fields.OneTermEqualSelector(name, value)},
				api.Selection{Fields: fields.OneTermNotEqualSelector(name, value)})
		}
	}
	for _, text := range []string{"app", "!app", "app=web", "app!=web", "app in (web,db)", "app notin (web),tier", "n>1"} {
		l, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, api.Selection{Labels: l}, api.Selection{Namespace: "ns", Labels: l}, api.Selection{Namespace: "n", Labels: l})
	}
	return out
}

var words = []string{"", "app", "web", "tier", "db", "n", "2", "a \"quoted\" \\ <b>", "\u2028é", "false", "metadata"}

// fill sets the fields of a value at random.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if depth > 7 || !v.CanSet() {
		return
	}
	if _, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		return // such as a time: it has a text of its own
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.IntN(3)))
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth+1)
			fill(r, value, depth+1)
			v.SetMapIndex(key, value)
		}
	}
}

// FuzzPicks: a selection picks of objects in JSON what it picks of them decoded.
func FuzzPicks(f *testing.F) {
	f.Add("app=web,tier in (a,b)", "status.phase!=Failed", "app", "web", "tier", "b", "Running")
	f.Add("!gone,app!=db,one=", "", "one", "", "app", "web", "")
	f.Add("app=web", "spec.nodeName=n,metadata.name=p", "other", "web", "app", "we\\b", "")
	f.Add("a notin (b),a", "", "a", "\"b\"", "a\u2028", "<b>", "Pending")
	f.Fuzz(func(t *testing.T, labelText, fieldText, key1, value1, key2, value2, phase string) {
		sel := api.Selection{}
		var err error
		if sel.Labels, err = labels.Parse(labelText); err != nil {
			return
		}
		if sel.Fields, err = fields.ParseSelector(fieldText); err != nil {
			return
		}
		for _, r := range sel.Fields.Requirements() {
			if !slices.Contains(api.Pods.FieldLabels(), r.Field) {
				return
			}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{key1: value1, key2: value2},
			Annotations: map[string]string{value2: value1}}}
		pod.Status.Phase = corev1.PodPhase(phase)
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		back := &corev1.Pod{} // what cannot be written in JSON as it is reads otherwise
		if err := json.Unmarshal(data, back); err != nil {
			t.Fatal(err)
		}
		if got, want := sel.Picker(api.Pods).Picks([]byte("ns/p"), data), sel.Matches(api.Pods, back); got != want {
			t.Errorf("%q and %q pick %s: %v, and decoded %v", labelText, fieldText, data, got, want)
		} else if got := sel.Matcher(api.Pods)(back); got != want {
			t.Errorf("%q and %q match %s when made ready: %v, want %v", labelText, fieldText, data, got, want)
		}
	})
}
