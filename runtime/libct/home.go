package libct

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// withHome gives a process a HOME. Without one libcontainer's init looks it up, and opens whatever the container has for an
// /etc/passwd: a FIFO there is opened for ever.
func withHome(c runtime.Container) []string {
	home := ""
	for _, kv := range c.Env {
		if v, ok := strings.CutPrefix(kv, "HOME="); ok {
			home = v // the last one counts
		}
	}
	if home != "" {
		return c.Env
	}
	return append(c.Env[:len(c.Env):len(c.Env)], "HOME="+homeOf(c))
}

// homeOf reads the home directory of the container's user in its /etc/passwd; "/" if nothing usable is there.
func homeOf(c runtime.Container) string {
	root, rest := standsAt(c, "/etc/passwd")
	f, err := openRegular(root, rest)
	if err != nil {
		return "/"
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxPasswd))
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) < 6 || field[2] != strconv.FormatUint(uint64(c.User.UID), 10) {
			continue
		}
		if field[5] == "" || strings.ContainsRune(field[5], 0) {
			return "/"
		}
		return field[5]
	}
	return "/"
}

// maxPasswd bounds how much of an /etc/passwd is read: it may be endless.
const maxPasswd = 1 << 20

// standsAt finds where a path of a container comes from: the directory that is its root or is mounted above the path, and the
// path below that. Of a file that is mounted itself, rest is empty.
func standsAt(c runtime.Container, name string) (root, rest string) {
	root, rest = c.Rootfs, strings.TrimPrefix(name, "/")
	longest := 0
	for _, m := range c.Mounts {
		target := path.Clean(m.Target)
		below, ok := strings.CutPrefix(name, target)
		if !ok || below != "" && below[0] != '/' || len(target) < longest {
			continue
		}
		longest, root, rest = len(target), m.Source, strings.TrimPrefix(below, "/")
		if m.Type == "tmpfs" {
			root = "" // nobody has written there yet
		}
	}
	return root, rest
}

var errNotRegular = errors.New("not a regular file")

// openRegular opens a file below root for reading, whatever links a container has put on the way, if it is a regular one: opening
// anything else may wait for somebody (a FIFO), or do something (a device).
func openRegular(root, name string) (*os.File, error) {
	fd, err := findIn(root, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNotRegular
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// findIn holds on to a file below root without opening it.
func findIn(root, name string) (int, error) {
	if name == "" { // a file that is mounted itself
		return unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}
