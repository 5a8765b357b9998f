package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ledge/internal/durable"
)

// writeFile replaces a file durably.
func writeFile(path string, data []byte) error {
	if err := durable.Replace(path, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
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

// removeLeftovers removes what a power cut in the middle of writeFile left: key material nobody will ever use.
func removeLeftovers(dir string) {
	found, _ := filepath.Glob(filepath.Join(dir, ".*.tmp*")) // the pattern is well formed
	for _, path := range found {
		os.Remove(path)
	}
}
