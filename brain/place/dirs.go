// Package place is where a node is: its two directories, what it leaves there for others, and its socket.
package place

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

	"golang.org/x/sys/unix"

	"ledge/config"
	"ledge/host"
)

// What a node makes first in its directories, and what a reset removes last: by that they are told from directories of others, also
// after a start or a reset that failed halfway.
var (
	RunMarks  = []string{InfoFile, "keeper.lock", "boot_id", "keeper.log", "ledge.sock"}
	DataMarks = []string{"store/lock", "store/provisioned", "store/state.db"}
)

// KeptMarks tell a data directory also where 'ledge join' alone has made something, before the first start. A directory of the name
// kubernetes is no mark: /etc has one on many machines.
func KeptMarks() []string {
	return append(slices.Clone(DataMarks), "kubernetes/node.pem", "kubernetes/next.pem")
}

// LostAndFound is the file system's own, where a directory is a mount point.
const LostAndFound = "lost+found"

// Foreign says whether there is something in a directory and none of it is a mark.
func Foreign(dir string, marks []string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	others := slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != LostAndFound && !strings.HasPrefix(e.Name(), probePrefix)
	})
	return others && !slices.ContainsFunc(marks, func(mark string) bool {
		_, err := os.Lstat(filepath.Join(dir, mark))
		return err == nil
	}), nil
}

// longestRunDir: a socket's path has at most 107 bytes, and ledge.sock is made under a name with a process number at its end.
const longestRunDir = 107 - len("/ledge.sock.4194304")

// Check refuses directories that cannot be, by their names alone.
func Check(runDir, dataDir string) error {
	switch {
	case len(runDir) > longestRunDir:
		return config.Usagef("--run-dir %s: it has %d characters, and the path of a socket in it may have %d: give a shorter one", runDir,
			len(runDir), longestRunDir)
	case dataDir == "":
		return config.Usagef("--data-dir is empty: name a directory, or leave it out for %s", config.DefaultDataDir)
	case dataDir == runDir || strings.HasPrefix(dataDir, runDir+"/"):
		return config.Usagef("--data-dir %s is in the run directory %s, which 'ledge reset' empties: give another one", dataDir, runDir)
	}
	return nil
}

// CheckRunDir refuses a directory that others use, or might: what lies there decides whom ledge trusts, and a reset empties it.
func CheckRunDir(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 {
		return fmt.Errorf("--run-dir %s: others may write there (%v): give ledge a directory of its own, or chmod 700 it", dir, mode)
	}
	switch other, err := Foreign(dir, RunMarks); {
	case err != nil:
		return fmt.Errorf("--run-dir: %w", err)
	case other:
		return fmt.Errorf("--run-dir %s: what is in it is not a node's: give ledge a directory of its own, which 'ledge reset' may empty", dir)
	}
	return nil
}

// Hold keeps other brains, and resets, away from a run directory for as long as the file is open. For a moment after a brain was
// killed a child that it had forked, and that has not yet executed its program, still holds it.
func Hold(ctx context.Context, dir string) (*os.File, error) {
	for try := 0; ; try++ {
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("--run-dir: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		mine, merr := f.Stat()
		named, nerr := os.Stat(dir)
		if err == nil && merr == nil && nerr == nil && os.SameFile(mine, named) { // a reset may have removed it since
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("--run-dir %s: lock it: %w", dir, err)
		}
		taken := fmt.Errorf("--run-dir %s: another ledge runs there", dir)
		if try == 10 {
			return nil, taken
		}
		select {
		case <-ctx.Done():
			return nil, taken
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probePrefix begins the name of a file that is there for a moment.
const probePrefix = ".probe-"

// Make makes a directory only root can enter if there is none, with those above it, and says in one line why it cannot.
// What it made comes back, the deepest first.
func Make(dir string) (made []string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, d)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return made, fmt.Errorf("cannot make %s: %w", dir, err)
	}
	probe := filepath.Join(dir, probePrefix+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(probe, nil, 0o600); host.NoRoom(err) {
		return made, nil // it may be written to, and what the start needs is kept free
	} else if err != nil {
		return made, fmt.Errorf("cannot write to %s: %w", dir, err)
	}
	return made, os.Remove(probe)
}

// Socket is where the node of a run directory listens for root.
func Socket(runDir string) string { return filepath.Join(runDir, "ledge.sock") }

// NoBridge as --bridge gives every pod the host's network.
const NoBridge = "none"

// PluginsDir is where it is kept in mind which pods the plugins of a cluster's network have connected.
func PluginsDir(dataDir string) string { return filepath.Join(dataDir, "cni") }

// NetworkDir is where the pods' network is kept in mind.
func NetworkDir(runDir string) string { return filepath.Join(runDir, "network") }
