package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// A claim of volume mode Block is a block device of the board. Its node is mounted at the place of the pod, as a directory would be: there
// it is found again after a restart of the brain, and says whether the device was taken away. The numbers of a device that was go to the
// next one that is plugged in, unless somebody has it open: the brain does.

// Block is a device that a container has as a volume.
type Block struct {
	Volume, At   string // where the container wants it
	Place        string // where its node stands on the board
	Major, Minor uint32
	ReadOnly     bool
}

// asDevice says whether containers of the pod have a volume as a device, and whether some have it as a directory.
func asDevice(pod *corev1.Pod, volume string) (device, directory bool) {
	look := func(c *corev1.Container) {
		device = device || slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
		directory = directory || slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			look(&list[i])
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		look((*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return device, directory
}

// checkMode refuses a volume that is used as what it is not, in a kubelet's words.
func checkMode(pod *corev1.Pod, vol *corev1.Volume, pv *corev1.PersistentVolume) error {
	device, directory := asDevice(pod, vol.Name)
	switch block := isBlock(pv); {
	case block && directory:
		return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", vol.Name)
	case !block && device:
		return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", vol.Name)
	}
	return nil
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// mapDevice mounts the node of a PersistentVolume's device for a pod.
func (v *Volumes) mapDevice(pod *corev1.Pod, vol *corev1.Volume, pv *corev1.PersistentVolume) error {
	if pv.Spec.Local == nil {
		return fmt.Errorf("persistent volume %s: of volumeMode Block, ledge has those of the type local", pv.Name)
	}
	if len(pv.Spec.MountOptions) > 0 {
		return fmt.Errorf("persistent volume %s: mount options are nothing to a device", pv.Name)
	}
	path := pv.Spec.Local.Path
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return fmt.Errorf("path %q: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("path %q is no block device", path)
	}
	if err := boards(st.Rdev); err != nil {
		return fmt.Errorf("path %q: %w", path, err)
	}
	place := v.lastingPlace(pod, vol)
	if err := v.opened.take(place, fmt.Sprintf("/proc/self/fd/%d", fd), st.Rdev, true); err != nil {
		return fmt.Errorf("path %q: %w", path, err)
	}
	if err := bind(fd, place, 0, false); err != nil {
		v.opened.leave(place)
		return err
	}
	return nil
}

// majorFlash is that of flash memory without a controller. Who has such a device in use (UBI) does not tell the kernel's block layer.
const majorFlash = 31

// boards refuses what a board starts from and the kernel's own count of users does not know.
func boards(rdev uint64) error {
	link, err := os.Readlink(sysBlock(rdev))
	if err != nil {
		return errors.New("the kernel has no such block device")
	}
	if startsFrom(rdev, link) {
		return fmt.Errorf("%s is what the board starts from, and is given to no pod", filepath.Base(link))
	}
	return nil
}

func startsFrom(rdev uint64, link string) bool {
	name := filepath.Base(link)
	return unix.Major(rdev) == majorFlash || strings.HasPrefix(name, "ubiblock") ||
		strings.HasPrefix(name, "mmcblk") && strings.Contains(name, "boot")
}

func sysBlock(rdev uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(rdev), unix.Minor(rdev))
}

// errTaken is of a device that was unplugged under its pod.
var errTaken = errors.New("its device was taken away: delete the pod when it is there again")

// deviceAt is the block device that stands at a place.
func deviceAt(place string) (rdev uint64, err error) {
	stands, share, err := standsAt(place)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if stands && !share {
		if err := unix.Lstat(place, &st); err != nil {
			return 0, err
		}
	}
	switch {
	case !stands:
		return 0, errors.New("it is not mounted: somebody has unmounted it")
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return 0, errors.New("it is no block device")
	case st.Nlink == 0: // the kernel has removed the node
		return 0, errTaken
	}
	if _, err := os.Lstat(sysBlock(st.Rdev)); err != nil { // of a node that somebody has made by hand
		return 0, errTaken
	}
	return st.Rdev, nil
}

// Blocks are the devices that a container has as volumes.
func (v *Volumes) Blocks(pod *corev1.Pod, c *corev1.Container) ([]Block, error) {
	if len(c.VolumeDevices) == 0 {
		return nil, nil
	}
	if err := checkUID(string(pod.UID)); err != nil {
		return nil, err
	}
	var out []Block
	for _, d := range c.VolumeDevices {
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.Name != d.Name {
				continue
			}
			place := v.lastingPlace(pod, vol)
			rdev, err := deviceAt(place)
			if err == nil {
				err = v.opened.take(place, place, rdev, false)
			}
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", d.Name, err)
			}
			out = append(out, Block{Volume: d.Name, At: d.DevicePath, Place: place, Major: unix.Major(rdev), Minor: unix.Minor(rdev),
				ReadOnly: readOnlyClaim(vol)})
		}
	}
	if len(out) != len(c.VolumeDevices) {
		return nil, fmt.Errorf("container %s has volumeDevices that the pod has no volumes for", c.Name)
	}
	return out, nil
}

// Taken is the volume of a container whose device was unplugged, "" if there is none. It keeps the others open.
func (v *Volumes) Taken(pod *corev1.Pod, c *corev1.Container) string {
	for _, d := range c.VolumeDevices {
		one := *c
		one.VolumeDevices = []corev1.VolumeDevice{d}
		if _, err := v.Blocks(pod, &one); errors.Is(err, errTaken) {
			return d.Name
		}
	}
	return ""
}

// opened are the devices that the brain has open, by place.
type opened struct {
	mu   sync.Mutex
	fds  map[string]int
	busy map[uint64]bool // devices that are being opened
}

// openPatience is far longer than a disk that sleeps takes to wake.
const openPatience = 30 * time.Second

// take opens a device, once. Alone: nobody has it, or a part of it, for itself, such as by a mount. A disk may hang, and no call to it can
// be ended: there is at most one for each.
func (o *opened) take(place, path string, rdev uint64, alone bool) error {
	o.mu.Lock()
	_, has := o.fds[place]
	busy := o.busy[rdev]
	if o.fds == nil {
		o.fds, o.busy = map[string]int{}, map[uint64]bool{}
	}
	if !busy && (alone || !has) {
		o.busy[rdev] = true
	}
	o.mu.Unlock()
	switch {
	case has && !alone:
		return nil
	case busy:
		return errors.New("the device is just being opened, and has not answered yet")
	}
	done := make(chan error, 1)
	begun := time.Now()
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // the path may be of the caller's files
	go func() {
		fd := -1
		if err == nil {
			fd, err = openDevice(at, alone)
			_ = unix.Close(at)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.busy, rdev)
		switch old, has := o.fds[place]; {
		case err == nil && time.Since(begun) >= openPatience: // nobody waits for it any more
			_ = unix.Close(fd)
		case err == nil:
			if has {
				_ = unix.Close(old)
			}
			o.fds[place] = fd
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(openPatience):
		return errors.New("the device does not answer")
	}
}

// openDevice opens what a descriptor leads to.
func openDevice(at int, alone bool) (fd int, err error) {
	path := fmt.Sprintf("/proc/self/fd/%d", at)
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err = unix.Open(path, flags, 0)
	if err == nil && alone {
		var only int
		if only, err = unix.Open(path, flags|unix.O_EXCL, 0); err == nil {
			err = unix.Close(only)
		} else {
			_ = unix.Close(fd)
		}
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return -1, errors.New("the device is in use: it, or a partition of it, is mounted, is swap, or belongs to a RAID or a mapping")
	case errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOMEDIUM):
		return -1, errors.New("there is nothing behind the device: plug it in")
	case err != nil:
		return -1, os.NewSyscallError("open", err)
	}
	return fd, nil
}

// leave closes a device.
func (o *opened) leave(place string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fd, has := o.fds[place]; has {
		_ = unix.Close(fd)
		delete(o.fds, place)
	}
}
