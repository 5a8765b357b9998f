package libct

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// TestHome: a process has a HOME before libcontainer looks, from where the container's /etc/passwd comes from, if that is a file.
func TestHome(t *testing.T) {
	root, volume := t.TempDir(), t.TempDir()
	at := func(dir string, name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(path), 0o755))
		must(os.WriteFile(path, []byte(text), 0o644))
	}
	write(at(root, "etc", "passwd"), "bad\nroot:x:0:0::/root:/bin/sh\napp:x:1000:1000:An app:/srv/app:/bin/false\nempty:x:3:3:::\nnul:x:4:4::/a\x00b:\n")
	write(at(volume, "..data", "passwd"), "app:x:1000:1000::/vol/app:\n")
	must(os.Symlink("..data/passwd", at(volume, "passwd")))
	write(at(volume, "up", "deep"), "")
	// within the root it is the volume's own, which is not there
	must(os.Symlink("../../../../../../../etc/passwd", at(volume, "up", "passwd")))
	fifo := at(t.TempDir(), "fifo")
	must(unix.Mkfifo(fifo, 0o644))
	dir := t.TempDir()
	must(os.Symlink(fifo, at(dir, "passwd"))) // absolute: in the container's root there is no such file
	huge := at(t.TempDir(), "huge")
	must(os.WriteFile(huge, nil, 0o644))
	must(os.Truncate(huge, 1<<42))

	for _, c := range []struct {
		name, want string
		uid        uint32
		env        string
		mounts     []runtime.Mount
	}{
		{"root", "/root", 0, "", nil},
		{"by number", "/srv/app", 1000, "", nil},
		{"nobody's number", "/", 7, "", nil},
		{"an empty home", "/", 3, "", nil},
		{"a home that cannot be told", "/", 4, "", nil},
		{"given", "/given", 0, "HOME=/given", nil},
		{"given empty", "/root", 0, "HOME=/given HOME=", nil},
		{"given again", "/second", 0, "HOME=/given HOME=/second", nil},
		{"a volume on /etc", "/vol/app", 1000, "", []runtime.Mount{{Source: volume, Target: "/etc"}}},
		{"a volume on /etc, with a file on top", "/vol/app", 1000, "", []runtime.Mount{
			{Source: at(volume, "..data", "passwd"), Target: "/etc/passwd"}, {Source: dir, Target: "/etc/"}}},
		{"a volume beside it", "/srv/app", 1000, "", []runtime.Mount{{Source: volume, Target: "/etc/pass"}, {Source: volume, Target: "/et"}}},
		{"a link that leads out", "/", 0, "", []runtime.Mount{{Source: at(volume, "up"), Target: "/etc"}}},
		{"memory on /etc", "/", 0, "", []runtime.Mount{{Type: "tmpfs", Target: "/etc"}}},
		{"a FIFO", "/", 0, "", []runtime.Mount{{Source: fifo, Target: "/etc/passwd"}}},
		{"a link to a FIFO", "/", 0, "", []runtime.Mount{{Source: dir, Target: "/etc"}}},
		{"a directory", "/", 0, "", []runtime.Mount{{Source: dir, Target: "/etc/passwd"}}},
		{"endless", "/", 0, "", []runtime.Mount{{Source: huge, Target: "/etc/passwd"}}},
		{"not there", "/", 0, "", []runtime.Mount{{Source: at(dir, "no"), Target: "/etc"}}},
	} {
		env := append(strings.Fields(c.env), "PATH=/bin")
		got := withHome(runtime.Container{Rootfs: root, User: runtime.User{UID: c.uid}, Env: env, Mounts: c.mounts})
		home := ""
		for _, kv := range got {
			if v, ok := strings.CutPrefix(kv, "HOME="); ok {
				home = v
			}
		}
		if home != c.want {
			t.Errorf("%s: %q, want %q", c.name, home, c.want)
		}
	}
}
