package layers

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	it "ledge/images/imagestest"
	"ledge/internal/testrun"
)

// hostile is an archive that means harm. It must be refused with a word of why, or come to nothing: contained
// says what the tree must then show.
type hostile struct {
	name      string
	archive   func(outside string) []byte
	lower     func(outside string) []byte
	refused   string
	contained []string
	absent    string // what the listing must not have
}

func entries(list ...it.Entry) func(string) []byte {
	return func(string) []byte { return it.Layer(list...) }
}

// raw makes a header with fields the tar package would not write.
func raw(name string, typ byte, change func(h []byte)) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	h[156] = typ
	copy(h[257:], "ustar\x0000")
	if change != nil {
		change(h)
	}
	for i := 148; i < 156; i++ {
		h[i] = ' '
	}
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

func trailer(b []byte) []byte { return append(b, make([]byte, 1024)...) }

// many repeats entries without end-of-archive marks between them.
func many(n int, f func(i int) it.Entry) func(string) []byte {
	return func(string) []byte {
		list := make([]it.Entry, n)
		for i := range list {
			list[i] = f(i)
		}
		return it.Layer(list...)
	}
}

func node(typ byte, name string, major, minor int64) it.Entry {
	return it.Entry{Header: tar.Header{Typeflag: typ, Name: name, Mode: 0o666, Devmajor: major, Devminor: minor}}
}

// large is n where an int can hold it; elsewhere tar itself gives a negative one.
func large(n int64) int {
	if int64(int(n)) != n {
		return -1
	}
	return int(n)
}

