// Package fake is an image store in memory, for simulation. It passes the same suite as the real one: names,
// digests, pins and uses behave alike; a root file system is only a path.
package fake

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"ledge/images"
)

// maxArchive is more than any simulation imports.
const maxArchive = 64 << 20

// Store is an images.Store in memory. The zero value is empty and ready.
type Store struct {
	// Dir is where root file systems pretend to be; empty: /fake/rootfs.
	Dir string
	// Fail, when set, is asked before every operation ("import", "pull", "mount", "unmount", "remove") with the name
	// or key it is about; what it returns is what the operation returns.
	Fail func(op, what string) error
	// Registry is where Pull gets images from; nil: from nowhere.
	Registry images.Registry
	// Short is what the disk lacks: what Collect cannot free of what it should. It is read by Collect without all.
	Short int64

	tally  images.Tally
	mu     sync.Mutex
	images map[string]images.Image // by ID
	docs   map[string][]string     // further digests of an image
	mounts map[string]string       // image ID by key
}

var (
	_ images.Store     = (*Store)(nil)
	_ images.Collector = (*Store)(nil)
	_ images.Meter     = (*Store)(nil)
)

// Add puts an image there without an archive, pinned, under the given names. Its ID is made of its names when it
// has none.
func (s *Store) Add(img images.Image) (images.Image, error) {
	for i, n := range img.Names {
		ref, err := images.ParseReference(n)
		if err != nil {
			return images.Image{}, err
		}
		img.Names[i] = ref.Tagged()
	}
	slices.Sort(img.Names)
	if img.ID == "" {
		img.ID = digest([]byte(strings.Join(img.Names, " ")))
	}
	if img.CreatedAt.IsZero() {
		img.CreatedAt = time.Now().UTC()
	}
	img.Pinned = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(img, nil)
	return clone(s.images[img.ID]), nil
}

// enter adds an image; mu is held.
func (s *Store) enter(img images.Image, docs []string) {
	if s.images == nil {
		s.images, s.docs, s.mounts = map[string]images.Image{}, map[string][]string{}, map[string]string{}
	}
	if old, ok := s.images[img.ID]; ok {
		img.Names, img.Digests = union(img.Names, old.Names), union(img.Digests, old.Digests)
		img.CreatedAt, img.Pinned = old.CreatedAt, img.Pinned || old.Pinned
	}
	s.images[img.ID] = clone(img)
	s.docs[img.ID] = union(s.docs[img.ID], docs)
	for id, other := range s.images {
		if id != img.ID && slices.ContainsFunc(other.Names, func(n string) bool { return slices.Contains(img.Names, n) }) {
			s.images[id] = without(other, img.Names)
		}
	}
}

