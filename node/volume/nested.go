package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// A mount inside another one needs something to be mounted on. In a volume that a container may write to, whoever starts the
// container makes it; in one that is read-only there it is made here, before the container starts.

// AgentFiles are the files that every container is given beside its termination log.
var AgentFiles = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname"}

// MakeMountPoints makes what the mounts of a container are mounted on in its read-only volumes. The first of them are those that
// Mounts gave, in that order. What is there already stays. A volume that is not the pod's own, a host path or an image, is left alone.
func (v *Volumes) MakeMountPoints(pod *corev1.Pod, c *corev1.Container, mounts []runtime.Mount) error {
	for i := range mounts {
		outer, rest := -1, ""
		for n := range c.VolumeMounts {
			below, ok := inside(mounts[n].Target, mounts[i].Target)
			if ok && n != i && (outer < 0 || len(below) < len(rest)) {
				outer, rest = n, below
			}
		}
		if outer < 0 || !mounts[outer].ReadOnly || !ofThePod(pod, c.VolumeMounts[outer].Name) {
			continue
		}
		st, err := os.Stat(mounts[i].Source)
		if err != nil {
			return fmt.Errorf("look at what is mounted at %s: %w", mounts[i].Target, err)
		}
		if err := makeMountPoint(mounts[outer].Source, rest, st.IsDir()); err != nil {
			return fmt.Errorf("make the mount point %s in volume %q: %w", mounts[i].Target, c.VolumeMounts[outer].Name, err)
		}
	}
	return nil
}

// inside gives the way from one path of a container down to another.
func inside(outer, inner string) (rest string, ok bool) {
	outer, inner = path.Clean(outer), path.Clean(inner)
	rest, ok = strings.CutPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
	return rest, ok && rest != ""
}

func ofThePod(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		if vol := &pod.Spec.Volumes[i]; vol.Name == name {
			return vol.EmptyDir != nil || OfObjects(vol)
		}
	}
	return false
}

// makeMountPoint makes a directory, or an empty file, in a volume. Another container may be able to write there: nothing is
// followed out of the volume.
func makeMountPoint(volume, name string, dir bool) error {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := openBelow(root, name, unix.O_PATH, below)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) {
		return nil // a link that leads elsewhere in the container, say: whoever starts it judges that
	}
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	for i := range parts {
		if i == last && !dir {
			break
		}
		if err := makePart(root, parts[:i], parts[i], 0o755); err != nil {
			return err
		}
	}
	if dir {
		return nil
	}
	parent, err := openBelow(root, path.Join(append([]string{"."}, parts[:last]...)...), unix.O_PATH|unix.O_DIRECTORY, below)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Mknodat(parent, parts[last], unix.S_IFREG|0o644, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// mountPoints are the paths in a volume at which something else is mounted in one of the pod's containers. An update of the volume
// leaves them alone: the kernel takes a mount away with what it is mounted on.
func mountPoints(pod *corev1.Pod, volume string) map[string]bool {
	out := map[string]bool{}
	note := func(mounts []corev1.VolumeMount, log string) {
		targets := append([]string{log}, AgentFiles...)
		for _, m := range mounts {
			targets = append(targets, m.MountPath)
		}
		for _, m := range mounts {
			if m.Name != volume {
				continue
			}
			for _, t := range targets {
				if rest, ok := inside(m.MountPath, t); ok {
					out[rest] = true
				}
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			note(list[i].VolumeMounts, list[i].TerminationMessagePath)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		note(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].TerminationMessagePath)
	}
	return out
}
