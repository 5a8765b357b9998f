package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// TestTable: the bytes are those that sfdisk writes for the same partitions.
func TestTable(t *testing.T) {
	code := bytes.Repeat([]byte{0xeb}, 440)
	s, err := table(code, 0xdeadbeef, partition{kind: kindFAT, active: true, start: 2048, count: 524288},
		partition{kind: kindLinux, start: 526336, count: 131072})
	if err != nil || len(s) != sector || !bytes.Equal(s[:440], code) {
		t.Fatalf("%d bytes, %v", len(s), err)
	}
	want := "efbeadde" + "0000" + "80feffff0cfeffff" + "00080000" + "00000800" + "00feffff83feffff" + "00080800" +
		"00000200" + strings.Repeat("00", 32) + "55aa"
	if got := hex.EncodeToString(s[440:]); got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
	if _, err := table(make([]byte, 441), 1); err == nil {
		t.Error("code over the table is taken")
	}
	if _, err := table(nil, 1, make([]partition, 5)...); err == nil {
		t.Error("five partitions are taken")
	}
}

// TestLayout: every partition begins at a mebibyte, so that no block of a card's is half one's and half another's.
func TestLayout(t *testing.T) {
	parts := []part{{size: bootSize}, {size: 3*mebibyte + 1}, {size: dataSize}}
	size := layOut(parts)
	if parts[0].at != gapSize || parts[1].at != gapSize+bootSize || parts[2].at != gapSize+bootSize+4*mebibyte ||
		size != parts[2].at+dataSize {
		t.Errorf("%+v on %d", parts, size)
	}
	for _, p := range parts {
		if p.at%mebibyte != 0 {
			t.Errorf("%+v does not begin at a mebibyte", p)
		}
	}
}

func TestPackageLists(t *testing.T) {
	if got := packages("b 1\n", "a 2\nb 1\n", ""); got != "a 2\nb 1\n" {
		t.Errorf("%q", got)
	}
}

func TestIDs(t *testing.T) {
	a, b := newIDs("rpi", "appliance", "v1"), newIDs("rpi", "appliance", "v1")
	if a != b {
		t.Error("the same image has other identities")
	}
	for _, o := range []ids{newIDs("rpi", "appliance", "v2"), newIDs("rpi", "debian", "v1"), newIDs("generic-arm64", "appliance", "v1")} {
		if o.disk == a.disk || o.fat == a.fat || o.data == a.data || o.seed == a.seed {
			t.Errorf("%+v and %+v", a, o)
		}
	}
	if len(a.data) != 36 || a.data[14] != '8' || !strings.ContainsRune("89ab", rune(a.data[19])) {
		t.Errorf("%s is no UUID of version 8", a.data)
	}
}

func TestBIOSCode(t *testing.T) {
	boot := make([]byte, sector)
	boot[0x66], boot[0x67], boot[510], boot[511] = 0xeb, 0x05, 0x55, 0xaa
	code, err := biosCode(boot)
	if err != nil || len(code) != 440 || binary.LittleEndian.Uint64(code[0x5c:]) != 1 || code[0x66] != 0x90 || code[0x67] != 0x90 {
		t.Errorf("% x, %v", code, err)
	}
	if boot[0x66] != 0xeb {
		t.Error("its argument is changed")
	}
	if _, err := biosCode(boot[:100]); err == nil {
		t.Error("half a sector is taken")
	}
}

func TestCheckCore(t *testing.T) {
	core := func(size int, at uint64, count uint16) []byte {
		c := make([]byte, size)
		if size >= sector {
			binary.LittleEndian.PutUint64(c[sector-12:], at)
			binary.LittleEndian.PutUint16(c[sector-4:], count)
		}
		return c
	}
	for name, c := range map[string]struct {
		core []byte
		good bool
	}{
		"whole sectors":   {core(3*sector, 2, 2), true},
		"a part of one":   {core(2*sector+1, 2, 2), true},
		"too few sectors": {core(4*sector, 2, 2), false},
		"elsewhere":       {core(3*sector, 34, 2), false},
		"none":            {nil, false},
		"too long":        {core(gapSize, 2, 2047), false},
	} {
		if err := checkCore(c.core); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExt4Used(t *testing.T) {
	const head = "Block count:              1000\nFree blocks:              700\nBlock size:               4096\n"
	for dump, want := range map[string][]extent{
		head + "Group 0: (Blocks 0-499)\n  Free blocks: 100-199, 300-499\nGroup 1:\n  Free blocks: 500-998\n": {{0, 99}, {200, 299}, {999, 999}},
		head + "  Free blocks: 0-999\n":    nil,
		head + "  Free blocks: 0, 2-999\n": {{1, 1}},
		head + "  Free blocks: \n":         nil, // an error: it would mean that none is free
		head:                               nil,
		strings.Replace(head, "4096", "1024", 1) + "  Free blocks: 1-2\n": nil,
		head + "  Free blocks: 1-x\n":                                     nil,
	} {
		got, err := ext4Used(dump)
		if !reflect.DeepEqual(got, want) || (err == nil) != (want != nil || strings.HasSuffix(dump, "0-999\n")) {
			t.Errorf("%q: %v, %v", dump, got, err)
		}
	}
}

func TestFATUsed(t *testing.T) {
	fat := make([]byte, (32+2*1+10*4)*sector)
	le := binary.LittleEndian
	le.PutUint16(fat[11:], sector)
	fat[13] = 4 // sectors in a cluster
	le.PutUint16(fat[14:], 32)
	fat[16] = 2
	le.PutUint32(fat[36:], 1)
	copy(fat[82:], "FAT32")
	le.PutUint32(fat[32*sector+8:], 0x0fffffff)  // the root directory
	le.PutUint32(fat[32*sector+20:], 0x0fffffff) // cluster 5, a file; 3 and 4 are free
	if got, err := fatUsed(bytes.NewReader(fat)); err != nil || got != (32+2+4*4)*sector {
		t.Errorf("%d sectors, %v", got/sector, err)
	}
	copy(fat[82:], "FAT16")
	if _, err := fatUsed(bytes.NewReader(fat)); err == nil {
		t.Error("another file system is taken")
	}
}

func TestBmap(t *testing.T) {
	data := make([]byte, 10*blockSize)
	copy(data[2*blockSize:], "x")
	got, err := bmap(bytes.NewReader(data), int64(len(data)), []extent{{9, 9}, {0, 1}, {2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<ImageSize> 40960 <", "<BlocksCount> 10 <", "<MappedBlocksCount> 4 <", "> 0-2 </Range>", "> 9 </Range>"} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, got)
		}
	}
	if _, err := bmap(bytes.NewReader(data[:blockSize]), int64(len(data)), []extent{{9, 9}}); err != nil {
		t.Error("a short file reads as one that ends:", err)
	}
}

func TestFlavours(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "no board",
		"-board toaster":                     "generic-amd64, generic-arm64, rpi",
		"-board rpi -flavour plain":          "no flavour",
		"-board rpi -flavour appliance more": "unexpected",
	} {
		err := run(t.Context(), strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
