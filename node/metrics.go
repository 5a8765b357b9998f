package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/podspec"
	"ledge/node/stats"
)

// metricsText is the page of a kubelet's own metrics, those that are kept here.
func (u usage) metricsText() []byte {
	t := &stats.Text{}
	u.pullMetrics(t)
	u.shutdownMetrics(t)
	u.a.evictor.WriteMetrics(t)
	u.oomMetrics(t)
	u.claimMetrics(t)
	u.nameMetrics(t)
	return []byte(t.String())
}

// shutdownMetrics of N-5.33.
func (u usage) shutdownMetrics(t *stats.Text) {
	if u.a.cfg.Shutdowns == nil {
		return
	}
	gauge := func(name, help string, at time.Time) {
		seconds := 0.0
		if !at.IsZero() {
			seconds = float64(at.UnixMilli()) / 1e3
		}
		t.Head(name, "gauge", help)
		t.Line(name, seconds)
	}
	begun, ended := u.a.cfg.Shutdowns()
	gauge("kubelet_graceful_shutdown_start_time_seconds", "[ALPHA] When the last graceful shutdown began, in seconds since 1970.", begun)
	gauge("kubelet_graceful_shutdown_end_time_seconds", "[ALPHA] When the last graceful shutdown ended; 0 while it goes on.", ended)
}

// nameMetrics are the questions for names that this board has answered.
func (u usage) nameMetrics(t *stats.Text) {
	if u.a.cfg.Questions == nil {
		return
	}
	const name = "ledge_dns_questions_total"
	t.Head(name, "counter", "Questions of pods for names, by where the answer came from.")
	u.a.cfg.Questions(func(kind string, n uint64) { t.Line(name, float64(n), "kind", kind) })
}

// pullMetrics are what a kubelet says of images, under its names; what it has no name for is ledge's.
func (u usage) pullMetrics(t *stats.Text) {
	m, ok := u.a.cfg.Images.(images.Meter)
	if !ok {
		return
	}
	c := m.Counts()
	const pulls = "kubelet_image_pull_duration_seconds"
	total := c.Failed
	t.Head(pulls, "histogram", "[ALPHA] Duration in seconds to pull an image.")
	for _, p := range c.Pulls {
		for i, most := range images.PullDurations {
			t.Line(pulls+"_bucket", float64(p.Within[i]), "image_size_in_bytes", p.Size, "le", fmt.Sprint(most.Seconds()))
		}
		t.Line(pulls+"_bucket", float64(p.Count), "image_size_in_bytes", p.Size, "le", "+Inf")
		t.Line(pulls+"_sum", p.Took.Seconds(), "image_size_in_bytes", p.Size)
		t.Line(pulls+"_count", float64(p.Count), "image_size_in_bytes", p.Size)
		total += p.Count
	}
	count := func(name, help string, v float64, labels ...string) {
		t.Head(name, "counter", help)
		t.Line(name, v, labels...)
	}
	count("kubelet_runtime_operations_total", "[ALPHA] Cumulative number of runtime operations by operation type.", float64(total),
		"operation_type", "pull_image")
	count("kubelet_runtime_operations_errors_total", "[ALPHA] Cumulative number of runtime operation errors by operation type.",
		float64(c.Failed),
		"operation_type", "pull_image")
	const gone = "kubelet_image_garbage_collected_total"
	t.Head(gone, "counter", "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.")
	t.Line(gone, float64(c.Collected.Aged), "reason", "age")
	t.Line(gone, float64(c.Collected.Images-c.Collected.Aged), "reason", "space")
	count("ledge_image_pull_bytes_total", "Bytes of layers downloaded from registries.", float64(c.Bytes))
	count("ledge_image_garbage_collected_bytes_total", "Bytes freed by removing unused images and downloads that were given up.",
		float64(c.Collected.Bytes+c.Collected.Parts))
}

// claimMetrics are the room of each claim that a pod here uses, as its pods see it.
func (u usage) claimMetrics(t *stats.Text) {
	type row struct {
		namespace, claim string
		st               unix.Statfs_t
	}
	var rows []row
	seen := map[string]bool{}
	for _, pod := range u.a.Pods() {
		places, err := u.a.volumes.Claimed(pod)
		if err != nil {
			continue // the kernel's list of mounts cannot be read: there is nothing to say
		}
		for _, claim := range slices.Sorted(maps.Keys(places)) {
			r := row{namespace: pod.Namespace, claim: claim}
			if key := r.namespace + "/" + claim; !seen[key] && unix.Statfs(places[claim], &r.st) == nil {
				seen[key] = true
				rows = append(rows, r)
			}
		}
	}
	sort.Slice(rows, func(i, j int) bool {
		return cmp.Or(cmp.Compare(rows[i].namespace, rows[j].namespace), cmp.Compare(rows[i].claim, rows[j].claim)) < 0
	})
	u.claimWrites(t)
	for _, m := range []struct {
		name, help string
		of         func(*unix.Statfs_t) int64
	}{
		{"available_bytes", "Number of available bytes in the volume", func(s *unix.Statfs_t) int64 { return int64(s.Bavail) * int64(s.Bsize) }},
		{"capacity_bytes", "Capacity in bytes of the volume", func(s *unix.Statfs_t) int64 { return int64(s.Blocks) * int64(s.Bsize) }},
		{"inodes", "Maximum number of inodes in the volume", func(s *unix.Statfs_t) int64 { return int64(s.Files) }},
		{"inodes_free", "Number of free inodes in the volume", func(s *unix.Statfs_t) int64 { return int64(s.Ffree) }},
		{"inodes_used", "Number of used inodes in the volume", func(s *unix.Statfs_t) int64 { return int64(s.Files) - int64(s.Ffree) }},
		{"used_bytes", "Number of used bytes in the volume", func(s *unix.Statfs_t) int64 { return (int64(s.Blocks) - int64(s.Bfree)) * int64(s.Bsize) }},
	} {
		if len(rows) == 0 {
			return
		}
		name := "kubelet_volume_stats_" + m.name
		t.Head(name, "gauge", "[ALPHA] "+m.help)
		for i := range rows {
			t.Line(name, float64(m.of(&rows[i].st)), "namespace", rows[i].namespace, "persistentvolumeclaim", rows[i].claim)
		}
	}
}

// claimWrites are what was written to the disks of claims by the pods that had them.
func (u usage) claimWrites(t *stats.Text) {
	const name = "ledge_claim_written_by_pods_bytes_total"
	begun := false
	if u.a.cfg.ClaimWrites == nil {
		return
	}
	u.a.cfg.ClaimWrites(func(namespace, claim string, n int64) {
		if !begun {
			begun = true
			t.Head(name, "counter", "Bytes that the pods that had the claim have written to its disk since the boot, into the claim or beside it.")
		}
		t.Line(name, float64(n), "namespace", namespace, "persistentvolumeclaim", claim)
	})
}

// CgroupOf is where the pod's cgroup stands below that of all.
func CgroupOf(pod *corev1.Pod) string { return podspec.Cgroup(pod) }