var corpus = []hostile{
	// Leaving the tree.
	{name: "dotdot", archive: entries(it.File("../evil", "x")), refused: `".."`},
	{name: "dotdot inside", archive: entries(it.File("a/../../evil", "x")), refused: `".."`},
	{name: "dotdot at the end", archive: entries(it.Dir("a/..")), refused: `".."`},
	{name: "absolute and dotdot", archive: entries(it.File("/../../evil", "x")), refused: `".."`},
	{name: "absolute is below the root", archive: func(out string) []byte { return it.Layer(it.File(out+"/secret", "x")) },
		contained: []string{`/secret 100644 0:0 n1 "x"`}},
	{name: "symlink then write", archive: func(out string) []byte { return it.Layer(it.Symlink("l", out), it.File("l/secret", "x")) },
		contained: []string{"/secret 100644"}},
	{name: "symlink dotdot then write", archive: entries(it.Symlink("l", "../outside"), it.File("l/secret", "x")),
		contained: []string{"outside/secret 100644"}},
	{name: "symlink chain then write", archive: entries(it.Symlink("a", "b"), it.Symlink("b", "../../outside"), it.File("a/secret", "x")),
		contained: []string{"outside/secret 100644"}},
	{name: "symlink below, write above", lower: func(out string) []byte { return it.Layer(it.Symlink("l", out)) },
		archive: entries(it.File("l/secret", "x")), contained: []string{"/secret 100644"}},
	{name: "symlink is the file", archive: func(out string) []byte { return it.Layer(it.Symlink("f", out+"/secret"), it.File("f", "x")) },
		contained: []string{`f 100644 0:0 n1 "x"`}},
	{name: "symlink is the directory", archive: func(out string) []byte {
		return it.Layer(it.Symlink("d", out), with(it.Dir("d"), func(h *tar.Header) { h.Mode = 0o777 }))
	}, contained: []string{"d 40777"}},
	{name: "symlink with a slash behind (CVE-2026-39822)", archive: func(out string) []byte {
		return it.Layer(it.Symlink("d", out), with(it.Dir("d/"), func(h *tar.Header) { h.Mode = 0o777 }), it.File("d//secret", "x"))
	}, contained: []string{"d/secret 100644"}},
	{name: "root becomes a symlink", archive: entries(it.Symlink(".", "/")), refused: "root"},
	{name: "root becomes a file", archive: entries(it.File(".", "x")), refused: "root"},
	{name: "link loop", archive: entries(it.Symlink("a", "b"), it.Symlink("b", "a"), it.File("a/x", "x")), refused: "too many symbolic links"},
	{name: "link to itself", archive: entries(it.Symlink("a", "a"), it.File("a/x", "x")), refused: "too many symbolic links"},
	{name: "link that grows", archive: entries(it.Symlink("a", "a/a/a/a"), it.File("a/x", "x")), refused: "too many symbolic links"},
	{name: "file as a directory", archive: entries(it.File("a", "1"), it.File("a/b", "2")), refused: "not a directory"},
	{name: "proc magic link", archive: entries(it.Symlink("p", "/proc/self/root"), it.File("p/evil", "x")),
		contained: []string{"proc/self/root/evil 100644"}},

	// Hard links.
	{name: "hard link dotdot", archive: entries(it.Hardlink("h", "../outside/secret")), refused: `".."`},
	{name: "hard link absolute", archive: func(out string) []byte { return it.Layer(it.Hardlink("h", out+"/secret")) },
		refused: "no such file"},
	{name: "hard link through symlink", archive: func(out string) []byte {
		return it.Layer(it.Symlink("l", out),
			it.Hardlink("h", "l/secret"))
	}, refused: "no such file"},
	{name: "hard link through symlink below", lower: func(out string) []byte { return it.Layer(it.Symlink("l", out)) },
		archive: entries(it.Hardlink("h", "l/secret")), refused: "no such file"},
	{name: "chmod through hard link to symlink (CVE-2021-32760)", archive: func(out string) []byte {
		return it.Layer(it.Symlink("s", out+"/secret"), with(it.Hardlink("h", "s"), func(h *tar.Header) { h.Mode = 0o6777; h.Uid = 99 }),
			with(it.File("h", "x"), func(h *tar.Header) { h.Mode = 0o6777 }))
	}, contained: []string{`h 106777 0:0 n1 "x"`}},
	{name: "hard link changes nothing", archive: entries(it.File("f", "1"),
		with(it.Hardlink("h", "f"), func(h *tar.Header) { h.Mode = 0o6777; h.Uid = 99 })),
		contained: []string{`f 100644 0:0 n2 "1"`}},
	{name: "hard link to itself", archive: entries(it.File("f", "1"), it.Hardlink("f", "./f")), refused: "itself"},
	{name: "hard link loop", archive: entries(it.Hardlink("a", "b"), it.Hardlink("b", "a")), refused: "no such file"},
	{name: "hard link to a directory", archive: entries(it.Dir("d"), it.Hardlink("h", "d")), refused: "not a file"},
	{name: "hard link to the root", archive: entries(it.Hardlink("h", "/")), refused: "root"},
	{name: "hard link to a whiteout", archive: entries(it.File(".wh.w", ""), it.Hardlink("h", "w")), refused: "no such file"},
	{name: "hard link to a whiteout's name", archive: entries(it.File(".wh.w", ""), it.Hardlink("h", ".wh.w")), refused: "no such file"},
	{name: "hard link to what it removes", archive: entries(it.File("d/f", "1"), it.Hardlink("d", "d/f")), refused: "no such file"},
	{name: "hard link to a file hidden below", lower: entries(it.File("f", "1")),
		archive: entries(it.File(".wh.f", ""), it.Hardlink("h", "f")), refused: "no such file"},

	// Devices and the language of overlayfs.
	{name: "block device", archive: entries(node(tar.TypeBlock, "sda", 8, 0)), refused: "device nodes"},
	{name: "character device", archive: entries(node(tar.TypeChar, "mem", 1, 1)), refused: "device nodes"},
	{name: "forged whiteout", archive: entries(node(tar.TypeChar, "bin", 0, 0)), refused: "device nodes"},
	{name: "devices below dev", archive: entries(it.Dir("dev"), node(tar.TypeChar, "dev/null", 1, 3),
		node(tar.TypeBlock, "dev/disk/sda", 8, 0),
		node(tar.TypeChar, "dev/zero", 0, 0), it.File("after", "x")), contained: []string{"dev 40755 0:0\n", `after 100644 0:0 n1 "x"`},
		absent: "zero"},
	{name: "device through a link to dev", archive: entries(it.Dir("dev"), it.Symlink("d", "dev"), node(tar.TypeChar, "d/null", 1, 3)),
		contained: []string{"dev 40755 0:0\n"}, absent: "null"},
	{name: "device through dev as a link", archive: entries(it.Symlink("dev", "lib"), node(tar.TypeChar, "dev/null", 1, 3)),
		refused: "device nodes"},
	{name: "device as dev", archive: entries(node(tar.TypeChar, "dev", 1, 3)), refused: "device nodes"},
	{name: "overlay attributes", archive: entries(with(it.Dir("d"),
		xattrs("trusted.overlay.redirect", "/etc", "trusted.overlay.opaque", "y"))),
		contained: []string{"d 40755 0:0\n"}},
	{name: "whiteout of nothing", archive: entries(it.File(".wh.", "")), refused: "whiteout"},
	{name: "whiteout of dot", archive: entries(it.File("d/.wh..", "")), refused: "whiteout"},
	{name: "whiteout of dotdot", archive: entries(it.File("d/.wh...", "")), refused: "whiteout"},
	{name: "whiteout as a directory", archive: entries(it.File(".wh.d/x", "1")), refused: "whiteout"},
	{name: "whiteout that is a directory", archive: entries(it.Dir(".wh.d")), refused: "whiteout"},
	{name: "whiteout that is a link", archive: entries(it.Symlink(".wh.d", "/etc")), refused: "whiteout"},
	{name: "whiteout through symlink", archive: func(out string) []byte { return it.Layer(it.Symlink("l", out), it.File("l/.wh.secret", "")) },
		contained: []string{"/secret 20000"}},
	{name: "opaque through symlink", archive: func(out string) []byte { return it.Layer(it.Symlink("l", out), it.File("l/.wh..wh..opq", "")) },
		contained: []string{"outside 40755 0:0 opaque=y"}},

	// Too much of something. The bounds of the test are small ones.
	{name: "too many entries", archive: many(1001, func(i int) it.Entry { return it.File(fmt.Sprint("f", i), "") }),
		refused: "more than 1000 entries"},
	{name: "entries that only replace", archive: many(1001, func(int) it.Entry { return it.File("f", "") }),
		refused: "more than 1000 entries"},
	{name: "opaque marks again and again (CVE-2026-95838)", archive: many(1000, func(i int) it.Entry {
		if i < 500 {
			return it.File(fmt.Sprint("d/", i), "")
		}
		return it.File("d/.wh..wh..opq", "")
	}), contained: []string{"d 40755 0:0 opaque=y"}},
	{name: "too deep", archive: entries(it.Dir(strings.Repeat("d/", 65))), refused: "deeper"},
	{name: "100000 deep", archive: entries(it.Dir(strings.Repeat("d/", 100000))), refused: "too long"},
	{name: "too deep through links", archive: entries(it.Symlink("a", strings.Repeat("d/", 60)), it.File("a/e/e/e/e/e/f", "x")),
		refused: "too deep"},
	{name: "name of 256 bytes", archive: entries(it.Dir(strings.Repeat("n", 256))), refused: "255"},
	{name: "long link", archive: entries(it.Symlink("l", strings.Repeat("n/", 2100))), refused: "target"},
	{name: "empty link", archive: func(string) []byte { return trailer(raw("l", '2', nil)) }, refused: "target"},
	{name: "large file", archive: entries(it.File("f", strings.Repeat("x", 3<<20))), refused: "more than"},
	{name: "sum of files", archive: many(5, func(i int) it.Entry { return it.File(fmt.Sprint(i), strings.Repeat("x", 1<<20)) }),
		refused: "more than"},
	{name: "gzip bomb", archive: func(string) []byte { return it.Gzip(it.Layer(it.File("f", strings.Repeat("\x00", 1<<20)))) },
		refused: "bomb"},
	{name: "zstd bomb", archive: func(string) []byte { return it.Zstd(it.Layer(it.File("f", strings.Repeat("\x00", 1<<20)))) },
		refused: "bomb"},
	{name: "bomb behind the end", archive: func(string) []byte { return it.Gzip(append(it.Layer(it.File("f", "x")), make([]byte, 1<<20)...)) },
		refused: "bomb"},
	{name: "zstd window of a gigabyte", archive: func(string) []byte {
		return []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00}
	}, refused: "window"},
	{name: "sparse bomb (CVE-2025-58183)", archive: sparseBomb, refused: ""},
	{name: "PAX record of 10 MB", archive: func(string) []byte {
		return trailer(append(append(raw("x", 'x', func(h []byte) { copy(h[124:], "00047000000\x00") }), bytes.Repeat([]byte("9"), 10<<20)...),
			raw("f", '0', nil)...))
	}, refused: "read archive"},
	{name: "too many attributes", archive: entries(with(it.File("f", ""), func(h *tar.Header) {
		h.PAXRecords = map[string]string{}
		for i := range 65 {
			h.PAXRecords[fmt.Sprint("SCHILY.xattr.user.a", i)] = "x"
		}
	})), refused: "attributes"},
	{name: "attribute too large", archive: entries(with(it.File("f", ""), xattrs("user.big", strings.Repeat("x", 70000)))),
		refused: "attributes"},

	// Numbers.
	{name: "negative size", archive: func(string) []byte {
		return trailer(raw("f", '0', func(h []byte) { copy(h[124:136], bytes.Repeat([]byte{0xff}, 12)) }))
	}, refused: "read archive"},
	{name: "negative owner", archive: func(string) []byte {
		return trailer(raw("f", '0', func(h []byte) { copy(h[108:116], bytes.Repeat([]byte{0xff}, 8)) }))
	}, refused: "owner"},
	{name: "owner 2^32-1", archive: entries(with(it.File("f", ""),
		func(h *tar.Header) { h.Uid = large(math.MaxUint32); h.Format = tar.FormatPAX })), refused: "owner"},
	{name: "owner 2^32, which would wrap to root",
		archive: entries(with(it.File("f", ""), func(h *tar.Header) { h.Uid = large(1 << 32); h.Format = tar.FormatPAX })), refused: "owner"},
	{name: "bits above the mode", archive: func(string) []byte {
		return trailer(raw("f", '0', func(h []byte) { copy(h[100:], "7760644\x00") }))
	}, contained: []string{`f 100644 0:0 n1 ""`}},
	{name: "time in the year 200000", archive: entries(with(it.File("f", ""),
		func(h *tar.Header) { h.ModTime = time.Unix(1<<42, 0); h.Format = tar.FormatPAX })),
		contained: []string{"f 100644"}},
	{name: "unknown type", archive: func(string) []byte { return trailer(raw("f", 'Z', nil)) }, refused: "unknown entry type"},
	{name: "bad checksum", archive: func(string) []byte { b := raw("f", '0', nil); b[0] = 'g'; return trailer(b) }, refused: "read archive"},
	{name: "cut off", archive: func(string) []byte { return it.Layer(it.File("f", strings.Repeat("x", 4000)))[:2000] },
		refused: "read archive"},
}

