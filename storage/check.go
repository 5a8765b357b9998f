package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Check reads a whole file: bbolt's structure, the checksum of every value, and the tally over all of them. It
// changes nothing. Some damage cannot be caught here and ends the process: that is why CheckChild exists.
//
// The error is ErrValues when only single values are damaged, ErrSchema when a newer ledge wrote the file,
// ErrDamaged when the file is not to be trusted. Anything else says that the check itself could not be made.
func Check(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a file cut short faults in the mapping
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
		if err != nil {
			err = fmt.Errorf("check %s: %w", path, err)
		}
	}()
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return fmt.Errorf("%w: the file is empty", ErrDamaged)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return openError(err)
	}
	err = db.View(func(tx *bolt.Tx) error { return checkTx(tx, st.Size()) })
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	return err
}

// openError tells damage from not being allowed or able to look.
func openError(err error) error {
	var perr *os.PathError
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return ErrInUse
	case errors.As(err, &perr):
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// checkTx walks before it lets bbolt walk: a fault on this goroutine can be caught, on bbolt's own it cannot.
func checkTx(tx *bolt.Tx, fileSize int64) error {
	if tx.Size() > fileSize {
		return fmt.Errorf("%w: the file has %d bytes of %d", ErrDamaged, fileSize, tx.Size())
	}
	if v, err := metaNumber(tx, schemaKey); err != nil {
		return err
	} else if v > Schema {
		return fmt.Errorf("%w (schema %d, this version knows %d)", ErrSchema, v, Schema)
	}
	want, err := readTally(tx)
	if err != nil {
		return err
	}
	var have tally
	var bad []string
	err = eachValue(tx, func(bucket, key, raw []byte) error {
		have.add(bucket, key, raw)
		if _, err := unseal(bucket, key, raw); err != nil {
			bad = append(bad, fmt.Sprintf("%s %s", bucket, key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if have != want {
		return fmt.Errorf("%w: %d values where %d were written, or older ones", ErrDamaged, have.count, want.count)
	}
	// Before bbolt's own check, which would put everything that a page claims into a map: gigabytes for one flipped bit.
	pages := int(tx.Size()) / tx.DB().Info().PageSize
	used := usedPages(tx)
	if used < 0 || used > pages {
		return fmt.Errorf("%w: %d pages are in use in a file of %d", ErrDamaged, used, pages)
	}
	for err := range tx.Check() {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	// And after it: it has found no page that two claim, and does not look behind the end, where the next write would go.
	if known, err := knownPages(tx, pages); err != nil {
		return err
	} else if used > known {
		return fmt.Errorf("%w: a page claims what lies behind the last one", ErrDamaged)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w (%d): %q", ErrValues, len(bad), bad[:min(len(bad), 5)])
	}
	return nil
}

// usedPages counts the pages that trees stand on, by what the first page of each run says of how many follow.
func usedPages(tx *bolt.Tx) int {
	st := tx.Cursor().Bucket().Stats() // the root's, and with it those of all others
	return st.BranchPageN + st.BranchOverflowN + st.LeafPageN + st.LeafOverflowN
}

// knownPages counts the pages of the file that are neither free nor one of the two metas.
func knownPages(tx *bolt.Tx, pages int) (known int, err error) {
	for id := 2; id < pages; id++ {
		p, err := tx.Page(id)
		if err != nil {
			return 0, err
		}
		if p.Type != "free" {
			known++
		}
	}
	return known, nil
}

// eachValue walks everything outside meta. Keys that do not rise end it: a damaged branch can lead in circles.
func eachValue(tx *bolt.Tx, fn func(bucket, key, raw []byte) error) error {
	var lastName []byte
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		if b == nil || lastName != nil && bytes.Compare(lastName, name) >= 0 {
			return fmt.Errorf("%w: bucket %q is out of place", ErrDamaged, name)
		}
		lastName = bytes.Clone(name)
		meta := bytes.Equal(name, metaBucket)
		var last []byte
		return b.ForEach(func(k, v []byte) error {
			if v == nil || last != nil && bytes.Compare(last, k) >= 0 {
				return fmt.Errorf("%w: key %q of bucket %s is out of place", ErrDamaged, k, name)
			}
			last = append(last[:0], k...)
			if !meta {
				return fn(name, k, v)
			}
			if _, err := unseal(name, k, v); err != nil {
				return fmt.Errorf("meta %s: %w", k, err)
			}
			return nil
		})
	})
}

// A damaged file can also send a walk in circles: what needs that much of a CPU, many times what 64 MB take on a slow
// board, is damaged. The time on the wall tells nothing about a file: a board that boots from a bad card has little to
// give, and a file must not be replaced by an older one for it.
const (
	checkCPU  = 30 * time.Second
	checkWall = time.Minute // less than systemd waits for a start; the next one finds the file in memory

	// Who follows a circle wants gigabytes in a second. This is far above what a check of 64 MB takes; boards with less kill
	// the child before (greedy).
	checkData   = 1 << 30
	checkMemory = 96 << 20 // beyond the file's own size; the kernel counts what the parent had when it forked, too
)

// CheckChild is a Config.Check that runs "exe args... PATH", which must call Check, print its error on standard
// error and exit with 1. A child that crashes has found damage; one that could not be started or was refused has
// found nothing, and the file stays as it is.
func CheckChild(exe string, args ...string) func(ctx context.Context, path string) error {
	return checkChild(checkCPU, checkWall, exe, args...)
}

func checkChild(cpu, wall time.Duration, exe string, args ...string) func(ctx context.Context, path string) error {
	return func(ctx context.Context, path string) error {
		limited, cancel := context.WithTimeout(ctx, wall)
		defer cancel()
		cmd := exec.CommandContext(limited, exe, append(args[:len(args):len(args)], path)...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=2") // each thread's stack is data, too
		var out bytes.Buffer
		cmd.Stderr = &out
		err := cmd.Start()
		if err == nil {
			// Who is short of memory for the sake of a file shall lose the check, not the node or a pod.
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("1000"), 0)
			seconds := uint64(cpu / time.Second)
			// Without the limits it is the wall's that holds.
			_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 1}, nil)
			_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: checkData, Max: checkData}, nil)
			err = cmd.Wait()
		}
		var exit *exec.ExitError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return fmt.Errorf("check %s: it did not end within %s and tells nothing about the file: is the card dying, or the board very busy?",
				path, wall)
		case errors.As(err, &exit) && greedy(path, exit):
			return fmt.Errorf("check %s: %w: reading it took all memory", path, ErrDamaged)
		case errors.As(err, &exit):
			return verdict(path, out.String(), exit)
		}
		return fmt.Errorf("check %s: %w", path, err)
	}
}

