package flash

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func disk(t *testing.T, sectors int64) *Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, sectors*sector), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func of(b byte) []byte { return bytes.Repeat([]byte{b}, sector) }

func (d *Disk) sees(t *testing.T, n int64) byte {
	t.Helper()
	p := make([]byte, sector)
	if err := d.read(p, n*sector); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, of(p[0])) {
		t.Fatalf("sector %d is torn", n)
	}
	return p[0]
}

// TestCut: what was flushed or written through is there, what was not may be, and a later write never lasts less than the
// reader saw while the power was on.
func TestCut(t *testing.T) {
	fates := map[byte]int{}
	for seed := range uint64(200) {
		d := disk(t, 4)
		write := func(n int64, b byte, fua bool) {
			if err := d.write(of(b), n*sector, fua); err != nil {
				t.Fatal(err)
			}
		}
		write(0, 'a', false)
		if err := d.flush(); err != nil {
			t.Fatal(err)
		}
		write(1, 'x', false)
		write(1, 'b', true) // overtakes what lay in the cache for the same sector, and nothing else
		write(2, 'c', false)
		write(2, 'd', false)
		if got := []byte{d.sees(t, 0), d.sees(t, 1), d.sees(t, 2), d.sees(t, 3)}; string(got) != "abd\x00" {
			t.Fatalf("before the cut: %q", got)
		}
		loss, err := d.Cut(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		write(3, 'z', true) // too late
		d.On()
		got := []byte{d.sees(t, 0), d.sees(t, 1), d.sees(t, 2), d.sees(t, 3)}
		if string(got[:2]) != "ab" || got[3] != 0 || !strings.ContainsRune("\x00cd", rune(got[2])) {
			t.Fatalf("after the cut: %q", got)
		}
		if loss.Pending != 1 || (loss.Lost == 1) != (got[2] != 'd') {
			t.Fatalf("%q and %+v", got, loss)
		}
		fates[got[2]]++
	}
	if len(fates) != 3 {
		t.Errorf("a sector that was not flushed has only these fates: %v", fates)
	}
}

// TestAwaitFlush: the flush that was waited for does not happen any more, and a smaller one is not taken for it.
func TestAwaitFlush(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		d := disk(t, 3)
		if err := errors.Join(d.write(of('a'), 0, false), d.write(of('a'), sector, true)); err != nil {
			t.Fatal(err)
		}
		flushing := make(chan error, 1)
		go func() {
			var err error
			for n := 0; err == nil && !d.dead(); n++ { // there is always something to wait for
				err = errors.Join(d.flush(), d.write(of('b'), 0, false))
				for i := range n % 3 {
					err = errors.Join(err, d.write(of('b'), int64(i)*sector, false))
				}
			}
			flushing <- err
		}()
		d.AwaitFlush(2, time.Minute)
		if err := <-flushing; err != nil {
			t.Fatal(err)
		}
		loss, err := d.Cut(rand.New(rand.NewPCG(seed, 0)))
		if err != nil || loss.Pending != 2 || loss.Largest < 2 {
			t.Fatalf("%+v %v", loss, err)
		}
		lost += loss.Lost
	}
	if lost == 0 || lost == 40 {
		t.Errorf("lost %d of 40", lost)
	}
}

// TestRewind: a boot that went wrong can be looked at again, from where it began.
func TestRewind(t *testing.T) {
	d := disk(t, 3)
	write := func(n int64, b byte, fua bool) {
		if err := d.write(of(b), n*sector, fua); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 'a', true)
	write(1, 'a', true)
	d.On()
	write(0, 'b', true)
	write(0, 'c', true)
	write(1, 'b', false)
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	write(2, 'b', false)
	if _, err := d.Cut(rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := d.Rewind(); err != nil {
		t.Fatal(err)
	}
	if got := []byte{d.sees(t, 0), d.sees(t, 1), d.sees(t, 2)}; string(got) != "aa\x00" {
		t.Errorf("%q", got)
	}
}

func TestLie(t *testing.T) {
	d := disk(t, 1)
	d.Lie()
	if err := d.write(of('a'), 0, true); err != nil {
		t.Fatal(err)
	}
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Cut(rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	d.On()
	if got := d.sees(t, 0); got != 0 {
		t.Errorf("a lie lasted: %q", got)
	}
}

// TestQEMU speaks with QEMU's own client.
func TestQEMU(t *testing.T) {
	tool, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip("needs qemu-io (Debian package qemu-utils)")
	}
	d := disk(t, 1<<12)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(l) }()
	for _, c := range []string{"write -P 97 0 64k", "flush", "write -f -P 98 64k 512", "read -P 97 0 64k", "read -P 98 64k 512",
		"write -P 99 1M 4k"} {
		// cache=writeback and no flush at the end: -t unsafe would hold back the ones asked for, too.
		out, err := exec.Command(tool, "-f", "raw", "-t", "writeback", "-c", c, "nbd+unix:///?socket="+socket).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte("failed")) {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d.sees(t, 1) != 'a' || d.sees(t, 128) != 'b' || d.sees(t, 2048) != 'c' || d.flushes == 0 {
		t.Errorf("%q %q %q, %d flushes", d.sees(t, 1), d.sees(t, 128), d.sees(t, 2048), d.flushes)
	}
}
