package libct

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// filters are the compiled system call filters of this keeper, by the rules they were made from. libcontainer
// compiles a filter with libseccomp in the init process of every container and of every command in one, which takes a
// sixth of a start. Here the first process with a filter leaves the compiled program in a sealed memory file, and
// later processes load it from there (filter.c).
//
// The file is the first descriptor after the standard three, and is closed on exec. A filter that is not cached is
// compiled as usual.
type filters struct {
	mu   sync.Mutex
	made map[[sha256.Size]byte]*os.File
}

// lentFile is the first descriptor after the standard three.
const lentFile = 3

// mostFilters is more than there are kinds of containers on a board.
const mostFilters = 32

// lend gives a process the file with its filter, or, if alone, an empty file to put it in. A process that others can
// see must not fill one: whoever can tamper with it could change the filters of all containers.
func (f *filters) lend(proc *libcontainer.Process, rules *configs.Seccomp, alone bool) error {
	if rules == nil || !canLend {
		return nil
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	key := sha256.Sum256(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.made[key]
	if file == nil || !sealed(file) {
		if !alone {
			return nil
		}
		// An unfinished one is another process's to write, and may stay unfinished.
		fd, err := unix.MemfdCreate("ledge-filter", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return fmt.Errorf("make room for the system call filter: %w", err)
		}
		file = os.NewFile(uintptr(fd), "ledge-filter")
		if f.made == nil || len(f.made) >= mostFilters {
			f.made = map[[sha256.Size]byte]*os.File{} // whoever starts with one of those still holds it
		}
		f.made[key] = file
	}
	proc.ExtraFiles = []*os.File{file}
	return nil
}

func sealed(file *os.File) bool {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&all == all
}

// alone says whether nobody but the host's root sees the first process of a container: it has process numbers of its own.
func alone(cfg *configs.Config) bool {
	return cfg.Namespaces.Contains(configs.NEWPID) && cfg.Namespaces.PathOf(configs.NEWPID) == ""
}
