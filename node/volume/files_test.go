package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/internal/testrun"
	"ledge/node/downward"
)

// shelf is a Source that holds what a test puts there.
type shelf struct {
	configs map[string]map[string]string
	secrets map[string]map[string]string
	tokens  int
	facts   downward.Facts
	claimed *corev1.PersistentVolume
}

func (s *shelf) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	data, ok := s.configs[name]
	if !ok {
		return nil, fmt.Errorf("configmap %q: %w", name, ErrNotFound)
	}
	return &corev1.ConfigMap{Data: data, BinaryData: map[string][]byte{"bin": {0, 255}}}, nil
}

func (s *shelf) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	data, ok := s.secrets[name]
	if !ok {
		return nil, fmt.Errorf("secret %q: %w", name, ErrNotFound)
	}
	out := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

func (s *shelf) Token(_ context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	s.tokens++
	return "token for " + p.Audience, nil
}

func (s *shelf) Facts() downward.Facts { return s.facts }

func (s *shelf) Claimed(_ context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	if s.claimed == nil {
		return nil, errors.New("PVC is not bound")
	}
	return s.claimed, nil
}

func number[T any](v T) *T { return &v }

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func fieldFile(path, field string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
}

func aShelf() *shelf {
	p := pod("u1")
	p.Name, p.Labels = "web", map[string]string{"a": "1"}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	return &shelf{configs: map[string]map[string]string{"c": {"k": "v", "l": "w"}},
		secrets: map[string]map[string]string{"s": {"p": "hidden"}},
		facts:   downward.Facts{Pod: p, Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4")}}}
}

// flat shows files as path:mode=content.
func flat(f Files) string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(f)) {
		out = append(out, fmt.Sprintf("%s:%o=%s", p, f[p].Mode, f[p].Data))
	}
	return strings.Join(out, " ")
}

// TestContent: what is in volumes made of objects.
func TestContent(t *testing.T) {
	yes := true
	items := func(kv ...string) (out []corev1.KeyToPath) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, corev1.KeyToPath{Key: kv[i], Path: kv[i+1]})
		}
		return out
	}
	withMode := append(items("k", "a/b"), corev1.KeyToPath{Key: "l", Path: "x", Mode: number(int32(0o600))})
	for _, c := range []struct {
		what string
		vol  corev1.VolumeSource
		want string
		err  string
	}{
		{"config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c")}},
			"bin:644=\x00\xff k:644=v l:644=w", ""},
		{"config, mode", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"),
			DefaultMode: number(int32(0o400)), Items: withMode}},
			"a/b:400=v x:600=w", ""},
		{"config, no key", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"),
			Items: items("none", "x")}}, "",
			"configmap references non-existent config key: none"},
		{"config, optional key", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"),
			Items: items("none", "x", "k", "k"), Optional: &yes}},
			"k:644=v", ""},
		{"no config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("none")}}, "",
			`configmap "none": not found`},
		{"optional config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("none"), Optional: &yes}},
			"", ""},
		{"secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}, "p:644=hidden", ""},
		{"secret, no key", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Items: items("none", "x")}}, "",
			"references non-existent secret key: none"},
		{"no secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}, "", `secret "none": not found`},
		{"downward", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{fieldFile("name",
			"metadata.name"),
			fieldFile("labels", "metadata.labels"),
			{Path: "cpu", Mode: number(int32(0o440)),
				ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}}}}},
			"cpu:440=4 labels:644=a=\"1\" name:644=web", ""},
		{"downward, bad", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{fieldFile("x",
			"status.phase")}}}, "", "unsupported fieldPath"},
		{"downward, empty", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "x"}}}},
			"", "neither"},
		{"projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: number(int32(0o444)),
			Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c"), Items: items("k", "one")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: local("s"), Items: items("p", "two/three")}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{fieldFile("name", "metadata.name")}}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}}}}},
			"name:444=web one:444=v token:444=token for vault two/three:444=hidden", ""},
		{"projected, missing", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("none"), Optional: &yes}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("none")}}}}},
			"", `configmap "none": not found`},
		{"projected, strange", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}, "",
			"not supported"},
		{"climbs", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"),
			Items: items("k", "a/../../x")}}, "", "invalid path"},
		{"absolute", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"), Items: items("k", "/x")}}, "",
			"invalid path"},
		{"own name", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"), Items: items("k", "..data")}},
			"", "invalid path"},
		{"itself", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"), Items: items("k", "a/..")}}, "",
			"invalid path"},
	} {
		got, ok, err := content(t.Context(), &corev1.Volume{VolumeSource: c.vol}, aShelf())
		if !ok || c.err == "" && (err != nil || flat(got) != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q %v", c.what, flat(got), err)
		}
	}
	if _, ok, _ := content(t.Context(), &corev1.Volume{VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}, aShelf()); ok {
		t.Error("NFS is made of objects")
	}
}

