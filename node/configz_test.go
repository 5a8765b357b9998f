package node

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/pressure"
)

// TestConfigz: the board says by which of a kubelet's settings it lives, its defaults too.
func TestConfigz(t *testing.T) {
	for _, c := range []struct {
		set  func(*Config)
		want []string
	}{
		{func(*Config) {}, []string{`"kind":"KubeletConfiguration"`, `"anonymous":{"enabled":false}`, `"maxPods":110`, `"podPidsLimit":-1`,
			`"nodeLeaseDurationSeconds":40`, `"nodeStatusReportFrequency":"5m0s"`, `"clusterDomain":"cluster.local"`, `"cpuCFSQuota":true`,
			`"cpuCFSQuotaPeriod":"100ms"`, `"seccompDefault":true`, `"evictionPressureTransitionPeriod":"5m0s"`,
			`"memory.available":"100Mi"`, `"nodefs.available":"10%"`, `"nodefs.inodesFree":"5%"`}},
		{func(c *Config) {
			c.Status.MaxPods, c.Status.Port, c.Resources.PodPids, c.ClusterDomain, c.Unconfined = 20, 10250, 300, "shed.local", true
			c.Status.SysReserved = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("50Mi")}
			c.Logs.MaxBytes, c.Logs.MaxFiles = 1<<20, 3
			c.ClusterDNS = func() []string { return []string{"10.43.0.10"} }
			c.Status.Eviction.Thresholds = []pressure.Threshold{
				{Signal: pressure.MemoryAvailable, Below: pressure.Limit{Amount: 64 << 20}, Reclaim: pressure.Limit{Percent: 0.02}},
				{Signal: pressure.NodeFSAvailable, Below: pressure.Limit{Percent: 0.125}, Soft: true, Grace: 90 * time.Second}}
		}, []string{`"port":10250`, `"maxPods":20`, `"podPidsLimit":300`, `"systemReserved":{"memory":"50Mi"}`, `"clusterDNS":["10.43.0.10"]`,
			`"clusterDomain":"shed.local"`, `"seccompDefault":false`, `"evictionHard":{"memory.available":"64Mi"}`,
			`"evictionSoft":{"nodefs.available":"12.5%"}`, `"evictionSoftGracePeriod":{"nodefs.available":"1m30s"}`,
			`"evictionMinimumReclaim":{"memory.available":"2%"}`, `"containerLogMaxSize":"1048576"`, `"containerLogMaxFiles":3`}},
	} {
		with(t, nil, func(r *rig) {
			c.set(&r.cfg)
			r.begin()
			_, text, ok, err := r.agent.Page(r.Context(), "/configz")
			if !ok || err != nil || !json.Valid(text) {
				t.Fatalf("%s %t %v", text, ok, err)
			}
			for _, want := range c.want {
				if !bytes.Contains(text, []byte(want)) {
					t.Errorf("no %s in %s", want, text)
				}
			}
		})
	}
}
