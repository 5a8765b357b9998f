package claims

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/internal/testrun"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// settled is a shelf with the claim pvc-1, filled by fill, as it is some time after that.
func settled(t *testing.T, fill func(dir string)) *Shelf {
	t.Helper()
	s := NewShelf(filepath.Join(t.TempDir(), "claims"), newPlayed())
	must(t, s.Make("pvc-1", 1<<30))
	fill(s.Path("pvc-1"))
	filled := time.Now()
	testrun.Until(t, time.Minute, "what follows is not of the same moment to the kernel", func() bool { return time.Since(filled) > 2*clockTick })
	return s
}

func pack(t *testing.T, s *Shelf) ([]byte, Packed) {
	t.Helper()
	var b bytes.Buffer
	p, err := s.Pack(&b)
	must(t, err)
	return b.Bytes(), p
}

func unpack(s *Shelf, archive []byte) ([]string, error) {
	r, err := WholeArchive(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	u, err := s.Unpack(r)
	if err != nil {
		return nil, err
	}
	return u.Names, errors.Join(u.Begin(), u.Place())
}

// seen are all files below a directory as text: kind, owner, mode, time, what is in it.
func seen(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	inodes := map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err = errors.Join(err, unix.Lstat(path, &st)); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		line := fmt.Sprintf("%q %o %d:%d %d.%d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
			if first, ok := inodes[st.Ino]; ok {
				line += " is " + first
			}
			inodes[st.Ino] = rel
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " " + to
		}
		for _, name := range []string{"user.a", "trusted.b", "security.capability"} {
			value := make([]byte, 100)
			if n, err := unix.Lgetxattr(path, name, value); err == nil {
				line += fmt.Sprintf(" %s=%x", name, value[:n])
			}
		}
		out = append(out, line)
		return nil
	}))
	return out
}

