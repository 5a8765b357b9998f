package node

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/node/volume"
)

// measureEvery is how often files with a limit are measured, as a kubelet looks at them.
const measureEvery = 10 * time.Second

// boundStorage evicts pods whose files on disk have grown beyond their limits (N-6.34). Only pods that have such a limit
// cost anything.
func (a *Agent) boundStorage(ctx context.Context) error {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, pod := range a.Pods() {
			if a.critical(pod) || pod.Status.StartTime == nil || !a.mayEvict(pod.UID) {
				continue
			}
			message, err := a.overLimit(ctx, pod)
			if err != nil && ctx.Err() == nil {
				slog.Warn("cannot measure the files of a pod", "pod", api.Key(pod), "err", err)
			}
			if message != "" {
				a.evictForLimit(pod, message)
			}
		}
	}
}

// overLimit is which of its limits a pod exceeds, in Kubernetes' words and order: that of a volume, of all of it, of a
// container.
func (a *Agent) overLimit(ctx context.Context, pod *corev1.Pod) (message string, err error) {
	// Those of a pod that an earlier version has started have no bound of the kernel's.
	if most := a.cfg.OwnFiles; most > 0 && exists(filepath.Join(a.podRunDir(string(pod.UID)), "hosts")) {
		switch used, err := a.ownFiles(string(pod.UID)); {
		case err != nil:
			return "", err
		case used > most:
			return fmt.Sprintf("Usage of /etc/hosts and the other files that every container is given exceeds %d bytes. ", most), nil
		}
	}
	if volume.Measured(pod) {
		over, err := a.volumes.Overfull(ctx, pod)
		switch {
		case err != nil:
			return "", err
		case over != nil:
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", over.Volume, over.Limit.String()), nil
		}
	}
	if !pressure.StorageLimited(pod) {
		return "", nil
	}
	for _, p := range a.statsPods() {
		if p.UID == string(pod.UID) {
			used, err := a.filesOf(p)
			if err != nil {
				return "", err
			}
			return pressure.StorageOver(pod, used), nil
		}
	}
	return "", nil
}

// ownFiles is what the files take that every container is given and may write to.
func (a *Agent) ownFiles(uid string) (bytes int64, err error) {
	paths := []string{a.volumes.FilesOf(uid)}
	for _, name := range []string{"hosts", "hostname", "resolv.conf", "messages"} {
		paths = append(paths, filepath.Join(a.podRunDir(uid), name))
	}
	used, err := stats.DiskUsage(paths...)
	return used.Bytes, err
}

func (a *Agent) evictForLimit(pod *corev1.Pod, message string) {
	grace := time.Second
	if a.claim(pod.UID, podstate.Stop{Reason: Evicted, Message: message, Grace: &grace, Room: true}) {
		a.event(pod, corev1.EventTypeWarning, Evicted, message)
	}
}