// read gives what a container would see: every file by its path, through the links.
func read(t *testing.T, dir string) string {
	t.Helper()
	out := Files{}
	var walk func(string)
	walk = func(p string) {
		st, err := os.Stat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		if !st.IsDir() {
			data, err := os.ReadFile(filepath.Join(dir, p))
			if err != nil {
				t.Fatal(err)
			}
			out[p] = File{Data: data, Mode: uint32(st.Mode().Perm())}
			return
		}
		entries, err := os.ReadDir(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "..") {
				walk(filepath.Join(p, e.Name()))
			}
		}
	}
	walk(".")
	return flat(out)
}

func file(data string, mode uint32) File { return File{Data: []byte(data), Mode: mode} }

// TestWriteFiles: a volume becomes what it should be whatever it was, and nothing of what it was stays.
func TestWriteFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	now := time.Unix(1_000_000, 0)
	for i, step := range []struct {
		files   Files
		written bool
		want    string
	}{
		{Files{}, true, ""},
		{Files{}, false, ""},
		{Files{"a": file("1", 0o644), "d/e/f": file("2", 0o400), "d/g": file("3", 0o777)}, true, "a:644=1 d/e/f:400=2 d/g:777=3"},
		{Files{"a": file("1", 0o644), "d/e/f": file("2", 0o400), "d/g": file("3", 0o777)}, false, "a:644=1 d/e/f:400=2 d/g:777=3"},
		{Files{"a": file("new", 0o644), "d/e/f": file("2", 0o400)}, true, "a:644=new d/e/f:400=2"},
		{Files{"d": file("a file now", 0o644)}, true, "d:644=a file now"},
		{Files{"d/x": file("", 0o600)}, true, "d/x:600="},
		{Files{"b": file("", 0)}, true, "b:0="},
		{Files{}, true, ""},
	} {
		now = now.Add(time.Nanosecond)
		written, err := writeFiles(dir, step.files, nil, ownership{}, now)
		if err != nil || written != step.written {
			t.Errorf("step %d: written %v, %v", i, written, err)
		}
		if got := read(t, dir); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2+len(topNames(step.files)) {
			t.Errorf("step %d leaves %v %v", i, entries, err)
		}
	}
}

