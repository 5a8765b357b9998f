// Package volume makes the volumes of a pod. Some are directories of the board (hostPath), some are scratch space of the pod (emptyDir,
// on disk or in memory), some are files made of objects (configMap, secret, downwardAPI, projected), which change while the pod runs. The
// package can find again and unmount whatever it mounts, also after a restart.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/host/nfs"
)

// Volumes keeps the volumes of all pods:
//
//	DataDir/volumes/<uid>/<volume>             emptyDir on disk
//	RunDir/volumes/<uid>/<volume>              emptyDir in memory, a tmpfs each
//	RunDir/config/<uid>/<volume>               files made of objects, one tmpfs for each pod: secrets never touch the card
//	RunDir/files/<uid>                         what every container is given without asking (/etc/hosts), a small tmpfs for each pod
//	RunDir/subpaths/<uid>/<container>/<n>      what a subPath led to when the container started
//	RunDir/lasting/<uid>/<volume>              what a claim is bound to, mounted; it stands elsewhere
type Volumes struct {
	disk, memory, config, files, subpaths, lasting string

	shares nfs.Shares
	opened opened

	// Absent says why a directory that this board has made for a claim cannot be had now. Nil: nobody knows of a reason.
	Absent func(path string) error
	// Gone says whether the disk of a mount was taken away, by its numbers. Nil: none is.
	Gone func(major, minor int) (bool, error)
}

// New prepares the places volumes live in.
func New(dataDir, runDir string) (*Volumes, error) {
	v := &Volumes{}
	for _, d := range []struct {
		at        *string
		dir, name string
	}{{&v.disk, dataDir, "volumes"}, {&v.memory, runDir, "volumes"}, {&v.config, runDir, "config"}, {&v.files, runDir, "files"},
		{&v.subpaths, runDir, "subpaths"}, {&v.lasting, runDir, "lasting"}} {
		if err := os.MkdirAll(filepath.Join(d.dir, d.name), 0o711); err != nil {
			return nil, fmt.Errorf("make volume directory: %w", err)
		}
		real, err := filepath.EvalSymlinks(d.dir) // as the kernel names mount points
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return nil, fmt.Errorf("make volume directory: %w", err)
		}
		*d.at = filepath.Join(real, d.name)
	}
	return v, nil
}

// roots are those of what goes with its pod.
func (v *Volumes) roots() []string { return []string{v.disk, v.memory, v.config, v.files, v.subpaths} }

// Prepare makes every volume of the pod. A second call leaves existing volumes alone and only updates files whose
// objects have changed.
func (v *Volumes) Prepare(ctx context.Context, pod *corev1.Pod, src Source) error {
	if err := checkUID(string(pod.UID)); err != nil {
		return fmt.Errorf("make volumes: %w", err)
	}
	for i := range pod.Spec.Volumes {
		if err := v.prepare(ctx, pod, &pod.Spec.Volumes[i], src); err != nil {
			return setUpError(pod, &pod.Spec.Volumes[i], err)
		}
	}
	return nil
}

// Refresh brings the files made of objects up to date; every volume is tried.
func (v *Volumes) Refresh(ctx context.Context, pod *corev1.Pod, src Source) error {
	if err := checkUID(string(pod.UID)); err != nil {
		return fmt.Errorf("refresh volumes: %w", err)
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		if vol := &pod.Spec.Volumes[i]; OfObjects(vol) {
			if err := v.prepare(ctx, pod, vol, src); err != nil {
				errs = append(errs, setUpError(pod, vol, err))
			}
		}
	}
	return errors.Join(errs...)
}

