package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/internal/durable"
)

// The API may not know a pod that runs, for two reasons: somebody deleted the pod while this process was away, or the store behind the
// API was put back to an older state and has lost it. To tell them apart every pod is recorded with the lineage of the store. The record
// lies beside what a reboot removes. Where the API is on another machine the mirror does all of this: it still tells what its server has
// forgotten.

// podRecord is podfiles/UID/pod.json.
type podRecord struct {
	Lineage string      `json:"line"` // of the store when it knew the pod; see Config.Lineage
	Pod     *corev1.Pod `json:"pod"`
}

func (h *hands) recordFile(uid string) string { return filepath.Join(h.a.podRunDir(uid), "pod.json") }

// record keeps a pod for the case that the API loses it. Each start of the brain does so again, since every worker makes
// sure of its sandbox first: then the record has the present line. Nothing of it is shown to containers.
func (h *hands) record(pod *corev1.Pod) error {
	data, err := json.Marshal(podRecord{Lineage: h.a.cfg.Lineage, Pod: pod})
	if err != nil {
		return err
	}
	return durable.Volatile.Replace(h.recordFile(string(pod.UID)), data, 0o600)
}

// recorded is the record of a pod; nil without one.
func (s sweeper) recorded(uid string) *podRecord {
	data, err := os.ReadFile(s.a.hands.recordFile(uid))
	var rec podRecord
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil || rec.Pod == nil || string(rec.Pod.UID) != uid {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			slog.Warn("what was kept of a pod cannot be read", "uid", uid, "err", err)
		}
		return nil
	}
	return &rec
}

// takeBack finds pods among what runs and is not known that the API has lost, and gives them back to it. Those that its log
// says were deleted are not among them.
func (s sweeper) takeBack(ctx context.Context, orphans []string) (pods []*corev1.Pod, err error) {
	for _, uid := range orphans {
		rec := s.recorded(uid)
		if rec == nil || rec.Lineage == s.a.cfg.Lineage {
			continue
		}
		say := func(reason, words string) {
			slog.Warn(words, "pod", api.Key(rec.Pod), "uid", uid)
			s.a.nodeWarning(reason, fmt.Sprintf("Pod %s: %s", api.Key(rec.Pod), words))
		}
		if s.a.cfg.Deleted(rec.Pod.Namespace, rec.Pod.Name) {
			say("PodStopped", "the store was put back to an older state that does not have it, and the log says that it was deleted; it is stopped")
			continue
		}
		taken, err := s.a.cfg.Restore(ctx, rec.Pod)
		if err != nil {
			return nil, fmt.Errorf("give pod %s back to the API: %w", api.Key(rec.Pod), err)
		}
		if !taken {
			say("PodStopped", "the store was put back to an older state that has a newer pod of that name; it is stopped")
			continue
		}
		say("PodRestored", "it runs, and the store was put back to an older state that does not have it; it was made again")
		pods = append(pods, rec.Pod)
	}
	return pods, nil
}
