package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/host/nfs"
	"ledge/runtime"
)

// A claim's volume, and a share, is mounted at a place of the pod's own, as a kubelet does it: after a restart of the brain containers
// find it there although no control plane answers, and what stands there is the pod's to unmount. Nothing here looks at such a place
// itself: that waits for a server that does not answer.

// IsLasting says whether what is in a volume stands elsewhere: a claim's, a share.
func IsLasting(v *corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.NFS != nil
}

// lastingPlace is where it stands for a pod.
func (v *Volumes) lastingPlace(pod *corev1.Pod, vol *corev1.Volume) string {
	return filepath.Join(v.lasting, string(pod.UID), vol.Name)
}

// prepareLasting mounts what a claim is bound to, once.
func (v *Volumes) prepareLasting(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, src Source) error {
	place := v.lastingPlace(pod, vol)
	stands, share, err := standsAt(place)
	if err == nil && stands {
		stands, err = v.leaveDead(place)
	}
	if err == nil && stands && !share {
		if _, e := deviceAt(place); errors.Is(e, errTaken) {
			stands, err = false, v.leave(place)
		}
	}
	if err != nil || stands {
		return err
	}
	if n := vol.NFS; n != nil {
		return v.mountShare(ctx, nfs.Share{Server: n.Server, Path: n.Path, ReadOnly: n.ReadOnly}, place)
	}
	pv, err := src.Claimed(ctx, vol)
	if err != nil {
		return err
	}
	if err := checkMode(pod, vol, pv); err != nil {
		return err
	}
	if isBlock(pv) {
		if wanted, _ := asDevice(pod, vol.Name); !wanted {
			return nil // as a kubelet, which looks only at what containers use
		}
		return v.mapDevice(pod, vol, pv)
	}
	if n := pv.Spec.NFS; n != nil {
		options := pv.Spec.MountOptions
		if text := pv.Annotations[corev1.MountOptionAnnotation]; text != "" { // Kubernetes' older way
			options = append(slices.Clone(options), text)
		}
		return v.mountShare(ctx, nfs.Share{Server: n.Server, Path: n.Path, ReadOnly: n.ReadOnly || readOnlyClaim(vol), Options: options}, place)
	}
	return v.mountVolume(pod, vol, pv)
}

// mountShare has a child try it. While that hangs, the pod waits, and the next look asks again how far it is.
func (v *Volumes) mountShare(ctx context.Context, s nfs.Share, place string) error {
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(place, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return v.shares.Mount(ctx, s, place)
}

// standsAt says whether something is mounted at a place, and whether that is a share. It asks the kernel's list (N-13.12).
func standsAt(place string) (stands, share bool, err error) {
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != place, false })
	if err != nil || len(found) == 0 {
		return false, false, err
	}
	return true, strings.HasPrefix(found[len(found)-1].FSType, "nfs"), nil
}

// leaveDead takes down a mount whose disk was taken away: what is mounted anew is the disk that has come back, under another number. It
// says whether the mount still stands.
func (v *Volumes) leaveDead(place string) (stands bool, err error) {
	if v.Gone == nil {
		return true, nil
	}
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(place))
	if err != nil || len(found) == 0 {
		return false, err
	}
	m := found[len(found)-1]
	if gone, err := v.Gone(m.Major, m.Minor); err != nil || !gone {
		return true, err
	}
	return false, detach(place)
}

// Claimed are the places of a pod's claims, by claim, but for devices and shares: a look at one of these waits for its server.
func (v *Volumes) Claimed(pod *corev1.Pod) (map[string]string, error) {
	out := map[string]string{}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		name := api.ClaimName(pod, vol)
		if name == "" || checkUID(string(pod.UID)) != nil {
			continue
		}
		place := v.lastingPlace(pod, vol)
		stands, share, err := standsAt(place)
		if err != nil {
			return nil, err
		}
		if stands && !share {
			if _, err := deviceAt(place); err != nil && !errors.Is(err, errTaken) { // of a device there is no use to tell
				out[name] = place
			}
		}
	}
	return out, nil
}

