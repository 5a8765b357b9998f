package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LogConfig says where containers' logs are kept, and how much of them.
type LogConfig struct {
	Memory   bool  // in the run directory, so that they do not wear the card; they end with the boot
	MaxBytes int64 // of one file; 0: the engine's default
	MaxFiles int   // of one container; 0: the engine's default
	Rate     int64 // bytes a second of one container; 0: no limit
	Total    int64 // bytes of all containers; 0: no limit
}

// logRoots are the directories in which logs may be; the first gets the new ones.
func (a *Agent) logRoots() []string {
	roots := []string{filepath.Join(a.cfg.DataDir, "logs"), filepath.Join(a.cfg.RunDir, "logs")}
	if a.cfg.Logs.Memory {
		slices.Reverse(roots)
	}
	return roots
}

func podLogDir(root string, pod *corev1.Pod) string {
	return filepath.Join(root, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
}

func logName(attempt int) string { return strconv.Itoa(attempt) + ".log" }

// logFile is where an attempt that begins now writes.
func (a *Agent) logFile(pod *corev1.Pod, container string, attempt int) string {
	return filepath.Join(podLogDir(a.logRoots()[0], pod), container, logName(attempt))
}

// dropOldLogs keeps the logs of an attempt that begins and of the one before it: what logs --previous shows.
func (a *Agent) dropOldLogs(pod *corev1.Pod, container string, attempt int) error {
	var errs []error
	for _, root := range a.logRoots() {
		dir := filepath.Join(podLogDir(root, pod), container)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			number, _, ok := strings.Cut(e.Name(), ".log")
			if n, err := strconv.Atoi(number); ok && err == nil && n < attempt-1 {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