// greedy says whether a child was killed when it had more memory than a sound file can need: what it maps, which is the
// file and the program, and some for itself.
func greedy(path string, exit *exec.ExitError) bool {
	status, ok1 := exit.Sys().(syscall.WaitStatus)
	used, ok2 := exit.SysUsage().(*syscall.Rusage)
	file, err := os.Stat(path)
	return ok1 && ok2 && err == nil && status.Signal() == unix.SIGKILL && int64(used.Maxrss)<<10 > file.Size()+checkMemory
}

// verdict reads what a child said. The sentinels' own words are the protocol between the two processes, which are
// always the same binary.
func verdict(path, said string, exit *exec.ExitError) error {
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	for _, known := range []error{ErrSchema, ErrValues, ErrDamaged, ErrInUse} {
		if _, rest, ok := strings.Cut(first, known.Error()); ok {
			return fmt.Errorf("check %s: %w%s", path, known, rest)
		}
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == unix.SIGXCPU || strings.Contains(said, "SIGXCPU") {
		return fmt.Errorf("check %s: %w: reading it does not end", path, ErrDamaged)
	}
	for _, crash := range []string{"panic:", "fatal error:", "unexpected fault address", "SIGBUS", "SIGSEGV"} {
		if strings.Contains(said, crash) {
			return fmt.Errorf("check %s: %w: reading it crashes: %s", path, ErrDamaged, first)
		}
	}
	return fmt.Errorf("check %s: the check failed and tells nothing about the file: %w %s", path, exit, first)
}
