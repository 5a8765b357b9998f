package disk

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// written is an ext4 whose journal has two transactions that are to be replayed.
func written(t *testing.T, args ...string) string {
	t.Helper()
	path := made(t, args...)
	block, commands := filepath.Join(t.TempDir(), "block"), filepath.Join(t.TempDir(), "commands")
	script := "jo -c -v 3\njw -b 3000,3001 " + block + "\njw -b 3002 " + block + "\njc\n"
	for name, text := range map[string]string{block: strings.Repeat("A", 8192), commands: script} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("debugfs", "-w", "-f", commands, path).CombinedOutput(); err != nil {
		t.Fatalf("debugfs (package e2fsprogs): %v: %s", err, out)
	}
	return path
}

// replayed is what e2fsck makes of a copy, and says.
func replayed(t *testing.T, path string) string {
	t.Helper()
	other := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(other, contents(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("e2fsck", "-fy", other).CombinedOutput() // that it changed something is an error to it
	return string(out)
}

// TestMendJournal: the last block of a transaction that was cut in the middle is as it was to be, byte by byte.
func TestMendJournal(t *testing.T) {
	const corrupt = "was corrupt"
	for name, args := range map[string][]string{"as made for cards": {"-b", "4096", "-I", "256", "-m", "1"}, "small blocks": {"-b", "1024"},
		"32 bits": {"-O", "^64bit"}} {
		path := written(t, args...)
		before := contents(t, path)
		if out := replayed(t, path); strings.Contains(out, corrupt) {
			t.Fatalf("%s: %s", name, out)
		}
		commits, err := Commits(bytes.NewReader(before))
		if err != nil || len(commits) != 2 || commits[0].Sequence+1 != commits[1].Sequence || commits[0].Torn || commits[1].Torn {
			t.Fatalf("%s: %+v, %v", name, commits, err)
		}
		last := commits[1]
		for from := int64(commitHead); from < last.Size; from += 512 {
			cut := bytes.Clone(before)
			for i := last.At + from; i < last.At+last.Size; i++ {
				cut[i] = byte(i)
			}
			if err := os.WriteFile(path, cut, 0o600); err != nil {
				t.Fatal(err)
			}
			if out := replayed(t, path); !strings.Contains(out, corrupt) {
				t.Errorf("%s, from %d on: nothing was torn: %s", name, from, out)
			}
			if mended, err := Mend(path); !mended || err != nil || !bytes.Equal(contents(t, path), before) {
				t.Errorf("%s, from %d on: mended %v, %v", name, from, mended, err)
			}
			if mended, err := Mend(path); mended || err != nil {
				t.Errorf("%s: mended again: %v, %v", name, mended, err)
			}
		}
		both := bytes.Clone(before)
		both[last.At+last.Size-1], both[superAt+superSum] = 1, both[superAt+superSum]^1
		if err := os.WriteFile(path, both, 0o600); err != nil {
			t.Fatal(err)
		}
		if mended, err := Mend(path); !mended || err != nil || !bytes.Equal(contents(t, path), before) {
			t.Errorf("%s, superblock and journal: mended %v, %v", name, mended, err)
		}
	}
}

// TestMendJournalRefuses what is no cut: a head that is another, and a journal that is not where it should be.
func TestMendJournalRefuses(t *testing.T) {
	good := contents(t, written(t, "-b", "1024"))
	commits, err := Commits(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	last := commits[len(commits)-1]
	start := int64(binary.LittleEndian.Uint32(good[superAt+superCopy+20:])) << 10
	good[last.At+last.Size-1] = 1 // torn
	if w, err := PlanMend(bytes.NewReader(good)); len(w) != 1 || err != nil {
		t.Fatal(w, err)
	}
	resum := func(b []byte) { // the superblock's
		binary.LittleEndian.PutUint32(b[superAt+superSum:], checksum(^uint32(0), b[superAt:superAt+superSum]))
	}
	for name, c := range map[string]struct {
		edit func(b []byte)
		want string // of the error; empty: nothing is to be done
	}{
		"another sequence":     {func(b []byte) { b[last.At+journalSequence+3] ^= 1 }, ""},
		"another time":         {func(b []byte) { b[last.At+50] ^= 1 }, ""},
		"another sum":          {func(b []byte) { b[last.At+commitSum] ^= 1 }, ""},
		"no commit":            {func(b []byte) { b[last.At+journalKind+3] = 1 }, ""},
		"another journal's":    {func(b []byte) { b[start+journalIdentity] ^= 1 }, "first block is damaged"},
		"no journal there":     {func(b []byte) { b[start] = 0 }, "no journal where"},
		"other blocks":         {func(b []byte) { b[start+journalBlockSize+3] ^= 1 }, "no journal where"},
		"no place":             {func(b []byte) { b[superAt+superCopyKind] = 0; resum(b) }, "not where mke2fs puts it"},
		"no tree":              {func(b []byte) { b[superAt+superCopy] ^= 1; resum(b) }, "not where mke2fs puts it"},
		"a deep tree":          {func(b []byte) { b[superAt+superCopy+6] = 1; resum(b) }, "not where mke2fs puts it"},
		"too many pieces":      {func(b []byte) { b[superAt+superCopy+2] = 5; resum(b) }, "not where mke2fs puts it"},
		"an empty piece":       {func(b []byte) { clear(b[superAt+superCopy+16:][:2]); resum(b) }, "0 blocks from"},
		"a piece far away":     {func(b []byte) { b[superAt+superCopy+18] = 1; resum(b) }, "read the journal: EOF"},
		"a piece that is long": {func(b []byte) { b[superAt+superCopy+17] = 0x7f; resum(b) }, "read the journal: EOF"},
	} {
		b := bytes.Clone(good)
		c.edit(b)
		w, err := PlanMend(bytes.NewReader(b))
		if len(w) > 0 || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want an error with %q", name, w, err, c.want)
		}
	}
}
