package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ledge/packaging/image/names"
)

// anImage has random pieces, holes and an end in the middle of a chunk.
func anImage(t *testing.T, size int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := 0; at < size; at += 3 << 20 {
		random.Read(data[at:min(size, at+1<<20)])
	}
	path = filepath.Join(t.TempDir(), "board.img")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// aCard is a loop device: for the kernel a disk like any other, and not a removable one.
func aCard(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a loop device")
	}
	file := filepath.Join(t.TempDir(), "card")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	device := do(t, "losetup", "-f", "--show", file)
	t.Cleanup(func() { do(t, "losetup", "-d", device) })
	// What the card held before must not shine through.
	old := bytes.Repeat([]byte{0xa5}, 1<<20)
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := int64(0); at < size; at += 1 << 20 {
		if _, err := f.WriteAt(old, at); err != nil {
			t.Fatal(err)
		}
	}
	return device
}

func TestWritesAndReadsBack(t *testing.T) {
	const size, cardSize = 10<<20 + 512*7, 16 << 20
	plain, data := anImage(t, size)
	packed := plain + ".xz"
	do(t, "xz", "-0", "-k", plain)
	b, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if err := os.WriteFile(names.Checksum(packed), []byte(hex.EncodeToString(sum[:])+"  board.img.xz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, said := range map[string]string{plain: "board.sha256 tells nothing about it", packed: "whole, as board.sha256 says"} {
		card := aCard(t, cardSize)
		var out strings.Builder
		if err := run(t.Context(), []string{"-fixed", path, card}, strings.NewReader(filepath.Base(card)+"\n"), &out); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, out.String())
		}
		got, err := os.ReadFile(card)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:size], data) {
			t.Errorf("%s: the card does not hold the image", path)
		}
		if !bytes.Equal(got[cardSize-1<<20:], make([]byte, 1<<20)) {
			t.Errorf("%s: the end of the card, where an old table of partitions may be, is as it was", path)
		}
		for _, want := range []string{said, "writing      100 %", "reading back 100 %", "written and read back"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("not said: %q in\n%s", want, out.String())
			}
		}
	}
}

