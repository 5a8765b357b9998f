package volume

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ofHugePages: what is written there is memory in huge pages of the pod.
func ofHugePages(vol *corev1.Volume) bool {
	return vol.EmptyDir != nil && strings.HasPrefix(string(vol.EmptyDir.Medium), string(corev1.StorageMediumHugePages))
}

// mountHugePages mounts huge pages at a directory that it makes, once. How many a container may use is its cgroup's to bound.
func mountHugePages(dir string, pod *corev1.Pod, medium corev1.StorageMedium, mode uint32, group *int64) error {
	size, err := pageSize(pod, medium)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if mounted, err := isMounted(dir); err != nil || mounted {
		return err
	}
	data := fmt.Sprintf("pagesize=%d,mode=%o", size, mode)
	if group != nil {
		data += fmt.Sprintf(",gid=%d", *group)
	}
	if err := unix.Mount("hugetlbfs", dir, "hugetlbfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount huge pages of %d bytes: %w", size, err)
	}
	return unix.Chmod(dir, mode) // the option knows no bit for the group of what is made there
}

// pageSize returns the size that the medium names; if it names none, the only size that the pod requests.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	var lists []corev1.ResourceList
	if r := pod.Spec.Resources; r != nil {
		lists = append(lists, r.Requests)
	}
	for _, all := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range all {
			lists = append(lists, all[i].Resources.Requests)
		}
	}
	asked := map[int64]bool{}
	for _, list := range lists {
		for name := range list {
			if text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				if q, err := resource.ParseQuantity(text); err == nil {
					asked[q.Value()] = true
				}
			}
		}
	}
	if text, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return 0, fmt.Errorf("medium %s: %w", medium, err)
		}
		if asked[q.Value()] {
			return q.Value(), nil
		}
		asked = nil
	}
	if len(asked) > 1 {
		return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
	}
	for size := range asked {
		return size, nil
	}
	return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
}
