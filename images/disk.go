package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// What lies below StoreConfig.Root, all of it on one file system:
//
//	ingest/<random>/        an archive on its way in
//	ingest/<hex>.part       a blob being downloaded, kept until the image is there; .mark: how much of it was synced
//	blobs/sha256/<hex>      configs, manifests, layers as they came
//	layers/<hex>/           fs (what containers see), manifest, row.json; named by chain ID
//	layers/.tmp-*           layers on their way in or out; .old-*: replaced while in use
//	images/<hex>.json       a second copy of each image row
//	containers/<key>/       the writable layer of a container; does not outlive the boot
//	uses.json               in which order images were used, as of the last clean stop
//	clean                   there after a clean stop only
//
// and below StoreConfig.RunDir: rootfs/<key> (mount points), mounts/<key>.json (what is mounted there), boot.
const (
	ingestDir     = "ingest"
	blobsDir      = "blobs/sha256"
	layersDir     = "layers"
	imagesDir     = "images"
	containersDir = "containers"
	cleanFile     = "clean"
	rootfsDir     = "rootfs"
	mountsDir     = "mounts"
	bootFile      = "boot"
	rowFile       = "row.json"
	tmpPrefix     = ".tmp-"
	oldPrefix     = ".old-"
)

// StoreConfig says where a store keeps its things and with what it works.
type StoreConfig struct {
	Root   string // on a disk that overlayfs can stand on
	RunDir string // on a tmpfs
	Index  Index  // keeps the READY rows
	Layers Layers // does the file system work

	// Registry is where Pull gets images from; nil: from nowhere.
	Registry Registry
	// MaxPulls is how many images are pulled at the same time, as serializeImagePulls and maxParallelImagePulls of
	// a kubelet have it; 0: one. MaxLayers is how many layers of each are fetched at the same time; 0: three.
	MaxPulls, MaxLayers int

	Platform  Platform // zero: of this host
	MaxImport int64    // bytes in one archive, or in one layer of a registry; 0: 64 GiB

	KeepBlobs KeepBlobs
	GC        GCPolicy
	// Statfs may change what the file system says of itself; for tests.
	Statfs func(*unix.Statfs_t)

	RetryPause time.Duration // after the first failure of a download, doubling; 0: half a second
	MarkEvery  time.Duration // how often a long download is made safe; 0: 30 s
	Log        *slog.Logger
}

// KeepBlobs says of which images the compressed layers are kept: a damaged layer is unpacked from them again, without
// a network, and an archive of the image can be written. They take about half as much of the card as the image.
type KeepBlobs string

// The choices for KeepBlobs.
const (
	KeepPinned KeepBlobs = ""     // of imported images, which no registry may have
	KeepAll    KeepBlobs = "all"  // of pulled ones too
	KeepNone   KeepBlobs = "none" // of none
)

// Disk is the Store of a real board.
type Disk struct {
	cfg     StoreConfig
	durable durable.Disk
	lock    *os.File
	keys    keyLocks
	parts   keyLocks // by digest: who downloads it
	tally   Tally
	turns   chan struct{} // holds one for each pull that goes on

	write sync.Mutex // held by whoever makes or removes layers, blobs or rows; before mu

	mu       sync.Mutex
	images   map[string]*imageRow // by ID; rows are replaced, never changed
	layers   map[string]*layer    // by chain ID
	mounts   map[string]mount     // by key
	pulls    map[*pull]struct{}   // going on; what they stand on is not removed
	halfway  map[string]halfway   // by chain ID: what pulls made before they failed
	spare    map[string]bool      // sound layers of lost images: a pull soon wants them
	seq      uint64
	uses     map[string]use // by image ID
	useOrder uint64
	opened   time.Time // zero while it is being opened
	failed   error     // a sync went wrong: nothing more is written
	binary   string    // what Self was last asked for
}

// layer is a READY layer.
type layer struct {
	row     layerRow
	suspect bool // power was cut since it was last looked at
	damaged bool // looked at, and not in order
}

var _ Store = (*Disk)(nil)

// Open opens the store below cfg.Root, made if need be, and clears away what a cut or a crash left half-done:
// afterwards every image is whole or absent. After an unclean boot no layer is trusted until it has been looked
// at, which happens before its first Mount or in Verify.
func Open(ctx context.Context, cfg StoreConfig) (*Disk, error) {
	if cfg.Platform == (Platform{}) {
		cfg.Platform = HostPlatform()
	}
	if cfg.MaxImport == 0 {
		cfg.MaxImport = 64 << 30
	}
	cfg.MaxPulls, cfg.MaxLayers = cmp.Or(cfg.MaxPulls, 1), cmp.Or(cfg.MaxLayers, 3)
	cfg.RetryPause, cfg.MarkEvery = cmp.Or(cfg.RetryPause, 500*time.Millisecond), cmp.Or(cfg.MarkEvery, markEvery)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Disk{cfg: cfg, images: map[string]*imageRow{}, layers: map[string]*layer{}, mounts: map[string]mount{},
		uses: map[string]use{}, halfway: map[string]halfway{}, pulls: map[*pull]struct{}{}, turns: make(chan struct{}, cfg.MaxPulls)}
	if err := d.open(ctx); err != nil {
		if d.lock != nil {
			_ = d.lock.Close()
		}
		return nil, fmt.Errorf("open image store %s: %w", cfg.Root, err)
	}
	d.opened = time.Now()
	return d, nil
}

