package podlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Config says where containers' logs are kept, and how much of them.
type Config struct {
	Memory   bool  // in the run directory, so that they do not wear the card; they end with the boot
	MaxBytes int64 // of one file; 0: the engine's default
	MaxFiles int   // of one container; 0: the engine's default
	Rate     int64 // bytes a second of one container; 0: no limit
	Total    int64 // bytes of all containers; 0: no limit
}

// Files are the logs of a board's containers. The engine writes and rotates them; here they are named, found and removed.
type Files struct {
	disk, memory string // the directories in which logs may be
	inMemory     bool   // new ones are
}

// NewFiles keeps logs below a data directory and a run directory.
func NewFiles(dataDir, runDir string, cfg Config) Files {
	return Files{disk: filepath.Join(dataDir, "logs"), memory: filepath.Join(runDir, "logs"), inMemory: cfg.Memory}
}

// roots are both directories; the first gets the new logs.
func (f Files) roots() []string {
	if f.inMemory {
		return []string{f.memory, f.disk}
	}
	return []string{f.disk, f.memory}
}

// Root is the directory that new logs are in.
func (f Files) Root() string { return f.roots()[0] }

// Dir is where the logs of a container that begins now are.
func (f Files) Dir(pod *corev1.Pod, container string) string {
	return containerDir(f.Root(), pod, container)
}

// Path is where an attempt that begins now writes.
func (f Files) Path(pod *corev1.Pod, container string, attempt int) string {
	return filepath.Join(f.Dir(pod, container), name(attempt))
}

func podDir(root string, pod *corev1.Pod) string {
	return filepath.Join(root, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
}

func containerDir(root string, pod *corev1.Pod, container string) string {
	return filepath.Join(podDir(root, pod), container)
}

func name(attempt int) string { return strconv.Itoa(attempt) + ".log" }

// attemptOf is the attempt that a file is the log of, or a full part of.
func attemptOf(file string) (n int, ok bool) {
	number, _, isLog := strings.Cut(file, ".log")
	n, err := strconv.Atoi(number)
	return n, isLog && err == nil
}

// present finds the log of an attempt: one that began before the medium was changed is still on the old medium. "" if there is none.
func (f Files) present(pod *corev1.Pod, container string, attempt int) string {
	for _, root := range f.roots() {
		path := filepath.Join(containerDir(root, pod, container), name(attempt))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// newest is the last attempt that has written a log; -1 if none has.
func (f Files) newest(pod *corev1.Pod, container string) int {
	newest := -1
	for _, root := range f.roots() {
		entries, err := os.ReadDir(containerDir(root, pod, container))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if n, ok := attemptOf(e.Name()); ok {
				newest = max(newest, n)
			}
		}
	}
	return newest
}

// DropOld keeps the logs of an attempt that begins and of the one before it: what logs --previous shows.
func (f Files) DropOld(pod *corev1.Pod, container string, attempt int) error {
	return f.each(func(root string) string { return containerDir(root, pod, container) }, func(file string) bool {
		n, ok := attemptOf(file)
		return ok && n < attempt-1
	})
}

// Retain removes the logs of every pod that is not known: its object went while nobody was there to clear up behind it.
func (f Files) Retain(known func(uid string) bool) error {
	return f.each(func(root string) string { return root }, func(dir string) bool {
		return !known(dir[strings.LastIndexByte(dir, '_')+1:])
	})
}

// each removes what drop is true for in the same directory of both roots.
func (f Files) each(dirOf func(root string) string, drop func(name string) bool) error {
	var errs []error
	for _, root := range f.roots() {
		dir := dirOf(root)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if drop(e.Name()) {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// Remove removes all logs of a pod.
func (f Files) Remove(pod *corev1.Pod) error {
	var errs []error
	for _, root := range f.roots() {
		errs = append(errs, os.RemoveAll(podDir(root, pod)))
	}
	return errors.Join(errs...)
}

// DropFull removes the parts of logs on the disk that were full and set aside. The current log of a container, and the last
// log of the instance before it, stay.
func (f Files) DropFull(ctx context.Context) (freed bool, err error) {
	err = filepath.WalkDir(f.disk, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		if _, part, ok := strings.Cut(d.Name(), ".log."); !ok || part == "" || !d.Type().IsRegular() {
			return nil
		}
		freed = true
		return os.Remove(path)
	})
	if freed {
		slog.Warn("disk nearly full, old parts of logs removed")
	}
	return freed, err
}
