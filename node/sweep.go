package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// sweep runs once, when both the API and the engine are known: pods that were deleted while no brain was
// there to see it are removed, with their mounts and addresses. False: the engine is not there yet.
func (a *Agent) sweep(ctx context.Context) bool {
	known := map[string]bool{}
	var uids, keys []string
	for _, p := range a.bound() {
		known[string(p.UID)] = true
		uids = append(uids, string(p.UID))
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.Image != nil {
				keys = append(keys, imageVolumeKey(p, v.Name))
			}
		}
	}
	a.mu.Lock()
	up := a.engine.up
	var orphans []string
	for uid := range a.engine.pods {
		if !known[uid] {
			orphans = append(orphans, uid)
		}
	}
	for uid, cs := range a.engine.containers {
		for id := range cs {
			if known[uid] {
				keys = append(keys, id)
			}
		}
	}
	a.mu.Unlock()
	if !up {
		return false
	}
	for _, uid := range orphans {
		slog.Info("removing a pod that was deleted while ledge was away", "uid", uid)
		if err := a.cfg.Engine.RemovePod(ctx, uid); err != nil {
			slog.Warn("cannot remove orphaned pod", "uid", uid, "err", err)
			return false
		}
		a.forget(types.UID(uid), "")
	}
	for what, err := range map[string]error{
		"root file systems": a.cfg.Images.Retain(ctx, keys),
		"network":           a.cfg.Network.Retain(ctx, uids),
		"volumes":           a.volumes.Retain(uids),
		"files":             a.retainFiles(known),
	} {
		if err != nil {
			slog.Warn("cannot sweep leftovers", "what", what, "err", err)
		}
	}
	return true
}

// retainFiles removes the files and logs of every pod that is not known: its object went while nobody was there to
// clear up behind it.
func (a *Agent) retainFiles(known map[string]bool) error {
	var errs []error
	for _, dir := range append(a.logRoots(), filepath.Dir(a.podRunDir("x"))) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			uid := e.Name()[strings.LastIndexByte(e.Name(), '_')+1:] // logs are namespace_name_uid
			if !known[uid] {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
