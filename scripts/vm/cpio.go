package main

import (
	"bytes"
	"fmt"
	"os"
)

// archive is a cpio in the "newc" form the kernel unpacks: 110 bytes of hexadecimal header, the name, the data, each
// padded to four bytes.
type archive struct {
	buf bytes.Buffer
	ino int
}

const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeChar = 0o020000
)

func (a *archive) entry(name string, mode uint32, major, minor int, data []byte) {
	a.ino++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

func (a *archive) directory(name string) { a.entry(name, modeDir|0o755, 0, 0, nil) }

// console is the device the kernel opens for the first process before anything is mounted.
func (a *archive) console(name string) { a.entry(name, modeChar|0o600, 5, 1, nil) }

func (a *archive) file(name, from string, perm uint32) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.entry(name, modeFile|perm, 0, 0, data)
	return nil
}

func (a *archive) bytes() []byte {
	a.entry("TRAILER!!!", 0, 0, 0, nil)
	return a.buf.Bytes()
}
