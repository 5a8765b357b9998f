package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	upperDir = "upper"
	workDir  = "work"
	emptyDir = "empty" // below an image without layers
)

// mounting is one overlay to be mounted.
type mounting struct {
	target, upper, work string
	lower               []string // highest first
}

// flavour is a way to mount that some kernels do not know.
type flavour struct {
	// strict turns off what would let attributes in a layer redirect names, and volatile leaves out every sync
	// of the writable layer: it never outlives a boot, and the card is spared (5.10).
	strict, volatile bool
	// classic is mount(2) with everything in one page of options; else fsconfig, one layer at a time (6.7).
	classic bool
}

var flavours = []flavour{
	{strict: true, volatile: true},
	{strict: true, volatile: true, classic: true},
	{volatile: true, classic: true},
	{classic: true},
}

// Mount implements images.Layers.
func (o *Overlay) Mount(target, dir string, lower []string) error {
	m, err := prepare(target, dir, lower)
	if err != nil {
		return fmt.Errorf("mount root file system at %s: %w", target, err)
	}
	for _, f := range flavours {
		if err = m.mount(f); err == nil || !unknownToKernel(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("mount root file system at %s: %w", target, err)
	}
	return nil
}

func unknownToKernel(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// prepare makes the writable layer. "/" of the container is that directory, so it takes owner and mode from the
// highest layer.
func prepare(target, dir string, lower []string) (mounting, error) {
	m := mounting{target: target, upper: filepath.Join(dir, upperDir), work: filepath.Join(dir, workDir)}
	for _, l := range slices.Backward(lower) {
		path := filepath.Join(l, treeDir)
		m.lower = append(m.lower, path)
		fd, err := openPathDir(path)
		if err != nil {
			return m, err
		}
		hidden := isOpaque(fd, "")
		_ = unix.Close(fd)
		if hidden {
			break // the kernel does not look at this mark on a layer's root
		}
	}
	if len(m.lower) == 0 {
		empty := filepath.Join(dir, emptyDir)
		if err := os.Mkdir(empty, 0o755); err != nil {
			return m, err
		}
		m.lower = []string{empty}
	}
	var st unix.Stat_t
	if err := unix.Stat(m.lower[0], &st); err != nil {
		return m, err
	}
	if err := os.Mkdir(m.upper, 0o700); err != nil {
		return m, err
	}
	if err := os.Chown(m.upper, int(st.Uid), int(st.Gid)); err != nil {
		return m, err
	}
	return m, unix.Chmod(m.upper, st.Mode&0o7777)
}

func (m *mounting) mount(f flavour) error {
	// A failed attempt may have left a mark in the work directory that the next would refuse.
	if err := removeAt(unix.AT_FDCWD, m.work); err != nil {
		return err
	}
	if err := os.Mkdir(m.work, 0o700); err != nil {
		return err
	}
	if f.classic {
		return m.classic(f)
	}
	return m.modern(f)
}

var strictOptions = [][2]string{{"index", "off"}, {"metacopy", "off"}, {"redirect_dir", "nofollow"}}

func (m *mounting) modern(f flavour) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fd)
	var short shortener
	defer short.close()
	set := func(key, value string) {
		if err == nil {
			if err = unix.FsconfigSetString(fd, key, value); err != nil {
				err = fmt.Errorf("set %s: %w%s", key, err, complaint(fd))
			}
		}
	}
	set("source", "ledge")
	for _, l := range m.lower {
		set("lowerdir+", short.path(l, 255))
	}
	set("upperdir", short.path(m.upper, 255))
	set("workdir", short.path(m.work, 255))
	if f.strict {
		for _, o := range strictOptions {
			set(o[0], o[1])
		}
	}
	if err == nil && f.volatile {
		err = unix.FsconfigSetFlag(fd, "volatile")
	}
	if err = errors.Join(err, short.err); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("create overlay: %w%s", err, complaint(fd))
	}
	mfd, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOATIME)
	if err != nil {
		return fmt.Errorf("fsmount: %w%s", err, complaint(fd))
	}
	defer unix.Close(mfd)
	if err := unix.MoveMount(mfd, "", unix.AT_FDCWD, m.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move mount: %w", err)
	}
	return nil
}

// complaint is what the kernel has to say about a file system being set up.
func complaint(fd int) string {
	buf := make([]byte, 1024)
	n, err := unix.Read(fd, buf)
	if err != nil || n == 0 {
		return ""
	}
	return " (" + strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "e ")) + ")"
}

