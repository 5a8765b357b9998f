package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path"
	"time"

	"ledge/api"
	"ledge/images"
	"ledge/node/pressure"
)

// free removes what nobody needs, the least missed first, until the board is not short any more (N-6.23, pain 12): old
// parts of logs, what the agent's own files hold for nothing, the files of containers that have ended, unused images. It gives what is to
// be seen afterwards. For memory and process numbers there is nothing to remove.
func (e *evictor) free(ctx context.Context, s pressure.Signal, seen pressure.Readings, layout pressure.Layout) (pressure.Readings,
	pressure.Layout) {
	if !s.Disk() {
		return seen, layout
	}
	own := []func(context.Context) (freed bool, err error){e.a.logs.DropFull, e.shrink}
	steps := append(own, e.dropEnded, e.dropImages)
	if layout == pressure.ImageDisk {
		steps = steps[len(own):] // what stands on the disk of images
		if s == pressure.NodeFSAvailable || s == pressure.NodeFSInodesFree {
			steps = own
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

// shrink gives back what the agent's own files hold for nothing.
func (e *evictor) shrink(ctx context.Context) (freed bool, err error) {
	if e.a.cfg.Shrink == nil {
		return false, nil
	}
	return e.a.cfg.Shrink(ctx)
}

// dropEnded removes what ended containers have written. Their records and logs stay, for those who ask what happened.
func (e *evictor) dropEnded(ctx context.Context) (freed bool, err error) {
	var errs []error
	for _, id := range e.a.engine.ended() {
		if e.bare[id] {
			continue
		}
		if err := e.a.cfg.Images.Unmount(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		e.bare[id], freed = true, true
	}
	return freed, errors.Join(errs...)
}

// dropImages removes every image that no container stands on, but those that were imported or pinned.
func (e *evictor) dropImages(ctx context.Context) (freed bool, err error) {
	c, ok := e.a.cfg.Images.(images.Collector)
	if !ok {
		return false, nil
	}
	out, err := c.Collect(ctx, true)
	if out.Images > 0 || out.Parts > 0 {
		slog.Warn("disk nearly full, unused images removed", "images", out.Images, "bytes", out.Bytes+out.Parts)
	}
	return out.Images > 0 || out.Parts > 0, err
}

// squeeze has the kernel take from one pod what it uses beyond its request, before any pod has to go. It is more than a
// kubelet does (N-6.23), which has nothing to free where memory is short.
func (e *evictor) squeeze(ctx context.Context, c pressure.Candidate, above int64) bool {
	a := e.a
	// only page cache could be taken, which counts as available; a kernel that is short may look for it for seconds
	if !e.swaps && !a.cfg.Status.WorkingSet {
		return false
	}
	info := a.engine.last()
	stands, _ := a.engine.pod(c.Pod.UID)
	if !a.cfg.Reclaim || info.CgroupVersion != 2 || stands.Pod.Cgroup == "" {
		return false
	}
	freed, err := a.cfg.Machine.Reclaim(ctx, path.Join("/", info.CgroupRoot, stands.Pod.Cgroup), above)
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
