package layers

import (
	"archive/tar"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// meta is what an entry carries beside its content.
type meta struct {
	mode     uint32 // permission bits with setuid, setgid, sticky
	uid, gid uint32
	mtime    int64 // seconds
	xattrs   []xattr
}

type xattr struct{ name, value string }

const (
	paxXattr      = "SCHILY.xattr."
	maxXattrs     = 64
	maxXattrBytes = 64 << 10 // of an entry; the kernel takes no more for one
)

func metaOf(st *unix.Stat_t) meta {
	return meta{mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid, mtime: clampTime(int64(st.Mtim.Sec))}
}

// clampTime keeps times inside what every file system and 32-bit kernel interface can hold.
func clampTime(sec int64) int64 { return min(max(sec, 0), math.MaxInt32) }

func headerMeta(hdr *tar.Header) (meta, error) {
	uid, gid := int64(hdr.Uid), int64(hdr.Gid)
	// The last number means "leave it as it is" to chown (CVE-2024-40635 is the same family).
	if uid < 0 || gid < 0 || uid >= math.MaxUint32 || gid >= math.MaxUint32 {
		return meta{}, fmt.Errorf("owner %d:%d is not possible", uid, gid)
	}
	m := meta{mode: uint32(hdr.Mode) & 0o7777, uid: uint32(uid), gid: uint32(gid), mtime: clampTime(hdr.ModTime.Unix())}
	size := 0
	for key, value := range hdr.PAXRecords {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || !allowedXattr(name) {
			continue
		}
		size += len(name) + len(value)
		m.xattrs = append(m.xattrs, xattr{name, value})
	}
	if len(m.xattrs) > maxXattrs || size > maxXattrBytes {
		return meta{}, errors.New("too many extended attributes")
	}
	sort.Slice(m.xattrs, func(i, j int) bool { return m.xattrs[i].name < m.xattrs[j].name })
	return m, nil
}

// allowedXattr: file capabilities and the user's own. Everything else is of the machine that built the image
// (SELinux labels, ACLs) or would speak to overlayfs in our name, and is left out.
func allowedXattr(name string) bool {
	if len(name) > maxName || strings.HasPrefix(name, "user.overlay.") || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	return name == "security.capability" || strings.HasPrefix(name, "user.") && name != "user."
}

// apply sets owner, mode and attributes of an open file or directory: in this order, for chown clears setuid
// bits and capabilities. Most files are made as they shall be, and a look costs less than a change that changes nothing:
// that would be an entry in the file system's journal.
func (m *meta) apply(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	others := st.Uid != m.uid || st.Gid != m.gid
	if others {
		if err := unix.Fchown(fd, int(m.uid), int(m.gid)); err != nil {
			return fmt.Errorf("set owner: %w", err)
		}
	}
	if others || st.Mode&0o7777 != m.mode {
		if err := unix.Fchmod(fd, m.mode); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
	}
	for _, x := range m.xattrs {
		err := unix.Fsetxattr(fd, x.name, []byte(x.value), 0)
		if errors.Is(err, unix.ENOTSUP) && strings.HasPrefix(x.name, "user.") {
			continue
		}
		if err != nil {
			return fmt.Errorf("set attribute %.60q: %w", x.name, err)
		}
	}
	return nil
}

// readXattrs gives the allowed attributes of an open file.
func readXattrs(fd int) ([]xattr, error) {
	buf := make([]byte, maxXattrBytes)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []xattr
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if !allowedXattr(name) {
			continue
		}
		value := make([]byte, maxXattrBytes)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, xattr{name, string(value[:n])})
	}
	return out, nil
}