// standing says whether a lasting volume is there for a container to be given: one that is not would be an empty directory in memory. The
// server of a share has to answer now.
func (v *Volumes) standing(ctx context.Context, place string) error {
	stands, share, err := standsAt(place)
	switch {
	case err != nil:
		return err
	case !stands:
		return errors.New("it is not mounted: somebody has unmounted it")
	case share:
		return v.shares.Look(ctx, place)
	}
	return nil
}

// mountVolume mounts a PersistentVolume for a pod.
func (v *Volumes) mountVolume(pod *corev1.Pod, vol *corev1.Volume, pv *corev1.PersistentVolume) error {
	options, err := bindOptions(pv.Spec.MountOptions)
	if err != nil {
		return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	var path string
	flags := unix.O_PATH
	switch s := &pv.Spec; {
	case s.Local != nil:
		path, flags = s.Local.Path, flags|unix.O_DIRECTORY
		if pv.Annotations[api.ProvisionedBy] == api.CardProvisioner {
			flags |= unix.O_NOFOLLOW // the board has made a directory there, and nothing else
			if v.Absent != nil {
				if err := v.Absent(path); err != nil {
					return err
				}
			}
		}
	case s.HostPath != nil:
		if err := prepareHostPath(s.HostPath); err != nil {
			return err
		}
		path = s.HostPath.Path
	default:
		return errors.New("this type of persistent volume is not supported by ledge yet")
	}
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("path %q does not exist", path)
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return fmt.Errorf("path %q is no directory", path)
	case err != nil:
		return fmt.Errorf("path %q: %w", path, err)
	}
	defer unix.Close(fd)
	if group := fsGroup(pod); group != nil && pv.Spec.Local != nil && options&unix.MS_RDONLY == 0 && !readOnlyClaim(vol) {
		if err := giveToGroup(path, *group, changePolicy(pod)); err != nil {
			return fmt.Errorf("applyFSGroup failed for vol %s: %w", pv.Name, err)
		}
	}
	outwards := mountsOutwards(pod, vol.Name)
	if outwards { // of the copy it could not be said any more
		if err := checkPropagation(runtime.Mount{Source: path, Propagation: "rshared"}); err != nil {
			return err
		}
	}
	return bind(fd, v.lastingPlace(pod, vol), options, outwards)
}

func readOnlyClaim(vol *corev1.Volume) bool {
	return vol.PersistentVolumeClaim != nil && vol.PersistentVolumeClaim.ReadOnly
}

// bind mounts what was opened at a place that it makes, with all that is mounted below it, under these flags. A place with nothing mounted
// is never left for a container to find. Under systemd a copy is its original's peer: what is mounted or unmounted in it is so in the
// original too. Only a volume in which containers mount for the board (outwards) stays one.
func bind(fd int, place string, flags uintptr, outwards bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	err := os.MkdirAll(filepath.Dir(place), 0o700)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err = os.Mkdir(place, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	} else if err == nil {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), place, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if !outwards {
		if err = unix.Mount("", place, "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			err = fmt.Errorf("let nothing pass from the volume to the board: %w", err)
		}
	}
	if err == nil && flags != 0 {
		err = restrict(place, flags)
	}
	if err != nil {
		return errors.Join(err, detach(place))
	}
	return nil
}