func without(img images.Image, names []string) images.Image {
	img = clone(img)
	img.Names = slices.DeleteFunc(img.Names, func(n string) bool { return slices.Contains(names, n) })
	if len(img.Names) == 0 {
		img.Pinned = false
	}
	return img
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

func clone(img images.Image) images.Image {
	c := &img.Config
	for _, l := range []*[]string{&img.Names, &img.Digests, &img.Layers, &c.Entrypoint, &c.Cmd, &c.Env, &c.Volumes} {
		*l = slices.Clone(*l)
	}
	c.Labels = maps.Clone(c.Labels)
	return img
}

func (s *Store) fail(op, what string) error {
	if s.Fail == nil {
		return nil
	}
	return s.Fail(op, what)
}

// Get implements images.Store.
func (s *Store) Get(_ context.Context, ref string) (images.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img, err := s.find(ref)
	return s.describe(img), err
}

// describe is a copy with who uses it; mu is held.
func (s *Store) describe(img images.Image) images.Image {
	img = clone(img)
	for key, id := range s.mounts {
		if id == img.ID {
			img.UsedBy = append(img.UsedBy, key)
		}
	}
	slices.Sort(img.UsedBy)
	return img
}

func (s *Store) find(ref string) (images.Image, error) {
	id := ref
	if !strings.Contains(ref, ":") && images.ValidDigest("sha256:"+ref) {
		id = "sha256:" + ref
	}
	if images.ValidDigest(id) {
		for _, img := range s.images {
			if img.ID == id || slices.Contains(s.docs[img.ID], id) {
				return img, nil
			}
		}
		return images.Image{}, fmt.Errorf("%w: %s", images.ErrNotFound, ref)
	}
	r, err := images.ParseReference(ref)
	if err != nil {
		return images.Image{}, err
	}
	for _, img := range s.images {
		if r.Digest != "" && slices.Contains(img.Digests, r.Name()+"@"+r.Digest) || r.Digest == "" && slices.Contains(img.Names, r.Tagged()) {
			return img, nil
		}
	}
	return images.Image{}, fmt.Errorf("%w: %s", images.ErrNotFound, r)
}

// List implements images.Store.
func (s *Store) List(context.Context) ([]images.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []images.Image
	for _, img := range s.images {
		list = append(list, s.describe(img))
	}
	slices.SortFunc(list, func(a, b images.Image) int {
		return cmp.Or(slices.Compare(a.Names, b.Names), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Import implements images.Store for plain, gzip and zstd archives.
func (s *Store) Import(_ context.Context, r io.Reader) ([]images.Image, error) {
	if err := s.fail("import", ""); err != nil {
		return nil, err
	}
	a, err := readArchive(r)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	found, err := images.Resolve(a, images.HostPlatform())
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	for _, f := range found {
		for _, n := range f.Names {
			if strings.HasPrefix(n, "ledge.local/") {
				return nil, fmt.Errorf("import images: %w: %s", images.ErrBuiltIn, n)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []images.Image
	for _, f := range found {
		img, err := a.image(f)
		if err != nil {
			return nil, fmt.Errorf("import images: %w", err)
		}
		s.enter(img, f.Documents)
		list = append(list, clone(s.images[f.ID]))
	}
	return list, nil
}

// Pull implements images.Store.
func (s *Store) Pull(ctx context.Context, req images.PullRequest) (images.Pulled, error) {
	began := time.Now()
	if err := s.fail("pull", req.Ref); err != nil {
		return images.Pulled{}, err
	}
	out, err := s.pull(ctx, req)
	if err != nil {
		s.tally.Failed(out.Bytes, ctx.Err() == nil)
		return out, fmt.Errorf("pull %s: %w", req.Ref, err)
	}
	out.Took = time.Since(began)
	s.tally.Pulled(out)
	return out, nil
}

func (s *Store) pull(ctx context.Context, req images.PullRequest) (out images.Pulled, err error) {
	ref, err := images.ParseReference(req.Ref)
	switch {
	case err != nil:
		return out, err
	case ref.Domain == "ledge.local":
		return out, images.ErrBuiltIn
	case s.Registry == nil:
		return out, images.ErrUnreachable
	}
	if out.Image, err = s.Get(ctx, req.Ref); err == nil && (req.IfMissing || ref.Digest != "") {
		out.Present = true
		return out, nil
	} else if err == nil {
		digest, err := s.Registry.Head(ctx, ref, req.Keys)
		if out.Present = slices.Contains(out.Image.Digests, ref.Name()+"@"+digest); out.Present || err != nil {
			return out, err
		}
	}
	f, docs, err := images.ResolveRemote(ctx, s.Registry, ref, req.Keys, images.HostPlatform(), maxArchive)
	if err != nil {
		return out, err
	}
	a := archive{}
	for d, data := range docs {
		a["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")] = data
	}
	for _, l := range f.Layers {
		b, err := s.Registry.Blob(ctx, images.BlobRequest{Ref: ref, Digest: l.Digest, Keys: req.Keys})
		if err != nil {
			return out, err
		}
		data, err := io.ReadAll(io.LimitReader(b, maxArchive))
		if err = errors.Join(err, b.Close()); err != nil {
			return out, err
		}
		if err := check(l, data); err != nil {
			return out, err
		}
		a[l.File] = data
		out.Bytes += l.Size
	}
	img, err := a.image(f)
	if err != nil {
		return out, err
	}
	img.Pinned = false
	for _, d := range append(slices.Clone(f.Indexes), f.Manifest) {
		img.Digests = union(img.Digests, []string{ref.Name() + "@" + d})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(img, f.Documents)
	out.Image = clone(s.images[f.ID])
	return out, nil
}

// check holds a layer against its digests.
func check(l images.FoundLayer, data []byte) error {
	plain := data
	if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
		if plain, err = io.ReadAll(io.LimitReader(z, maxArchive)); err != nil {
			return fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	if int64(len(data)) != l.Size || digest(data) != l.Digest || digest(plain) != l.DiffID {
		return fmt.Errorf("layer %s: %w", l.Digest, images.ErrDamaged)
	}
	return nil
}

// archive is the files of one, by name.
type archive map[string][]byte

func readArchive(r io.Reader) (archive, error) {
	br := bufio.NewReader(io.LimitReader(r, maxArchive))
	if magic, _ := br.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, err
		}
		br = bufio.NewReader(io.LimitReader(z, maxArchive))
	} else if magic, _ := br.Peek(4); string(magic) == "\x28\xb5\x2f\xfd" {
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		br = bufio.NewReader(io.LimitReader(z, maxArchive))
	}
	a := archive{}
	for tr := tar.NewReader(br); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			return nil, err
		}
		a[strings.TrimPrefix(path.Clean("/"+h.Name), "/")] = data
	}
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}

// Stat implements images.Archive.
func (a archive) Stat(name string) (string, int64, bool) {
	data, ok := a[name]
	return digest(data), int64(len(data)), ok
}

// Read implements images.Archive.
func (a archive) Read(name string) ([]byte, error) {
	data, ok := a[name]
	if !ok {
		return nil, fmt.Errorf("archive has no %s: %w", name, fs.ErrNotExist)
	}
	return data, nil
}

// image adds what only the layers tell: the sizes.
func (a archive) image(f images.Found) (images.Image, error) {
	img := images.Image{ID: f.ID, Names: f.Names, Pinned: true, CreatedAt: time.Now().UTC(), Config: f.Config}
	for _, n := range f.Names {
		for _, d := range append(slices.Clone(f.Indexes), f.Manifest) {
			if d != "" {
				img.Digests = append(img.Digests, n[:strings.LastIndexByte(n, ':')]+"@"+d)
			}
		}
	}
	img.Digests = union(img.Digests, nil)
	for _, l := range f.Layers {
		img.Layers = append(img.Layers, l.DiffID)
		files, err := readArchive(strings.NewReader(string(a[l.File])))
		if err != nil {
			return img, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
		for _, data := range files {
			img.Size += int64(len(data))
		}
	}
	return img, nil
}

// Remove implements images.Store.
func (s *Store) Remove(_ context.Context, ref string) error {
	if err := s.fail("remove", ref); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	img, err := s.find(ref)
	if err != nil {
		return err
	}
	if slices.Contains(img.Names, images.SelfName) {
		return fmt.Errorf("remove %s: %w", ref, images.ErrBuiltIn)
	}
	if r, err := images.ParseReference(ref); err == nil && len(img.Names) > 1 && slices.Contains(img.Names, r.Tagged()) {
		img = without(img, []string{r.Tagged()})
		if !slices.ContainsFunc(img.Names, func(n string) bool { return strings.HasPrefix(n, r.Name()+":") }) {
			img.Digests = slices.DeleteFunc(img.Digests, func(n string) bool { return strings.HasPrefix(n, r.Name()+"@") })
		}
		s.images[img.ID] = img
		return nil
	}
	for _, id := range s.mounts {
		if id == img.ID {
			return fmt.Errorf("remove %s: %w", ref, images.ErrInUse)
		}
	}
	delete(s.images, img.ID)
	delete(s.docs, img.ID)
	return nil
}

// Mount implements images.Store.
func (s *Store) Mount(_ context.Context, imageID, key string) (string, error) {
	if err := s.fail("mount", key); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := images.ValidKey(key); err != nil {
		return "", err
	}
	if id, ok := s.mounts[key]; ok && id != imageID {
		return "", fmt.Errorf("mount image for %s: it has a root file system of another image, %s", key, id)
	}
	if _, ok := s.images[imageID]; !ok {
		return "", fmt.Errorf("mount image for %s: %w: %s", key, images.ErrNotFound, imageID)
	}
	s.mounts[key] = imageID
	return s.path(key), nil
}

// MountFor implements images.UserStore.
func (s *Store) MountFor(ctx context.Context, imageID, key string, _, _ uint32) (string, error) {
	return s.Mount(ctx, imageID, key)
}

// Unmount implements images.Store.
func (s *Store) Unmount(_ context.Context, key string) error {
	if err := s.fail("unmount", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mounts, key)
	return nil
}

// Retain implements images.Store.
func (s *Store) Retain(_ context.Context, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mounts, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return nil
}

// Collect implements images.Collector: everything unused goes, and only when all is asked for, since there is no disk
// here that could be too full.
func (s *Store) Collect(_ context.Context, all bool) (out images.Collected, err error) {
	if err := s.fail("collect", ""); err != nil {
		return out, err
	}
	defer func() { s.tally.Collected(out) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !all {
		out.Short = s.Short
		return out, nil
	}
	for id, img := range s.images {
		if img.Pinned || slices.Contains(slices.Collect(maps.Values(s.mounts)), id) {
			continue
		}
		delete(s.images, id)
		delete(s.docs, id)
		out.Images, out.Bytes = out.Images+1, out.Bytes+img.Size
	}
	return out, nil
}

// Counts implements images.Meter.
func (s *Store) Counts() images.Counts { return s.tally.Counts() }

// Mounts is the image ID of every key that is mounted.
func (s *Store) Mounts() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mounts)
}