// TestWriteFilesAfterCrash: whatever an update that was cut off left behind is cleared away by the next.
func TestWriteFilesAfterCrash(t *testing.T) {
	dir := t.TempDir()
	files := Files{"a": file("1", 0o644), "b": file("2", 0o644)}
	if _, err := writeFiles(dir, files, nil, ownership{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for what, harm := range map[string]func() error{
		"half a version": func() error { return os.MkdirAll(filepath.Join(dir, "..half/x"), 0o755) },
		"a link":         func() error { return os.Symlink("..half", filepath.Join(dir, tmpLink)) },
		"a name gone":    func() error { return os.Remove(filepath.Join(dir, "a")) },
		"a name too many": func() error {
			return os.Symlink(filepath.Join(dataLink, "c"), filepath.Join(dir, "c"))
		},
		"a file in place of a link": func() error {
			return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600)
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if _, err := writeFiles(dir, files, nil, ownership{}, time.Unix(2, 0)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 4 || read(t, dir) != "a:644=1 b:644=2" {
			t.Errorf("%s: %v %q", what, entries, read(t, dir))
		}
	}
}

// TestWriteFilesStaysInside: links that a container planted lead the writer nowhere.
func TestWriteFilesStaysInside(t *testing.T) {
	outside := t.TempDir()
	precious := filepath.Join(outside, "a")
	for what, plant := range map[string]func(dir string) error{
		"name": func(dir string) error { return os.Symlink(precious, filepath.Join(dir, "a")) },
		"dir":  func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "d")) },
		"data": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, dataLink)) },
		"tmp":  func(dir string) error { return os.Symlink(outside, filepath.Join(dir, tmpLink)) },
		"version": func(dir string) error {
			return os.Symlink(outside, filepath.Join(dir, "..1970_01_01_00_00_01.000000000"))
		},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(dir); err != nil {
			t.Fatal(err)
		}
		_, err := writeFiles(dir, Files{"a": file("x", 0o777), "d/b": file("y", 0o777)}, nil, ownership{group: number(int64(7))}, time.Unix(1, 0))
		t.Log(what, err)
		data, rerr := os.ReadFile(precious)
		st, serr := os.Stat(precious)
		entries, derr := os.ReadDir(outside)
		if rerr != nil || serr != nil || derr != nil || string(data) != "kept" || st.Mode().Perm() != 0o600 || len(entries) != 1 {
			t.Errorf("%s: %q %v %v", what, data, st.Mode(), entries)
		}
	}
}

