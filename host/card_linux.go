package host

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
	err = replaceOnCard(path, data)
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
	err = replaceOnCard(path, data)
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
