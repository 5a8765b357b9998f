package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func asIs(s string) (string, error) { return s, nil }

// subMounts gives the sources of mounts of the volume s with these subPaths.
func (v *Volumes) subMounts(p *corev1.Pod, subs ...string) ([]string, error) {
	c := &corev1.Container{Name: "c"}
	for i, s := range subs {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: p.Spec.Volumes[0].Name, MountPath: fmt.Sprint("/m", i), SubPath: s})
	}
	mounts, err := v.Mounts(context.Background(), p, c, asIs, nil)
	var out []string
	for _, m := range mounts {
		out = append(out, m.Source)
	}
	return out, err
}

// TestSubPath: a file, a directory, one that is made, links inside the volume; and nothing outside of it.
func TestSubPath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	defer syscall.Umask(syscall.Umask(0o077))
	v, data, run := volumes(t)
	p := pod("u1", scratch("s"))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: number(int64(2000))}
	if err := v.Prepare(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	dir, outside := filepath.Join(data, "volumes/u1/s"), t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "d/f"), "inside")
	put(filepath.Join(outside, "f"), "outside")
	for name, to := range map[string]string{"in": "d", "in2": "./d/../d/f", "out": outside, "rel": strings.Repeat("../", 20) + outside,
		"loop":    "loop",
		"nowhere": "none", "magic": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := v.subMounts(p, "d/f", "d", "in/f", "in2", "new/er/est", ".")
	if err != nil {
		t.Fatal(err)
	}
	for i, rest := range []string{"", "f", "", "", "", "d/f"} {
		if !strings.HasPrefix(got[i], filepath.Join(run, "subpaths/u1/c")+"/") {
			t.Errorf("mount %d is of %s", i, got[i])
		}
		if i == 4 {
			st, err := os.Stat(got[i])
			if err != nil || st.Sys().(*syscall.Stat_t).Mode != 0o42777 || st.Sys().(*syscall.Stat_t).Gid != 2000 {
				t.Errorf("what was made: %v %v", st, err)
			}
			continue
		}
		if text, err := os.ReadFile(filepath.Join(got[i], rest)); err != nil || string(text) != "inside" {
			t.Errorf("mount %d: %q %v", i, text, err)
		}
	}
	for _, bad := range []string{"out", "out/f", "out/new", "rel", "rel/f", "loop", "loop/x", "nowhere", "nowhere/x", "magic", "magic/etc",
		"d/f/x", "../s", "/etc", "a/../../b"} {
		if got, err := v.subMounts(p, bad); err == nil {
			t.Errorf("%s was mounted: %v", bad, got)
		} else if strings.Contains(err.Error(), outside) {
			t.Errorf("%s: the error tells of the board: %v", bad, err)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("something was made outside: %v %v", entries, err)
	}
}

// TestSubPathAgain: a restart of the container looks anew, what the last attempt had goes, and all of it with the pod.
func TestSubPathAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, run := volumes(t)
	p := pod("u1", scratch("s"))
	if err := v.Prepare(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, "volumes/u1/s")
	for i, text := range []string{"first", "second"} {
		if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "old")); err != nil && i > 0 {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "d/f"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := v.subMounts(p, "d", "d/f")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{filepath.Join(got[0], "f"), got[1]} {
			if have, err := os.ReadFile(at); err != nil || string(have) != text {
				t.Errorf("%q %v", have, err)
			}
		}
	}
	again, err := New(data, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{data, run} {
		if left, err := mountsBelow(root); err != nil || len(left) > 0 {
			t.Errorf("still mounted: %v %v", left, err)
		}
	}
}

