package node

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/evict"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/node/volume"
)

// measureEvery is how often files with a limit are measured, as a kubelet looks at them.
const measureEvery = 10 * time.Second

// storageBounds watches the files of pods.
type storageBounds struct{ a *Agent }

// Run evicts pods whose files on disk have grown beyond their limits (N-6.34). Only pods that have such a limit
// cost anything.
func (b storageBounds) Run(ctx context.Context) error {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, pod := range b.a.Pods() {
			if b.a.roster.critical(pod) || pod.Status.StartTime == nil || !b.a.roster.mayEvict(pod.UID) {
				continue
			}
			message, err := b.overLimit(ctx, pod)
			if err != nil && ctx.Err() == nil {
				slog.Warn("cannot measure the files of a pod", "pod", api.Key(pod), "err", err)
			}
			if message != "" {
				b.evictForLimit(pod, message)
			}
		}
	}
}

// overLimit is which of its limits a pod exceeds, in Kubernetes' words and order: that of a volume, of all of it, of a
// container.
func (b storageBounds) overLimit(ctx context.Context, pod *corev1.Pod) (message string, err error) {
	// Those of a pod that an earlier version has started have no bound of the kernel's.
	if most := b.a.cfg.OwnFiles; most > 0 && exists(filepath.Join(b.a.podRunDir(string(pod.UID)), "hosts")) {
		switch used, err := b.ownFiles(string(pod.UID)); {
		case err != nil:
			return "", err
		case used > most:
			return fmt.Sprintf("Usage of /etc/hosts and the other files that every container is given exceeds %d bytes. ", most), nil
		}
	}
	if volume.Measured(pod) {
		over, err := b.a.volumes.Overfull(ctx, pod)
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
	for _, p := range b.a.usage.statsPods() {
		if p.UID == string(pod.UID) {
			used, err := b.filesOf(p)
			if err != nil {
				return "", err
			}
			return pressure.StorageOver(pod, used), nil
		}
	}
	return "", nil
}

// ownFiles is what the files take that every container is given and may write to.
func (b storageBounds) ownFiles(uid string) (bytes int64, err error) {
	paths := []string{b.a.volumes.FilesOf(uid)}
	for _, name := range []string{"hosts", "hostname", "resolv.conf", "messages"} {
		paths = append(paths, filepath.Join(b.a.podRunDir(uid), name))
	}
	used, err := stats.DiskUsage(paths...)
	return used.Bytes, err
}

func (b storageBounds) evictForLimit(pod *corev1.Pod, message string) {
	grace := time.Second
	if b.a.roster.claim(pod.UID, podstate.Stop{Reason: evict.Reason, Message: message, Grace: &grace, Room: true}) {
		b.a.event(pod, corev1.EventTypeWarning, evict.Reason, message)
	}
}

// filesOf measures what the files of a pod take.
func (b storageBounds) filesOf(p stats.Pod) (*pressure.Usage, error) {
	at := b.a.usage.places(p)
	out := &pressure.Usage{}
	count := func(to *pressure.Files, dir string) (int64, error) {
		d, err := stats.DiskUsage(dir)
		*to = to.Plus(pressure.Files{Bytes: d.Bytes, Inodes: d.Inodes})
		return d.Bytes, err
	}
	for _, c := range p.Containers {
		var root, logs int64
		var err error
		if dir := at.Rootfs[c.Name]; dir != "" {
			if root, err = count(&out.Rootfs, dir); err != nil {
				return nil, err
			}
		}
		if logs, err = count(&out.Logs, at.Logs[c.Name]); err != nil {
			return nil, err
		}
		out.Containers = append(out.Containers, pressure.ContainerUsage{Name: c.Name, Storage: root + logs})
	}
	own, err := b.ownFiles(p.UID)
	if err != nil {
		return nil, err
	}
	out.Volumes.Bytes += own
	for _, dir := range at.Volumes {
		if _, err := count(&out.Volumes, dir); err != nil {
			return nil, err
		}
	}
	return out, nil
}
