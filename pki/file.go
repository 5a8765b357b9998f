package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeFile replaces a file in one step, durably: whoever looks, even after a power cut, finds the old content
// or the new one. The file is 0600 from its first byte on.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp*") // CreateTemp makes it 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
			os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// readClosed reads what writeFile wrote. A file that others could read is closed first.
func readClosed(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Mode().Perm() != 0o600 {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// removeLeftovers removes what a power cut in the middle of writeFile left: key material nobody will ever use.
func removeLeftovers(dir string) {
	found, _ := filepath.Glob(filepath.Join(dir, ".*.tmp*")) // the pattern is well formed
	for _, path := range found {
		os.Remove(path)
	}
}
