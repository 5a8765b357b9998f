package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// everyKind is a volume of each kind that ledge fills itself, one that is in memory, and one of the board's.
func everyKind(host string) []corev1.Volume {
	of := func(name string, s corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: s}
	}
	config := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c")}}
	return []corev1.Volume{
		of("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c")}}),
		of("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		of("downward", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{fieldFile("name",
			"metadata.name")}}}),
		of("projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{config}}}),
		scratch("scratch"), memory("memory"), hostPath("host", host),
	}
}

// inSources says where a path of a container lies on the board, were its mounts mounted.
func inSources(mounts []runtime.Mount, outer int, target string) string {
	return filepath.Join(mounts[outer].Source, strings.TrimPrefix(target, mounts[outer].Target))
}

// TestMountInMount: every kind of volume, and a file, can be mounted inside each kind of the pod's own read-only volumes, however deep.
// That also holds after the outer one was renewed.
func TestMountInMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, outer := range everyKind(host) {
		if outer.HostPath != nil {
			continue
		}
		t.Run(outer.Name, func(t *testing.T) {
			v, _, _ := volumes(t)
			src := aShelf()
			kinds := everyKind(host)
			outer.Name = "outer"
			p := pod("u1", append(kinds, outer)...)
			c := &corev1.Container{Name: "c", TerminationMessagePath: "/etc/a/log",
				VolumeMounts: []corev1.VolumeMount{{Name: "outer", MountPath: "/etc/a/", ReadOnly: true},
					{Name: "host", MountPath: "/etc/a/deep/er/file", SubPath: "f"}}}
			for _, k := range kinds {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: k.Name, MountPath: "/etc/a/in-" + k.Name},
					corev1.VolumeMount{Name: k.Name, MountPath: "/etc/a/in/the/" + k.Name})
			}
			p.Spec.Containers = []corev1.Container{*c}
			if err := v.Prepare(t.Context(), p, src); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(log, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			was := map[string]uint64{}
			for round := range 3 {
				mounts, err := v.Mounts(t.Context(), p, c, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				mounts = append(mounts, runtime.Mount{Source: log, Target: "/etc/a/log"})
				if round != 1 { // in between only the volume is renewed
					if err := v.MakeMountPoints(p, c, mounts); err != nil {
						t.Fatal(err)
					}
				}
				for _, m := range mounts[1:] {
					var on, what unix.Stat_t
					if err := unix.Stat(inSources(mounts, 0, m.Target), &on); err != nil {
						t.Errorf("round %d: %s: %v", round, m.Target, err)
						continue
					}
					if err := unix.Stat(m.Source, &what); err != nil || on.Mode&unix.S_IFMT != what.Mode&unix.S_IFMT {
						t.Errorf("round %d: %s is of another kind (%v)", round, m.Target, err)
					}
					if round > 0 && was[m.Target] != on.Ino {
						t.Errorf("round %d: %s is another one: what was mounted there is gone", round, m.Target)
					}
					was[m.Target] = on.Ino
				}
				src.configs["c"]["k"], src.secrets["s"]["p"] = "new", "newer"
				src.configs["c"]["log"] = "a name that is mounted on already"
				src.facts.Pod.Name = "other"
				if err := v.Refresh(t.Context(), p, src); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestMountPointsStayInside: a read-only volume that another container writes to leads nobody out of it; one that can be written to and
// one that is not the pod's own are left alone.
func TestMountPointsStayInside(t *testing.T) {
	v, _, _ := volumes(t)
	outside := t.TempDir()
	p := pod("u1", scratch("s"), hostPath("h", outside))
	if err := v.Prepare(t.Context(), p, aShelf()); err != nil {
		t.Fatal(err)
	}
	in := t.TempDir()
	for _, c := range []struct {
		name, volume string
		readOnly     bool
		target       string
		plant        func(dir string) error
		made         bool
	}{
		{"plain", "s", true, "/v/a/b", nil, true},
		{"written to by the container", "s", false, "/v/w", nil, false},
		{"the board's own", "h", true, "/v/x", nil, false},
		{"a link out", "s", true, "/v/out/x", func(d string) error { return os.Symlink(outside, filepath.Join(d, "out")) }, false},
		{"a link up", "s", true, "/v/up/x", func(d string) error { return os.Symlink("../../..", filepath.Join(d, "up")) }, false},
		{"a link within", "s", true, "/v/within/x", func(d string) error { return os.Symlink("a", filepath.Join(d, "within")) }, true},
		{"beside it", "s", true, "/vv/x", nil, false},
	} {
		con := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: c.volume, MountPath: "/v", ReadOnly: c.readOnly}}}
		mounts, err := v.Mounts(t.Context(), p, con, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.plant != nil {
			if err := c.plant(mounts[0].Source); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.MakeMountPoints(p, con, append(mounts, runtime.Mount{Source: in, Target: c.target})); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.volume == "s" && !strings.Contains(c.name, "link") || c.made {
			if _, err := os.Stat(inSources(mounts, 0, c.target)); (err == nil) != c.made {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("made outside: %v %v", list, err)
	}
}