// sparseBomb claims a file of 8 exabytes in an archive of 2 KB.
func sparseBomb(string) []byte {
	h := raw("f", 'S', func(h []byte) {
		copy(h[257:], "ustar  \x00")
		copy(h[386:], "00000000000\x0000000000000\x00")                                      // one empty fragment at 0
		copy(h[483:], []byte{0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // real size
	})
	return trailer(h)
}

func TestHostile(t *testing.T) {
	testrun.OnHost(t)
	needRoot(t)
	if len(corpus) < 60 {
		t.Errorf("the corpus has shrunk to %d", len(corpus))
	}
	for _, c := range corpus {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			outside := filepath.Join(base, "outside")
			if err := os.Mkdir(outside, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o640); err != nil {
				t.Fatal(err)
			}
			// A second one where "../outside" leads from the tree.
			store := filepath.Join(base, "store")
			if err := os.MkdirAll(filepath.Join(store, "top"), 0o700); err != nil {
				t.Fatal(err)
			}
			before := listTree(t, outside)
			o := New(Config{MaxBytes: 2 << 20, MaxEntries: 1000, MaxDepth: 64, MaxRatio: 100, RatioSlack: 64 << 10})
			var lower []string
			if c.lower != nil {
				low, _, err := unpackInto(t, o, store, "low", c.lower(outside))
				if err != nil {
					t.Fatal(err)
				}
				lower = append(lower, low)
			}
			start := time.Now()
			dir, _, err := unpackInto(t, o, filepath.Join(store, "top"), "l", c.archive(outside), lower...)
			if took := time.Since(start); took > testrun.Patience(10*time.Second) {
				t.Errorf("took %v", took)
			}
			if after := listTree(t, outside); after != before {
				t.Errorf("changed outside:\n%s\nwas:\n%s", after, before)
			}
			for _, stray := range []string{base + "/evil", store + "/evil", store + "/top/evil", dir + "/evil", dir + "/outside"} {
				if _, err := os.Lstat(stray); err == nil {
					t.Errorf("%s was made", stray)
				}
			}
			if c.contained == nil {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v, want %q in it\n%s", err, c.refused, listTree(t, dir))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := listTree(t, filepath.Join(dir, "fs"))
			for _, w := range c.contained {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
			if c.absent != "" && strings.Contains(got, c.absent) {
				t.Errorf("%q in\n%s", c.absent, got)
			}
			if strings.Contains(got, "\"secret\"") {
				t.Error("the secret is in the layer")
			}
		})
	}
}

// TestDefaults: the bounds a board runs with.
func TestDefaults(t *testing.T) {
	c := New(Config{}).cfg
	if c.MaxEntries != 500_000 || c.MaxBytes != 32<<30 || c.MaxDepth != 256 || c.MaxRatio != 200 || c.RatioSlack != 256<<20 {
		t.Errorf("%+v", c)
	}
}
