package evict

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"ledge/api"
	"ledge/node/pressure"
)

// free removes what nobody needs, the least missed first, until the board is not short any more (N-6.23, pain 12): old
// parts of logs, what the agent's own files hold for nothing, the files of containers that have ended, unused images. It gives what is to
// be seen afterwards. For memory and process numbers there is nothing to remove.
func (e *Evictor) free(ctx context.Context, s pressure.Signal, seen pressure.Readings, layout pressure.Layout) (pressure.Readings,
	pressure.Layout) {
	if !s.Disk() {
		return seen, layout
	}
	steps := slices.Concat(e.Own, e.Stored)
	if layout == pressure.ImageDisk {
		steps = e.Stored
		if s == pressure.NodeFSAvailable || s == pressure.NodeFSInodesFree {
			steps = e.Own
		}
	}
	var errs []error
	for _, step := range steps {
		freed, err := step(ctx)
		errs = append(errs, err)
		if !freed || ctx.Err() != nil {
			continue
		}
		for _, wait := range []time.Duration{0, freedWithin} {
			select {
			case <-ctx.Done():
				return seen, layout
			case <-time.After(wait):
			}
			if now, l, err := e.look(); err == nil {
				seen, layout = now, l
			}
			if !pressure.Short(e.all, seen) {
				return seen, layout
			}
		}
	}
	if ctx.Err() == nil {
		e.dirty.About("cannot remove everything that nobody needs although the disk is nearly full", errors.Join(errs...))
	}
	return seen, layout
}

// squeeze has the kernel take from one pod what it uses beyond its request, before any pod has to go. It is more than a
// kubelet does (N-6.23), which has nothing to free where memory is short.
func (e *Evictor) squeeze(ctx context.Context, c pressure.Candidate, above int64) bool {
	// only page cache could be taken, which counts as available; a kernel that is short may look for it for seconds
	if !e.Reclaim || !e.swaps && !e.WorkingSet {
		return false
	}
	cgroup := e.Pods.Cgroup(c.Pod.UID)
	if cgroup == "" {
		return false
	}
	freed, err := e.Machine.Reclaim(ctx, cgroup, above)
	if errors.Is(err, os.ErrNotExist) { // a kernel before 5.19
		return false
	}
	if ctx.Err() == nil {
		e.tight.About("cannot take memory back from a pod before one is evicted", err, "pod", api.Key(c.Pod))
	}
	if freed > 0 {
		slog.Info("memory taken back from a pod", "pod", api.Key(c.Pod), "bytes", freed, "aboveItsRequest", above)
	}
	return freed > 0
}