// TestSubPathRace: one container of the pod turns a directory into a link out of the volume and back, as fast as it
// can, while another is started a thousand times (CVE-2017-1002101, CVE-2021-25741, and CVE-2024-45310 for what is
// made on the way).
func TestSubPathRace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, _ := volumes(t)
	p := pod("u1", scratch("s"))
	if err := v.Prepare(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	dir, outside := filepath.Join(data, "volumes/u1/s"), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "a"), 0o755))
	must(os.Symlink(outside, filepath.Join(dir, "link")))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE)
			}
		}
	})
	var mounted, refused int
	// On a busy machine the two may run in turn for a while.
	for i := 0; i < 1000 || (mounted == 0 || refused == 0) && i < 100_000; i++ {
		sub := []string{"a", "a/b/c"}[i%2]
		got, err := v.subMounts(p, sub)
		if err != nil {
			refused++
			continue
		}
		mounted++
		if _, err := os.Stat(filepath.Join(got[0], "secret")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("start %d: the container sees what is outside", i)
		}
	}
	close(stop)
	swapper.Wait()
	if mounted == 0 || refused == 0 {
		t.Errorf("%d mounted, %d refused: nothing was raced", mounted, refused)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("made outside: %v %v", entries, err)
	}
}

// TestSubPathExpr is made of the container's environment, and of nothing that is not in it.
func TestSubPathExpr(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, _ := volumes(t)
	p := pod("u1", scratch("s"))
	if err := v.Prepare(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{"good": "made/of/it", "absolute": "error SubPath `/tmp` must not be an absolute path",
		"climbs": "unable to provision SubPath `a/../../x`: must not contain '..'", "unset": `missing value for "X"`, "": ""} {
		c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/m", SubPathExpr: expr}}}
		got, err := v.Mounts(t.Context(), p, c, func(s string) (string, error) {
			if s == "unset" {
				return "", errors.New(want)
			}
			return map[string]string{"good": "made/of/it", "absolute": "/tmp", "climbs": "a/../../x"}[s], nil
		}, nil)
		switch expr {
		case "good":
			if st, serr := os.Stat(filepath.Join(data, "volumes/u1/s", want)); err != nil || serr != nil || !st.IsDir() {
				t.Errorf("%v %v", err, serr)
			}
		case "":
			if err != nil || got[0].Source != filepath.Join(data, "volumes/u1/s") {
				t.Errorf("%v %v", got, err)
			}
		default:
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v", expr, err)
			}
		}
	}
}

// TestPlan: read-only and propagation.
func TestPlan(t *testing.T) {
	enabled, ifPossible, disabled := corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyDisabled
	secret := &corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}}
	s := scratch("s")
	for _, c := range []struct {
		what      string
		vol       *corev1.Volume
		mount     corev1.VolumeMount
		ro, below bool
		prop      string
	}{
		{"plain", &s, corev1.VolumeMount{}, false, false, ""},
		{"read-only", &s, corev1.VolumeMount{ReadOnly: true}, true, false, ""},
		{"objects are", secret, corev1.VolumeMount{}, true, false, ""},
		{"not below", &s, corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &disabled}, true, false, ""},
		{"below", &s, corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled}, true, true, ""},
		{"below if possible", &s, corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &ifPossible}, true, CanSetAttributes(), ""},
		{"none", &s, corev1.VolumeMount{MountPropagation: number(corev1.MountPropagationNone)}, false, false, ""},
		{"in", &s, corev1.VolumeMount{MountPropagation: number(corev1.MountPropagationHostToContainer)}, false, false, "rslave"},
		{"both ways", &s, corev1.VolumeMount{MountPropagation: number(corev1.MountPropagationBidirectional)}, false, false, "rshared"},
	} {
		got, err := plan(c.vol, &c.mount)
		if err != nil || got.ReadOnly != c.ro || got.ReadOnlyBelow != c.below || got.Propagation != c.prop || !got.Recursive {
			t.Errorf("%s: %+v %v", c.what, got, err)
		}
		told := MountStatuses(&corev1.Container{VolumeMounts: []corev1.VolumeMount{c.mount}})[0]
		if told.ReadOnly != c.mount.ReadOnly || (told.RecursiveReadOnly != nil) != c.mount.ReadOnly ||
			c.mount.ReadOnly && (*told.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled) != c.below {
			t.Errorf("%s: told %+v", c.what, told)
		}
	}
	if _, err := plan(&s, &corev1.VolumeMount{MountPropagation: number(corev1.MountPropagationMode("x"))}); err == nil {
		t.Error("an unknown propagation was taken")
	}
}

