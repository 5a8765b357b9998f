package httpd

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of what a board says of itself its own pods count, each once, with the containers that they have.
func TestReadMeasured(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"is": "ours"}}}
	pods := map[string]*corev1.Pod{"x/web": {ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web",
		Labels: map[string]string{"is": "ours"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}}
	for said, want := range map[string]string{
		`{}`: "",
		`{"nodes":[null,{"metadata":{"name":"a"}},{"metadata":{"name":"b","labels":{"is":"theirs"}},"usage":{"cpu":"1","disk":"1"}}]}`: "node b ours 1",
		`{"nodes":[{"metadata":{"name":"b"}},{"metadata":{"name":"b"}}]}`:                                                              "node b ours 0",
		`{"pods":[null,{},{"metadata":{"name":"web","namespace":"y"}},{"metadata":{"name":"web","namespace":"x","annotations":{"a":"b"},"finalizers":["f"]},"containers":[{"name":"c","usage":{"cpu":"2","x":"1"}},{"name":"c"},{"name":"other"},{}]},{"metadata":{"name":"web","namespace":"x"}}]}`: "pod x/web ours c=2",
		`{"pods":[` + strings.Repeat("{},", measuredElements) + `{}]}`: "!elements",
		strings.Repeat("[", 100):      "!deep",
		`{"pods":[{"containers":7}]}`: "!cannot unmarshal",
		`{"pods":`:                    "!unexpected end",
	} {
		page, err := readMeasured([]byte(said), node, pods)
		var got []string
		for _, m := range page.Nodes {
			got = append(got, "node "+m.Name+" "+m.Labels["is"]+" "+m.Usage.Cpu().String())
			if len(m.Usage) > 1 {
				t.Errorf("%.60s: %v", said, m.Usage)
			}
		}
		for _, m := range page.Pods {
			line := "pod " + m.Namespace + "/" + m.Name + " " + m.Labels["is"]
			for _, c := range m.Containers {
				line += " " + c.Name + "=" + c.Usage.Cpu().String()
			}
			got = append(got, line)
			if m.Annotations != nil || m.Finalizers != nil {
				data, _ := json.Marshal(m)
				t.Errorf("%.60s: %s", said, data)
			}
		}
		if wrong, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%.60s: %v, want %s", said, err, wrong)
			}
		} else if s := strings.Join(got, ", "); s != want || err != nil {
			t.Errorf("%.60s: %q %v, want %q", said, s, err, want)
		}
	}
}
