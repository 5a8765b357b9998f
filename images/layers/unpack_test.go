package layers

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	it "ledge/images/imagestest"
)

func with(e it.Entry, change func(*tar.Header)) it.Entry {
	change(&e.Header)
	return e
}

func xattrs(kv ...string) func(*tar.Header) {
	return func(h *tar.Header) {
		h.PAXRecords = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			h.PAXRecords["SCHILY.xattr."+kv[i]] = kv[i+1]
		}
	}
}

// TestOddities: what real builders write and must be taken, and what has to come of it. A lower layer holds
// tmp (1777), etc -> private/etc, private/etc/conf, usr/lib/tool (4755) and opt/a, opt/b.
func TestOddities(t *testing.T) {
	needRoot(t)
	lower := it.Layer(
		with(it.Dir("tmp"), func(h *tar.Header) { h.Mode = 0o1777 }),
		it.Symlink("etc", "/private/etc"),
		with(it.Dir("private/etc"), func(h *tar.Header) { h.Uid, h.Gid, h.Mode = 7, 8, 0o751 }),
		it.File("private/etc/conf", "low"),
		with(it.File("usr/lib/tool", "tool"), func(h *tar.Header) { h.Mode = 0o4755; h.Uid = 5 }),
		it.File("opt/a", "a"), it.File("opt/b", "b"),
	)
	cases := []struct {
		name    string
		entries []it.Entry
		want    []string // lines of the tree
		not     []string // must not appear
	}{
		{"absolute names and ./", []it.Entry{it.File("/abs", "1"), it.File("./dot", "2"), it.File("a//b/./c", "3")},
			[]string{`abs 100644 0:0 n1 "1"`, `dot 100644 0:0 n1 "2"`, `a/b/c 100644 0:0 n1 "3"`}, nil},
		{"absolute hard link (kaniko)", []it.Entry{it.File("x/one", "1"), it.Hardlink("x/two", "/x/one")},
			[]string{`x/one 100644 0:0 n2 "1"`, `x/two 100644 0:0 n2 "1"`}, nil},
		{"hard link to a file of the layer below", []it.Entry{it.Hardlink("usr/lib/tool2", "usr/lib/tool")},
			[]string{`usr/lib/tool 104755 5:0 n2 "tool"`, `usr/lib/tool2 104755 5:0 n2 "tool"`}, nil},
		{"hard link to a symbolic link", []it.Entry{it.Symlink("s", "/etc/passwd"), it.Hardlink("s2", "s")},
			[]string{`s2 120777 0:0 -> /etc/passwd`}, nil},
		{"missing parents take their mode from below", []it.Entry{it.File("tmp/x", "1"), it.File("private/etc/y", "2")},
			[]string{"tmp 41777 0:0", "private/etc 40751 7:8"}, nil},
		{"missing parents elsewhere", []it.Entry{it.File("new/dir/x", "1")}, []string{"new 40755 0:0", "new/dir 40755 0:0"}, nil},
		{"parent is a link below", []it.Entry{it.File("etc/new", "1")},
			[]string{`private/etc/new 100644 0:0 n1 "1"`, "private/etc 40751 7:8"}, []string{"etc "}},
		{"parent is a link here", []it.Entry{it.Dir("real"), it.Symlink("alias", "real"), it.File("alias/x", "1")},
			[]string{`real/x 100644 0:0 n1 "1"`, "alias 120777 0:0 -> real"}, nil},
		{"directory twice, last wins", []it.Entry{it.Dir("d"), it.File("d/x", "1"), with(it.Dir("d"), func(h *tar.Header) { h.Mode = 0o700 })},
			[]string{"d 40700 0:0", `d/x 100644 0:0 n1 "1"`}, nil},
		{"directory after its content", []it.Entry{it.File("d/x", "1"), with(it.Dir("d"), func(h *tar.Header) { h.Mode = 0o711; h.Gid = 3 })},
			[]string{"d 40711 0:3", `d/x 100644 0:0 n1 "1"`}, nil},
		{"file twice, last wins", []it.Entry{it.File("f", "first"), it.Hardlink("g", "f"), it.File("f", "second")},
			[]string{`f 100644 0:0 n1 "second"`, `g 100644 0:0 n1 "first"`}, nil},
		{"file becomes directory", []it.Entry{it.File("f", "1"), it.Dir("f"), it.File("f/x", "2")},
			[]string{"f 40755 0:0 opaque=y", `f/x 100644 0:0 n1 "2"`}, nil},
		{"directory becomes file", []it.Entry{it.Dir("d"), it.File("d/x/y", "1"), it.File("d", "2")},
			[]string{`d 100644 0:0 n1 "2"`}, []string{"d/x"}},
		{"root entry", []it.Entry{with(it.Dir("./"), func(h *tar.Header) { h.Mode = 0o711; h.Uid = 4 })}, []string{". 40711 4:0"}, nil},
		{"setuid, sticky", []it.Entry{with(it.File("su", "1"), func(h *tar.Header) { h.Mode = 0o6755; h.Uid = 12 }),
			with(it.Dir("t"), func(h *tar.Header) { h.Mode = 0o1777 })}, []string{`su 106755 12:0 n1 "1"`, "t 41777 0:0"}, nil},
		{"more than a umask leaves", []it.Entry{with(it.File("all", "1"), func(h *tar.Header) { h.Mode = 0o777 }),
			with(it.File("none", "2"), func(h *tar.Header) { h.Mode = 0 }),
			with(it.Dir("d"), func(h *tar.Header) { h.Mode = 0o777 }), with(it.Dir("e"), func(h *tar.Header) { h.Mode = 0o050 })},
			[]string{`all 100777 0:0 n1 "1"`, `none 100000 0:0 n1 "2"`, "d 40777 0:0", "e 40050 0:0"}, nil},
		{"what a setgid directory would pass on",
			[]it.Entry{with(it.Dir("g"), func(h *tar.Header) { h.Mode = 0o2775; h.Gid = 5 }), it.File("g/x", "1"), it.File("g/d/y", "2"),
				it.Dir("g/e"), with(it.File("g/z", "3"), func(h *tar.Header) { h.Gid = 5; h.Mode = 0o2755 })},
			[]string{"g 42775 0:5", `g/x 100644 0:0 n1 "1"`, "g/d 40755 0:0", `g/d/y 100644 0:0 n1 "2"`, "g/e 40755 0:0", `g/z 102755 0:5 n1 "3"`},
			nil},
		{"missing parents behind links", []it.Entry{it.Symlink("here", "/not/yet"), it.File("here/a/x", "1"), it.File("here/a/y", "2"),
			it.File("etc/a/b/z", "3")},
			[]string{`not/yet/a/x 100644 0:0 n1 "1"`, `not/yet/a/y 100644 0:0 n1 "2"`, `private/etc/a/b/z 100644 0:0 n1 "3"`,
				"private/etc/a 40755 0:0", "private/etc 40751 7:8"}, []string{"here/"}},
		{"fifo", []it.Entry{{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o620}}}, []string{"pipe 10620 0:0"}, nil},
		{"names with anything in them", []it.Entry{it.File("new\nline \"q\" \xff", "1"), it.File("ünïcode", "2")},
			[]string{"new\nline \"q\" \xff 100644", "ünïcode 100644"}, nil},
		{"long PAX name", []it.Entry{it.File(strings.Repeat("d/", 100)+strings.Repeat("n", 255), "1")},
			[]string{strings.Repeat("n", 255) + " 100644"}, nil},
		{"global header", []it.Entry{{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "hi"}}},
			it.File("x", "1")}, []string{"x 100644"}, nil},
		{"large numbers", []it.Entry{with(it.File("x", "1"), func(h *tar.Header) { h.Uid = 1 << 30; h.Format = tar.FormatGNU })},
			[]string{"x 100644 1073741824:0"}, nil},
		{"whiteouts", []it.Entry{it.File("opt/.wh.a", ""), it.File("private/.wh.etc", "")},
			[]string{"opt/a 20000 0:0 dev 0", "private/etc 20000 0:0 dev 0"}, []string{"opt/b"}},
		{"opaque keeps what is of this layer",
			[]it.Entry{it.Dir("opt"), it.File("opt/new", "1"), it.File("opt/.wh..wh..opq", ""), it.File("opt/z", "2")},
			[]string{"opt 40755 0:0 opaque=y", "opt/new", "opt/z"}, nil},
		{"whiteout and then a new file", []it.Entry{it.File("opt/.wh.a", ""), it.File("opt/a", "1")}, []string{`opt/a 100644 0:0 n1 "1"`}, nil},
		{"whiteout and then a new directory", []it.Entry{it.File(".wh.opt", ""), it.File("opt/q", "1")},
			[]string{"opt 40755 0:0 opaque=y", "opt/q"}, nil},
		{"new directory and then its whiteout", []it.Entry{it.File("opt/q", "1"), it.File(".wh.opt", "")},
			[]string{"opt 40755 0:0 opaque=y", "opt/q"}, nil},
		{"AUFS leftovers", []it.Entry{it.Dir(".wh..wh.plnk"), it.File(".wh..wh.plnk/1.2", "x"), it.File(".wh..wh.aufs", ""), it.File("x", "1")},
			[]string{"x 100644"}, []string{".wh."}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o, base := New(Config{}), t.TempDir()
			low, _, err := unpackInto(t, o, base, "low", lower)
			if err != nil {
				t.Fatal(err)
			}
			dir, u, err := unpackInto(t, o, base, "top", it.Layer(c.entries...), low)
			if err != nil {
				t.Fatal(err)
			}
			if u.DiffID != it.Digest(it.Layer(c.entries...)) {
				t.Error("the diff ID is not the digest of the archive")
			}
			got := "\n" + listTree(t, filepath.Join(dir, "fs"))
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in:%s", w, got)
				}
			}
			for _, w := range c.not {
				if strings.Contains(got, "\n"+w) {
					t.Errorf("%q in:%s", w, got)
				}
			}
		})
	}
}

