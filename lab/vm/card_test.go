package main

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// TestGrown: a data partition that stayed as it was in the image is told from one that has the whole card.
func TestGrown(t *testing.T) {
	const start, card = 257 << 20, 600<<20 + 3*512
	super := func(magic uint16, blocks uint32) []byte {
		s := make([]byte, 1024)
		binary.LittleEndian.PutUint16(s[56:], magic)
		binary.LittleEndian.PutUint32(s[4:], blocks)
		binary.LittleEndian.PutUint32(s[24:], 2) // of 4 KiB
		return s
	}
	const all = (card - start) / 4096
	for name, c := range map[string]struct {
		super []byte
		end   int64
		want  string
	}{
		"grown":                 {super(0xef53, all), card - 512, ""},
		"a group less":          {super(0xef53, all*95/100), card - 512, ""},
		"as in the image":       {super(0xef53, 16384), start + 64<<20, "the data partition goes"},
		"the partition only":    {super(0xef53, 16384), card - 512, "has 67108864"},
		"more than there is":    {super(0xef53, all), card + 512, "on a card of"},
		"larger than its place": {super(0xef53, all+1), card, "has 3"},
		"something else":        {super(0, all), card, "no ext4"},
	} {
		err := grown(c.super, start, c.end, card)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLastPartition(t *testing.T) {
	first := make([]byte, 512)
	for i, p := range [][2]uint32{{2048, 100}, {4096, 7}} {
		binary.LittleEndian.PutUint32(first[446+16*i+8:], p[0])
		binary.LittleEndian.PutUint32(first[446+16*i+12:], p[1])
	}
	if start, end, err := lastPartition(bytes.NewReader(first)); start != 4096*512 || end != 4103*512 || err != nil {
		t.Errorf("%d to %d, %v", start, end, err)
	}
}
