package httpd

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/kinds"
)

// wire is an object as a typed client of today sends it: the mark, the envelope, the object's own protobuf.
func wire(t testing.TB, gvk schema.GroupVersionKind, obj interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}, Raw: raw}
	data, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(api.ProtobufMark), data...)
}

func TestDecode(t *testing.T) {
	pod := api.Pods.GVK()
	protobuf := string(wire(t, pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	compressed := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ContentEncoding: "gzip"}
	gz, err := compressed.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"a":`, maxDepth) + "{}" + strings.Repeat("}", maxDepth)
	for _, tc := range []struct {
		name, media, body string
		problems          string // of unknown and duplicate fields
		fails             string
	}{
		{"json", mediaJSON, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`, "", ""},
		{"json without kind", mediaJSON, `{"metadata":{"name":"p"}}`, "", ""},
		{"json of half a kind", mediaJSON, `{"kind":"Pod","metadata":{"name":"p"}}`, "", ""},
		{"json unknown", mediaJSON, `{"metadata":{"name":"p"},"spec":{"foo":1,"containers":[{"bar":2}]}}`,
			`unknown field "spec.foo"; unknown field "spec.containers[0].bar"`, ""},
		{"json duplicate", mediaJSON, `{"metadata":{"name":"x","name":"p"}}`, `duplicate field "metadata.name"`, ""},
		{"json other case", mediaJSON, `{"metadata":{"name":"p","Name":"q"}}`, `unknown field "metadata.Name"`, ""},
		{"json other kind", mediaJSON, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"p"}}`, "", "a Node of v1, a Pod of v1 was expected"},
		{"json other version", mediaJSON, `{"kind":"Pod","apiVersion":"v2"}`, "", "a Pod of v2"},
		{"json wrong type", mediaJSON, `{"metadata":{"name":7}}`, "", "cannot unmarshal number"},
		{"json cut", mediaJSON, `{"metadata":{"name":"p`, "", "a string has no end"},
		{"json garbage after", mediaJSON, `{"metadata":{"name":"p"}} x`, "", "invalid character"},
		{"json list", mediaJSON, `[]`, "", "cannot unmarshal array"},
		{"json deep", mediaJSON, `{"metadata":{"annotations":` + deep + `}}`, "", "nested more than"},
		{"json brackets in strings", mediaJSON, `{"metadata":{"name":"p","annotations":{"a":"` + strings.Repeat(`[{\"`, 200) + `"}}}`, "", ""},
		{"json wide", mediaJSON, `{"spec":{"containers":[` + strings.Repeat("{},", 3000) + `{}]}}`, "", "more than 4096 elements"},
		{"yaml", mediaYAML, "kind: Pod\napiVersion: v1\nmetadata:\n  name: p\n", "", ""},
		{"yaml is json too", mediaYAML, `{"metadata":{"name":"p"}}`, "", ""},
		{"yaml unknown", mediaYAML, "metadata: {name: p}\nspec: {foo: 1}\n", `unknown field "spec.foo"`, ""},
		{"yaml duplicate", mediaYAML, "metadata: {name: p}\nspec: {nodeName: a, nodeName: b}\n", `key "nodeName" already set`, ""},
		{"yaml alias", mediaYAML, "metadata: &m {name: p}\nspec: *m\n", "", "anchors and aliases"},
		{"yaml merge", mediaYAML, "a: &a {name: p}\nmetadata:\n  <<: *a\n", "", "anchors and aliases"},
		{"yaml billion laughs", mediaYAML, laughs(9), "", "anchors and aliases"},
		{"yaml star in a text", mediaYAML, "metadata: {name: p}\ndata: \"*a &b\"\n", `unknown field "data"`, ""},
		{"yaml two documents", mediaYAML, "metadata: {name: p}\n---\nmetadata: {name: q}\n", "", "more than one YAML document"},
		{"yaml deep", mediaYAML, "a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60), "", "nested more than"},
		{"yaml wide", mediaYAML, "a: [" + strings.Repeat("1,", 5000) + "]", "", "too many elements"},
		{"yaml large", mediaYAML, "a: " + strings.Repeat("x", maxYAML), "", "send JSON"},
		{"protobuf", mediaProtobuf, protobuf, "", ""},
		{"protobuf without mark", mediaProtobuf, protobuf[4:], "", "protobuf mark"},
		{"protobuf cut", mediaProtobuf, protobuf[:len(protobuf)-8], "", "unexpected EOF"},
		{"protobuf other kind", mediaProtobuf, string(wire(t, api.Nodes.GVK(), &corev1.Node{})), "", "a Node of v1"},
		{"protobuf compressed", mediaProtobuf, api.ProtobufMark + string(gz), "", "encoding"},
		{"protobuf wide", mediaProtobuf, string(wire(t, pod, &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 5000)}})), "",
			"protobuf fields"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got corev1.Pod
			problems, err := decode([]byte(tc.body), tc.media, boundPod, &got, []schema.GroupVersionKind{pod})
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Fatalf("error %v, want one with %q", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != "p" {
				t.Errorf("name %q", got.Name)
			}
			if all := strings.Join(problems, "; "); !strings.Contains(all, tc.problems) || (tc.problems == "") != (all == "") {
				t.Errorf("problems %q, want %q", all, tc.problems)
			}
		})
	}
}

