package images_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/layers"
)

// workedLayers notes which layers were unpacked, and refuses one that it is told to.
type workedLayers struct {
	*layers.Overlay
	refuse error // from the second layer of an image on

	mu   sync.Mutex
	done []string // DiffIDs
	each chan struct{}
}

func (w *workedLayers) Unpack(ctx context.Context, dir string, a images.LayerArchive) (images.Unpacked, error) {
	w.mu.Lock()
	refuse := w.refuse
	w.mu.Unlock()
	if refuse != nil && len(a.Lower) > 0 {
		return images.Unpacked{}, refuse
	}
	out, err := w.Overlay.Unpack(ctx, dir, a)
	if err == nil {
		w.mu.Lock()
		w.done = append(w.done, out.DiffID)
		w.mu.Unlock()
		select {
		case w.each <- struct{}{}:
		default:
		}
	}
	return out, err
}

// took gives what was unpacked since it was last asked.
func (w *workedLayers) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.done
	w.done = nil
	return out
}

func (w *workedLayers) set(refuse error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = refuse
}

// halfwayBoard has pulled an image in vain: its first layer was unpacked, and then the line broke.
func halfwayBoard(t *testing.T, setup func(*images.StoreConfig)) (*board, *it.Registry, *workedLayers, it.Image) {
	t.Helper()
	im := bigImage("app", 1<<20)
	w := &workedLayers{Overlay: layers.New(layers.Config{}), each: make(chan struct{}, 1)}
	b, r := pullBoard(t, im, func(c *images.StoreConfig) {
		c.Layers = w
		c.Statfs = func(st *unix.Statfs_t) { st.Blocks, st.Bavail = 1<<30, 1<<29 } // room, however full this machine's disk is
		if setup != nil {
			setup(c)
		}
	})
	broken := stop{errors.New("line broken")}
	r.Stream = onBig(im, func(_ int64, rd io.Reader) io.Reader {
		<-w.each
		return io.MultiReader(io.LimitReader(rd, 1<<19), &failing{broken})
	})
	if _, err := b.pull("app"); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	r.Stream = nil
	if got, want := w.took(), []string{it.Digest(im.Layers[0])}; !slices.Equal(got, want) {
		t.Fatalf("unpacked %q", got)
	}
	if n, half := len(b.files("layers/[^.]*")), len(b.files("layers/.tmp-*")); n != 0 || half != 1 {
		t.Fatalf("%d layers, %d halfway", n, half)
	}
	return b, r, w, im
}

// Pain 20: a pull that failed after some layers unpacks only the others when it is tried again.
func TestPullKeepsLayers(t *testing.T) {
	for name, keep := range map[string]images.KeepBlobs{"": images.KeepPinned, "with blobs": images.KeepAll} {
		t.Run(name, func(t *testing.T) {
			b, r, w, im := halfwayBoard(t, func(c *images.StoreConfig) { c.KeepBlobs = keep })
			p, err := b.pull("app")
			if err != nil || p.Present {
				t.Fatalf("%+v, %v", p, err)
			}
			if got, want := w.took(), []string{it.Digest(im.Layers[1])}; !slices.Equal(got, want) {
				t.Errorf("unpacked %q", got)
			}
			if n := r.Served(it.Digest(im.Compress(im.Layers[0]))); n != 1 {
				t.Errorf("the first layer was downloaded %d times", n)
			}
			if kept := len(b.files("blobs/sha256/*")); kept != 2 && keep == images.KeepPinned || kept != 4 && keep == images.KeepAll {
				t.Errorf("%d blobs", kept)
			}
			b.mustRun(im)
			b.tidy()
			b.powerCut()
			b.mustRun(im)
		})
	}
}

// What waits halfway goes with the process, when the card is needed, and at once when it is the card that failed.
func TestPullDropsLayers(t *testing.T) {
	for name, drop := range map[string]func(*testing.T, *board, *workedLayers){
		"restart": func(_ *testing.T, b *board, _ *workedLayers) { b.restart() },
		"power":   func(_ *testing.T, b *board, _ *workedLayers) { b.powerCut() },
		"pressure": func(t *testing.T, b *board, _ *workedLayers) {
			if got, err := b.disk.Collect(t.Context(), false); err != nil || got.Parts != 0 {
				t.Errorf("with room: %+v, %v", got, err)
			}
			if got, err := b.disk.Collect(t.Context(), true); err != nil || got.Parts < int64(len("base")) {
				t.Errorf("under pressure: %+v, %v", got, err)
			}
		},
		"full": func(t *testing.T, b *board, w *workedLayers) {
			w.set(unix.ENOSPC)
			if _, err := b.pull("app"); !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			w.set(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, w, im := halfwayBoard(t, nil)
			drop(t, b, w)
			if list := b.files("layers/*"); len(list) > 0 {
				t.Errorf("left: %q", list)
			}
			if _, err := b.pull("app"); err != nil {
				t.Fatal(err)
			}
			if got := w.took(); len(got) != 2 {
				t.Errorf("unpacked %q", got)
			}
			b.mustRun(im)
			b.tidy()
		})
	}
}

// Two pulls of images that share what waits halfway: one takes it up, the other makes it anew, and both end well.
func TestPullsShareHalfway(t *testing.T) {
	b, r, _, im := halfwayBoard(t, func(c *images.StoreConfig) { c.MaxPulls = 2 })
	other := im
	other.Names, other.Config.Cmd = []string{"other"}, []string{"other"}
	r.Push(other)
	var wg sync.WaitGroup
	for _, name := range []string{"app", "other"} {
		wg.Go(func() {
			if _, err := b.pull(name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.mustRun(im)
	b.mustRun(other)
	if n := len(b.files("layers/[^.]*")); n != 2 {
		t.Errorf("%d layers", n)
	}
	b.tidy()
}
