package podspec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/runtime"
)

const passwd = "root:x:0:0:root:/root:/bin/sh\n" +
	"web:x:33:34:web:/:/bin/false\n" +
	"# a comment\n\n" +
	"short:x\n" +
	"odd:x:zero:0::/:\n" +
	"oddgroup:x:77:none::/:\n" +
	"toolarge:x:4294967296:1::/:\n" +
	"web:x:99:99:a second one:/:\n"

const group = "root:x:0:\nwww:x:34:web\nlogs:x:40:daemon,web\nstaff:x:50:web,root\nempty:x:60\noddgroup:x:none:web\nshort:x\n"

func rootfs(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestImageUser: what USER of an image means, by the image's own account files.
func TestImageUser(t *testing.T) {
	full := rootfs(t, map[string]string{"passwd": passwd, "group": group})
	bare := t.TempDir()
	for _, c := range []struct {
		spec   string
		root   string
		want   runtime.User
		failed string // part of the error
	}{
		{"", full, runtime.User{Groups: []uint32{50}}, ""},
		{"0", full, runtime.User{Groups: []uint32{50}}, ""},
		{"root", full, runtime.User{Groups: []uint32{50}}, ""},
		{"web", full, runtime.User{UID: 33, GID: 34, Groups: []uint32{40, 50}}, ""},
		{"33", full, runtime.User{UID: 33, GID: 34, Groups: []uint32{40, 50}}, ""},
		{"web:logs", full, runtime.User{UID: 33, GID: 40}, ""},
		{"web:7", full, runtime.User{UID: 33, GID: 7}, ""},
		{"33:staff", full, runtime.User{UID: 33, GID: 50}, ""},
		{"1000:1000", full, runtime.User{UID: 1000, GID: 1000}, ""},
		{"1000", full, runtime.User{UID: 1000}, ""},
		{":40", full, runtime.User{GID: 40}, ""},
		{"nobody", full, runtime.User{}, "unable to find user nobody"},
		{"web:nogroup", full, runtime.User{}, "unable to find group nogroup"},
		{"short", full, runtime.User{}, "unable to find user short"},
		{"web:short", full, runtime.User{}, "unable to find group short"},
		// What cannot be read must not mean root.
		{"odd", full, runtime.User{}, "unable to find user odd"},
		{"toolarge", full, runtime.User{}, "unable to find user toolarge"},
		{"oddgroup", full, runtime.User{}, "unable to find user oddgroup"},
		{"77", full, runtime.User{UID: 77}, ""},
		{"web:oddgroup", full, runtime.User{}, "unable to find group oddgroup"},
		{"-1", full, runtime.User{}, "unable to find user -1"},
		{"2147483648", full, runtime.User{}, "larger than any user"},
		{"4294967295", full, runtime.User{}, "larger than any user"},
		{"1:2147483648", full, runtime.User{}, "larger than any user"},
		// No account files at all: numbers still mean themselves.
		{"", bare, runtime.User{}, ""},
		{"1000:50", bare, runtime.User{UID: 1000, GID: 50}, ""},
		{"web", bare, runtime.User{}, "unable to find user web"},
		{"1000:web", bare, runtime.User{}, "unable to find group web"},
	} {
		got, err := resolveUser(c.root, &corev1.Pod{}, &corev1.Container{}, c.spec)
		switch {
		case c.failed != "":
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%q: %+v %v, want an error with %q", c.spec, got, err, c.failed)
			}
		case err != nil:
			t.Errorf("%q: %v", c.spec, err)
		case got.UID != c.want.UID || got.GID != c.want.GID || !slices.Equal(got.Groups, append([]uint32{c.want.GID}, c.want.Groups...)):
			t.Errorf("%q: %+v, want %+v", c.spec, got, c.want)
		}
	}
}

