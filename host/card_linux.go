package host

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// What a machine keeps on its card about itself, and what it tells people there.

// KeepMachineID gives the machine an identity: made once, kept below data, and shown where programs look for it.
func KeepMachineID(data, shown string) error {
	path := filepath.Join(data, "machine-id")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("machine ID: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if _, err := hex.DecodeString(id); err != nil || len(id) != 32 {
		var raw [16]byte
		_, _ = rand.Read(raw[:])                            // it never fails
		raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80 // as a UUID of random numbers
		id = hex.EncodeToString(raw[:])
		if err := durable.Replace(path, []byte(id+"\n"), 0o444); err != nil {
			return fmt.Errorf("machine ID: %w", err)
		}
	}
	if err := os.WriteFile(shown, []byte(id+"\n"), 0o444); err != nil {
		return fmt.Errorf("machine ID: %w", err)
	}
	return nil
}

// TellOnCard writes a file in the directory where the boot partition is mounted, or removes it (nil). A partition that is read-only
// is made writable for that long, and not at all when the file is as it is to be.
func TellOnCard(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	have, err := os.ReadFile(path)
	if err == nil && data != nil && bytes.Equal(have, data) || data == nil && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return writable(dir, func() error { return replaceOnCard(path, data) })
}

// writable does something in a directory of a card, whose partition is made writable for that long if it has to be. What it does may be
// tried twice.
func writable(dir string, do func() error) error {
	err := do()
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("make %s writable: %w", dir, err)
	}
	// The flags of a mount and those that statfs gives are the same bits.
	flags := unix.MS_REMOUNT | uintptr(st.Flags)&(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME)
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("make %s writable: %w", dir, err)
	}
	err = do()
	if rerr := unix.Mount("", dir, "", flags|unix.MS_RDONLY, ""); rerr != nil {
		err = errors.Join(err, fmt.Errorf("make %s read-only again: %w", dir, rerr))
	}
	return err
}

// replaceOnCard writes in place: a FAT has no rename that a power cut could not split, and the next boot writes it again.
func replaceOnCard(path string, data []byte) error {
	if data == nil {
		if err := os.Remove(path); err != nil {
			return err
		}
		return durable.SyncDir(filepath.Dir(path))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close(), durable.SyncDir(filepath.Dir(path)))
}

// A file of people's is changed on a card by way of a copy beside it, whose name has the sum of its bytes: one that a power cut has torn
// is not taken for whole. FAT has no rename that could do it.
const copyPrefix = ".ledge-copy-"

func copyName(name string, data []byte) string {
	return fmt.Sprintf("%s%08x-%s", copyPrefix, crc32.ChecksumIEEE(data), name)
}

// ChangeOnCard puts other bytes in the place of a file's. A power cut leaves the old or the new ones, once FinishOnCard has been called.
func ChangeOnCard(dir, name string, data []byte) error {
	return writable(dir, func() error {
		beside := filepath.Join(dir, copyName(name, data))
		if err := replaceOnCard(beside, data); err != nil {
			return err
		}
		return errors.Join(replaceOnCard(filepath.Join(dir, name), data), replaceOnCard(beside, nil))
	})
}

// FinishOnCard does what a power cut kept ChangeOnCard from. most is how large such a file may be.
func FinishOnCard(dir string, most int64) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		rest, ok := strings.CutPrefix(e.Name(), copyPrefix)
		_, name, cut := strings.Cut(rest, "-")
		if !ok || !cut || name == "" || e.IsDir() {
			continue
		}
		beside := filepath.Join(dir, e.Name())
		data, err := readBounded(beside, most)
		err = errors.Join(err, writable(dir, func() error {
			if err == nil && copyName(name, data) == e.Name() && torn(filepath.Join(dir, name), data) {
				if err := replaceOnCard(filepath.Join(dir, name), data); err != nil {
					return err
				}
			}
			return replaceOnCard(beside, nil)
		}))
		if err != nil {
			return fmt.Errorf("finish %s: %w", name, err)
		}
	}
	return nil
}

// torn says that a file is what a power cut leaves of a change to these bytes. A file that somebody has written since is not.
func torn(path string, want []byte) bool {
	have, err := readBounded(path, int64(len(want))+1)
	return errors.Is(err, fs.ErrNotExist) || err == nil && (bytes.HasPrefix(want, have) || bytes.IndexByte(have, 0) >= 0)
}

func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
