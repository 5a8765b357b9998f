package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

func podWith(cpu string) string {
	return `{"metadata":{"name":"a","annotations":{"commit":"1e1000000000"}},"spec":{"containers":[{"name":"a","image":"a",` +
		`"env":[{"name":"COMMIT","value":"12e345678"}],"resources":{"limits":{"cpu":` + cpu + `}}}]}}`
}

// TestCheckAmounts: what would be multiplied out for minutes is refused where it is an amount, however it is written, and nowhere else.
// Nothing here may read one: that is what takes the minutes.
func TestCheckAmounts(t *testing.T) {
	for cpu, fine := range map[string]bool{
		`"1"`: true, `"1e3"`: true, `"1E-3"`: true, `"1e100"`: true, `2.5`: true, `"100m"`: true, `"1Ei"`: true, `"<1e3"`: true,
		`"1e101"`: false, `"1e1000000000"`: false, `"1e-1000000000"`: false, `"1.E+1000000000"`: false, `1e-1000000000`: false,
		`"1e0000000000101"`: false, `"1\u0065-1000000000"`: false, `"\u0031e-100000000\u0030"`: false,
		`"1","cpu":"1e-1000000000"`: false, `"1e-1000000000","cpu":"1"`: false, `"1\u0065-1000000000","cpu":"1"`: false,
	} {
		if err := CheckAmounts([]byte(podWith(cpu)), &corev1.Pod{}); (err == nil) != fine {
			t.Errorf("%s: %v", cpu, err)
		}
	}
	err := CheckAmounts([]byte(podWith(`"1e-1000000000"`)), &corev1.Pod{})
	if err == nil || !strings.Contains(err.Error(), "spec.containers[0].resources.limits.cpu") {
		t.Error(err)
	}
	for _, other := range []string{`{"METADATA":{},"Spec":{"OVERHEAD":{"cpu":"1e1000"}}}`, `{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e1000"}}]}}`,
		`{"status":{"containerStatuses":[{"allocatedResources":{"x":"1e1000"}}]}}`} {
		if CheckAmounts([]byte(other), &corev1.Pod{}) == nil {
			t.Error(other)
		}
	}
	if CheckAmounts([]byte(`{"usage":{"cpu":"1e-1000000000"}}`), (*NodeMetrics)(nil)) == nil {
		t.Error("a board may say that of itself")
	}
}

func TestCheckProtobufAmounts(t *testing.T) {
	const place = "1111111111111"
	p := &corev1.Pod{}
	p.Name, p.Annotations = "a", map[string]string{"commit": "1e1000000000"}
	p.Spec.Containers = []corev1.Container{{Name: "a", Image: "1e5", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse(place)}}}}
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for cpu, fine := range map[string]bool{place: true, "1e00000000009": true, "1e-1000000000": false, "1E+1000000000": false} {
		if err := CheckProtobufAmounts([]byte(strings.Replace(string(data), place, cpu, 1))); (err == nil) != fine {
			t.Errorf("%s: %v", cpu, err)
		}
	}
	// A reader takes numbers of fields and lengths in more ways than one. Each of these is an amount to it.
	far := "1e-1000000000"
	for _, quantity := range []string{"\x8a\x00\x0d" + far, "\x0a\x8d\x00" + far, "\x8a\x80\x80\x00\x8d\x80\x00" + far,
		"\x8a\x80\x80\x80\x80\x30\x0d" + far, // more than 32 bits of a number of a field are cut
		"\x0a\x8d\x01" + strings.Repeat("0", 128) + far, "\x0a\x2d" + strings.Repeat("0", 32) + far, "\x0a\x011\x0a\x0d" + far + "\x0a\x011",
		"\x8a\x80\x80\x80\x80\x30\x30" + strings.Repeat("0", 35) + far} {
		near := strings.ReplaceAll(quantity, far, "1e-0000000003") // what is refused is one, but for its exponent
		var q resource.Quantity
		if err := q.Unmarshal([]byte(near)); err != nil {
			t.Errorf("%q: %v", near, err)
		}
		if err := CheckProtobufAmounts([]byte(near)); err != nil {
			t.Errorf("%q: %v", near, err)
		}
		if CheckProtobufAmounts([]byte(quantity)) == nil {
			t.Errorf("%q passes", quantity)
		}
	}
	if err := CheckProtobufAmounts([]byte(strings.Repeat("1e1000", 1<<18))); err != nil { // once through it
		t.Error(err)
	}
}

// FuzzCheckAmounts: what passes is read at once. The time limit of a fuzz target is what fails.
func FuzzCheckAmounts(f *testing.F) {
	for _, s := range []string{`"1e-1000000000"`, `"1e9"`, `"1\u0065-9999"`, `1e-5`, `"1","cpu":"2"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cpu string) {
		data := []byte(podWith(cpu))
		if len(data) > 1000 || CheckAmounts(data, &corev1.Pod{}) != nil {
			return
		}
		_, _ = kjson.UnmarshalStrict(data, &corev1.Pod{})
	})
}
