// Package initramfs packs what a kernel unpacks before its first process: the archive, and the kernel's modules for it.
package initramfs

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// Archive is a tree of files. Bytes has it as a cpio in the "newc" form that the kernel unpacks. Nothing of the machine that
// packs gets into it: the order is that of the names, every time is zero, all belongs to root.
type Archive struct {
	entries map[string]entry
}

type entry struct {
	mode         uint32
	major, minor int
	data         []byte
}

const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeChar = 0o020000
	modeLink = 0o120000
)

// add puts an entry where name says, and the directories above it.
func (a *Archive) add(name string, e entry) {
	if a.entries == nil {
		a.entries = map[string]entry{}
	}
	a.entries[name] = e
	if dir := path.Dir(name); dir != "." && a.entries[dir].mode == 0 {
		a.Directory(dir)
	}
}

// Directory adds an empty directory.
func (a *Archive) Directory(name string) { a.add(name, entry{mode: modeDir | 0o755}) }

// Console adds the device that the kernel opens for the first process before anything is mounted.
func (a *Archive) Console(name string) {
	a.add(name, entry{mode: modeChar | 0o600, major: 5, minor: 1})
}

// Link adds a symbolic link.
func (a *Archive) Link(name, to string) { a.add(name, entry{mode: modeLink | 0o777, data: []byte(to)}) }

// Text adds a file.
func (a *Archive) Text(name string, perm uint32, data []byte) {
	a.add(name, entry{mode: modeFile | perm, data: data})
}

// File adds a copy of a file.
func (a *Archive) File(name, from string, perm uint32) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.Text(name, perm, data)
	return nil
}

// Bytes is the archive: of each entry 110 bytes of hexadecimal header, the name, the data, each padded to four bytes.
func (a *Archive) Bytes() []byte {
	names := make([]string, 0, len(a.entries))
	for name := range a.entries {
		names = append(names, name)
	}
	// A directory comes before what is in it: "a/b" sorts behind "a", whatever stands between.
	slices.SortFunc(names, strings.Compare)
	var buf bytes.Buffer
	pad := func() {
		for buf.Len()%4 != 0 {
			buf.WriteByte(0)
		}
	}
	put := func(number int, name string, e entry) {
		fmt.Fprintf(&buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			number, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, e.major, e.minor, len(name)+1, 0)
		buf.WriteString(name)
		buf.WriteByte(0)
		pad()
		buf.Write(e.data)
		pad()
	}
	for i, name := range names {
		put(i+1, name, a.entries[name])
	}
	put(len(names)+1, "TRAILER!!!", entry{})
	return buf.Bytes()
}
