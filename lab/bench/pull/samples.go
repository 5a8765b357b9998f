package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"ledge/images/imagestest"
)

// sample is an image to pull.
type sample struct {
	name             string
	build            func() imagestest.Image
	unpacked, packed int64 // bytes of files, and of the archive
}

// samples are a small program, a usual image of several layers, and one of very many files.
func samples() []sample {
	return []sample{
		{name: "small", unpacked: 5_000_000, build: func() imagestest.Image {
			return imagestest.Image{Layers: [][]byte{imagestest.Layer(imagestest.File("bin/program", content(1, 5_000_000)))}}
		}},
		{name: "middle", unpacked: 80_000_000, build: func() imagestest.Image {
			var im imagestest.Image
			for i, size := range []int{40_000_000, 25_000_000, 10_000_000, 5_000_000} {
				var files []imagestest.Entry
				for k := range 100 {
					files = append(files, imagestest.File(fmt.Sprintf("lib%d/%d", i, k), content(uint64(i*100+k), size/100)))
				}
				im.Layers = append(im.Layers, imagestest.Layer(files...))
			}
			return im
		}},
		{name: "manyfiles", unpacked: 30_000_000, build: func() imagestest.Image {
			var files []imagestest.Entry
			for i := range 20_000 {
				files = append(files, imagestest.File(fmt.Sprintf("modules/%d/%d/file.js", i%200, i), content(uint64(i), 1500)))
			}
			return imagestest.Image{Layers: [][]byte{imagestest.Layer(files...)}}
		}},
	}
}

// content compresses to about half, as programs do.
func content(seed uint64, size int) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, size)
	for i := range b {
		if b[i] = 'x'; i%64 < 32 {
			b[i] = byte(rnd.Uint32())
		}
	}
	return string(b)
}

// writeSample writes the archive of a sample. It is a process of its own: a child's peak memory counts what its parent
// had when it was forked, and all that is measured here are children.
func writeSample(name string) error {
	for _, s := range samples() {
		if s.name == name {
			im := s.build()
			im.Names, im.Compress = []string{"x:1"}, imagestest.Gzip
			_, err := os.Stdout.Write(imagestest.OCI(im))
			return err
		}
	}
	return fmt.Errorf("no sample %q", name)
}

// push makes an image, sends it to the registry, and notes its size.
func (b *bench) push(ctx context.Context, s *sample) error {
	file := filepath.Join(b.dir, s.name+".tar")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	write := exec.CommandContext(ctx, os.Args[0], "-make", s.name)
	write.Stdout, write.Stderr = f, os.Stderr
	if err := errors.Join(write.Run(), f.Close()); err != nil {
		return err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	s.packed = fi.Size() // but for two small documents
	return quiet(b.command(ctx, "skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "oci-archive:"+file,
		"docker://"+b.addr+"/"+s.name+":1"))
}
