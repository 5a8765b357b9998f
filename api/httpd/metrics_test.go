package httpd_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
)

// measuredBoard is a board of fixed measurements.
type measuredBoard struct{}

func (measuredBoard) Node() string { return "a" }

func (measuredBoard) NodeMetrics(context.Context) []*api.NodeMetrics {
	return []*api.NodeMetrics{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kind": "board"}},
		Window: metav1.Duration{Duration: 15 * time.Second},
		Usage:  usage("250m", "100Mi")}}
}

func (measuredBoard) PodMetrics(context.Context) []*api.PodMetrics {
	pod := func(namespace, name string, labels map[string]string) *api.PodMetrics {
		return &api.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Containers: []api.ContainerMetrics{{Name: "c", Usage: usage("5m", "10Mi")}, {Name: "d", Usage: usage("6m", "20Mi")}}}
	}
	return []*api.PodMetrics{pod("x", "one", map[string]string{"app": "web"}), pod("x", "two", nil), pod("y", "one", nil)}
}

func (measuredBoard) Page(_ context.Context, path string) (string, []byte, bool, error) {
	return "text/x", []byte("page of " + path), path == "/metrics" || path == "/metrics/resource" || path == "/stats/summary", nil
}

func usage(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestMetrics(t *testing.T) {
	f := serve(t, httpd.Config{Metrics: measuredBoard{}})
	const base = "/apis/metrics.k8s.io/v1beta1/"
	for path, want := range map[string]string{
		base + "nodes": "a",
		base + "nodes?labelSelector=kind%3Dboard": "a",
		base + "nodes?labelSelector=kind%3Dother": "",
		base + "pods":                                      "x/one x/two y/one",
		base + "namespaces/x/pods":                         "x/one x/two",
		base + "pods?labelSelector=app%3Dweb":              "x/one",
		base + "pods?fieldSelector=metadata.name%3Done":    "x/one y/one",
		base + "pods?fieldSelector=metadata.namespace%3Dy": "y/one",
		base + "namespaces/y/pods?labelSelector=app%3Dweb": "",
	} {
		var list struct {
			Kind, APIVersion string
			Items            []api.PodMetrics
		}
		f.must(200, "GET", path, "").into(t, &list)
		got := ""
		for _, i := range list.Items {
			if got != "" {
				got += " "
			}
			if i.Namespace != "" {
				got += i.Namespace + "/"
			}
			got += i.Name
			if i.APIVersion != "metrics.k8s.io/v1beta1" {
				t.Errorf("%s: item of %s %s", path, i.APIVersion, i.Kind)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	f.must(400, "GET", base+"pods?fieldSelector=spec.x%3Dy", "")
	f.must(404, "GET", base+"nodes/b", "")
	f.must(404, "GET", base+"namespaces/y/pods/two", "")
	var one api.PodMetrics
	f.must(200, "GET", base+"namespaces/x/pods/two", "").into(t, &one)
	if one.Kind != "PodMetrics" || one.Containers[1].Usage.Memory().Value() != 20<<20 {
		t.Errorf("%+v", one)
	}
	var table metav1.Table
	f.must(200, "GET", base+"namespaces/x/pods", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").into(t, &table)
	if c := table.Rows[0].Cells; len(table.Rows) != 2 || c[0] != "one" || c[1] != "11m" || c[2] != "30Mi" {
		t.Errorf("table %v", table.Rows)
	}

	for path, want := range map[string]string{
		"/metrics/resource": "page of /metrics/resource", "/api/v1/nodes/a/proxy/metrics/resource": "page of /metrics/resource",
		"/api/v1/nodes/a/proxy/stats/summary": "page of /stats/summary", "/metrics": "page of /metrics",
		"/api/v1/nodes/a/proxy/metrics": "page of /metrics",
	} {
		if got := f.must(200, "GET", path, ""); got.body != want || got.head.Get("Content-Type") != "text/x" {
			t.Errorf("%s: %q", path, got.body)
		}
	}
	f.must(404, "GET", "/api/v1/nodes/a/proxy/run/a", "")
	f.must(404, "GET", "/api/v1/nodes/a/proxy", "")
	f.must(404, "GET", "/api/v1/nodes/none/proxy/stats/summary", "")
	f.must(201, "POST", "/api/v1/nodes", `{"metadata":{"name":"b"}}`)
	f.must(501, "GET", "/api/v1/nodes/b/proxy/stats/summary", "")
	f.must(405, "DELETE", base+"namespaces/x/pods/one", "")

	// They name every pod there is: not for nodes, and not for whoever is known.
	for _, who := range []api.User{nodeA, bob} {
		for _, path := range []string{base + "pods", base + "nodes", "/metrics", "/metrics/resource", "/api/v1/nodes/a/proxy/stats/summary"} {
			if got := f.do(who, "GET", path, ""); got.code != 403 {
				t.Errorf("%s as %s: %d", path, who.Name, got.code)
			}
		}
	}
}

func TestNoMetrics(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(501, "GET", "/apis/metrics.k8s.io/v1beta1/pods", "")
	f.must(404, "GET", "/metrics", "")
	f.must(404, "GET", "/metrics/resource", "")
}
