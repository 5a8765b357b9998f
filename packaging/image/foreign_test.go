package main

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestHandler: what the kernel is told fits programs and libraries of that processor, and nothing else.
func TestHandler(t *testing.T) {
	field := strings.Split(handler("ledge-aarch64-1", "/usr/bin/qemu-aarch64-static", 183), ":")
	if len(field) != 8 || field[0] != "" || field[1] != "ledge-aarch64-1" || field[2] != "M" || field[3] != "0" ||
		field[6] != "/usr/bin/qemu-aarch64-static" || field[7] != "F" {
		t.Fatalf("%q", field)
	}
	bytes := func(escaped string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(escaped, `\x`, ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	begins, counts := bytes(field[4]), bytes(field[5])
	if len(begins) != len(counts) {
		t.Fatalf("%d bytes, a mask of %d", len(begins), len(counts))
	}
	elf := func(class, abi, kind, machine byte) []byte {
		return []byte{0x7f, 'E', 'L', 'F', class, 1, 1, abi, 0, 0, 0, 0, 0, 0, 0, 0, kind, 0, machine, 0, 1, 0, 0, 0}
	}
	for name, c := range map[string]struct {
		file []byte
		want bool
	}{
		"program":               {elf(2, 0, 2, 183), true},
		"program anywhere":      {elf(2, 0, 3, 183), true},
		"with GNU's extensions": {elf(2, 3, 2, 183), true},
		"object file":           {elf(2, 0, 1, 183), false},
		"memory image":          {elf(2, 0, 4, 183), false},
		"of this machine":       {elf(2, 0, 2, 62), false},
		"of 32 bits":            {elf(1, 0, 2, 40), false},
		"script":                {[]byte("#!/bin/sh\necho here is no program\n"), false},
	} {
		got := true
		for i := range begins {
			got = got && c.file[i]&counts[i] == begins[i]
		}
		if got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
