// Package measure has what both benchmarks need: a node that is fit for it, and how much memory processes have, counted in the same way for
// every program that is measured.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PSS is the proportional memory of processes in MiB, all of it and the anonymous part: what several of them share is
// shared out among them, so that the sum counts it once.
func PSS(pids ...int) (all, anonymous float64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(text)) {
			var kb float64
			if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kb); n == 1 {
				all += kb / 1024
			}
			if n, _ := fmt.Sscanf(line, "Pss_Anon: %f kB", &kb); n == 1 {
				anonymous += kb / 1024
			}
		}
	}
	return all, anonymous, nil
}

// Family are processes and all that descend from them.
func Family(pids ...int) []int {
	var all []int
	for _, pid := range pids {
		all = append(all, pid)
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is a good one
		for _, list := range lists {
			text, _ := os.ReadFile(list) // a thread that has ended has no children
			for field := range strings.FieldsSeq(string(text)) {
				var child int
				if n, _ := fmt.Sscan(field, &child); n == 1 {
					all = append(all, Family(child)...)
				}
			}
		}
	}
	return all
}

// Peak looks at the families of processes again and again until the context ends, and gives the most that all of them had
// together at one look.
func Peak(ctx context.Context, pids ...int) (mib float64, err error) {
	for {
		var sum float64
		for _, pid := range Family(pids...) {
			all, _, err := PSS(pid)
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH): // ended meanwhile
			case err != nil:
				return 0, err
			}
			sum += all
		}
		mib = max(mib, sum)
		select {
		case <-ctx.Done():
			return mib, nil
		case <-time.After(time.Millisecond):
		}
	}
}

// Forget takes a file out of the page cache, as a boot does: of a file just written the cache holds pieces of up to 2 MB,
// and a process that touches one byte of such a piece is counted with all of it.
func Forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
