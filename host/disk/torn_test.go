package disk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// made is a file with an ext4 as mke2fs makes it.
func made(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ext4")
	out, err := exec.Command("mke2fs", append(append([]string{"-q", "-t", "ext4", "-F"}, args...), path, "16M")...).CombinedOutput()
	if err != nil {
		t.Fatalf("mke2fs (package e2fsprogs): %v: %s", err, out)
	}
	return path
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checked asks whom all the world asks.
func checked(t *testing.T, path string) error {
	t.Helper()
	out, err := exec.Command("e2fsck", "-fn", path).CombinedOutput()
	if err != nil {
		t.Logf("e2fsck: %s", out)
	}
	return err
}

// TestMend: whichever sector of a superblock is of before, the file system is whole again, and nothing else is written.
func TestMend(t *testing.T) {
	for name, args := range map[string][]string{
		"as made for cards": {"-b", "4096", "-I", "256", "-m", "1"},
		"small blocks":      {"-b", "1024"},
		"32 bits":           {"-O", "^64bit"},
		"with a seed":       {"-O", "metadata_csum_seed"},
	} {
		path := made(t, args...)
		if args[0] == "-O" && strings.HasSuffix(args[1], "seed") { // else the seed would be the identity's
			if out, err := exec.Command("tune2fs", "-U", "11111111-2222-3333-4444-555555555555", path).CombinedOutput(); err != nil {
				t.Fatalf("tune2fs: %v: %s", err, out)
			}
		}
		before := contents(t, path)
		if mended, err := Mend(path); mended || err != nil {
			t.Errorf("%s: mended when it was whole: %v, %v", name, mended, err)
		}
		if out, err := exec.Command("tune2fs", "-T", "20200101", "-C", "7", path).CombinedOutput(); err != nil {
			t.Fatalf("tune2fs: %v: %s", err, out)
		}
		after := contents(t, path)
		const middle = superAt + 512
		for part, torn := range map[string][]byte{
			"the first is old":  append(bytes.Clone(before[:middle]), after[middle:]...),
			"the second is old": append(bytes.Clone(after[:middle]), before[middle:]...),
		} {
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if checked(t, path) == nil {
				t.Errorf("%s, %s: nothing was torn", name, part)
			}
			if mended, err := Mend(path); !mended || err != nil {
				t.Errorf("%s, %s: mended %v, %v", name, part, mended, err)
			}
			if err := checked(t, path); err != nil {
				t.Errorf("%s, %s: e2fsck: %v", name, part, err)
			}
			now := contents(t, path)
			copy(now[superAt+superSum:superAt+superSize], torn[superAt+superSum:])
			if !bytes.Equal(now, torn) {
				t.Errorf("%s, %s: more than the sum was written", name, part)
			}
			if mended, err := Mend(path); mended || err != nil {
				t.Errorf("%s, %s: mended again: %v, %v", name, part, mended, err)
			}
		}
	}
}

// TestMendRefuses what is wrong in more than a sum, and what is no ext4: a kernel does not mount that, and shall not.
func TestMendRefuses(t *testing.T) {
	good := contents(t, made(t))
	flip := func(at int, bit byte) func([]byte) []byte {
		return func(b []byte) []byte { b[superAt+at] ^= bit; return b }
	}
	for name, c := range map[string]struct {
		edit func([]byte) []byte
		want string
	}{
		"another's identity":  {flip(superIdentity, 1), "another file system's"},
		"a seed":              {flip(superIncompatible+1, seeded>>8), "another file system's"},
		"odd blocks":          {func(b []byte) []byte { b[superAt+superBlockSize] = 60; return b }, "blocks of 2^60 KiB"},
		"larger blocks":       {flip(superBlockSize, 1), "groups of 8192 blocks"},
		"odd descriptions":    {func(b []byte) []byte { b[superAt+superGroupSize] = 7; return b }, "descriptions of 7 bytes"},
		"a description":       {func(b []byte) []byte { b[superAt+superSum] ^= 1; b[2048] ^= 1; return b }, "another file system's"},
		"more inodes":         {flip(superInodes, 8), "inodes in 2 groups"},
		"fewer in a group":    {flip(superInodesEach, 8), "inodes in 2 groups"},
		"odd inodes":          {flip(superInodeSize, 1), "inodes have 257 bytes"},
		"more blocks":         {flip(superBlocks+2, 1), "inodes in 10 groups"},
		"a few more blocks":   {flip(superBlocks, 1), "larger than its partition"},
		"very many blocks":    {flip(superBlocksHigh, 1), "more than 2^32 blocks"},
		"fewer blocks each":   {flip(superBlocksEach+1, 0x10), "groups of 12288 blocks"},
		"no blocks each":      {func(b []byte) []byte { clear(b[superAt+superBlocksEach:][:4]); return b }, "groups of 0 blocks"},
		"another first inode": {flip(superFirstInode, 1), "the first inode 10"},
		"another first block": {flip(superFirstBlock, 2), "the first block is 3"},
		"another journal":     {flip(superJournal, 1), "no journal"},
		"no journal":          {flip(superCompatible, journaled), "no journal"},
		"a feature":           {flip(superIncompatible, 1), "not known here, 0x1"},
		"nothing":             {func(b []byte) []byte { clear(b); return b }, "there is no ext4"},
		"shorter than a head": {func(b []byte) []byte { return b[:1500] }, "read the superblock: EOF"},
		"a half":              {func(b []byte) []byte { b[superAt+superSum] ^= 1; return b[:len(b)/2] }, "larger than its partition"},
	} {
		b := c.edit(bytes.Clone(good))
		w, err := PlanMend(bytes.NewReader(b))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(w) > 0 {
			t.Errorf("%s: %v, %v; want an error with %q", name, w, err, c.want)
		}
	}
	// Without checksums nothing is torn by half of an update.
	plain := contents(t, made(t, "-O", "^metadata_csum"))
	plain[superAt+superSum] ^= 1
	if w, err := PlanMend(bytes.NewReader(plain)); len(w) > 0 || err != nil {
		t.Errorf("without checksums: %v, %v", w, err)
	}
}
