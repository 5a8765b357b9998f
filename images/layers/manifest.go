package layers

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one line of a manifest. Kinds: f file, d directory, l symbolic link, h further name of a file,
// x further name of a link or pipe, p named pipe, w whiteout, o opaque mark of a directory.
type record struct {
	kind     byte
	mode     uint32 // permission bits with setuid, setgid, sticky
	uid, gid uint32
	size     int64 // of content or of the link's target
	crc      uint32
	mtime    int64 // of a directory, seconds; set last, since filling it changes it
	path     string
}

func (r *record) append(b []byte) []byte {
	b = append(b, r.kind, ' ')
	b = strconv.AppendUint(b, uint64(r.mode), 8)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(r.uid), 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(r.gid), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, r.size, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(r.crc), 16)
	b = append(b, ' ')
	b = strconv.AppendInt(b, r.mtime, 10)
	b = append(b, ' ')
	b = strconv.AppendQuote(b, r.path)
	return append(b, '\n')
}

func parseRecord(line string) (record, error) {
	f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 8)
	if len(f) != 8 || len(f[0]) != 1 {
		return record{}, errors.New("bad line in layer manifest")
	}
	r := record{kind: f[0][0]}
	mode, e1 := strconv.ParseUint(f[1], 8, 32)
	uid, e2 := strconv.ParseUint(f[2], 10, 32)
	gid, e3 := strconv.ParseUint(f[3], 10, 32)
	size, e4 := strconv.ParseInt(f[4], 10, 64)
	crc, e5 := strconv.ParseUint(f[5], 16, 32)
	mtime, e6 := strconv.ParseInt(f[6], 10, 64)
	path, e7 := strconv.Unquote(f[7])
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7); err != nil {
		return record{}, fmt.Errorf("bad line in layer manifest: %w", err)
	}
	r.mode, r.uid, r.gid, r.crc = uint32(mode), uint32(uid), uint32(gid), uint32(crc)
	r.size, r.mtime, r.path = size, mtime, path
	return r, nil
}

// readManifest calls fn for every record and gives the digest of the whole.
func readManifest(r io.Reader, fn func(record) error) (digest string, err error) {
	h := sha256.New()
	br := bufio.NewReaderSize(io.TeeReader(r, h), 64<<10)
	for {
		line, err := br.ReadString('\n')
		if err == io.EOF && line == "" {
			return sum(h), nil
		}
		if err != nil {
			return "", fmt.Errorf("layer manifest is cut off: %w", err)
		}
		rec, err := parseRecord(line)
		if err != nil {
			return "", err
		}
		if err := fn(rec); err != nil {
			return "", err
		}
	}
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// maxReplaced bounds the memory for entries that an archive gives more than once.
const maxReplaced = 100_000

// journal collects records while a layer is made. An archive may replace what it wrote before; that is noted
// aside, and finish leaves the stale records out, so that memory does not grow with the layer.
type journal struct {
	f *os.File
	w *bufio.Writer
	n int // records written
	b []byte

	gone  map[string]int // this path and all below it: records before the nth are stale
	again map[string]int // this directory itself: its 'd' records before the nth are stale
}

func newJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{f: f, w: bufio.NewWriterSize(f, 64<<10), gone: map[string]int{}, again: map[string]int{}}, nil
}

func (j *journal) add(r record) error {
	j.n++
	j.b = r.append(j.b[:0])
	_, err := j.w.Write(j.b)
	return err
}

func (j *journal) replace(m map[string]int, path string) error {
	m[path] = j.n
	if len(j.gone)+len(j.again) > maxReplaced {
		return fmt.Errorf("archive gives more than %d entries twice", maxReplaced)
	}
	return nil
}

func (j *journal) stale(i int, r *record) bool {
	if r.kind == 'd' && i < j.again[r.path] {
		return true
	}
	if len(j.gone) == 0 {
		return false
	}
	for p := r.path; ; {
		if i < j.gone[p] {
			return true
		}
		slash := strings.LastIndexByte(p, '/')
		if slash < 0 {
			return false
		}
		p = p[:slash]
	}
}

// finish writes the manifest proper and sets the times of directories, which were disturbed until now.
func (j *journal) finish(path string, t *tree) (digest string, err error) {
	if err := j.w.Flush(); err != nil {
		return "", err
	}
	if _, err := j.f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer out.Close()
	h := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(out, h), 64<<10)
	i := -1
	_, err = readManifest(j.f, func(r record) error {
		i++
		if j.stale(i, &r) {
			return nil
		}
		if r.kind == 'd' {
			if err := t.setTimes(r.path, r.mtime); err != nil {
				return fmt.Errorf("set times of %q: %w", r.path, err)
			}
		}
		j.b = r.append(j.b[:0])
		_, err := w.Write(j.b)
		return err
	})
	if err != nil {
		return "", err
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return sum(h), out.Close()
}

func (j *journal) close() {
	_ = j.f.Close()
	_ = os.Remove(j.f.Name())
}

// setTimes sets the modification time of a directory that does not have it. Looking at it, which is all that most need, may
// go by its path.
func (t *tree) setTimes(dir string, sec int64) error {
	var st unix.Stat_t
	err := unix.Fstatat(t.root, dir, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH)
	if err == nil && kind(&st) == unix.S_IFDIR && int64(st.Mtim.Sec) == sec && st.Mtim.Nsec == 0 {
		return nil
	}
	fd, err := openAt(t.root, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setTimesAt(fd, ".", sec)
}

func setTimesAt(dir int, name string, sec int64) error {
	ts := unix.NsecToTimespec(sec * 1e9)
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