func (d *Disk) open(ctx context.Context) error {
	if d.cfg.Index == nil || d.cfg.Layers == nil {
		return errors.New("ledge bug: no index or no layers")
	}
	for _, dir := range []string{d.cfg.Root, d.cfg.RunDir, d.root(ingestDir), d.root(filepath.Dir(blobsDir)), d.root(blobsDir),
		d.root(layersDir), d.root(imagesDir), d.root(containersDir), d.run(rootfsDir), d.run(mountsDir)} {
		// 0700: layers hold setuid programs that users of the host must not reach (CVE-2021-41103).
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// Mounts are listed by their real path; /var/run is often a link.
	for _, dir := range []*string{&d.cfg.Root, &d.cfg.RunDir} {
		real, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return err
		}
		if *dir, err = filepath.Abs(real); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(d.root("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	d.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another ledge works on it: %w", err)
	}
	return d.recover(ctx)
}

// Close notes that the store was left in order, and lets go of it. Root file systems stay mounted.
func (d *Disk) Close() error {
	d.write.Lock()
	defer d.write.Unlock()
	var err error
	if d.broken() == nil {
		if err = d.saveUses(); err == nil {
			err = d.writeJSON(d.root(cleanFile), "clean")
		}
	}
	if err = errors.Join(err, d.lock.Close()); err != nil {
		return fmt.Errorf("close image store: %w", err)
	}
	return nil
}

func (d *Disk) root(elem ...string) string {
	return filepath.Join(append([]string{d.cfg.Root}, elem...)...)
}
func (d *Disk) run(elem ...string) string {
	return filepath.Join(append([]string{d.cfg.RunDir}, elem...)...)
}
func (d *Disk) blobPath(digest string) string { return d.root(blobsDir, hexOf(digest)) }
func (d *Disk) layerPath(chain string) string { return d.root(layersDir, hexOf(chain)) }
func (d *Disk) copyPath(id string) string     { return d.root(imagesDir, hexOf(id)+".json") }

// broken says why nothing may be written any more.
func (d *Disk) broken() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		return nil
	}
	return fmt.Errorf("storage failed; what was written cannot be trusted until ledge is restarted: %w", d.failed)
}

// note remembers an error that ends all trust in the page cache.
func (d *Disk) note(err error) error {
	if errors.Is(err, durable.ErrSync) {
		d.mu.Lock()
		d.failed = err
		d.mu.Unlock()
	}
	return err
}

// writeJSON replaces a small file durably.
func (d *Disk) writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.durable.Replace(path, data, 0o600)
}

// halfMade says that a name in a directory of the store is of something that was being made.
func halfMade(name string) bool { return strings.HasPrefix(name, tmpPrefix) || durable.Temporary(name) }

// Get implements Store.
func (d *Disk) Get(_ context.Context, ref string) (Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	row, err := d.find(ref)
	if err != nil {
		return Image{}, err
	}
	return d.describe(row, d.layerUsers()), nil
}

// layerUsers is how many images have each layer; mu is held.
func (d *Disk) layerUsers() map[string]int {
	n := map[string]int{}
	for _, row := range d.images {
		seen := map[string]bool{}
		for _, l := range row.Layers {
			if !seen[l.Chain] {
				n[l.Chain]++
			}
			seen[l.Chain] = true
		}
	}
	return n
}

// describe is an image with what is known of it besides its row; mu is held.
func (d *Disk) describe(row *imageRow, users map[string]int) Image {
	img := row.image()
	for _, l := range row.Layers {
		if have := d.layers[l.Chain]; have != nil && users[l.Chain] > 1 {
			img.Shared += have.row.Bytes
		}
		if l.Blob != "" {
			img.Kept = true
		}
	}
	for key, m := range d.mounts {
		if m.Image == row.ID {
			img.UsedBy = append(img.UsedBy, key)
		}
	}
	slices.Sort(img.UsedBy)
	return img
}

// find is Get; mu is held.
func (d *Disk) find(ref string) (*imageRow, error) {
	id := ref
	if isHex(ref, 64) {
		id = "sha256:" + ref
	}
	if row, ok := d.images[id]; ok {
		return row, nil
	}
	if ValidDigest(id) {
		for _, row := range d.images {
			if slices.Contains(row.Documents, id) {
				return row, nil
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrNotFound, ref)
	}
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	for _, row := range d.images {
		// A digest is exact; a tag beside it says nothing more.
		if r.Digest != "" && slices.Contains(row.Digests, r.Name()+"@"+r.Digest) ||
			r.Digest == "" && slices.Contains(row.Names, r.Tagged()) {
			return row, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, r)
}

// List implements Store. The order is that of the first names.
func (d *Disk) List(context.Context) ([]Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, users := make([]Image, 0, len(d.images)), d.layerUsers()
	for _, row := range d.images {
		list = append(list, d.describe(row, users))
	}
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(slices.Compare(list[i].Names, list[j].Names), strings.Compare(list[i].ID, list[j].ID)) < 0
	})
	return list, nil
}

// keyLocks lets one caller at a time work on a key.
type keyLocks struct {
	mu sync.Mutex
	m  map[string]*keyLock
}

type keyLock struct {
	sync.Mutex
	users int
}

func (k *keyLocks) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[string]*keyLock{}
	}
	l := k.m[key]
	if l == nil {
		l = &keyLock{}
		k.m[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.m, key)
		}
	}
}
