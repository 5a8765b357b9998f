package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// Disk is the Store of a real board: it joins the parts that follow.
type Disk struct {
	cfg StoreConfig

	// What there is.
	home     *home
	shelf    *shelf
	uses     *uses
	catalog  *catalog
	roots    *roots
	pulls    *pulls
	parts    *parts
	leftover *leftovers
	stock    *stock
	tally    Tally

	// Who changes it.
	mounter   *mounter
	collector *collector
	puller    *puller
	self      *selfMaker
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
	d := newDisk(cfg)
	if err := d.open(ctx); err != nil {
		_ = d.home.close()
		return nil, fmt.Errorf("open image store %s: %w", cfg.Root, err)
	}
	d.uses.begin()
	return d, nil
}

// newDisk joins the parts of a store.
func newDisk(cfg StoreConfig) *Disk {
	d := &Disk{cfg: cfg, home: &home{dir: cfg.Root, runDir: cfg.RunDir, statfs: cfg.Statfs}}
	d.shelf = &shelf{home: d.home, index: cfg.Index, work: cfg.Layers, log: cfg.Log, layers: map[string]*layer{}}
	d.uses = &uses{home: d.home, log: cfg.Log, byID: map[string]use{}}
	d.catalog = &catalog{home: d.home, index: cfg.Index, uses: d.uses, log: cfg.Log, images: map[string]*imageRow{}}
	d.roots = &roots{byKey: map[string]mount{}}
	d.pulls = &pulls{all: map[*pull]struct{}{}}
	d.parts = &parts{home: d.home, work: cfg.Layers, pulls: d.pulls}
	d.stock = &stock{home: d.home, shelf: d.shelf, catalog: d.catalog, roots: d.roots, pulls: d.pulls, log: cfg.Log}
	d.leftover = &leftovers{stock: d.stock, byChain: map[string]halfway{}}

	d.mounter = &mounter{home: d.home, work: cfg.Layers, roots: d.roots, uses: d.uses, shelf: d.shelf, stock: d.stock, heal: d.heal}
	d.collector = &collector{home: d.home, stock: d.stock, uses: d.uses, parts: d.parts, leftover: d.leftover, policy: cfg.GC,
		tally: &d.tally, log: cfg.Log}
	d.puller = &puller{home: d.home, registry: cfg.Registry, platform: cfg.Platform, maxLayer: cfg.MaxImport, maxLayers: cfg.MaxLayers,
		keep: cfg.KeepBlobs, shelf: d.shelf, stock: d.stock, pulls: d.pulls, parts: d.parts, leftover: d.leftover,
		loader: &loader{home: d.home, registry: cfg.Registry, parts: d.parts, retryPause: cfg.RetryPause, markEvery: cfg.MarkEvery},
		room:   d.collector.room, get: d.Get, turns: make(chan struct{}, cfg.MaxPulls)}
	d.self = &selfMaker{home: d.home, shelf: d.shelf, stock: d.stock, platform: cfg.Platform}
	return d
}

func (d *Disk) open(ctx context.Context) error {
	if d.cfg.Index == nil || d.cfg.Layers == nil {
		return errors.New("ledge bug: no index or no layers")
	}
	if err := d.home.open(); err != nil {
		return err
	}
	return d.recover(ctx)
}

// Close notes that the store was left in order, and lets go of it. Root file systems stay mounted.
func (d *Disk) Close() error {
	err := d.stock.alone(func() error {
		var err error
		if d.home.broken() == nil {
			if err = d.uses.save(d.catalog.has); err == nil {
				err = d.home.writeJSON(d.home.root(cleanFile), "clean")
			}
		}
		return errors.Join(err, d.home.close())
	})
	if err != nil {
		return fmt.Errorf("close image store: %w", err)
	}
	return nil
}

// Get implements Store.
func (d *Disk) Get(_ context.Context, ref string) (Image, error) {
	row, err := d.catalog.find(ref)
	if err != nil {
		return Image{}, err
	}
	return d.describe(row, d.catalog.layerUsers()), nil
}

// List implements Store. The order is that of the first names.
func (d *Disk) List(context.Context) ([]Image, error) {
	rows := d.catalog.rows()
	list, users := make([]Image, 0, len(rows)), d.catalog.layerUsers()
	for _, row := range rows {
		list = append(list, d.describe(row, users))
	}
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(slices.Compare(list[i].Names, list[j].Names), strings.Compare(list[i].ID, list[j].ID)) < 0
	})
	return list, nil
}

// describe is an image with what is known of it besides its row. users is how many images have each layer.
func (d *Disk) describe(row *imageRow, users map[string]int) Image {
	img := row.image()
	for _, l := range row.Layers {
		if size, ok := d.shelf.size(l.Chain); ok && users[l.Chain] > 1 {
			img.Shared += size
		}
		if l.Blob != "" {
			img.Kept = true
		}
	}
	img.UsedBy = d.roots.users(row.ID)
	return img
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
