package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
	"ledge/runtime"
)

// podRecord is pods/<uid>/pod.json.
type podRecord struct {
	Status runtime.PodStatus
	Made   bool // else making it was under way
}

// containerRecord is containers/<id>/container.json.
type containerRecord struct {
	Container runtime.Container
	Pod       runtime.Pod // what the Runner needs to clean up, also if the pod's record is gone
	Status    runtime.Status
	StartTime uint64 // of Status.Pid, in clock ticks since boot; 0: starting was under way
}

// writeJSON replaces a file. The run directory is tmpfs, and every reader runs on the same kernel, so there is no
// fsync.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.Volatile.Replace(path, b, 0o600)
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// renew makes the run directory this boot's: what another boot left there tells of processes that are gone.
func renew(runDir, bootID string) error {
	if bootID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return fmt.Errorf("read the boot id: %w", err)
		}
		bootID = strings.TrimSpace(string(b))
	}
	for _, d := range []string{runDir, podsDir(runDir), containersDir(runDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	file := filepath.Join(runDir, "boot_id")
	have, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && string(have) == bootID {
		return nil
	}
	for _, d := range []string{podsDir(runDir), containersDir(runDir)} {
		if err := emptyDir(d); err != nil {
			return fmt.Errorf("drop the run state of another boot: %w", err)
		}
	}
	return durable.Volatile.Replace(file, []byte(bootID), 0o600)
}

// emptyDir removes what is in a directory. Should something be mounted there after all, it is let go of first, so
// that nothing is deleted through a mount.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		for _, sub := range []string{"shm", "ns/net", "ns/uts", "ns/ipc", "ns/pid", "ns/user", "init/rootfs"} {
			_ = unix.Unmount(filepath.Join(p, sub), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}

func podsDir(runDir string) string       { return filepath.Join(runDir, "pods") }
func containersDir(runDir string) string { return filepath.Join(runDir, "containers") }
