package layers

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ledge/images"
	"ledge/internal/testrun"
)

const memoryChild = "LEDGE_TEST_UNPACK_INTO"

// TestMemory unpacks a layer of 256 MB and 20000 files in a process of its own and prints its peak: it must not
// depend on the layer's size.
func TestMemory(t *testing.T) {
	needRoot(t)
	testrun.OnHost(t)
	if dir := os.Getenv(memoryChild); dir != "" {
		unpackLarge(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
	cmd.Env = append(os.Environ(), memoryChild+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, _ := strings.Cut(string(out), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(line, &kb); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	t.Logf("peak memory of unpacking 256 MB, zstd, 20000 files: %d MB", kb>>10)
	if kb > 64<<10 && !raceEnabled {
		t.Errorf("peak %d KB, at most 64 MB are allowed", kb)
	}
}

func unpackLarge(t *testing.T, dir string) {
	pr, pw := io.Pipe()
	go func() {
		z, err := zstd.NewWriter(pw, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(1<<20))
		if err == nil {
			err = writeLarge(z)
			_ = z.Close()
		}
		_ = pw.CloseWithError(err)
	}()
	u, err := New(Config{}).Unpack(context.Background(), dir, images.LayerArchive{Tar: pr})
	if err != nil {
		t.Fatal(err)
	}
	if u.Bytes < 256<<20 || u.Entries != 20064 {
		t.Errorf("%+v", u)
	}
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "VmHWM") {
			fmt.Println(s.Text())
		}
	}
}

func writeLarge(w io.Writer) error {
	tw := tar.NewWriter(w)
	block := make([]byte, 4<<20)
	for i := range block {
		block[i] = byte(i * i >> 7)
	}
	for i := range 20064 {
		body := block[:100]
		if i < 64 {
			body = block
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("dir%d/file%d", i%100, i), Mode: 0o644,
			Size: int64(len(body))}); err != nil {
			return err
		}
		if _, err := tw.Write(body); err != nil {
			return err
		}
	}
	return tw.Close()
}
