package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is in files comes back when it is touched; what a process has changed must never go.
func TestGiveBack(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(strings.Repeat("a", 64*page)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped := func(prot int) []byte {
		m, err := unix.Mmap(int(f.Fd()), 0, 64*page, prot, unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(m) })
		return m
	}
	clean := mapped(unix.PROT_READ)
	// As the loader leaves relocated data: written, then made read-only.
	changed := mapped(unix.PROT_READ | unix.PROT_WRITE)
	changed[3*page] = 'b'
	if err := unix.Mprotect(changed, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	writable := mapped(unix.PROT_READ | unix.PROT_WRITE)

	given, err := giveBack(path)
	if err != nil {
		t.Fatal(err)
	}
	if given < int64(64*page) {
		t.Errorf("%d bytes were given back, want at least those of the clean mapping", given)
	}
	if n, err := GiveBack(); err != nil || n == 0 {
		t.Errorf("of the test's own binary %d bytes were given back: %v", n, err)
	}
	if n := resident(t, clean); n != 0 {
		t.Errorf("%d pages of the clean mapping are still there", n)
	}
	if changed[3*page] != 'b' {
		t.Error("a changed page was thrown away")
	}
	if n := resident(t, writable); n == 0 {
		t.Error("a writable mapping was touched")
	}
	if clean[5*page] != 'a' || changed[5*page] != 'a' {
		t.Error("pages do not come back")
	}
}

// resident counts the pages of m that are in this process's page table.
func resident(t *testing.T, m []byte) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	entries := make([]byte, 8*len(m)/page)
	if _, err := f.ReadAt(entries, int64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))/uintptr(page)*8)); err != nil {
		t.Fatal(err)
	}
	for i := 7; i < len(entries); i += 8 {
		n += int(entries[i] >> 7) // the highest bit says present
	}
	return n
}

func TestDroppable(t *testing.T) {
	for line, want := range map[string]bool{
		"00401000-010a1000 r-xp 00001000 fe:00 9992054   /usr/local/bin/ledge":           true,
		"010a1000-01ca7000 r--p 00ca0000 fe:00 9992054   /usr/local/bin/ledge":           true,
		"010a1000-01ca7000 r--p 00ca0000 fe:00 9992054   /usr/local/bin/ledge (deleted)": true,
		"7f0000000000-7f0000100000 r--s 00000000 fe:00 7 /var/lib/ledge/store/state.db":  true,
		"01cac000-01d43000 rw-p 018ab000 fe:00 9992054   /usr/local/bin/ledge":           false,
		"01d43000-03d98000 rw-p 00000000 00:00 0":                                        false,
		"7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]":                         false,
		"Size: 4 kB":              false,
		"VmFlags: rd ex mr mw me": false,
		"Rss: 1 kB a b c /d":      false,
		"zz-01ca7000 r--p 00ca0000 fe:00 9992054 /usr": false,
	} {
		m, ok := parseMapping(line)
		m.rss = 4096
		if got := ok && m.droppable(); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
		if m.anonymous = 4096; m.droppable() {
			t.Errorf("%q: with a changed page", line)
		}
	}
}
