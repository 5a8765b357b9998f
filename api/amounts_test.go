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
	pod := func(cpu string) []byte {
		p := &corev1.Pod{}
		p.Name, p.Annotations = "a", map[string]string{"commit": "1e1000000000"}
		p.Spec.Containers = []corev1.Container{{Name: "a", Image: "1e5", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1111111111111")}}}}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.Replace(string(data), "1111111111111", cpu, 1))
	}
	for cpu, fine := range map[string]bool{"1111111111111": true, "1e00000000009": true, "1e-1000000000": false, "1E+1000000000": false} {
		if err := CheckProtobufAmounts(pod(cpu)); (err == nil) != fine {
			t.Errorf("%s: %v", cpu, err)
		}
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