// OfObjects says whether a volume is files made of objects.
func OfObjects(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// FailedMap is an error of a volume that containers have as a device: a kubelet's event of it has another name.
type FailedMap struct{ error }

// Unwrap is for errors.Is.
func (f FailedMap) Unwrap() error { return f.error }

// setUpError is in the words a kubelet has for it.
func setUpError(pod *corev1.Pod, vol *corev1.Volume, err error) error {
	if device, directory := asDevice(pod, vol.Name); device && !directory {
		return FailedMap{fmt.Errorf("MapVolume.SetUpDevice failed for volume %q : %w", vol.Name, err)}
	}
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", vol.Name, err)
}

// InMemory says that what is written to a volume takes memory.
func InMemory(vol corev1.Volume) bool {
	return vol.EmptyDir != nil && vol.EmptyDir.Medium != corev1.StorageMediumDefault
}

func (v *Volumes) prepare(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, src Source) error {
	own := ownership{user: userOf(pod), group: fsGroup(pod)}
	dir := v.path(pod, vol)
	switch {
	case vol.HostPath != nil:
		return prepareHostPath(vol.HostPath)
	case vol.Image != nil:
		return nil // the agent's: images are another room
	case IsLasting(vol):
		return v.prepareLasting(ctx, pod, vol, src)
	case ofHugePages(vol):
		return mountHugePages(dir, pod, vol.EmptyDir.Medium, scratchMode(vol, own.group), own.group)
	case vol.EmptyDir != nil && vol.EmptyDir.Medium == corev1.StorageMediumMemory:
		return mountTmpfs(dir, tmpfs{mode: scratchMode(vol, own.group), group: own.group, size: memorySize(pod, vol, src.Facts().Allocatable)})
	case vol.EmptyDir != nil:
		return makeScratch(dir, scratchMode(vol, own.group), own.group)
	}
	files, ok, err := content(ctx, vol, src)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("this type of volume is not supported by ledge yet")
	}
	if err := mountTmpfs(filepath.Dir(dir), tmpfs{mode: 0o711}); err != nil {
		return err
	}
	if err := makeScratch(dir, scratchMode(vol, own.group), own.group); err != nil {
		return err
	}
	if _, err := writeFiles(dir, files, mountPoints(pod, vol.Name), own, time.Now()); err != nil {
		return writeError(dir, err)
	}
	return nil
}

// FilesOf is where the files of a pod stand that every container is given. Containers may write to them.
func (v *Volumes) FilesOf(uid string) string { return filepath.Join(v.files, uid) }

// MakeFiles makes that place, of so many bytes; 0: without a bound. Containers see single files of it and can make none.
func (v *Volumes) MakeFiles(uid string, most int64) (dir string, err error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	if most == 0 {
		return v.FilesOf(uid), os.MkdirAll(v.FilesOf(uid), 0o711)
	}
	return v.FilesOf(uid), mountTmpfs(v.FilesOf(uid), tmpfs{mode: 0o711, size: most})
}

func fsGroup(pod *corev1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// userOf is the one user that all containers run as by the pod's spec; nil when there is none.
func userOf(pod *corev1.Pod) *int64 {
	var one *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			var u *int64
			if sc := pod.Spec.SecurityContext; sc != nil {
				u = sc.RunAsUser
			}
			if sc := list[i].SecurityContext; sc != nil && sc.RunAsUser != nil {
				u = sc.RunAsUser
			}
			if u == nil || one != nil && *u != *one {
				return nil
			}
			one = u
		}
	}
	return one
}

// memorySize is what the pod asked for, but never more than the pod or the node has; 0 is the kernel's own bound.
func memorySize(pod *corev1.Pod, vol *corev1.Volume, allocatable corev1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	least := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	limits := api.Limits(pod)
	least(limits.Memory().Value())
	if s := vol.EmptyDir.SizeLimit; s != nil {
		least(s.Value())
	}
	return size
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
	root := v.disk
	switch {
	case vol.HostPath != nil:
		return vol.HostPath.Path
	case IsLasting(vol):
		return v.lastingPlace(pod, vol)
	case vol.EmptyDir != nil && !onDisk(vol):
		root = v.memory
	case OfObjects(vol):
		root = v.config
	}
	return filepath.Join(root, string(pod.UID), vol.Name)
}

// onDisk tells the scratch volumes that fill the disk.
func onDisk(vol *corev1.Volume) bool {
	return vol.EmptyDir != nil && vol.EmptyDir.Medium == corev1.StorageMediumDefault
}

// Scratch are the places of a pod's own volumes on disk, by name: what it may fill.
func (v *Volumes) Scratch(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for i := range pod.Spec.Volumes {
		if vol := &pod.Spec.Volumes[i]; onDisk(vol) {
			out[vol.Name] = v.path(pod, vol)
		}
	}
	return out
}

