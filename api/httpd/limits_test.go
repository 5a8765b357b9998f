package httpd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
)

// The weight of what is decoded at once is bounded, and nobody waits longer than it wants.
func TestDecodesAreCounted(t *testing.T) {
	l := newLimits(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
	var leave []func()
	for range 4 {
		done, err := l.decoding(r, maxDecoding/4)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	cancel()
	if _, err := l.decoding(r, maxDecoding/4); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
	leave[0]()
	done, err := l.decoding(httptest.NewRequest("POST", "/", nil), maxDecoding/4)
	if err != nil {
		t.Errorf("after one left: %v", err)
	}
	for _, done := range append(leave[1:], done) {
		done()
	}
	if _, err := l.decoding(httptest.NewRequest("POST", "/", nil), maxDecoding); err != nil {
		t.Errorf("a large one alone: %v", err)
	}
}

// decodedBudget is how much memory all that is decoded at once may take.
const decodedBudget = 24 << 20

// What unfolds counts for what it becomes, not for its few bytes: as many bodies of one shape as are let in at once do not
// take more than the budget together.
func TestDecodesWeighWhatTheyBecome(t *testing.T) {
	pod := func(inside string) []byte { return []byte(`{"spec":{` + inside + `}}`) }
	list := func(what string, n int) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	raw := append([]byte{0x12}, protobufLength(bytes.Repeat([]byte{0x12, 0}, 2000))...) // a PodSpec of 2,000 empty containers
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		media string
		body  []byte
	}{
		"empty containers":   {mediaJSON, pod(`"containers":[` + list("{}", 2040) + `]`)},
		"containers of null": {mediaJSON, pod(`"containers":[` + list("null", 4000) + `]`)},
		"few containers":     {mediaJSON, pod(`"containers":[` + list("{}", 100) + `]`)},
		"volumes":            {mediaJSON, pod(`"volumes":[` + list("null", 4000) + `]`)},
		"long words":         {mediaJSON, pod(`"containers":[{"args":[` + list(`"`+strings.Repeat("x", 4000)+`"`, 60) + `]}]`)},
		"YAML":               {mediaYAML, []byte("spec:\n containers:\n" + strings.Repeat(" -\n", 2000))},
		"YAML in a line":     {mediaYAML, []byte("{spec: {containers: [" + list("{}", 2000) + "]}}")},
		"protobuf":           {mediaProtobuf, append([]byte(api.ProtobufMark), envelope...)},
	} {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		obj := &corev1.Pod{}
		if _, err := decode(tc.body, tc.media, boundPod, obj, []schema.GroupVersionKind{api.Pods.GVK()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		goruntime.ReadMemStats(&after)
		weight := weightOf(tc.body, tc.media, boundPod)
		each := int64(after.TotalAlloc - before.TotalAlloc)
		at := maxDecoding / weight
		t.Logf("%s: %d bytes weigh %d and take %d KiB: %d at once take %d KiB", name, len(tc.body), weight, each>>10, at, at*each>>10)
		if at*each > decodedBudget {
			t.Errorf("%s: %d at once take %d KiB, the budget is %d", name, at, at*each>>10, decodedBudget>>10)
		}
	}
	for media, want := range map[string]int64{mediaJSON: 1000, mediaYAML: 1000 * yamlWeight,
		"application/apply-patch+yaml": 1000 * yamlWeight} {
		if got := weightOf([]byte(`"`+strings.Repeat(",", 998)+`"`), media, boundPod); got != want {
			t.Errorf("a text of 1000 bytes in %s weighs %d, want %d", media, got, want)
		}
	}
	if got := weightOf(make([]byte, 1<<20), mediaJSON, boundData); got != maxDecoding {
		t.Errorf("what is larger than all weighs %d", got)
	}
}

func protobufLength(data []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(data))), data...)
}

// The bytes of bodies held at once are bounded; heartbeats, which are small, get through all the same.
func TestBodiesAreCounted(t *testing.T) {
	l := newLimits(Config{})
	in := &intake{&l}
	ctx, cancel := context.WithCancel(t.Context())
	read := func(n int) (done func(), err error) {
		hr := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n))).WithContext(ctx)
		_, done, err = in.readBody(httptest.NewRecorder(), &request{Request: hr}, boundData.bytes)
		return done, err
	}
	var leave []func()
	for range maxBodies >> 20 {
		done, err := read(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	if _, err := read(1000); err != nil {
		t.Errorf("a small body: %v", err)
	}
	leave[0]()
	if _, err := read(1 << 20); err != nil {
		t.Errorf("after one was done: %v", err)
	}
	cancel()
	if _, err := read(1 << 20); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
}

// The sizes are those the API promises, kind by kind.
func TestBounds(t *testing.T) {
	for k, want := range map[*api.Kind]int64{api.Pods: 256 << 10, api.ConfigMaps: 1536 << 10, api.Secrets: 1536 << 10, api.Nodes: 512 << 10,
		api.Events: 512 << 10} {
		if got := boundOf(k).bytes; got != want {
			t.Errorf("%s: %d, want %d", k, got, want)
		}
	}
}
