package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// image is one of the suite's images: what it is called there, its layers (tar files, lowest first) and how it starts.
type image struct {
	name   string
	layers []string
	config map[string]any
}

const (
	registry = "registry.k8s.io/"
	e2e      = registry + "e2e-test-images/"
)

// importImages builds the images where they are missing and gives them to the node.
func (n *node) importImages(ctx context.Context, suite string) error {
	key, err := filesSum("lab/conformance/images.go", "lab/conformance/rootfs.sh")
	if err != nil {
		return err
	}
	archive := filepath.Join(suite, "images-"+key[:16]+".tar")
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("building the suite's images")
		cmd := exec.CommandContext(ctx, "lab/conformance/rootfs.sh", suite)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build the file systems of the images: %w", err)
		}
		if err := buildImages(suite, archive); err != nil {
			return fmt.Errorf("build the images: %w", err)
		}
	}
	_, err = n.ledge(ctx, "images", "import", archive)
	return err
}

func buildImages(suite, archive string) error {
	in := func(name string) string { return filepath.Join(suite, name) }
	layers := map[string]func(*tar.Writer) error{
		"debian.tar": func(w *tar.Writer) error { return withoutDevices(w, in("minbase.tar")) },
		"agnhost.tar": func(w *tar.Writer) error {
			return errors.Join(addFile(w, "agnhost", in("agnhost"), 0o755), addLink(w, "agnhost-2", "agnhost"), addDir(w, "uploads", 0o777),
				addFile(w, "localhost.crt", in("source/porter/localhost.crt"), 0o644),
				addFile(w, "localhost.key", in("source/porter/localhost.key"), 0o644))
		},
		"nnp.tar":     func(w *tar.Writer) error { return addFile(w, "usr/local/bin/nnp", in("nnp"), 0o4755) },
		"pause.tar":   func(w *tar.Writer) error { return addFile(w, "pause", in("pause"), 0o755) },
		"busybox.tar": func(w *tar.Writer) error { return addTree(w, "", in("busybox")) },
		// The tests check the base that the image had when they were written.
		"kitten.tar": func(w *tar.Writer) error {
			return errors.Join(addTree(w, "", in("source/kitten/html")),
				addBytes(w, "etc/os-release", []byte("NAME=\"Alpine Linux\"\nID=alpine\n")))
		},
		"nautilus.tar": func(w *tar.Writer) error { return addTree(w, "", in("source/nautilus/html")) },
	}
	for name, fill := range layers {
		if err := writeTar(in(name), fill); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	agnhost := []string{in("debian.tar"), in("agnhost.tar")}
	start := func(entry []string, cmd ...string) map[string]any {
		return map[string]any{"Entrypoint": entry, "Cmd": cmd,
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	}
	shell, serve := start(nil, "sh"), start([]string{"/agnhost"}, "test-webserver")
	asUser := start(nil, "sh")
	asUser["User"] = "1234"
	return writeTar(archive, func(w *tar.Writer) error {
		return writeArchive(w, []image{
			{e2e + "agnhost:2.66.1", agnhost, start([]string{"/agnhost"}, "pause")},
			{e2e + "agnhost:2.55", agnhost, start([]string{"/agnhost"}, "pause")},
			{e2e + "glibc-dns-testing:2.1.1", agnhost, shell},
			{e2e + "kitten:1.8", append(agnhost, in("kitten.tar")), serve},
			{e2e + "nautilus:1.8", append(agnhost, in("nautilus.tar")), serve},
			{e2e + "nginx:1.27.0-2", agnhost, serve}, // tests of owners and endpoints want something that runs and listens on port 80
			{e2e + "nonewprivs:1.4", append(agnhost, in("nnp.tar")), start(nil, "nnp")},
			{e2e + "busybox:1.37.0-2", []string{in("busybox.tar")}, shell},
			{e2e + "busybox:1.36.1-1", []string{in("busybox.tar")}, shell},
			{e2e + "nonroot:1.5", []string{in("busybox.tar")}, asUser},
			{registry + "pause:3.10.2", []string{in("pause.tar")}, start([]string{"/pause"})},
		})
	})
}

// writeArchive writes an archive as `docker save` does: layers, one configuration for each image, and a manifest.
func writeArchive(w *tar.Writer, images []image) error {
	type entry struct {
		Config           string
		RepoTags, Layers []string
	}
	var manifest []entry
	sums := map[string]string{}
	for _, img := range images {
		e := entry{RepoTags: []string{img.name}}
		var ids []string
		for _, path := range img.layers {
			if sums[path] == "" {
				sum, err := fileSum(path)
				if err != nil {
					return err
				}
				sums[path] = sum
				if err := addFile(w, sum+".tar", path, 0o644); err != nil {
					return err
				}
			}
			e.Layers, ids = append(e.Layers, sums[path]+".tar"), append(ids, "sha256:"+sums[path])
		}
		config, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": img.config,
			"rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
		if err != nil {
			return err
		}
		sum := sha256.Sum256(config)
		e.Config = hex.EncodeToString(sum[:]) + ".json"
		if i := slices.IndexFunc(manifest, func(m entry) bool { return m.Config == e.Config }); i >= 0 {
			manifest[i].RepoTags = append(manifest[i].RepoTags, img.name) // the same image by another name
			continue
		}
		if err := addBytes(w, e.Config, config); err != nil {
			return err
		}
		manifest = append(manifest, e)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	return addBytes(w, "manifest.json", data)
}

// filesSum is one sum of what is in several files.
func filesSum(paths ...string) (string, error) {
	all := ""
	for _, p := range paths {
		sum, err := fileSum(p)
		if err != nil {
			return "", err
		}
		all += sum
	}
	sum := sha256.Sum256([]byte(all))
	return hex.EncodeToString(sum[:]), nil
}

func writeTar(path string, fill func(*tar.Writer) error) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	if err := errors.Join(fill(w), w.Close(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func addBytes(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(data))
	return err
}

func addDir(w *tar.Writer, name string, mode int64) error {
	return w.WriteHeader(&tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeDir})
}

func addLink(w *tar.Writer, name, target string) error {
	return w.WriteHeader(&tar.Header{Name: name, Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink})
}

func addFile(w *tar.Writer, name, path string, mode int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// addTree adds what is below a directory, owned by root.
func addTree(w *tar.Writer, prefix, top string) error {
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(prefix+"/"+rel, "/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := int64(info.Mode().Perm())
		if info.Mode()&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		switch {
		case d.IsDir():
			return addDir(w, name, mode)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return addLink(w, name, target)
		}
		return addFile(w, name, path, mode)
	})
}

// withoutDevices copies an archive but for what is in /dev: a layer has no devices.
func withoutDevices(w *tar.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(head.Name, "./dev/") && head.Name != "./dev/" {
			continue
		}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
