package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TestStats: what real pods use, as kubectl top shows it and as a kubelet would serve it.
func TestStats(t *testing.T) {
	needGo(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	b.apply(roughPod("eats", `"eat", "40"`, "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n") +
		"\n---\n" + strings.Replace(webPod, "spec:\n", "  labels: {tier: front}\nspec:\n", 1))
	b.running("web")
	kubectl := b.kubectl()
	has := func(want []string, args ...string) error {
		out, err := kubectl(args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var errs []error
		for _, w := range want {
			errs = append(errs, contains(out, w))
		}
		return errors.Join(errs...)
	}
	b.eventually("kubectl top pods", func() error { return has([]string{"eats", "web"}, "top", "pods") })
	must(t, has([]string{b.name, "%"}, "top", "nodes"))
	must(t, has([]string{"main"}, "top", "pod", "eats", "--containers"))
	must(t, b.client("old", "default").try("kubectl top node && kubectl top pod eats --containers", "MEMORY%|main"))
	for _, want := range []string{"eats", b.name} {
		must(t, contains(b.must("top", "pods")+b.must("top", "nodes", b.name)+b.must("top", "pods", "eats", "--containers"), want))
	}
	out, err := kubectl("top", "pods", "-l", "tier=front", "--no-headers")
	if err != nil || !strings.HasPrefix(out, "web ") || strings.Count(out, "\n") != 1 {
		t.Errorf("by label: %v %s", err, out)
	}
	out, err = kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/eats")
	var m struct {
		Containers []struct{ Usage struct{ CPU, Memory string } }
	}
	must(t, errors.Join(err, json.Unmarshal([]byte(out), &m)))
	used, err := resource.ParseQuantity(m.Containers[0].Usage.Memory)
	if err != nil || used.Value() < 40<<20 || used.Value() > 120<<20 {
		t.Errorf("a container that holds 40 MiB: %s", out)
	}
	must(t, has([]string{`container_memory_working_set_bytes{container="main",namespace="default",pod="eats"}`,
		"node_cpu_usage_seconds_total ",
		"resource_scrape_error 0"}, "get", "--raw", "/api/v1/nodes/"+b.name+"/proxy/metrics/resource"))
	must(t, has([]string{"resource_scrape_error 0"}, "get", "--raw", "/metrics/resource"))
	must(t, has([]string{`kubelet_runtime_operations_total{operation_type="pull_image"} 0`,
		`kubelet_image_garbage_collected_total{reason="space"} 0`},
		"get", "--raw", "/metrics"))
	out, err = kubectl("get", "--raw", "/api/v1/nodes/"+b.name+"/proxy/stats/summary")
	var s struct {
		Pods []struct {
			PodRef  struct{ Name string }
			Network struct{ Name string }
			Volume  []struct {
				Name       string
				InodesUsed int64
			}
			Containers []struct {
				Rootfs, Logs struct{ InodesUsed, UsedBytes int64 }
			}
		}
	}
	must(t, errors.Join(err, json.Unmarshal([]byte(out), &s)))
	if len(s.Pods) != 2 || s.Pods[0].PodRef.Name != "eats" || s.Pods[0].Network.Name != "eth0" || s.Pods[0].Volume[0].Name != "v" ||
		s.Pods[0].Volume[0].InodesUsed != 1 ||
		s.Pods[0].Containers[0].Logs.UsedBytes == 0 || s.Pods[0].Containers[0].Rootfs.InodesUsed == 0 {
		t.Errorf("summary %s", out)
	}
	if out, err := kubectl("get", "--raw", "/api/v1/nodes/"+b.name+"/proxy/run/x"); err == nil {
		t.Errorf("a kubelet's other pages: %s", out)
	}
}
