package main

import (
	"context"
	"errors"
	"flag"
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
	runMarks  = []string{runInfoFile, "keeper.lock", "boot_id", "keeper.log", "ledge.sock"}
	dataMarks = []string{"store/lock", "store/provisioned", "store/state.db"}
)

// lostAndFound is the file system's own, where a directory is a mount point.
const lostAndFound = "lost+found"

// foreign says whether there is something in a directory and none of it is a mark.
func foreign(dir string, marks []string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	others := slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != lostAndFound && !strings.HasPrefix(e.Name(), probePrefix)
	})
	return others && !slices.ContainsFunc(marks, func(mark string) bool {
		_, err := os.Lstat(filepath.Join(dir, mark))
		return err == nil
	}), nil
}

// longestRunDir: a socket's path has at most 107 bytes, and ledge.sock is made under a name with a process number at its end.
const longestRunDir = 107 - len("/ledge.sock.4194304")

// checkPlaces refuses directories that cannot be, by their names alone.
func checkPlaces(runDir, dataDir string) error {
	switch {
	case len(runDir) > longestRunDir:
		return config.Usagef("--run-dir %s: it has %d characters, and the path of a socket in it may have %d: give a shorter one", runDir, len(runDir), longestRunDir)
	case dataDir == "":
		return config.Usagef("--data-dir is empty: name a directory, or leave it out for %s", config.DefaultDataDir)
	case dataDir == runDir || strings.HasPrefix(dataDir, runDir+"/"):
		return config.Usagef("--data-dir %s is in the run directory %s, which 'ledge reset' empties: give another one", dataDir, runDir)
	}
	return nil
}

// checkRunDir refuses a directory that others use, or might: what lies there decides whom ledge trusts, and a reset empties it.
func checkRunDir(dir string) error {
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
	switch other, err := foreign(dir, runMarks); {
	case err != nil:
		return fmt.Errorf("--run-dir: %w", err)
	case other:
		return fmt.Errorf("--run-dir %s: what is in it is not a node's: give ledge a directory of its own, which 'ledge reset' may empty", dir)
	}
	return nil
}

// placeFlags name what is looked for long after the flags are read, by other processes too.
var placeFlags = []string{"run-dir", "data-dir", "config", "config-dir", "boot-state"}

// absolute has directories mean the same in every process, and in the kernel's list of mounts. Those that are relative are where this
// process was started.
func (c *command) absolute() (err error) {
	if c.runDir == "" {
		return config.Usagef("--run-dir is empty: name a directory, or leave it out for %s", config.DefaultRunDir)
	}
	c.flags.VisitAll(func(f *flag.Flag) {
		if err != nil || f.Value.String() == "" || !slices.Contains(placeFlags, f.Name) {
			return
		}
		path, aerr := filepath.Abs(f.Value.String())
		if aerr == nil {
			aerr = f.Value.Set(path)
		}
		if aerr != nil {
			err = fmt.Errorf("find --%s %s: %w", f.Name, f.Value, aerr)
		}
	})
	return err
}

// holdRunDir keeps other brains, and resets, away from a run directory for as long as the file is open. For a moment after a brain was
// killed a child that it had forked, and that has not yet executed its program, still holds it.
func holdRunDir(ctx context.Context, dir string) (*os.File, error) {
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
		if try == 10 || !sleepFor(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("--run-dir %s: another ledge runs there", dir)
		}
	}
}

// takeDirs makes the directories, as far as they are not there, and takes the run directory for this process alone. What it made comes
// back.
func (b *brain) takeDirs(ctx context.Context) (made []string, err error) {
	if made, err = makeDir(b.runDir); err != nil {
		return made, err
	}
	if b.lock, err = holdRunDir(ctx, b.runDir); err != nil {
		return nil, fmt.Errorf("%w; stop it, or give another directory", err) // whoever has it uses what was made
	}
	data, err := makeDir(b.DataDir)
	return append(data, made...), err
}

// probePrefix begins the name of a file that is there for a moment.
const probePrefix = ".probe-"

// makeDir makes a directory only root can enter if there is none, with those above it, and says in one line why it cannot.
// What it made comes back, the deepest first.
func makeDir(dir string) (made []string, err error) {
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
