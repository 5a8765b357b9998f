package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// Expand replaces $(NAME) by what the container's environment has, or fails when it has no such name.
type Expand func(string) (string, error)

// Mounts are the volume mounts of one container, ready to be mounted. images says where the images stand that are
// volumes, by the volume's name.
func (v *Volumes) Mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, expand Expand,
	images map[string]string) ([]runtime.Mount, error) {
	if err := checkUID(string(pod.UID)); err != nil {
		return nil, err
	}
	var out []runtime.Mount
	for n := range c.VolumeMounts {
		m := &c.VolumeMounts[n]
		i := slices.IndexFunc(pod.Spec.Volumes, func(vol corev1.Volume) bool { return vol.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod does not have", c.Name, m.Name)
		}
		vol := &pod.Spec.Volumes[i]
		rm, err := plan(vol, m)
		if err != nil {
			return nil, err
		}
		rm.Source = v.path(pod, vol)
		if vol.Image != nil {
			if rm.Source = images[vol.Name]; rm.Source == "" {
				return nil, fmt.Errorf("volume %s: its image is not mounted", vol.Name)
			}
		}
		if IsLasting(vol) {
			if err := v.standing(ctx, rm.Source); err != nil {
				return nil, fmt.Errorf("volume %s: %w", vol.Name, err)
			}
		}
		if err := checkPropagation(rm); err != nil {
			return nil, err
		}
		sub, err := subPath(m, expand)
		if err != nil {
			return nil, err
		}
		if sub != "" {
			if rm.Source, err = v.mountSubpath(pod, c.Name, n, rm, sub); err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
			}
		}
		out = append(out, rm)
	}
	return out, nil
}

// plan is a mount but for its source.
func plan(vol *corev1.Volume, m *corev1.VolumeMount) (runtime.Mount, error) {
	out := runtime.Mount{Target: m.MountPath, Recursive: true,
		ReadOnly: m.ReadOnly || OfObjects(vol) || readOnlyClaim(vol) || vol.NFS != nil && vol.NFS.ReadOnly}
	if vol.Image != nil { // to be read, not run, as on Kubernetes
		out.ReadOnly, out.Options = true, []string{"noexec", "nosuid", "nodev"}
	}
	out.ReadOnlyBelow = readOnlyBelow(m)
	if p := m.MountPropagation; p != nil {
		switch *p {
		case corev1.MountPropagationNone:
		case corev1.MountPropagationHostToContainer:
			out.Propagation = "rslave"
		case corev1.MountPropagationBidirectional:
			out.Propagation = "rshared"
		default:
			return out, fmt.Errorf("mount propagation %q is not known", *p)
		}
	}
	return out, nil
}

// readOnlyBelow: what is mounted below the volume is read-only as well.
func readOnlyBelow(m *corev1.VolumeMount) bool {
	r := m.RecursiveReadOnly
	return m.ReadOnly && r != nil &&
		(*r == corev1.RecursiveReadOnlyEnabled || *r == corev1.RecursiveReadOnlyIfPossible && CanSetAttributes())
}

// MountStatuses are what a status says of the volume mounts of a container.
func MountStatuses(c *corev1.Container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if readOnlyBelow(m) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		out = append(out, st)
	}
	return out
}

// CanSetAttributes tells whether the kernel has mount_setattr (5.12): it then refuses the bad descriptor with
// something other than ENOSYS.
var CanSetAttributes = sync.OnceValue(func() bool {
	return !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}), unix.ENOSYS)
})

// subPath is the part of the volume that is wanted; "" is all of it.
func subPath(m *corev1.VolumeMount, expand Expand) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		if sub, err = expand(m.SubPathExpr); err != nil {
			return "", err
		}
	}
	switch {
	case sub == "":
		return "", nil
	case path.IsAbs(sub):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	case slices.Contains(strings.Split(sub, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

// checkPropagation: mounts pass between the board and a container only through a mount that is shared. On one that is
// not they would silently stay where they are made.
func checkPropagation(m runtime.Mount) error {
	if m.Propagation == "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(m.Source)
	if err != nil {
		return err
	}
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != real && !strings.HasPrefix(real, strings.TrimSuffix(i.Mountpoint, "/")+"/"), false
	})
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	var on *mountinfo.Info
	for _, i := range infos { // a later one at the same place hides the earlier
		if on == nil || len(i.Mountpoint) >= len(on.Mountpoint) {
			on = i
		}
	}
	switch {
	case on == nil:
		return fmt.Errorf("no mount has %q on it", m.Source)
	case strings.Contains(on.Optional, "shared:"):
	case m.Propagation == "rshared":
		return fmt.Errorf("path %q is mounted on %q but it is not a shared mount", m.Source, on.Mountpoint)
	case !strings.Contains(on.Optional, "master:"):
		return fmt.Errorf("path %q is mounted on %q but it is not a shared or slave mount", m.Source, on.Mountpoint)
	}
	return nil
}