// TestPropagationNeedsShared: on a mount that is not shared a container's mounts would silently stay its own.
func TestPropagationNeedsShared(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, _ := volumes(t)
	dir := filepath.Join(t.TempDir(), "m")
	if err := mountTmpfs(dir, tmpfs{mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unmountBelow(dir); err != nil {
			t.Error(err)
		}
	}()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	p := pod("u1", hostPath("h", sub))
	try := func(how corev1.MountPropagationMode) error {
		c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "h", MountPath: "/h", MountPropagation: &how}}}
		_, err := v.Mounts(t.Context(), p, c, asIs, nil)
		return err
	}
	for _, step := range []struct {
		flag           uintptr
		both, in, what string
	}{
		{flag: unix.MS_PRIVATE, both: "but it is not a shared mount", in: "but it is not a shared or slave mount", what: "private"},
		{flag: unix.MS_SHARED, what: "shared"},
	} {
		if err := unix.Mount("", dir, "", step.flag, ""); err != nil {
			t.Fatal(err)
		}
		for how, want := range map[corev1.MountPropagationMode]string{corev1.MountPropagationBidirectional: step.both,
			corev1.MountPropagationHostToContainer: step.in, corev1.MountPropagationNone: ""} {
			if err := try(how); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v", step.what, how, err)
			}
		}
	}
}

func TestMemorySize(t *testing.T) {
	mem := func(s string) corev1.ResourceList { return corev1.ResourceList{"memory": resource.MustParse(s)} }
	for _, c := range []struct {
		node, pod, vol string
		want           int64
	}{
		{"", "", "", 0}, {"4Gi", "", "", 4 << 30}, {"4Gi", "1Gi", "", 1 << 30}, {"4Gi", "1Gi", "2Gi", 1 << 30}, {"4Gi", "1Gi", "2Mi", 2 << 20},
		{"", "", "2Mi", 2 << 20},
	} {
		p, vol, node := pod("u1"), memory("m"), corev1.ResourceList(nil)
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		if c.node != "" {
			node = mem(c.node)
		}
		if c.pod != "" {
			p.Spec.Containers[0].Resources.Limits = mem(c.pod)
		}
		if c.vol != "" {
			vol.EmptyDir.SizeLimit = number(resource.MustParse(c.vol))
		}
		if got := memorySize(p, &vol, node); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestMemoryLimit: the kernel holds a volume in memory to its size.
func TestMemoryLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, run := volumes(t)
	vol := memory("m")
	vol.EmptyDir.SizeLimit = number(resource.MustParse("1Mi"))
	if err := v.Prepare(t.Context(), pod("u1", vol), aShelf()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(run, "volumes/u1/m/f")
	if err := os.WriteFile(file, make([]byte, 900<<10), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, make([]byte, 1100<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than there is: %v", err)
	}
}

// TestUsage counts what is on the disk once, and nothing that the pod mounted there.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	if n, err := usage(t.Context(), filepath.Join(dir, "none"), 1<<40); n != 0 || err != nil {
		t.Errorf("of nothing: %d %v", n, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	before, err := usage(t.Context(), dir, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a/f"), filepath.Join(dir, "a/b/g")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "a/b/g"), 1<<20); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := mountTmpfs(filepath.Join(dir, "m"), tmpfs{mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unmountBelow(dir); err != nil {
				t.Error(err)
			}
		}()
		if err := os.WriteFile(filepath.Join(dir, "m/f"), make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := usage(t.Context(), dir, 1<<40); err != nil || n-before < 1<<20 || n-before > 1<<20+64<<10 {
		t.Errorf("%d, was %d, %v", n, before, err)
	}
	if n, err := usage(t.Context(), dir, 1<<10); err != nil || n <= 1<<10 {
		t.Errorf("cut short: %d %v", n, err)
	}
}