// TestUpdateIsOneStep: a reader sees the old files or the new ones, never some of each.
func TestUpdateIsOneStep(t *testing.T) {
	dir := t.TempDir()
	both := func(n int) Files {
		s := fmt.Sprint(n)
		return Files{"a": file(s, 0o644), "b": file(s, 0o644)}
	}
	if _, err := writeFiles(dir, both(0), nil, ownership{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for n := range testrun.Rounds(300) {
			if _, err := writeFiles(dir, both(n+1), nil, ownership{}, time.Now()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	looks := 0
	for {
		select {
		case err := <-done:
			if err != nil || looks == 0 {
				t.Errorf("%d looks, %v", looks, err)
			}
			return
		default:
		}
		version, err := os.Open(filepath.Join(dir, dataLink)) // what a careful reader holds on to
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced between the link and what it leads to: a reader asks again
		}
		if err != nil {
			t.Fatalf("look %d: %v", looks, err)
		}
		root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", version.Fd()))
		if err == nil {
			a, aerr := root.ReadFile("a")
			b, berr := root.ReadFile("b")
			if aerr == nil && berr == nil && string(a) != string(b) {
				t.Errorf("a is %s, b is %s", a, b)
			}
			root.Close()
		}
		version.Close()
		looks++
	}
}

// TestOwners: a pod's group can read everything, its one user the token (real ownership: needs root).
func TestOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	files := Files{"a": file("1", 0o400), "d/token": {Data: []byte("t"), Mode: 0o644, Own: true}}
	for _, c := range []struct {
		own  ownership
		want os.FileMode
	}{{ownership{}, 0o644}, {ownership{user: number(int64(1000))}, 0o600}, {ownership{group: number(int64(2000))}, 0o640}} {
		alone := t.TempDir()
		if _, err := writeFiles(alone, files, nil, c.own, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Join(alone, "d/token")); err != nil || st.Mode().Perm() != c.want {
			t.Errorf("a token of %+v: %v %v", c.own, st, err)
		}
	}
	if _, err := writeFiles(dir, files, nil, ownership{user: number(int64(1000)), group: number(int64(2000))}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"..data/":        "drwxr-xr-x 0 2000 setgid",
		"..data/d":       "drwxr-xr-x 0 2000 setgid",
		"..data/a":       "-r--r----- 0 2000",
		"..data/d/token": "-rw-r----- 1000 2000",
	} {
		st, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		sys := st.Sys().(*syscall.Stat_t)
		got := fmt.Sprintf("%s %d %d", strings.Replace((st.Mode()&(fs.ModeDir|fs.ModePerm)).String(), "g", "", 1), sys.Uid, sys.Gid)
		if st.Mode()&fs.ModeSetgid != 0 {
			got += " setgid"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for _, c := range []struct{ mode, group, want int64 }{
		{-1, -1, 0o777}, {-1, 2000, 0o2777}, {0o1750, -1, 0o1750}, {0, -1, 0}, {0o705, 2000, 0o2775},
	} {
		vol, group := corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, (*int64)(nil)
		if c.mode >= 0 {
			vol.EmptyDir.Mode = number(int32(c.mode))
		}
		if c.group >= 0 {
			group = &c.group
		}
		d := filepath.Join(t.TempDir(), "s")
		if err := makeScratch(d, scratchMode(&vol, group), group); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(d)
		if err != nil || st.Sys().(*syscall.Stat_t).Mode != syscall.S_IFDIR|uint32(c.want) {
			t.Errorf("scratch of %+v: %v %v", c, st, err)
		}
	}
}

func TestUserOf(t *testing.T) {
	user := func(u int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &u} }
	for _, c := range []struct {
		pod  *int64
		con  []*corev1.SecurityContext
		want int64 // -1: none
	}{
		{nil, []*corev1.SecurityContext{nil}, -1},
		{number(int64(5)), []*corev1.SecurityContext{nil, {}}, 5},
		{number(int64(5)), []*corev1.SecurityContext{nil, user(6)}, -1},
		{nil, []*corev1.SecurityContext{user(6), user(6)}, 6},
		{nil, []*corev1.SecurityContext{user(6), nil}, -1},
		{number(int64(5)), []*corev1.SecurityContext{user(6), user(6)}, 6},
	} {
		p := pod("u")
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: c.pod}
		for _, sc := range c.con {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{SecurityContext: sc})
		}
		got := int64(-1)
		if u := userOf(p); u != nil {
			got = *u
		}
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestObjectVolumes on the board: in memory, one file system for a pod, followed by what they are made of, and gone.
func TestObjectVolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, run := volumes(t)
	src := aShelf()
	p := pod("u1", corev1.Volume{Name: "c",
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c"),
			Items: []corev1.KeyToPath{{Key: "k", Path: "k"}}}}},
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}, scratch("e"))
	if err := v.Prepare(t.Context(), p, src); err != nil {
		t.Fatal(err)
	}
	if !isTmpfs(t, filepath.Join(run, "config/u1")) || isTmpfs(t, filepath.Join(run, "config/u1/s")) {
		t.Error("not one tmpfs for the pod")
	}
	at := func(name string) string { return filepath.Join(run, "config/u1", name) }
	if read(t, at("c")) != "k:644=v" || read(t, at("s")) != "p:644=hidden" {
		t.Errorf("%q %q", read(t, at("c")), read(t, at("s")))
	}
	src.configs["c"]["k"], src.secrets["s"]["p"] = "new", "newer"
	again, err := New(data, run) // the brain was restarted
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Refresh(t.Context(), p, src); err != nil || read(t, at("c")) != "k:644=new" || read(t, at("s")) != "p:644=newer" {
		t.Errorf("%v %q %q", err, read(t, at("c")), read(t, at("s")))
	}
	delete(src.configs, "c")
	src.secrets["s"]["p"] = "newest"
	err = again.Refresh(t.Context(), p, src)
	if err == nil || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "c" : configmap "c": not found`) {
		t.Errorf("%v", err)
	}
	if read(t, at("c")) != "k:644=new" || read(t, at("s")) != "p:644=newest" {
		t.Errorf("one that is missing: %q %q", read(t, at("c")), read(t, at("s")))
	}
	if err := again.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	for _, root := range again.roots() {
		if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
			t.Errorf("left in %s: %v %v", root, entries, err)
		}
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %v %v", left, err)
	}
}

// TestRemoveTakesStrangers: what a container mounted into its volume (Bidirectional) goes with the pod.
func TestRemoveTakesStrangers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, run := volumes(t)
	if err := v.Prepare(t.Context(), pod("u1", scratch("e"), memory("m")), aShelf()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(data, "volumes/u1/e/x y"), filepath.Join(data, "volumes/u1/e/x y/z"),
		filepath.Join(run, "volumes/u1/m/x")} {
		if err := mountTmpfs(dir, tmpfs{mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{data, run} {
		if left, err := mountsBelow(root); err != nil || len(left) > 0 {
			t.Errorf("still mounted: %v %v", left, err)
		}
	}
}

// TestUnmount: nothing of the pod is mounted any more, whoever mounted it, what is on disk stays, and nobody else's goes.
func TestUnmount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	outwards := corev1.MountPropagationBidirectional
	for name, tc := range map[string]struct {
		uid     string
		strange []string // what containers have mounted
	}{
		"what is known":   {uid: "u1"},
		"and what is not": {"u1", []string{"data/volumes/u1/e/x y", "data/volumes/u1/e/x y/z", "run/volumes/u1/m/x"}},
		"a strange UID":   {uid: "*"},
	} {
		t.Run(name, func(t *testing.T) {
			v, data, run := volumes(t)
			src := aShelf()
			p := pod(tc.uid, scratch("e"), memory("m"), corev1.Volume{Name: "d", VolumeSource: corev1.VolumeSource{
				DownwardAPI: &corev1.DownwardAPIVolumeSource{}}})
			p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "m", MountPath: "/m", SubPath: "sub"}}}}
			other := pod("u2", memory("m"))
			for _, p := range []*corev1.Pod{p, other} {
				if err := v.Prepare(t.Context(), p, src); err != nil {
					t.Fatal(err)
				}
			}
			defer func() {
				if err := errors.Join(v.Remove(tc.uid), v.Remove("u2")); err != nil {
					t.Error(err)
				}
			}()
			if _, err := v.subMounts(p, "sub"); err != nil {
				t.Fatal(err)
			}
			if len(tc.strange) > 0 {
				p.Spec.Containers[0].VolumeMounts[0].MountPropagation = &outwards
			}
			for _, at := range tc.strange {
				root, rest, _ := strings.Cut(at, "/")
				if err := mountTmpfs(filepath.Join(map[string]string{"data": data, "run": run}[root], rest), tmpfs{mode: 0o755}); err != nil {
					t.Fatal(err)
				}
			}
			scratchFile := filepath.Join(data, "volumes", tc.uid, "e", "kept")
			if err := os.WriteFile(scratchFile, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if had, err := mountsBelow(v.dirs(tc.uid)...); err != nil || len(had) != 3+len(tc.strange) {
				t.Fatalf("before: %q, %v", had, err)
			}
			for range 2 { // again is nothing
				if err := v.Unmount(p); err != nil {
					t.Fatal(err)
				}
				if left, err := mountsBelow(v.dirs(tc.uid)...); err != nil || len(left) > 0 {
					t.Errorf("still mounted: %q, %v", left, err)
				}
			}
			if _, err := os.Stat(scratchFile); err != nil {
				t.Error(err)
			}
			if left, err := mountsBelow(v.dirs("u2")...); err != nil || len(left) != 1 {
				t.Errorf("the other pod has %q, %v", left, err)
			}
		})
	}
}

// TestKeepOffSwap: what the kernel says it can do is what it does (N-8.14).
func TestKeepOffSwap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "m")
	if err := mountTmpfs(dir, tmpfs{mode: 0o700}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unmountBelow(dir); err != nil {
			t.Error(err)
		}
	}()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir+" ") && strings.Contains(line, "noswap") != CanKeepOffSwap() {
			t.Errorf("can: %v, %s", CanKeepOffSwap(), line)
		}
	}
}
