package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// A container can write to its volume, and so turn any part of a subPath into a symbolic link while it is being
// followed (CVE-2017-1002101, CVE-2021-25741). Nothing here is therefore done by path: the kernel resolves the whole
// subPath below the volume (openat2), and what is mounted is the very file that was opened.

// below is how a subPath is followed: links are fine as long as they lead nowhere else.
const below = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// openBelow opens a path below a directory. The kernel gives up when something is renamed meanwhile: ask again.
func openBelow(dir int, path string, flags uint64, resolve uint64) (fd int, err error) {
	for range 128 {
		fd, err = unix.Openat2(dir, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.ENOSYS):
		return -1, errors.New("subPath needs Linux 5.6 or newer (openat2)")
	case errors.Is(err, unix.EXDEV):
		return -1, errors.New("it leads out of the volume")
	}
	return fd, err
}

// openSubpath opens what a subPath names, and makes directories of the volume's own mode where nothing is.
func openSubpath(volume, sub string) (fd int, err error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return -1, err
	}
	fd, err = openBelow(root, sub, unix.O_PATH, below)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parts := strings.Split(filepath.Clean(sub), "/")
	for i := range parts {
		if err := makePart(root, parts[:i], parts[i], st.Mode&0o7777); err != nil {
			return -1, err
		}
	}
	return openBelow(root, sub, unix.O_PATH, below)
}

// makePart makes one directory of a subPath if it is not there.
func makePart(root int, above []string, name string, mode uint32) error {
	path := filepath.Join(append([]string{"."}, above...)...)
	parent, err := openBelow(root, path, unix.O_PATH|unix.O_DIRECTORY, below)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = unix.Mkdirat(parent, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := openBelow(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, below|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(made)
	return unix.Fchmod(made, mode) // whatever the umask
}

// mountSubpath gives the path of what a subPath names: a mount of the very thing that was opened, at a place that no
// container can reach. A restart of the container looks anew. As with a whole volume, what is mounted or unmounted there stays there,
// unless the container mounts for the board.
func (v *Volumes) mountSubpath(pod *corev1.Pod, container string, n int, m runtime.Mount, sub string) (string, error) {
	fd, err := openSubpath(m.Source, sub)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return "", errors.New("it is a symbolic link")
	}
	at := filepath.Join(v.subpaths, string(pod.UID), container, strconv.Itoa(n))
	if err := unmountBelow(at); err != nil {
		return "", err
	}
	if err := os.RemoveAll(at); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(at, 0o700)
	} else {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), at, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("mount: %w", err)
	}
	if m.Propagation == "rshared" {
		return at, nil
	}
	if err := unix.Mount("", at, "", unix.MS_SLAVE, ""); err != nil {
		return "", fmt.Errorf("let nothing pass from the volume to the board: %w", err)
	}
	return at, nil
}