// classic fits all options into a page by naming directories through open descriptors, which also spares the
// escaping of commas and colons.
func (m *mounting) classic(f flavour) error {
	var short shortener
	defer short.close()
	lower := make([]string, len(m.lower))
	for i, l := range m.lower {
		lower[i] = short.path(l, 0)
	}
	opts := "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + short.path(m.upper, 0) + ",workdir=" + short.path(m.work, 0)
	if f.strict {
		for _, o := range strictOptions {
			opts += "," + o[0] + "=" + o[1]
		}
	}
	if f.volatile {
		opts += ",volatile"
	}
	if short.err != nil {
		return short.err
	}
	if len(opts) >= os.Getpagesize() {
		return fmt.Errorf("too many layers for this kernel: %d", len(m.lower))
	}
	if err := unix.Mount("ledge", m.target, "overlay", unix.MS_NOATIME, opts); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// shortener names directories in at most max bytes, through /proc where their path is longer.
type shortener struct {
	fds []int
	err error
}

func (s *shortener) path(p string, max int) string {
	if len(p) <= max {
		return p
	}
	fd, err := unix.Open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		s.err = errors.Join(s.err, &fs.PathError{Op: "open", Path: p, Err: err})
		return p
	}
	s.fds = append(s.fds, fd)
	return "/proc/self/fd/" + strconv.Itoa(fd)
}

func (s *shortener) close() {
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// Mounted implements images.Layers.
func (o *Overlay) Mounted(target string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(target, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", target, err)
	}
	if st.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return false, nil
	}
	ok, err := mountinfo.Mounted(target)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", target, err)
	}
	return ok, nil
}

// Unmount implements images.Layers.
func (o *Overlay) Unmount(ctx context.Context, target string) error {
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	deadline := time.Now().Add(o.cfg.UnmountWait)
	for {
		// Nearly always there is exactly one mount. Only for the other cases is the kernel's mount table read: with
		// many pods it is long, and reading it delays everybody who mounts.
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err == nil {
			continue
		} else if errors.Is(err, unix.EINVAL) && isEmpty(target) {
			return nil
		}
		list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(target))
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
		if len(list) == 0 {
			return nil
		}
		top := list[0].Mountpoint
		for _, m := range list[1:] {
			if len(m.Mountpoint) > len(top) {
				top = m.Mountpoint // what is mounted inside goes first
			}
		}
		if err := o.unmount(ctx, top, deadline); err != nil {
			return err
		}
	}
}

// isEmpty: nothing is in a directory, so nothing can be mounted in it.
func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// unmount takes one mount away. A busy one is waited for: another container being started holds a copy of every
// mount for a moment. What stays busy is detached, so that its owner at least can go on.
func (o *Overlay) unmount(ctx context.Context, path string, deadline time.Time) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			break
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("detach %s: %w", path, err)
	}
	o.cfg.Log.Warn("root file system still in use, detached", "path", path)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Probe tries in dir what Mount needs, for a health check before the first image: a file system that can hold
// the layers, and a kernel with overlayfs.
func (o *Overlay) Probe(dir string) (err error) {
	tmp, err := os.MkdirTemp(dir, ".probe-")
	if err != nil {
		return fmt.Errorf("probe overlayfs: %w", err)
	}
	defer func() { err = errors.Join(err, o.Remove(tmp)) }()
	layer, target := filepath.Join(tmp, "layer"), filepath.Join(tmp, "root")
	for _, d := range []string{layer, filepath.Join(layer, treeDir), target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("probe overlayfs: %w", err)
		}
	}
	fd, err := unix.Open(filepath.Join(layer, treeDir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("probe overlayfs: %w", err)
	}
	err = errors.Join(unix.Fsetxattr(fd, "trusted.overlay.probe", []byte("y"), 0), unix.Mknodat(fd, "w", unix.S_IFCHR, 0))
	_, _, openErr := statAt(fd, "w")
	_ = unix.Close(fd)
	if err != nil {
		return fmt.Errorf("probe overlayfs: %s cannot hold image layers: %w", dir, err)
	}
	if openErr != nil {
		return fmt.Errorf("probe openat2, in Linux since 5.6: %w", openErr)
	}
	if err := o.Mount(target, tmp, []string{layer}); err != nil {
		return fmt.Errorf("probe overlayfs: %w", err)
	}
	return o.Unmount(context.Background(), target)
}
