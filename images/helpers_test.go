package images_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	"ledge/images/imagestest"
	"ledge/images/layers"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if fd, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{Flags: unix.O_PATH}); errors.Is(err, unix.ENOSYS) {
		t.Skip("needs openat2, which qemu-user lacks")
	} else if err == nil {
		_ = unix.Close(fd)
	}
}

// dirIndex is an index of one file a row, as durable as the real one.
type dirIndex struct{ dir string }

func (x dirIndex) path(key string) string {
	return filepath.Join(x.dir, hex.EncodeToString([]byte(key)))
}

func (x dirIndex) sync() error {
	d, err := os.Open(x.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (x dirIndex) Put(key string, value []byte) error {
	tmp := filepath.Join(x.dir, "tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(value); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(tmp, x.path(key)); err != nil {
		return err
	}
	return x.sync()
}

func (x dirIndex) Delete(key string) error {
	if err := os.Remove(x.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return x.sync()
}

func (x dirIndex) All() (map[string][]byte, []string, error) {
	list, err := os.ReadDir(x.dir)
	rows := map[string][]byte{}
	for _, e := range list {
		key, herr := hex.DecodeString(e.Name())
		if herr != nil {
			continue
		}
		data, rerr := os.ReadFile(filepath.Join(x.dir, e.Name()))
		if err = errors.Join(err, rerr); err == nil {
			rows[string(key)] = data
		}
	}
	return rows, nil, err
}

// memIndex is an index in memory whose writes can be made to fail.
type memIndex struct {
	mu      sync.Mutex
	rows    map[string][]byte
	damaged []string
	fail    error
}

func (x *memIndex) Put(key string, value []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		return x.fail
	}
	if x.rows == nil {
		x.rows = map[string][]byte{}
	}
	x.rows[key] = bytes.Clone(value)
	return nil
}

func (x *memIndex) Delete(key string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		return x.fail
	}
	delete(x.rows, key)
	return nil
}

func (x *memIndex) All() (map[string][]byte, []string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.rows), x.damaged, nil
}

// board is a store with its directories, which can be closed, cut off and opened again.
type board struct {
	t     testing.TB
	root  string
	run   string
	index images.Index
	log   bytes.Buffer
	disk  *images.Disk
	setup func(*images.StoreConfig) // changes the configuration
}

func newBoard(t testing.TB) *board {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	b := &board{t: t, root: filepath.Join(dir, "images"), run: filepath.Join(dir, "run"), index: &memIndex{}}
	t.Cleanup(func() {
		if b.disk == nil {
			return
		}
		if err := b.disk.Retain(context.Background(), nil); err != nil {
			t.Error(err)
		}
		_ = b.disk.Close()
	})
	b.open()
	return b
}

func (b *board) config() images.StoreConfig {
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	c := images.StoreConfig{Root: b.root, RunDir: b.run, Index: b.index, Layers: layers.New(layers.Config{Log: log}), Log: log,
		RetryPause: time.Millisecond}
	if b.setup != nil {
		b.setup(&c)
	}
	return c
}

func (b *board) open() {
	b.t.Helper()
	d, err := images.Open(context.Background(), b.config())
	if err != nil {
		b.t.Fatal(err)
	}
	b.disk = d
}

// restart is a clean stop and start of the process on a running machine.
func (b *board) restart() {
	b.t.Helper()
	if err := b.disk.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

// powerCut starts again as if the machine had lost power: no clean mark, an empty run directory.
func (b *board) powerCut() {
	b.t.Helper()
	b.stopUnclean()
	b.open()
}

func (b *board) stopUnclean() {
	b.t.Helper()
	if err := b.disk.Retain(context.Background(), nil); err != nil {
		b.t.Fatal(err)
	}
	if err := b.disk.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.disk = nil
	if err := os.Remove(filepath.Join(b.root, "clean")); err != nil {
		b.t.Fatal(err)
	}
	if err := os.RemoveAll(b.run); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) load(archive []byte) []images.Image {
	b.t.Helper()
	list, err := b.disk.Import(context.Background(), bytes.NewReader(archive))
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// files is every path below the store that matches, relative to it.
func (b *board) files(pattern string) []string {
	b.t.Helper()
	list, err := filepath.Glob(filepath.Join(b.root, pattern))
	if err != nil {
		b.t.Fatal(err)
	}
	for i, p := range list {
		list[i] = strings.TrimPrefix(p, b.root+"/")
	}
	return list
}

// tidy checks that nothing half-done lies about.
func (b *board) tidy() {
	b.t.Helper()
	for _, p := range []string{"ingest/*", "layers/.tmp-*", "images/.*.tmp", ".*.tmp", "layers/.old-*"} {
		if list := b.files(p); len(list) > 0 {
			b.t.Errorf("left behind: %v", list)
		}
	}
}

func TestSuite(t *testing.T) {
	needRoot(t)
	imagestest.Run(t, func(t *testing.T, reg images.Registry) images.Store {
		b := newBoard(t)
		t.Cleanup(b.tidy)
		if reg != nil {
			b.setup = func(c *images.StoreConfig) { c.Registry, c.MaxPulls = reg, 4 }
			b.restart()
		}
		return b.disk
	})
}
