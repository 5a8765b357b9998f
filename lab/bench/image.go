package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
)

// imageName is what every runtime runs: one layer with one static program.
const imageName = "bench.local/pause:1"

func (b *bench) bundle() string  { return filepath.Join(b.dir, "bundle") }
func (b *bench) rootfs() string  { return filepath.Join(b.bundle(), "rootfs") }
func (b *bench) archive() string { return filepath.Join(b.dir, "image.tar") }

// makeImage builds the program and packs it as a bundle's rootfs and as a docker-archive.
func (b *bench) makeImage(ctx context.Context) error {
	for _, d := range []string{"proc", "dev", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(b.rootfs(), d), 0o755); err != nil {
			return err
		}
	}
	program := filepath.Join(b.rootfs(), "pause")
	build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./lab/bench/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := quiet(build); err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	layer, err := pack([]member{{"pause", data, 0o755}})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}}})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": digest(config) + ".json", "RepoTags": []string{imageName},
		"Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	archive, err := pack([]member{{digest(config) + ".json", config, 0o644}, {"layer.tar", layer, 0o644}, {"manifest.json", manifest, 0o644}})
	if err != nil {
		return err
	}
	return os.WriteFile(b.archive(), archive, 0o644)
}

type member struct {
	name string
	data []byte
	mode int64
}

func pack(members []member) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: m.mode, Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(m.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
