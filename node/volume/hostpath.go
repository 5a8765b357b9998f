package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// prepareHostPath checks a path of the board, and makes it where its type says so.
func prepareHostPath(src *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	st, err := os.Stat(src.Path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return fmt.Errorf("hostPath: %w", err)
	}
	switch kind {
	case corev1.HostPathUnset:
		if missing { // what a kubelet's runtime does too: an unchecked path becomes a directory
			return os.MkdirAll(src.Path, 0o755)
		}
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if missing {
			return os.MkdirAll(src.Path, 0o755)
		}
		kind = corev1.HostPathDirectory
	case corev1.HostPathFileOrCreate:
		if missing {
			return touch(src.Path)
		}
		kind = corev1.HostPathFile
	}
	if missing || !isKind(st.Mode(), kind) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", src.Path, kindWords[kind])
	}
	return nil
}

var kindWords = map[corev1.HostPathType]string{
	corev1.HostPathDirectory: "a directory", corev1.HostPathFile: "a file", corev1.HostPathSocket: "a socket file",
	corev1.HostPathCharDev: "a character device", corev1.HostPathBlockDev: "a block device",
}

func isKind(mode os.FileMode, kind corev1.HostPathType) bool {
	switch kind {
	case corev1.HostPathDirectory:
		return mode.IsDir()
	case corev1.HostPathFile:
		return mode.IsRegular()
	case corev1.HostPathSocket:
		return mode&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		return mode&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		return mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	}
	return false
}

// touch makes an empty file; its directory must exist, as on Kubernetes. What a pod puts in its place meanwhile is not waited for.
func touch(path string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDONLY|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("hostPath: %w", err)
	}
	return f.Close()
}