// detach takes a mount down with all that is mounted below it, here and nowhere else.
func detach(place string) error {
	if err := KeepApart(place); err != nil {
		return err
	}
	return unix.Unmount(place, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}

// restrictions are the flags of mount, what statfs calls them, and what mount_setattr does.
var restrictions = []struct {
	flag         uintptr
	has          int64
	set, instead uint64
}{
	{unix.MS_RDONLY, unix.ST_RDONLY, unix.MOUNT_ATTR_RDONLY, 0},
	{unix.MS_NOSUID, unix.ST_NOSUID, unix.MOUNT_ATTR_NOSUID, 0},
	{unix.MS_NODEV, unix.ST_NODEV, unix.MOUNT_ATTR_NODEV, 0},
	{unix.MS_NOEXEC, unix.ST_NOEXEC, unix.MOUNT_ATTR_NOEXEC, 0},
	{unix.MS_NOATIME, unix.ST_NOATIME, unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME},
	{unix.MS_RELATIME, unix.ST_RELATIME, unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	{unix.MS_NODIRATIME, unix.ST_NODIRATIME, unix.MOUNT_ATTR_NODIRATIME, 0},
}

// restrict puts a mount, and all that is mounted below it, under flags besides those that it has.
func restrict(place string, flags uintptr) error {
	if !CanSetAttributes() {
		return restrictTop(place, flags)
	}
	var attr unix.MountAttr
	for _, r := range restrictions {
		if flags&r.flag != 0 {
			attr.Attr_set |= r.set
			attr.Attr_clr |= r.instead
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, place, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &attr); err != nil {
		return fmt.Errorf("mount with the volume's options: %w", err)
	}
	return nil
}

// restrictTop does so on kernels before 5.12, to the mount itself: it sets exactly the flags that it is given, so they are those that the
// mount has and the new ones.
func restrictTop(place string, flags uintptr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(place, &st); err != nil {
		return fmt.Errorf("look at the volume's own options: %w", err)
	}
	for _, r := range restrictions {
		if int64(st.Flags)&r.has != 0 {
			flags |= r.flag
		}
	}
	if err := unix.Mount("", place, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("mount with the volume's options: %w", err)
	}
	return nil
}

// bindFlags are the options that a directory of the board can be mounted with.
var bindFlags = map[string]uintptr{"ro": unix.MS_RDONLY, "rw": 0, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "suid": 0, "dev": 0, "exec": 0, "defaults": 0}

func bindOptions(list []string) (flags uintptr, err error) {
	for _, words := range list {
		for word := range strings.SplitSeq(words, ",") {
			flag, ok := bindFlags[word]
			if !ok {
				return 0, fmt.Errorf("mount option %q is none of a directory", word)
			}
			flags |= flag
		}
	}
	return flags, nil
}

func changePolicy(pod *corev1.Pod) corev1.PodFSGroupChangePolicy {
	if p := pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		return *p
	}
	return corev1.FSGroupChangeAlways
}

// giveToGroup gives a volume with all that is in it to a pod's group. Pods may write there meanwhile: nothing is followed out of it.
func giveToGroup(path string, group int64, policy corev1.PodFSGroupChangePolicy) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	if policy == corev1.FSGroupChangeOnRootMismatch {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		if int64(st.Gid) == group && st.Mode&unix.S_ISGID != 0 && st.Mode&0o060 == 0o060 {
			return nil
		}
	}
	return fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we looked
		}
		if err != nil {
			return err
		}
		if err := root.Lchown(at, -1, int(group)); err != nil {
			return gone(err)
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return gone(err)
		}
		mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | 0o660
		if info.IsDir() {
			mode |= 0o110 | fs.ModeSetgid
		}
		return gone(root.Chmod(at, mode))
	})
}

// gone is an error but for what went while it was looked at.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unmountLasting takes down what stands for a pod, and its places. Data is never deleted here: a place that something is mounted at
// cannot be removed. A share whose server does not answer is given up: the place is free, what is left of the mount goes when the kernel
// can let it go.
func (v *Volumes) unmountLasting(uid string) error {
	var errs []error
	for _, place := range entries(filepath.Join(v.lasting, uid)) {
		if err := v.leave(place); err != nil {
			errs = append(errs, fmt.Errorf("unmount volume %s: %w", place, err))
			continue
		}
		errs = append(errs, gone(os.Remove(place)))
	}
	return errors.Join(append(errs, gone(os.Remove(filepath.Join(v.lasting, uid))))...)
}

// leavePatience is far more than the kernel needs to take a place off its list.
const leavePatience = 3 * time.Second

func (v *Volumes) leave(place string) error {
	v.shares.Stop(place)
	v.opened.leave(place)
	for {
		stands, share, err := standsAt(place)
		switch {
		case err != nil || !stands:
			return err
		case share:
			ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
			err = v.shares.Leave(ctx, place)
			cancel()
			if stands, _, e := standsAt(place); e == nil && !stands {
				return nil // the child may still wait for the kernel, and nobody for it
			}
		default:
			err = detach(place)
		}
		if err != nil {
			return err
		}
	}
}
