package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"
)

// Overfull is a volume that holds more than its pod said it would.
type Overfull struct {
	Volume string
	Limit  resource.Quantity
	Used   int64
}

// Measured says whether a pod has volumes that have to be measured: scratch on disk with a limit. Memory has its limit
// from the kernel.
func Measured(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limited(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func limited(v *corev1.Volume) bool {
	return onDisk(v) && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0
}

// Overfull measures the pod's volumes and gives the first that is beyond its limit.
func (v *Volumes) Overfull(ctx context.Context, pod *corev1.Pod) (*Overfull, error) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !limited(vol) || checkUID(string(pod.UID)) != nil {
			continue
		}
		limit := vol.EmptyDir.SizeLimit
		used, err := usage(ctx, v.path(pod, vol), limit.Value())
		if err != nil {
			return nil, fmt.Errorf("measure volume %s: %w", vol.Name, err)
		}
		if used > limit.Value() {
			return &Overfull{Volume: vol.Name, Limit: *limit, Used: used}, nil
		}
	}
	return nil, nil
}

// usage is what a directory takes on its own file system, each file once. It stops looking when that is above most.
func usage(ctx context.Context, dir string, most int64) (int64, error) {
	var total int64
	var root unix.Stat_t
	err := unix.Lstat(dir, &root)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	seen := map[uint64]bool{} // inodes with several names
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrNotExist):
			return nil // it went while we looked
		case err != nil:
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok:
			return nil
		case uint64(st.Dev) != uint64(root.Dev) && d.IsDir():
			return fs.SkipDir // something the pod mounted there
		case st.Nlink > 1 && !d.IsDir():
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		if total += st.Blocks * 512; total > most {
			return fs.SkipAll
		}
		return nil
	})
	return total, err
}