func TestXattrsAndTimes(t *testing.T) {
	needRoot(t)
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	set := func(h *tar.Header) {
		xattrs("security.capability", capability, "user.note", "hi", "user.overlay.opaque", "y", "trusted.overlay.opaque", "y",
			"trusted.overlay.redirect", "/etc", "security.selinux", "x", "system.posix_acl_access", "\x02\x00\x00\x00")(h)
		h.ModTime = when
	}
	old := it.File("old", "1")
	old.ModTime = time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC)
	dir, _, err := unpackInto(t, New(Config{}), t.TempDir(), "l", it.Layer(
		with(it.Dir("d"), set), with(it.File("d/f", "x"), set), with(it.Symlink("d/s", "f"), func(h *tar.Header) { h.ModTime = when }), old))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"fs/d", "fs/d/f", "fs/d/s"} {
		path := filepath.Join(dir, p)
		fi, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !fi.ModTime().Equal(when) {
			t.Errorf("%s: time %v", p, fi.ModTime())
		}
		for _, name := range []string{"trusted.overlay.opaque", "trusted.overlay.redirect", "user.overlay.opaque", "security.selinux",
			"system.posix_acl_access"} {
			if v := getXattr(path, name); v != "" {
				t.Errorf("%s: attribute %s is %q", p, name, v)
			}
		}
	}
	if v := getXattr(filepath.Join(dir, "fs/d/f"), "security.capability"); v != capability {
		t.Errorf("file capability is %q", v)
	}
	if v := getXattr(filepath.Join(dir, "fs/d"), "user.note"); v != "hi" {
		t.Errorf("user attribute is %q", v)
	}
	if fi, _ := os.Lstat(filepath.Join(dir, "fs/old")); fi.ModTime().Unix() != 0 {
		t.Errorf("a time before 1970 became %v", fi.ModTime())
	}
}

