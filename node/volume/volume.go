// Package volume makes the volumes of a pod: directories of the board (hostPath), the pod's own scratch space
// (emptyDir, on disk or in memory). Everything it mounts it can find again and unmount, also after a restart.
package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// Volumes keeps the volumes of all pods: scratch on disk below DataDir/volumes/<uid>, in memory below
// RunDir/volumes/<uid>.
type Volumes struct {
	disk, memory string
}

// New prepares the two places volumes live in.
func New(dataDir, runDir string) (*Volumes, error) {
	v := &Volumes{disk: filepath.Join(dataDir, "volumes"), memory: filepath.Join(runDir, "volumes")}
	for _, d := range []string{v.disk, v.memory} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, fmt.Errorf("make volume directory: %w", err)
		}
	}
	return v, nil
}

// Prepare makes every volume of the pod. Called again it leaves what is there.
func (v *Volumes) Prepare(pod *corev1.Pod) error {
	if err := checkUID(string(pod.UID)); err != nil {
		return fmt.Errorf("make volumes: %w", err)
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if err := v.prepare(pod, vol); err != nil {
			return fmt.Errorf("volume %s: %w", vol.Name, err)
		}
	}
	return nil
}

func (v *Volumes) prepare(pod *corev1.Pod, vol *corev1.Volume) error {
	switch {
	case vol.HostPath != nil:
		return prepareHostPath(vol.HostPath)
	case vol.EmptyDir != nil && vol.EmptyDir.Medium == corev1.StorageMediumMemory:
		return mountMemory(v.path(pod, vol))
	case vol.EmptyDir != nil:
		return makeScratch(v.path(pod, vol))
	}
	return errors.New("this type of volume is not supported by ledge yet")
}

// checkUID refuses a UID that is a path rather than a name: ".." would be the whole data directory. UIDs come from
// whatever control plane the board has joined.
func checkUID(uid string) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsRune(uid, '/') {
		return fmt.Errorf("bad pod uid %q", uid)
	}
	return nil
}

// path is where a volume stands on the board.
func (v *Volumes) path(pod *corev1.Pod, vol *corev1.Volume) string {
	switch {
	case vol.HostPath != nil:
		return vol.HostPath.Path
	case vol.EmptyDir != nil && vol.EmptyDir.Medium == corev1.StorageMediumMemory:
		return filepath.Join(v.memory, string(pod.UID), vol.Name)
	}
	return filepath.Join(v.disk, string(pod.UID), vol.Name)
}

// Mounts are the volume mounts of one container.
func (v *Volumes) Mounts(pod *corev1.Pod, c *corev1.Container) ([]runtime.Mount, error) {
	var out []runtime.Mount
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(vol corev1.Volume) bool { return vol.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod does not have", c.Name, m.Name)
		}
		out = append(out, runtime.Mount{Source: v.path(pod, &pod.Spec.Volumes[i]), Target: m.MountPath,
			ReadOnly: m.ReadOnly, Recursive: true})
	}
	return out, nil
}

// Remove unmounts and deletes what was made for a pod. Unmounting is confirmed: if something still stands there
// it is an error and nothing is deleted.
func (v *Volumes) Remove(uid string) error {
	if err := checkUID(uid); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	mem := filepath.Join(v.memory, uid)
	names, err := os.ReadDir(mem)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove volumes: %w", err)
	}
	for _, e := range names {
		dir := filepath.Join(mem, e.Name())
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount volume %s: %w", dir, err)
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove volume: %w", err)
		}
	}
	for _, dir := range []string{mem, filepath.Join(v.disk, uid)} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove volumes: %w", err)
		}
	}
	return nil
}

// Retain removes the volumes of every pod that is not listed.
func (v *Volumes) Retain(uids []string) error {
	var errs []error
	for _, root := range []string{v.disk, v.memory} {
		entries, err := os.ReadDir(root)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			if !slices.Contains(uids, e.Name()) {
				errs = append(errs, v.Remove(e.Name()))
			}
		}
	}
	return errors.Join(errs...)
}

func makeScratch(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777) // whatever the umask: any user of the pod may write
}

func mountMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var here, parent unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return err
	}
	if err := unix.Stat(filepath.Dir(dir), &parent); err != nil {
		return err
	}
	if here.Dev != parent.Dev {
		return nil // mounted already
	}
	// noswap (Linux 6.4) keeps what is in memory off the card; older kernels refuse the word.
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}