// TestRefusals: nothing of the card has changed afterwards.
func TestRefusals(t *testing.T) {
	path, _ := anImage(t, 2<<20)
	card := aCard(t, 8<<20)
	name := filepath.Base(card)
	refused := func(want, answer string, args ...string) {
		t.Helper()
		before, err := os.ReadFile(card)
		if err != nil {
			t.Fatal(err)
		}
		err = run(t.Context(), args, strings.NewReader(answer), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
		after, err := os.ReadFile(card)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%v: refused, and written to", args)
		}
	}
	refused("not removable", name+"\n", path, card)
	refused("nothing was written", "yes\n", "-fixed", path, card)
	refused("is not a disk", "", path, filepath.Join(t.TempDir()))
	refused("an image and a device", "", path)

	large, _ := anImage(t, 9<<20)
	refused("the image needs", "", "-fixed", "-yes", large, card)
	odd, _ := anImage(t, 1000)
	refused("not the image of a disk", "", "-fixed", "-yes", odd, card)
	if err := os.WriteFile(path+".sha256", []byte(strings.Repeat("0", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("download it again", "", "-fixed", "-yes", path, card)
	if err := os.WriteFile(path+".sha256", []byte("<html>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("holds no checksum", "", "-fixed", "-yes", path, card)
	if err := os.Remove(path + ".sha256"); err != nil {
		t.Fatal(err)
	}
	half := path + ".half.xz"
	if err := os.WriteFile(half, []byte("\xfd7zXZ\x00 and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("download is not whole", "", "-fixed", "-yes", half, card)

	do(t, "mke2fs", "-q", card)
	dir := filepath.Join(t.TempDir(), "of a user")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	do(t, "mount", "-o", "ro", card, dir)
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	refused("is mounted on "+dir, "", "-fixed", "-yes", path, card)
	if err := run(t.Context(), []string{"-fixed", "-yes", "-unmount", path, card}, nil, io.Discard); err != nil {
		t.Errorf("told to unmount it: %v", err)
	}
}

// TestChecksum: the file that packaging/image writes beside its images is the one that is looked at, and what it says counts.
func TestChecksum(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ledge-rpi-appliance-v1.2.3")
	path := names.Packed(base)
	data := []byte("of an image")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	good, bad := fmt.Sprintf("%x", sha256.Sum256(data)), fmt.Sprintf("%x", sha256.Sum256(nil))
	for _, c := range []struct{ text, want string }{
		{"none", "there is no checksum beside it"},
		{good + "  ledge-rpi-appliance-v1.2.3.img.xz\n", "whole, as ledge-rpi-appliance-v1.2.3.sha256 says"},
		{bad + "  other.img.xz\n" + strings.ToUpper(good) + " *./ledge-rpi-appliance-v1.2.3.img.xz\r\n", "whole, as"},
		{good, "whole, as"},
		{bad + "  other.img.xz\n", "ledge-rpi-appliance-v1.2.3.sha256 tells nothing about it"},
		{bad + "  ledge-rpi-appliance-v1.2.3.img.xz\n", "refused: ledge-rpi-appliance-v1.2.3.sha256 says " + bad},
		{good[:60] + "  ledge-rpi-appliance-v1.2.3.img.xz", "refused: ledge-rpi-appliance-v1.2.3.sha256 holds no checksum"},
		{"", "refused: ledge-rpi-appliance-v1.2.3.sha256 holds no checksum"},
	} {
		if c.text != "none" {
			if err := os.WriteFile(base+".sha256", []byte(c.text), 0o600); err != nil { // the name that the README has
				t.Fatal(err)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		im := &image{path: path, file: f}
		err = im.whole()
		f.Close()
		got := im.said
		if err != nil {
			got = "refused: " + err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	good := disk{path: "/dev/sdx", name: "sdx", size: 8 << 30, removable: true}
	for want, change := range map[string]func(*disk){
		"":                 func(*disk) {},
		"a partition":      func(d *disk) { d.partitionOf = "/dev/sdx" },
		"no card":          func(d *disk) { d.size = 0 },
		"lock":             func(d *disk) { d.readOnly = true },
		"has 1.0 MB":       func(d *disk) { d.size = 1e6 },
		"in use: /dev/md0": func(d *disk) { d.used = []string{"/dev/md0"} },
		"-unmount":         func(d *disk) { d.mounted = []string{"/media/x"} },
		"system that runs": func(d *disk) { d.mounted = []string{"/boot", "/"} },
		"not removable":    func(d *disk) { d.removable = false },
	} {
		d := good
		change(&d)
		err := d.refuse(options{}, 1<<30)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	d := good
	d.mounted = []string{"/"}
	if d.refuse(options{unmount: true, fixed: true}, 1) == nil {
		t.Error("the running system would be overwritten")
	}
}

// badCard holds everything but one byte.
type badCard struct{ *bytes.Reader }

func (c badCard) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.Reader.ReadAt(p, at)
	if at <= 5<<20 && 5<<20 < at+int64(n) {
		p[5<<20-at] ^= 1
	}
	return n, err
}

func TestBadCardIsNoticed(t *testing.T) {
	path, data := anImage(t, 9<<20)
	im, err := openImage(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	card, err := os.Create(filepath.Join(t.TempDir(), "card"))
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	s, err := write(t.Context(), card, im, newBar(io.Discard, "", im.size))
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(t.Context(), bytes.NewReader(data), s, newBar(io.Discard, "", im.size)); err != nil {
		t.Errorf("a good card: %v", err)
	}
	err = compare(t.Context(), badCard{bytes.NewReader(data)}, s, newBar(io.Discard, "", im.size))
	if err == nil || !strings.Contains(err.Error(), "between 4.2 MB and 8.4 MB") {
		t.Errorf("a byte is wrong: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := compare(ctx, bytes.NewReader(data), s, newBar(io.Discard, "", im.size)); err == nil {
		t.Error("stopped, and all is well?")
	}
}

// TestShortImage: an archive that breaks off is no success.
func TestShortImage(t *testing.T) {
	im := &image{size: 8 << 20, data: strings.NewReader("only this"), end: func() error { return nil }}
	card, err := os.Create(filepath.Join(t.TempDir(), "card"))
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	if _, err := write(t.Context(), card, im, newBar(io.Discard, "", im.size)); err == nil {
		t.Error("9 bytes of 8 MiB were enough")
	}
	im = &image{size: 8 << 20, data: strings.NewReader("only this"), end: func() error { return errors.New("corrupt input") }}
	if _, err := write(t.Context(), card, im, newBar(io.Discard, "", im.size)); err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Errorf("%v", err)
	}
}
