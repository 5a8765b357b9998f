package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sweeper removes what is left of pods that are not known any more.
type sweeper struct{ a *Agent }

// sweep runs once, when both the API and the engine are known: pods that were deleted while no brain was
// there to see it are removed, with their mounts and addresses. False: the engine is not there yet.
func (s sweeper) sweep(ctx context.Context) bool {
	if !s.a.engine.running() {
		return false
	}
	bound := s.a.bound()
	if s.a.cfg.Lineage != "" {
		lost, err := s.takeBack(ctx, s.unknown(bound))
		if err != nil {
			slog.Warn("cannot tell pods that were deleted from others", "err", err)
			return false
		}
		bound = append(bound, lost...)
	}
	known := map[string]bool{}
	var uids, keys []string
	for _, p := range bound {
		known[string(p.UID)] = true
		uids = append(uids, string(p.UID))
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.Image != nil {
				keys = append(keys, imageVolumeKey(p, v.Name))
			}
		}
	}
	for _, p := range bound {
		containers, _, _ := s.a.engine.held(p.UID)
		for _, c := range containers {
			keys = append(keys, c.ID)
		}
	}
	for _, uid := range s.unknown(bound) {
		slog.Info("removing a pod that was deleted while ledge was away", "uid", uid)
		if err := s.a.cfg.Engine.RemovePod(ctx, uid); err != nil {
			slog.Warn("cannot remove orphaned pod", "uid", uid, "err", err)
			return false
		}
		s.a.engine.forget(types.UID(uid), "")
	}
	for what, err := range map[string]error{
		"root file systems": s.a.cfg.Images.Retain(ctx, keys),
		"network":           s.a.cfg.Network.Retain(ctx, uids),
		"volumes":           s.a.volumes.Retain(uids),
		"files":             s.retainFiles(known),
	} {
		if err != nil {
			slog.Warn("cannot sweep leftovers", "what", what, "err", err)
		}
	}
	return true
}

// unknown are the pods that the engine holds beside these.
func (s sweeper) unknown(pods []*corev1.Pod) (uids []string) {
	known := map[string]bool{}
	for _, p := range pods {
		known[string(p.UID)] = true
	}
	for _, st := range s.a.engine.all() {
		if !known[st.Pod.UID] {
			uids = append(uids, st.Pod.UID)
		}
	}
	return uids
}

// retainFiles removes the files and logs of every pod that is not known: its object went while nobody was there to
// clear up behind it.
func (s sweeper) retainFiles(known map[string]bool) error {
	errs := []error{s.a.logs.Retain(func(uid string) bool { return known[uid] })}
	dir := filepath.Dir(s.a.podRunDir("x"))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