// laughs is a YAML document of n lines that unfolds to 9^n strings (CVE-2019-11253).
func laughs(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n")
	for i := 1; i <= n; i++ {
		prev := "*a" + string(rune('0'+i-1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat(prev+",", 8) + prev + "]\n")
	}
	return b.String()
}

// Every kind must be able to read the protobuf that typed clients send of it.
func TestEveryKindReadsProtobuf(t *testing.T) {
	for _, k := range kinds.All.Kept {
		obj := k.New()
		obj.SetName("x")
		m, ok := obj.(interface{ Marshal() ([]byte, error) })
		if !ok {
			t.Errorf("%s cannot be written as protobuf", k)
			continue
		}
		got := k.New()
		if _, err := decode(wire(t, k.GVK(), m), mediaProtobuf, boundSmall, got, []schema.GroupVersionKind{k.GVK()}); err != nil ||
			got.GetName() != "x" {
			t.Errorf("%s: %v, name %q", k, err, got.GetName())
		}
	}
}

// A text that looks like protobuf fields must not make an honest object too wide.
func TestCountProtobufLetsTextsPass(t *testing.T) {
	c := &corev1.ConfigMap{Data: map[string]string{}, BinaryData: map[string][]byte{"z": make([]byte, 500<<10)}}
	c.Data["text"] = strings.Repeat("the quick brown fox jumps over the lazy dog\n", 8000)
	c.Data["numbers"] = strings.Repeat("0", 100<<10)
	c.Data["spaces"] = strings.Repeat(" ", 100<<10)
	p := &corev1.Pod{}
	p.Annotations = map[string]string{"spaces": strings.Repeat(" ", 60<<10), "numbers": strings.Repeat("0", 60<<10)}
	for name, tc := range map[string]struct {
		obj interface{ Marshal() ([]byte, error) }
		b   bound
	}{"ConfigMap": {c, boundData}, "Pod": {p, boundPod}} {
		raw, err := tc.obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := countProtobuf(raw, tc.b.elements, tc.b.messages); err != nil {
			t.Errorf("an honest %s: %v", name, err)
		}
	}
}

func TestQuoteWarning(t *testing.T) {
	for in, want := range map[string]string{
		`unknown field "a"`: `"unknown field \"a\""`,
		"a\r\nX-Evil: 1":    `"a  X-Evil: 1"`,
		`back\slash`:        `"back\\slash"`,
	} {
		if got := quoteWarning(in, 256); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := quoteWarning(strings.Repeat("é", 1000), 256); len(got) > 300 || !strings.HasSuffix(got, `..."`) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	head := http.Header{}
	addWarnings(head, make([]string, 100))
	if n := len(head.Values("Warning")); n != 11 {
		t.Errorf("%d warnings", n)
	}
}

// FuzzBody: no body, in any form, may panic a decoder or come out as another kind.
func FuzzBody(f *testing.F) {
	f.Add(0, 4, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}`))
	f.Add(1, 4, []byte("metadata: &m {name: p}\nspec: *m\n"))
	f.Add(2, 4, wire(f, api.Pods.GVK(), &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 3)}}))
	f.Add(2, 0, wire(f, api.ConfigMaps.GVK(), &corev1.ConfigMap{Data: map[string]string{"a": "b"}}))
	f.Add(0, 1, []byte(`{"metadata":{"name":"a","name":"b"},"x":[[[[]]]]}`))
	f.Fuzz(func(t *testing.T, media, kind int, body []byte) {
		k := kinds.All.Kept[uint(kind)%uint(len(kinds.All.Kept))]
		m := []string{mediaJSON, mediaYAML, mediaProtobuf}[uint(media)%3]
		obj := k.New()
		if _, err := decode(body, m, boundSmall, obj, []schema.GroupVersionKind{k.GVK()}); err != nil {
			return
		}
		if got := obj.GetObjectKind().GroupVersionKind(); !got.Empty() && got.Kind != k.Name && got.Kind != "" {
			t.Fatalf("%s body became a %s", k, got)
		}
		if _, err := encode(obj, false); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

// FuzzPrescan: what the pre-scan lets pass is as bounded as it says, counted by the real parser.
func FuzzPrescan(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"c\"}"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var v any
		_, err := decodeJSON(body, 50, &v)
		if err != nil {
			return
		}
		if d, n := measure(v); d > maxDepth || n > 50+1 {
			t.Fatalf("depth %d, %d elements passed", d, n)
		}
	})
}

func measure(v any) (depth, n int) {
	var inside []any
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			inside = append(inside, e)
		}
	case []any:
		inside = v
	default:
		return 0, 0
	}
	n = 1 + max(0, len(inside)-1)
	for _, e := range inside {
		d, more := measure(e)
		depth, n = max(depth, d), n+more
	}
	return depth + 1, n
}