// TestHostileAccountFiles: an image may bring anything in their place.
func TestHostileAccountFiles(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"a FIFO":              func(p string) error { return unix.Mkfifo(p, 0o644) },
		"a directory":         func(p string) error { return os.Mkdir(p, 0o755) },
		"a link out of it":    func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a link upwards":      func(p string) error { return os.Symlink("../../../../../../etc/passwd", p) },
		"a link to itself":    func(p string) error { return os.Symlink("passwd", p) },
		"a device":            func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
		"a line without end":  func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("x", 1<<20)), 0o644) },
		"gigabytes of nought": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, 4<<30)) },
	} {
		dir := rootfs(t, nil)
		if err := make(filepath.Join(dir, "etc", "passwd")); err != nil {
			if errors.Is(err, unix.EPERM) {
				t.Logf("%s: needs root", what)
				continue
			}
			t.Fatal(err)
		}
		if _, err := resolveUser(dir, &corev1.Pod{}, &corev1.Container{}, "root"); err == nil {
			t.Errorf("%s: root was found there", what)
		}
		if got, err := resolveUser(dir, &corev1.Pod{}, &corev1.Container{}, "1000"); err != nil || got.UID != 1000 || got.GID != 0 {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	// A root file system that is not there is no image without account files.
	if _, err := resolveUser(filepath.Join(t.TempDir(), "none"), &corev1.Pod{}, &corev1.Container{}, "1000"); err == nil {
		t.Error("a missing root file system was taken")
	}
}

// TestSecurityContextUser: the container's beats the pod's, the pod's the image's. The primary group is always the first
// of the others.
func TestSecurityContextUser(t *testing.T) {
	root := rootfs(t, map[string]string{"passwd": passwd, "group": group})
	id := func(n int64) *int64 { return &n }
	yes, no := true, false
	for _, c := range []struct {
		what   string
		pod    *corev1.PodSecurityContext
		con    *corev1.SecurityContext
		image  string
		want   runtime.User
		failed string
	}{
		{"pod", &corev1.PodSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2000)}, nil, "web", runtime.User{UID: 1000, GID: 2000}, ""},
		{"container", &corev1.PodSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2000)},
			&corev1.SecurityContext{RunAsUser: id(3000)}, "web", runtime.User{UID: 3000, GID: 2000}, ""},
		{"root again", &corev1.PodSecurityContext{RunAsUser: id(1000)}, &corev1.SecurityContext{RunAsUser: id(0)}, "web",
			runtime.User{Groups: []uint32{50}}, ""},
		{"group of the account", &corev1.PodSecurityContext{RunAsUser: id(33)}, nil, "", runtime.User{UID: 33, GID: 34, Groups: []uint32{40, 50}},
			""},
		{"group only", nil, &corev1.SecurityContext{RunAsGroup: id(7)}, "web", runtime.User{UID: 33, GID: 7, Groups: []uint32{40, 50}}, ""},
		{"the image's group goes with its user", &corev1.PodSecurityContext{RunAsUser: id(1000)}, nil, "web:logs", runtime.User{UID: 1000}, ""},
		{"an image's user that nobody asks for", &corev1.PodSecurityContext{RunAsUser: id(1000)}, nil, "nosuchuser", runtime.User{UID: 1000}, ""},
		{"supplemental groups", &corev1.PodSecurityContext{RunAsUser: id(33), SupplementalGroups: []int64{900, 40, 800, 900}}, nil, "",
			runtime.User{UID: 33, GID: 34, Groups: []uint32{40, 50, 800, 900}}, ""},
		{"the primary group again", &corev1.PodSecurityContext{RunAsUser: id(1000), RunAsGroup: id(7), FSGroup: id(7),
			SupplementalGroups: []int64{7, 5}},
			nil, "", runtime.User{UID: 1000, GID: 7, Groups: []uint32{5}}, ""},

		{"not root: named", &corev1.PodSecurityContext{RunAsNonRoot: &yes}, nil, "web", runtime.User{},
			"container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root"},
		{"not root: number", &corev1.PodSecurityContext{RunAsNonRoot: &yes}, nil, "33", runtime.User{UID: 33, GID: 34, Groups: []uint32{40, 50}},
			""},
		{"not root: named, and a number asked for", &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: id(5)}, nil, "web",
			runtime.User{UID: 5}, ""},
		{"not root: image of root", &corev1.PodSecurityContext{RunAsNonRoot: &yes}, nil, "", runtime.User{},
			"container has runAsNonRoot and image will run as root"},
		{"not root: image says 0", &corev1.PodSecurityContext{RunAsNonRoot: &yes}, nil, "0:5", runtime.User{}, "image will run as root"},
		{"not root: root asked for", &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: id(0)}, nil, "33", runtime.User{},
			`container's runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)`},
		{"not root: not here", &corev1.PodSecurityContext{RunAsNonRoot: &yes}, &corev1.SecurityContext{RunAsNonRoot: &no}, "",
			runtime.User{Groups: []uint32{50}}, ""},
		{"not root: only here", nil, &corev1.SecurityContext{RunAsNonRoot: &yes}, "", runtime.User{}, "image will run as root"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{SecurityContext: c.pod}}
		got, err := resolveUser(root, pod, &corev1.Container{Name: "c", SecurityContext: c.con}, c.image)
		switch {
		case c.failed != "":
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: %+v %v, want an error with %q", c.what, got, err, c.failed)
			}
		case err != nil:
			t.Errorf("%s: %v", c.what, err)
		case got.UID != c.want.UID || got.GID != c.want.GID || !slices.Equal(got.Groups, append([]uint32{c.want.GID}, c.want.Groups...)):
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}