// Unmount unmounts the volumes of a pod whose containers have ended, and deletes nothing. What this package has mounted it
// knows; the kernel's list, long where many pods end at once, is read only where containers may have added to it.
func (v *Volumes) Unmount(pod *corev1.Pod) error {
	uid := string(pod.UID)
	if err := checkUID(uid); err != nil {
		return fmt.Errorf("unmount volumes: %w", err)
	}
	known := []string{filepath.Join(v.config, uid), v.FilesOf(uid)}
	lasting := entries(filepath.Join(v.lasting, uid))
	if len(lasting) > 0 {
		if err := KeepApart(filepath.Join(v.subpaths, uid)); err != nil {
			return fmt.Errorf("unmount volumes: %w", err)
		}
	}
	for _, container := range entries(filepath.Join(v.subpaths, uid)) {
		if len(lasting) == 0 {
			known = append(entries(container), known...)
			continue
		}
		for _, at := range entries(container) { // it may be in a share: nobody looks at it
			if err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("unmount volumes: %w", err)
			}
		}
	}
	known = append(known, entries(filepath.Join(v.memory, uid))...)
	if mountsOutwards(pod, "") || !unmountEach(known) {
		if err := unmountBelow(v.dirs(uid)...); err != nil {
			return err
		}
	}
	if len(lasting) == 0 {
		return nil
	}
	return v.unmountLasting(uid) // after what a subPath led to in it
}

// entries are the paths of what is in a directory; none if it cannot be read.
func entries(dir string) (paths []string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

// mountsOutwards: what a container mounts in a volume, or in any if it has no name, is mounted on the board too.
func mountsOutwards(pod *corev1.Pod, volume string) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, m := range list[i].VolumeMounts {
				if (volume == "" || m.Name == volume) && m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
					return true
				}
			}
		}
	}
	return false
}

// dirs are where a pod's volumes stand: what a subPath led to first, as it may stand on one of the others.
func (v *Volumes) dirs(uid string) (dirs []string) {
	for _, root := range []string{v.subpaths, v.config, v.files, v.memory, v.disk} {
		dirs = append(dirs, filepath.Join(root, uid))
	}
	return dirs
}

// Remove unmounts and deletes what was made for a pod. Unmounting is confirmed: if something still stands there
// it is an error and nothing is deleted.
func (v *Volumes) Remove(uid string) error {
	if err := checkUID(uid); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	if err := unmountBelow(v.dirs(uid)...); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	if err := v.unmountLasting(uid); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	for _, root := range v.roots() {
		if err := os.RemoveAll(filepath.Join(root, uid)); err != nil {
			return fmt.Errorf("remove volumes: %w", err)
		}
	}
	return nil
}

// Retain removes the volumes of every pod that is not listed.
func (v *Volumes) Retain(uids []string) error {
	var errs []error
	for _, root := range append(v.roots(), v.lasting) {
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

// makeScratch makes a directory of a mode, whatever the umask, and of the pod's group. The directory appears
// complete, by a rename. An existing directory is left as the pod has made it.
func makeScratch(dir string, mode uint32, group *int64) error {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	half := dir + ".half" // no name of a volume: those have no dots
	if err := os.MkdirAll(half, 0o700); err != nil {
		return err
	}
	if group != nil {
		if err := os.Lchown(half, -1, int(*group)); err != nil {
			return err
		}
	}
	if err := unix.Chmod(half, mode); err != nil { // os.Chmod has other names for the upper bits
		return err
	}
	return os.Rename(half, dir)
}

// scratchMode is what the pod asks for, or lets everybody in. The pod's group gets in all the same, and what is made
// there is its own.
func scratchMode(vol *corev1.Volume, group *int64) uint32 {
	mode := uint32(0o777)
	if e := vol.EmptyDir; e != nil {
		switch {
		case e.Mode != nil:
			mode = uint32(*e.Mode)
		case !onDisk(vol):
			mode |= unix.S_ISVTX // as a kubelet leaves what it mounts
		}
	}
	if group != nil {
		mode |= 0o770 | unix.S_ISGID
	}
	return mode
}

// ReadFile reads a file that the pod has in one of its volumes. Links lead nowhere else, and what is no file, or larger
// than most, is an error.
func (v *Volumes) ReadFile(pod *corev1.Pod, volume, path string, most int64) ([]byte, error) {
	if err := checkUID(string(pod.UID)); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pod.Spec.Volumes, func(vol corev1.Volume) bool { return vol.Name == volume })
	if i < 0 || pod.Spec.Volumes[i].EmptyDir == nil {
		return nil, fmt.Errorf("the pod has no emptyDir volume %q", volume)
	}
	root, err := os.OpenRoot(v.path(pod, &pod.Spec.Volumes[i]))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in volume %s is no file", path, volume)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s in volume %s is larger than %d bytes", path, volume, most)
	}
	return data, err
}
