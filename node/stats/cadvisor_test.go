package stats

import (
	"strings"
	"testing"
	"time"
)

// TestCadvisorText: the names and labels that dashboards ask for; what a kernel does not count is left out.
func TestCadvisorText(t *testing.T) {
	p := Pass{At: time.UnixMilli(1767229200000), Pods: []PodUsage{
		{Pod: Pod{Namespace: "ns", Name: "p", Cgroup: "kubepods/podu"}, Usage: Usage{CPU: &CPU{Total: 3 * time.Second}},
			Network: []Traffic{{Name: "eth0", RxBytes: 7, TxBytes: 9, TxErrors: 1}},
			Containers: []ContainerUsage{{Container: Container{ID: "i", Name: "c", Image: "web:1"},
				Usage: Usage{Memory: &Memory{Usage: 30, WorkingSet: 20, RSS: 10}}}}}}}
	var lines []string
	for line := range strings.Lines(string(CadvisorText(p))) {
		if !strings.HasPrefix(line, "# HELP") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	const pod, container = `container="",id="/kubepods/podu",image="",`, `container="c",id="/kubepods/podu",image="web:1",`
	const ofPod, ofContainer = `name="",namespace="ns",pod="p"} `, `name="i",namespace="ns",pod="p"} `
	want := `# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{` + pod + ofPod + `3 1767229200000
# TYPE container_memory_rss gauge
container_memory_rss{` + container + ofContainer + `10 1767229200000
# TYPE container_memory_usage_bytes gauge
container_memory_usage_bytes{` + container + ofContainer + `30 1767229200000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{` + container + ofContainer + `20 1767229200000
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{` + pod + `interface="eth0",` + ofPod + `7 1767229200000
# TYPE container_network_receive_errors_total counter
container_network_receive_errors_total{` + pod + `interface="eth0",` + ofPod + `0 1767229200000
# TYPE container_network_transmit_bytes_total counter
container_network_transmit_bytes_total{` + pod + `interface="eth0",` + ofPod + `9 1767229200000
# TYPE container_network_transmit_errors_total counter
container_network_transmit_errors_total{` + pod + `interface="eth0",` + ofPod + `1 1767229200000`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(CadvisorText(Pass{})); got != "" {
		t.Errorf("of nothing: %s", got)
	}
}
