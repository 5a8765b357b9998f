package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ledge/packaging/image/names"
)

// kindToCard is configuration that both flavours begin with: what containers say goes to memory, capped, and not onto the card.
// What ledge.yaml says of it counts more.
const kindToCard, kindToCardText = "etc/ledge/config.d/10-card.conf", "logging: {medium: memory}\n"

// image is one that is being made.
type image struct {
	board
	flavour string
	version version
	ids     ids
	ledge   string // the binary
	base    string // of the names of what is made
	fast    bool
}

func (im *image) make(ctx context.Context) (err error) {
	debs, list, err := im.unpacked(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tree, boot, data := filepath.Join(work, "boot"), filepath.Join(work, "boot.fat"), filepath.Join(work, "data.ext4")
	if err := im.bootTree(ctx, debs, tree); err != nil {
		return err
	}
	if err := im.fat(ctx, tree, boot); err != nil {
		return err
	}
	parts := []part{{file: boot, kind: kindFAT, size: bootSize}}
	if im.flavour == debian {
		root := filepath.Join(work, "root.squashfs")
		more, err := im.debianRoot(ctx, debs, work, root)
		if err != nil {
			return err
		}
		list = packages(list, more)
		st, err := os.Stat(root)
		if err != nil {
			return err
		}
		parts = append(parts, part{file: root, kind: kindLinux, size: st.Size()})
	}
	if err := im.ext4(ctx, data); err != nil {
		return err
	}
	parts = append(parts, part{file: data, kind: kindLinux, size: dataSize})
	size := layOut(parts)
	raw := filepath.Join(work, filepath.Base(im.base)+".img")
	if err := im.assemble(ctx, debs, work, raw, size, parts); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(im.base), 0o755); err != nil {
		return err
	}
	if err := im.writeMap(ctx, raw, size, parts); err != nil {
		return err
	}
	if err := im.writeInventory(list); err != nil {
		return err
	}
	return im.pack(ctx, raw)
}

// fat makes the partition that every laptop can write. All times in it are the commit's, and the files come by name.
func (im *image) fat(ctx context.Context, tree, to string) error {
	if err := truncate(to, bootSize); err != nil {
		return err
	}
	// The identity comes behind --invariant, which has one of its own.
	if err := im.tool(ctx, "mkfs.vfat", "-F", "32", "-s", "4", "-n", "LEDGE", "--invariant", "-i", fmt.Sprintf("%08x", im.ids.fat),
		to); err != nil {
		return err
	}
	when := time.Unix(im.version.epoch, 0)
	return filepath.WalkDir(tree, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == tree {
			return err
		}
		name := "::/" + strings.TrimPrefix(at, tree+"/")
		if e.IsDir() {
			return im.tool(ctx, "mmd", "-i", to, name)
		}
		if err := os.Chtimes(at, when, when); err != nil {
			return err
		}
		return im.tool(ctx, "mcopy", "-m", "-i", to, at, name)
	})
}

// ext4 makes the data partition, empty. It will be as large as the card: it has as many inodes for its size as a large one, and
// room for the descriptors of 512 GiB. After an error it is read-only: what is broken gets no worse. Directories in it can be held to
// a size (project quotas): claims are.
func (im *image) ext4(ctx context.Context, to string) error {
	if err := truncate(to, dataSize); err != nil {
		return err
	}
	return im.tool(ctx, "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-i", "16384", "-I", "256", "-m", "1", "-L", "ledge-data", "-U",
		im.ids.data,
		"-e", "remount-ro", "-J", "size=8", "-O", "metadata_csum,64bit,resize_inode,quota,project",
		"-E", "hash_seed="+im.ids.seed+",quotatype=prjquota,lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0,resize=134217728", to)
}

func truncate(file string, size int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// assemble puts the parts where the table says they are.
func (im *image) assemble(ctx context.Context, debs, work, to string, size int64, parts []part) error {
	var code, core []byte
	if im.bios {
		var err error
		if code, core, err = im.biosGRUB(ctx, debs, work); err != nil {
			return err
		}
	}
	var partitions []partition
	for i, p := range parts {
		end := size
		if i+1 < len(parts) {
			end = parts[i+1].at
		}
		partitions = append(partitions, partition{kind: p.kind, active: i == 0, start: uint32(p.at / sector),
			count: uint32((end - p.at) / sector)})
	}
	first, err := table(code, im.ids.disk, partitions...)
	if err != nil {
		return err
	}
	if err := truncate(to, size); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.WriteAt(append(first, core...), 0); err != nil {
		return err
	}
	for _, p := range parts {
		in, err := os.Open(p.file)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.NewOffsetWriter(out, p.at), in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return out.Sync()
}

// writeMap lists the blocks to write: the used ones of the FAT and of the data, and all that lie between the two.
func (im *image) writeMap(ctx context.Context, raw string, size int64, parts []part) error {
	f, err := os.Open(raw)
	if err != nil {
		return err
	}
	defer f.Close()
	fat, err := fatUsed(io.NewSectionReader(f, gapSize, bootSize))
	if err != nil {
		return err
	}
	data := parts[len(parts)-1]
	dump := exec.CommandContext(ctx, "dumpe2fs", data.file)
	dump.Env = append(os.Environ(), "LC_ALL=C")
	text, err := dump.Output()
	if err != nil {
		return fmt.Errorf("dumpe2fs: %w", err)
	}
	ext4, err := ext4Used(string(text))
	if err != nil {
		return err
	}
	used := []extent{{0, (gapSize + fat - 1) / blockSize}}
	for _, p := range parts[1 : len(parts)-1] {
		used = append(used, extent{p.at / blockSize, (p.at + p.size - 1) / blockSize})
	}
	for _, e := range ext4 {
		used = append(used, extent{data.at/blockSize + e.first, data.at/blockSize + e.last})
	}
	text, err = bmap(f, size, used)
	if err != nil {
		return err
	}
	return os.WriteFile(im.base+".bmap", text, 0o644)
}

// pack compresses the image, in one thread: the bytes would depend on how many there are.
func (im *image) pack(ctx context.Context, raw string) error {
	level := "-6"
	if im.fast {
		level = "-0"
	}
	if err := im.tool(ctx, "xz", "-T1", level, raw); err != nil {
		return err
	}
	to := names.Packed(im.base)
	if err := im.tool(ctx, "mv", "-f", raw+".xz", to); err != nil {
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	return os.WriteFile(names.Checksum(to), fmt.Appendf(nil, "%x  %s\n", sum.Sum(nil), filepath.Base(to)), 0o644)
}