// TestDirTimes: directories have the times of their last entries whatever is put into them afterwards, and those that were
// filled in one go have them before the manifest is made.
func TestDirTimes(t *testing.T) {
	needRoot(t)
	at := func(e it.Entry, sec int64) it.Entry {
		e.ModTime = time.Unix(sec, 0)
		return e
	}
	entries := []it.Entry{
		at(it.Dir("one"), 1000), it.File("one/f", "x"), it.File("one/g", "y"), // in one go
		at(it.Dir("nested"), 1001), at(it.Dir("nested/deep"), 1002), it.File("nested/deep/f", "x"),
		at(it.Dir("back"), 1003), it.File("one/deep/h", "z"), it.File("back/late", "x"), // come back to
		at(it.Dir("twice"), 1004), at(it.Dir("twice"), 1005),
		at(it.Dir("last"), 1006), at(it.Dir("last"), 1007), // still open when all is read
	}
	want := map[string]int64{"one": 1000, "nested": 1001, "nested/deep": 1002, "back": 1003, "twice": 1005, "last": 1007}
	base := t.TempDir()
	dir, _, err := unpackInto(t, New(Config{}), base, "l", it.Layer(entries...))
	if err != nil {
		t.Fatal(err)
	}
	for name, sec := range want {
		if got := mtime(t, filepath.Join(dir, treeDir, name)); got != sec {
			t.Errorf("%s has the time %d, not %d", name, got, sec)
		}
	}

	root := filepath.Join(base, "bare")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	tr, err := openTree(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	j, err := newJournal(filepath.Join(base, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	o := New(Config{})
	archive := bytes.NewReader(it.Layer(entries[:6]...))
	u := &unpacker{cfg: &o.cfg, t: tr, j: j, b: &budget{in: &meter{r: archive, ctx: t.Context()}, cfg: &o.cfg}, out: newWriteback(),
		buf: make([]byte, 512)}
	if err := errors.Join(u.run(tar.NewReader(archive)), u.out.wait()); err != nil {
		t.Fatal(err)
	}
	if got := mtime(t, filepath.Join(root, "one")); got != 1000 {
		t.Errorf("a directory that was left has the time %d", got)
	}
}

func mtime(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.ModTime().Unix()
}

// TestWriteback: everything that is handed over is closed, and trouble with that is told.
func TestWriteback(t *testing.T) {
	for _, n := range []int{0, 1, 16, 17, 100} {
		w := newWriteback()
		var ends []int // of pipes: they come to their end when nobody has the other side open
		for range n {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(p[0])
			ends = append(ends, p[0])
			w.take(p[1])
		}
		if err := w.wait(); err != nil {
			t.Fatal(err)
		}
		for i, fd := range ends {
			if _, err := unix.Read(fd, make([]byte, 1)); err != nil {
				t.Fatalf("%d of %d is still open: %v", i, n, err)
			}
		}
	}
	w := newWriteback()
	w.take(-1)
	if err := w.wait(); !errors.Is(err, unix.EBADF) {
		t.Errorf("a file that cannot be closed: %v", err)
	}
}

func TestCompression(t *testing.T) {
	needRoot(t)
	plain := it.Layer(it.File("f", strings.Repeat("content ", 10000)))
	for name, b := range map[string][]byte{"plain": plain, "gzip": it.Gzip(plain), "zstd": it.Zstd(plain),
		"two gzip members": append(it.Gzip(plain[:1000]), it.Gzip(plain[1000:])...),
		"zstd skippable":   append([]byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, it.Zstd(plain)...)} {
		_, u, err := unpackInto(t, New(Config{}), t.TempDir(), "l", b)
		if err != nil || u.DiffID != it.Digest(plain) || u.Bytes != 80000 || u.Entries != 1 {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
	for name, b := range map[string][]byte{"xz": {0xfd, '7', 'z', 'X', 'Z', 0}, "bzip2": []byte("BZh91AY&SY"),
		"cut gzip": it.Gzip(plain)[:50], "cut zstd": it.Zstd(plain)[:30], "cut tar": plain[:4000], "text": []byte(strings.Repeat("hello", 500))} {
		if _, _, err := unpackInto(t, New(Config{}), t.TempDir(), "l", b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestShare: the content is not written again when it is on the same file system with the right owner and mode,
// and the layer is the same either way.
func TestShare(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	body := strings.Repeat("binary", 5000)
	exe := it.File("ledge", body)
	exe.Mode = 0o755
	archive := it.Layer(exe)
	for _, mode := range []os.FileMode{0o755, 0o711} {
		path := filepath.Join(base, mode.String())
		if err := os.WriteFile(path, []byte(body), mode); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dir := path + ".layer"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		u, err := New(Config{}).Unpack(t.Context(), dir,
			images.LayerArchive{Tar: bytes.NewReader(archive), Same: map[string]*os.File{"ledge": f}})
		if err != nil || u.DiffID != it.Digest(archive) {
			t.Fatal(u, err)
		}
		if err := New(Config{}).Verify(t.Context(), dir, u.Manifest, true); err != nil {
			t.Error(err)
		}
		var a, b unix.Stat_t
		if err := unix.Stat(path, &a); err != nil {
			t.Fatal(err)
		}
		if err := unix.Stat(filepath.Join(dir, "fs/ledge"), &b); err != nil {
			t.Fatal(err)
		}
		if same := a.Ino == b.Ino; mode != 0o755 && same {
			t.Error("a file of another mode was shared")
		} else if mode == 0o755 && !same && a.Blocks > 0 {
			t.Log("not hard linked: the file system clones")
		}
		if a.Mode&0o777 != uint32(mode) {
			t.Errorf("the original's mode became %o", a.Mode)
		}
	}
}

// TestVerifyFinds: every kind of damage a power cut leaves is seen, the cheap ones without reading content.
func TestVerifyFinds(t *testing.T) {
	needRoot(t)
	archive := it.Layer(it.File("d/f", "hello world"), it.Symlink("d/s", "f"), it.File("d/.wh.gone", ""), it.File("o/.wh..wh..opq", ""),
		it.File("g", "x"), it.Hardlink("h", "g"))
	for _, c := range []struct {
		name   string
		quick  bool // seen without full
		damage func(dir string) error
	}{
		{"missing file", true, func(d string) error { return os.Remove(d + "/fs/d/f") }},
		{"zero length", true, func(d string) error { return os.Truncate(d+"/fs/d/f", 0) }},
		{"shorter", true, func(d string) error { return os.Truncate(d+"/fs/d/f", 5) }},
		{"other content", false, func(d string) error { return os.WriteFile(d+"/fs/d/f", []byte("hello wOrld"), 0) }},
		{"other mode", true, func(d string) error { return os.Chmod(d+"/fs/d/f", 0o600) }},
		{"other owner", true, func(d string) error { return os.Chown(d+"/fs/d/f", 1, 0) }},
		{"other kind", true, func(d string) error { _ = os.Remove(d + "/fs/d/f"); return os.Mkdir(d+"/fs/d/f", 0o644) }},
		{"link elsewhere", true, func(d string) error { _ = os.Remove(d + "/fs/d/s"); return os.Symlink("x", d+"/fs/d/s") }},
		{"no whiteout", true, func(d string) error { return os.Remove(d + "/fs/d/gone") }},
		{"not opaque", true, func(d string) error { return unix.Removexattr(d+"/fs/o", opaqueXattr) }},
		{"zero length second name", true, func(d string) error { _ = os.Remove(d + "/fs/h"); return os.WriteFile(d+"/fs/h", nil, 0o644) }},
		{"no manifest", true, func(d string) error { return os.Remove(d + "/manifest") }},
		{"empty manifest", true, func(d string) error { return os.Truncate(d+"/manifest", 0) }},
		{"cut manifest", true, func(d string) error { return os.Truncate(d+"/manifest", 40) }},
		{"no tree", true, func(d string) error { return os.RemoveAll(d + "/fs") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := New(Config{})
			dir, u, err := unpackInto(t, o, t.TempDir(), "l", archive)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			if err := o.Verify(t.Context(), dir, u.Manifest, true); !isDamaged(err) {
				t.Errorf("full verify: %v", err)
			}
			if err := o.Verify(t.Context(), dir, u.Manifest, false); isDamaged(err) != c.quick {
				t.Errorf("quick verify: %v", err)
			}
		})
	}
}
