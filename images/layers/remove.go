package layers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove implements images.Layers. A container may have made a tree a hundred thousand directories deep; what is
// deeper than a few levels is moved up first, so that neither descriptors nor stack run out.
func (o *Overlay) Remove(dir string) error {
	if err := removeAt(unix.AT_FDCWD, dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

const removeDepth = 32

func removeAt(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	top, err := openForSweep(parent, name)
	if err != nil {
		return err
	}
	defer top.Close()
	s := sweeper{top: int(top.Fd())}
	if err := s.sweep(top, 0); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

func openForSweep(parent int, name string) (*os.File, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

type sweeper struct {
	top   int
	moved int
}

// sweep empties a directory. It reads again from the start until nothing is left, since it changes what it reads
// and deeper levels may have been moved into it.
func (s *sweeper) sweep(dir *os.File, depth int) error {
	for {
		names, err := dir.Readdirnames(512)
		if errors.Is(err, io.EOF) && len(names) == 0 {
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if again, err := dir.Readdirnames(1); len(again) == 0 {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for _, name := range names {
			if err := s.remove(dir, name, depth); err != nil {
				return err
			}
		}
	}
}

func (s *sweeper) remove(dir *os.File, name string, depth int) error {
	fd := int(dir.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) == nil {
		return nil // was empty
	}
	if depth >= removeDepth {
		return s.lift(fd, name)
	}
	sub, err := openForSweep(fd, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer sub.Close()
	if err := s.sweep(sub, depth+1); err != nil {
		return err
	}
	return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
}

// lift moves a directory to the top, under a name that is free.
func (s *sweeper) lift(fd int, name string) error {
	for {
		s.moved++
		err := unix.Renameat(fd, name, s.top, ".deep-"+strconv.Itoa(s.moved))
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
}
