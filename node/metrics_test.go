package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/node/poster"
)

// TestNameMetrics: /metrics has a line for each kind of question, if the board answers any.
func TestNameMetrics(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Questions = func(each func(kind string, n uint64)) { each("cluster", 7); each("stale", 0) }
		r.begin()
		_, text, _, err := r.agent.Page(r.Context(), "/metrics")
		const want = "# TYPE ledge_dns_questions_total counter\n" +
			"ledge_dns_questions_total{kind=\"cluster\"} 7\nledge_dns_questions_total{kind=\"stale\"} 0\n"
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	})
}

// TestClaimMetrics: /metrics has size and use of each claim of a pod here, as the file system tells them, once however many pods have it.
func TestClaimMetrics(t *testing.T) {
	needsRoot(t)
	with(t, nil, func(r *rig) {
		r.cfg.Registration = poster.Registration{}
		r.cfg.ClaimWrites = func(each func(namespace, claim string, bytes int64)) { each("default", "data", 7) }
		r.begin()
		r.pass(time.Second)
		disk := filepath.Join(r.dir, "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m,nr_inodes=100"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		if err := os.WriteFile(filepath.Join(disk, "f"), make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		r.bound("data", disk, aims(corev1.LabelHostname, corev1.NodeSelectorOpIn, "n"))
		claim := volumeOf(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
		for _, name := range []string{"one", "two"} {
			r.pod(name, claim)
		}
		r.pass(5 * time.Second)
		_, page, _, err := r.agent.Page(r.Context(), "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"capacity_bytes": "8.388608e+06", "used_bytes": "3.145728e+06", "available_bytes": "5.24288e+06",
			"inodes": "100", "inodes_used": "2", "inodes_free": "98"} {
			line := "kubelet_volume_stats_" + name + `{namespace="default",persistentvolumeclaim="data"} `
			if got := strings.Count(string(page), line+want+"\n"); got != 1 {
				_, has, _ := strings.Cut(string(page), line)
				has, _, _ = strings.Cut(has, "\n")
				t.Errorf("%s%s is there %d times; it is %q", line, want, got, has)
			}
		}
		const written = `ledge_claim_written_by_pods_bytes_total{namespace="default",persistentvolumeclaim="data"} 7` + "\n"
		if !strings.Contains(string(page), written) {
			t.Errorf("no %s", written)
		}
		for _, name := range []string{"one", "two"} {
			r.delete(name, new(int64))
		}
		r.pass(time.Minute)
		if _, page, _, err = r.agent.Page(r.Context(), "/metrics"); err != nil || strings.Contains(string(page), "kubelet_volume_stats_") {
			t.Errorf("of a claim that no pod has: %v", err)
		}
	})
}
