package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func hugePod(medium corev1.StorageMedium, requests ...string) *corev1.Pod {
	p := pod("u1", corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}})
	for _, name := range requests {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceName("hugepages-" + name): resource.MustParse(name)}}})
	}
	return p
}

// TestPageSize: the words are a kubelet's.
func TestPageSize(t *testing.T) {
	whole := hugePod("HugePages")
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"hugepages-1Gi": resource.MustParse("1Gi")}}
	for _, c := range []struct {
		what string
		pod  *corev1.Pod
		want int64
		err  string
	}{
		{"the one that is asked for", hugePod("HugePages", "2Mi", "2Mi"), 2 << 20, ""},
		{"of the whole pod", whole, 1 << 30, ""},
		{"one of two", hugePod("HugePages-2Mi", "1Gi", "2Mi"), 2 << 20, ""},
		{"which of two", hugePod("HugePages", "1Gi", "2Mi"), 0, "can't be used if container requests multiple huge page sizes"},
		{"none", hugePod("HugePages"), 0, "there is no resource request for huge pages"},
		{"another", hugePod("HugePages-1Gi", "2Mi"), 0, "there is no resource request for huge pages"},
	} {
		got, err := pageSize(c.pod, c.pod.Spec.Volumes[0].EmptyDir.Medium)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d %v", c.what, got, err)
		}
	}
}

// TestHugePages: such a volume is the kernel's huge pages, once, of the pod's group, and gone with the pod.
func TestHugePages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	v, _, run := volumes(t)
	p, group := hugePod("HugePages", "2Mi"), int64(4321)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	if len(v.Scratch(p)) > 0 || Measured(p) {
		t.Error("it is taken for something on the disk")
	}
	dir := filepath.Join(run, "volumes", "u1", "h")
	for range 2 {
		if err := v.Prepare(t.Context(), p, aShelf()); err != nil {
			t.Fatal(err)
		}
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Statfs(dir, &fs); err != nil || uint32(fs.Type) != unix.HUGETLBFS_MAGIC || fs.Bsize != 2<<20 {
		t.Errorf("%+v %v", fs, err)
	}
	if err := unix.Stat(dir, &st); err != nil || st.Mode&0o7777 != 0o3777 || st.Gid != 4321 {
		t.Errorf("mode %o, group %d, %v", st.Mode, st.Gid, err)
	}
	if list, err := mountsBelow(dir); err != nil || len(list) != 1 {
		t.Errorf("mounted %d times, %v", len(list), err)
	}
	if err := v.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it is still there")
	}
}
