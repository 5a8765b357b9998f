package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

const (
	redoDir    = "redo"
	redoSuffix = ".log"
	// redoChunk is what a file grows by. It is filled with zeros first: overwriting costs the card one block, growing
	// a file costs five.
	redoChunk = 64 << 10
	// redoFull is when a snapshot is due, so that the log need not grow; redoMost is when it gives up.
	redoFull = 1 << 20
	redoMost = 8 << 20
	// redoKeep bounds the files when no snapshot can be made.
	redoKeep = 8
)

// redoLog writes the log of a store. It is the second copy: what it cannot write is on disk all the same, so an error
// stops the log until the next snapshot, and not the store. Its user holds Store.writing.
type redoLog struct {
	dir         string
	store       string
	disk        durable.Disk
	full        chan struct{}            // capacity 1: a snapshot is due
	withBallast func(func() error) error // of the store

	file   *os.File
	number uint64
	end    int64 // of the frames
	size   int64 // of the file
	err    error // why nothing is written; nil while it works
}

func redoName(number uint64) string { return fmt.Sprintf("%020d%s", number, redoSuffix) }

// append adds a transaction that is committed and not yet acknowledged.
func (l *redoLog) append(r record) {
	if l == nil || l.err != nil || len(r.changes) == 0 {
		return
	}
	f := frame(l.number, encodeRecord(r))
	if err := l.withBallast(func() error { return l.write(f) }); err != nil {
		l.fail(err)
		return
	}
	if l.end > redoFull {
		l.ask()
	}
}

func (l *redoLog) write(f []byte) error {
	end := l.end + int64(len(f))
	if end > redoMost {
		return errors.New("no snapshot has been made for too long")
	}
	if end > l.size { // with space for what comes next
		if err := l.grow(end + redoChunk); err != nil {
			return err
		}
	}
	if _, err := l.file.WriteAt(f, l.end); err != nil {
		return err
	}
	l.end = end
	if l.disk.NoSync {
		return nil
	}
	return unix.Fdatasync(int(l.file.Fd()))
}

// grow fills the file with zeros, page by page: what one call writes the kernel may keep as one large page, of which it counts every
// byte as written whenever one is.
func (l *redoLog) grow(to int64) error {
	const page = 4 << 10
	zeros := make([]byte, page)
	for at := l.size; at < to; at += page - at%page {
		if _, err := l.file.WriteAt(zeros[:min(page-at%page, to-at)], at); err != nil {
			return err
		}
		l.size = min(at+page-at%page, to)
	}
	return nil
}

func (l *redoLog) fail(err error) {
	l.err = err
	slog.Warn("the log beside the store cannot be written; until the next snapshot damage to the store may cost the newest writes", "dir",
		l.dir, "err", err)
	l.ask()
}

func (l *redoLog) ask() {
	select {
	case l.full <- struct{}{}:
	default: // asked already
	}
}

// rotate begins a new file, for what comes after a snapshot of the state start.
func (l *redoLog) rotate(start tally) {
	if l == nil {
		return
	}
	if err := l.begin(start); err != nil { // nobody is asked for another snapshot: this one was for it
		l.err = err
		slog.Warn("the log beside the store cannot be begun; until the next snapshot damage to the store may cost the newest writes", "dir",
			l.dir, "err", err)
	}
}

func (l *redoLog) begin(start tally) error {
	number := l.number + 1
	head := frame(number, encodeHead(l.store, start))
	path := filepath.Join(l.dir, redoName(number))
	if err := l.withBallast(func() error { return l.disk.Replace(path, head, 0o600) }); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_ = l.close() // what counts of it was synced when it was written
	l.file, l.number, l.end, l.size, l.err = f, number, int64(len(head)), int64(len(head)), nil
	return nil
}

// at returns the number of the log file that holds the last commit; if logging failed, the next file's number.
func (l *redoLog) at() uint64 {
	switch {
	case l == nil:
		return 0
	case l.err != nil:
		return l.number + 1
	}
	return l.number
}

// resume goes on in a file that was read.
func (l *redoLog) resume(s segment) error {
	f, err := os.OpenFile(filepath.Join(l.dir, redoName(s.number)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.number, l.end, l.size, l.err = f, s.number, s.end, st.Size(), nil
	return nil
}

func (l *redoLog) close() error {
	if l == nil || l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// redoFiles are the numbers of the files there are, in order.
func redoFiles(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		text, ok := strings.CutSuffix(e.Name(), redoSuffix)
		if n, err := strconv.ParseUint(text, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// read gives every file that can be read, in order. One of another store, or without a head, is left out.
func (l *redoLog) read() ([]segment, error) {
	numbers, err := redoFiles(l.dir)
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, n := range numbers {
		l.number = max(l.number, n)
		data, err := os.ReadFile(filepath.Join(l.dir, redoName(n)))
		if err != nil {
			return nil, err
		}
		s, err := decodeSegment(n, data)
		if err != nil || s.store != l.store {
			slog.Warn("a file of the log beside the store is of no use", "file", redoName(n), "err", err)
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// prune removes the files that no snapshot needs; sums are of the tallies that snapshots were made of.
func (l *redoLog) prune(sums []uint64) error {
	numbers, err := redoFiles(l.dir)
	if err != nil || len(numbers) == 0 {
		return err
	}
	newest := map[uint64]uint64{} // file that begins at a state: a later one does as well
	for _, n := range numbers {
		if start, ok := l.startOf(n); ok && slices.Contains(sums, start.sum) {
			newest[start.sum] = n
		}
	}
	oldest := numbers[max(0, len(numbers)-redoKeep)] // that is needed
	if len(newest) > 0 {
		oldest = max(oldest, slices.Min(slices.Collect(maps.Values(newest))))
	}
	for _, n := range numbers {
		if n < oldest {
			if err := os.Remove(filepath.Join(l.dir, redoName(n))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *redoLog) startOf(number uint64) (tally, bool) {
	f, err := os.Open(filepath.Join(l.dir, redoName(number)))
	if err != nil {
		return tally{}, false
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.ReadAt(head, 0) // what is missing does not pass the checksum
	s, err := decodeSegment(number, head[:n])
	return s.start, err == nil
}