// TestPack: a claim comes back as it was.
func TestPack(t *testing.T) { // N-13.15
	root := os.Getuid() == 0
	s := settled(t, func(dir string) {
		in := func(name string) string { return filepath.Join(dir, name) }
		must(t, os.MkdirAll(in("a/b/"+strings.Repeat("long", 50)), 0o750))
		must(t, os.WriteFile(in("a/row"), []byte("1"), 0o640))
		must(t, os.WriteFile(in("a/bad\xff name\n="), []byte("2"), 0o600))
		must(t, os.WriteFile(in("empty"), nil, 0o400))
		must(t, os.Link(in("a/row"), in("a/b/same")))
		must(t, os.Symlink("/etc/passwd", in("out")))
		must(t, os.Symlink("nowhere", in("a/dangling")))
		must(t, unix.Mkfifo(in("fifo"), 0o622))
		f, err := os.Create(in("holes"))
		must(t, err)
		_, err = f.WriteAt([]byte("data"), 1<<20)
		must(t, err)
		_, err = f.WriteAt(bytes.Repeat([]byte("x"), 9000), 48<<20)
		must(t, errors.Join(err, f.Truncate(64<<20), f.Close()))
		must(t, os.Truncate(in("empty"), 0))
		if root {
			must(t, os.Chown(in("a/row"), 1000, 2000))
			must(t, os.Lchown(in("out"), 7, 8))
			must(t, unix.Chmod(in("a/row"), 0o6755))
			must(t, unix.Chmod(in("a"), 0o3770))
			_ = unix.Setxattr(in("a/row"), "trusted.b", []byte{0, 1, '=', 2}, 0)
			_ = unix.Setxattr(in("a/row"), "security.capability", []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)
			must(t, unix.Mknod(in("dev"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
		}
		_ = unix.Setxattr(in("holes"), "user.a", []byte("v"), 0) // not on every file system
		must(t, os.Chtimes(in("a"), time.Unix(1, 0), time.Unix(2, 3)))
	})
	archive, p := pack(t, s)
	if p.Claims != 1 || len(archive) > 1<<20 {
		t.Errorf("%+v in %d bytes", p, len(archive))
	}
	if root {
		if p.LeftOut != 1 || p.Left[0] != s.Path("pvc-1/dev") {
			t.Errorf("left out: %v", p.Left)
		}
		must(t, os.Remove(s.Path("pvc-1/dev")))
		must(t, os.Chtimes(s.Path("pvc-1"), time.Time{}, lastDir(t, archive)))
	}
	want := seen(t, s.Path("pvc-1"))
	sizes := newPlayed()
	other := NewShelf(filepath.Join(t.TempDir(), "claims"), sizes)
	names, err := unpack(other, archive)
	must(t, err)
	if !slices.Equal(names, []string{"pvc-1"}) {
		t.Errorf("unpacked %q", names)
	}
	if got := seen(t, other.Path("pvc-1")); !slices.Equal(got, want) {
		t.Errorf("unpacked:\n%s\npacked:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	dirs, err := other.Dirs()
	must(t, err)
	if len(dirs) != 1 || !dirs[0].Sized || dirs[0].Limit != 1<<30 {
		t.Errorf("on the shelf: %+v", dirs)
	}
	var st unix.Stat_t
	must(t, unix.Stat(other.Path("pvc-1/holes"), &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("a file with holes takes %d bytes", st.Blocks*512)
	}
	// Once more: what is there is kept aside.
	must(t, os.WriteFile(other.Path("pvc-1/newer"), nil, 0o600))
	_, err = unpack(other, archive)
	must(t, err)
	if got := seen(t, other.Path("pvc-1")); !slices.Equal(got, want) {
		t.Errorf("the second time:\n%s", strings.Join(got, "\n"))
	}
	if aside, _ := filepath.Glob(other.Path(".old-pvc-1-*/newer")); len(aside) != 1 {
		t.Errorf("what was there: %q", aside)
	}
}

// TestAside: what a restore has put aside is no claim: nothing removes it, none is removed for it, nothing bounds it, and no backup has it.
func TestAside(t *testing.T) { // N-13.15
	s := settled(t, func(dir string) { must(t, os.WriteFile(dir+"/row", []byte("1"), 0o600)) })
	archive, _ := pack(t, s)
	sizes := s.sizes.(*played)
	old := sizes.Number(open(t, s.Path("pvc-1")))
	_, err := unpack(s, archive)
	must(t, err)
	aside, err := s.Aside()
	if err != nil || len(aside) != 1 || !strings.HasPrefix(aside[0].Name, ".old-pvc-1-") {
		t.Fatalf("aside: %+v %v", aside, err)
	}
	if f := open(t, s.Path(aside[0].Name)); sizes.Number(f) != old || sizes.uses[old].MaxBytes != 0 {
		t.Errorf("number %x: %+v", old, sizes.uses[old])
	}
	dirs, err := s.Dirs()
	if err != nil || len(dirs) != 1 || dirs[0].Name != "pvc-1" {
		t.Errorf("claims: %+v %v", dirs, err)
	}
	v := volumeOf("1", "1Gi")
	v.Spec.Local.Path = s.Path(v.Name)
	if got := Plan(World{Dirs: dirs, Volumes: []*corev1.PersistentVolume{v}, Path: s.Path}); len(got) != 0 {
		t.Errorf("the loop would %+v", got)
	}
	must(t, errors.Join(s.Sweep(newPrefix), s.Sweep(gonePrefix)))
	if got := lies(t, s); got != aside[0].Name+" pvc-1" {
		t.Errorf("there is %s", got)
	}
	testrun.Succeeds(t, time.Minute, "a backup is made again", func() error {
		_, err := s.Pack(io.Discard)
		return err
	})
	if _, p := pack(t, s); p.Claims != 1 || p.Files != 1 {
		t.Errorf("a backup has %+v", p)
	}
	must(t, errors.Join(s.Remove("pvc-1"), s.Sweep(gonePrefix)))
	if got := lies(t, s); got != aside[0].Name {
		t.Errorf("without its claim there is %s", got)
	}
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// lastDir is when the claim itself was changed, by its archive: removing a file from it is a change.
func lastDir(t *testing.T, archive []byte) (at time.Time) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(archive))
	for h, err := tr.Next(); err == nil; h, err = tr.Next() {
		at = h.ModTime
	}
	return at
}

// TestTornArchives: of one that is not whole nothing is unpacked.
func TestTornArchives(t *testing.T) { // N-13.15
	archive, _ := pack(t, settled(t, func(dir string) { must(t, os.WriteFile(dir+"/row", []byte("1"), 0o600)) }))
	s := NewShelf(filepath.Join(t.TempDir(), "claims"), newPlayed())
	for n := 0; n < len(archive); n += 13 {
		turned := slices.Clone(archive)
		turned[n] ^= 1
		for _, torn := range [][]byte{archive[:n], turned} {
			if _, err := unpack(s, torn); err == nil || !strings.Contains(err.Error(), "torn") {
				t.Fatalf("at %d of %d: %v", n, len(archive), err)
			}
		}
	}
	if _, err := os.Lstat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}

// TestHostileArchives: whatever one says, nothing is made outside, and nothing is left when it is refused.
func TestHostileArchives(t *testing.T) { // N-13.15
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/secret", []byte("s"), 0o600))
	begin := &tar.Header{Typeflag: tar.TypeDir, Name: "pvc-1/", PAXRecords: map[string]string{recordClaim: "1"}}
	end := &tar.Header{Typeflag: tar.TypeDir, Name: "pvc-1/", Mode: 0o700}
	file := func(name string, more ...string) *tar.Header {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4777, PAXRecords: map[string]string{recordAt: "0", recordSize: "5"}}
		for _, key := range more {
			h.PAXRecords[key] = "1"
		}
		return h
	}
	link := func(name, to string, kind byte) *tar.Header {
		return &tar.Header{Typeflag: kind, Name: name, Linkname: to}
	}
	for name, entries := range map[string][]*tar.Header{
		"no claim":                {file("pvc-1/a")},
		"a claim's end only":      {end},
		"the middle":              {begin, file("pvc-1/a")},
		"another claim":           {begin, file("pvc-2/a"), end},
		"up":                      {begin, file("pvc-1/../../a"), end},
		"absolute":                {begin, file(outside + "/a"), end},
		"a name with a way out":   {{Typeflag: tar.TypeDir, Name: "../x/", PAXRecords: begin.PAXRecords}},
		"a name of ours":          {{Typeflag: tar.TypeDir, Name: ".kept-x/", PAXRecords: begin.PAXRecords}},
		"no size":                 {{Typeflag: tar.TypeDir, Name: "pvc-1/", PAXRecords: map[string]string{recordClaim: "-1"}}, end},
		"twice":                   {begin, end, begin, end},
		"through a link":          {begin, link("pvc-1/l", outside, tar.TypeSymlink), file("pvc-1/l/a"), end},
		"onto a link":             {begin, link("pvc-1/l", outside+"/secret", tar.TypeSymlink), file("pvc-1/l", recordMore), end},
		"in the place of a link":  {begin, link("pvc-1/l", outside+"/secret", tar.TypeSymlink), file("pvc-1/l"), end},
		"a directory for a link":  {begin, link("pvc-1/l", outside, tar.TypeSymlink), {Typeflag: tar.TypeDir, Name: "pvc-1/l/", Mode: 0o777}, end},
		"a name from outside":     {begin, link("pvc-1/l", outside+"/secret", tar.TypeLink), end},
		"a name through a link":   {begin, link("pvc-1/d", outside, tar.TypeSymlink), link("pvc-1/l", "pvc-1/d/secret", tar.TypeLink), end},
		"data for a FIFO":         {begin, {Typeflag: tar.TypeFifo, Name: "pvc-1/f"}, file("pvc-1/f", recordMore), end},
		"a device":                {begin, {Typeflag: tar.TypeBlock, Name: "pvc-1/d", Devmajor: 8}, end},
		"data beyond the file":    {begin, {Typeflag: tar.TypeReg, Name: "pvc-1/a", PAXRecords: map[string]string{recordAt: "9", recordSize: "5"}}, end},
		"data that says nothing":  {begin, {Typeflag: tar.TypeReg, Name: "pvc-1/a"}, end},
		"deeper than can be":      {begin, file("pvc-1/" + strings.Repeat("a/", 2*deepest) + "a"), end},
		"what is not there":       {begin, file("pvc-1/a", recordMore), end},
		"a claim that is a file":  {begin, file("pvc-1"), end},
		"a claim within a claim":  {begin, {Typeflag: tar.TypeDir, Name: "pvc-2/", PAXRecords: begin.PAXRecords}, end, end},
		"an attribute that's not": {begin, {Typeflag: tar.TypeDir, Name: "pvc-1/", PAXRecords: map[string]string{xattrPrefix + "no.such": "v"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range entries {
				h.Format = tar.FormatPAX
				must(t, tw.WriteHeader(h))
			}
			must(t, tw.Close())
			s := NewShelf(filepath.Join(t.TempDir(), "claims"), newPlayed())
			if u, err := s.Unpack(&b); err == nil {
				t.Errorf("unpacked %q", u.Names)
			}
			if left, _ := os.ReadDir(s.dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if got := seen(t, outside); len(got) != 2 || !strings.Contains(got[1], fmt.Sprintf("%x", sha256.Sum256([]byte("s")))) {
				t.Errorf("outside:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// TestPackOfWriters: what is written while it is saved is noticed, and what no archive can hold is refused by its path.
func TestPackOfWriters(t *testing.T) { // N-13.15
	s := settled(t, func(dir string) {
		for i := range 200 {
			must(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), make([]byte, 4096), 0o600))
		}
	})
	w := writerFunc(func([]byte) { must(t, os.WriteFile(s.Path("pvc-1/7"), []byte("now"), 0o600)) })
	if _, err := s.Pack(w); err == nil || !strings.Contains(err.Error(), "was changed while it was saved") {
		t.Errorf("a writer: %v", err)
	}
	deep := settled(t, func(dir string) {
		for range deepest + 2 {
			dir += "/d"
			must(t, os.Mkdir(dir, 0o700))
		}
	})
	if _, err := deep.Pack(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "directories deep") {
		t.Errorf("too deep: %.200v", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
