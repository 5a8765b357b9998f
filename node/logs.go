package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/runtime"
)

var _ api.Streams = (*Agent)(nil)

// Logs reads what a container wrote, from the files the keeper keeps.
func (a *Agent) Logs(ctx context.Context, namespace, name string, opts api.LogOptions) (io.ReadCloser, error) {
	pod, err := a.podNamed(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != a.cfg.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is on node %q, not on %q", name, pod.Spec.NodeName, a.cfg.Name))
	}
	c, err := logContainer(pod, opts.Container)
	if err != nil {
		return nil, err
	}
	attempt, err := a.logAttempt(pod, c, opts.Previous)
	if err != nil {
		return nil, err
	}
	r := &logReader{ctx: ctx, opts: opts, path: a.findLog(pod, c, attempt), ended: func() bool { return !a.isRunning(pod, c, attempt) }}
	if opts.Follow && !opts.Previous {
		r.next = func() (string, bool) {
			n, more := a.nextAttempt(pod, c, attempt)
			if n < 0 {
				return "", more
			}
			attempt = n
			return a.findLog(pod, c, n), true
		}
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func logContainer(pod *corev1.Pod, name string) (string, error) {
	var all []string
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}
	switch {
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	case containerNamed(pod, name) == nil:
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}

// logAttempt chooses the attempt to read.
func (a *Agent) logAttempt(pod *corev1.Pod, name string, previous bool) (int, error) {
	found, over := -1, true
	cs, _, _ := a.held(pod.UID)
	for _, s := range cs {
		if s.Name == name && s.Attempt > found {
			found, over = s.Attempt, s.Phase == runtime.Exited
		}
	}
	if found < 0 { // it ended and its records are gone: the files tell
		for _, root := range a.logRoots() {
			found = max(found, newestLog(filepath.Join(podLogDir(root, pod), name)))
		}
	}
	status := statusOf(pod, name)
	if found < 0 && status != nil && status.State.Terminated != nil { // it wrote nothing
		found = int(status.RestartCount)
	}
	waiting := waitingFor(pod, name)
	if previous {
		if waiting == "" || !over { // else it waits to be started again: the last attempt is the previous one, as lastState says
			found--
		}
		ended := status != nil && status.LastTerminationState.Terminated != nil
		if found < 0 || !ended && !exists(a.findLog(pod, name, found)) {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod.Name))
		}
		return found, nil
	}
	if found < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod.Name, first(waiting, "ContainerCreating")))
	}
	return found, nil
}

// findLog returns the path of an attempt's log. A log that began before the medium was changed is still on the old
// medium.
func (a *Agent) findLog(pod *corev1.Pod, name string, attempt int) string {
	roots := a.logRoots()
	for _, root := range roots {
		path := filepath.Join(podLogDir(root, pod), name, logName(attempt))
		if exists(path) {
			return path
		}
	}
	if s := a.instance(pod.UID, name, attempt); s != nil && s.LogPath != "" {
		return s.LogPath
	}
	return a.logFile(pod, name, attempt)
}

// instance is what the engine holds of one attempt.
func (a *Agent) instance(uid types.UID, name string, attempt int) *runtime.Status {
	cs, _, _ := a.held(uid)
	for i := range cs {
		if cs[i].Name == name && cs[i].Attempt == attempt {
			return &cs[i]
		}
	}
	return nil
}

// nextAttempt is what a reader who follows goes on to when an attempt has ended: the one after it, or -1 while there
// is none yet; more is false when there will be none.
func (a *Agent) nextAttempt(pod *corev1.Pod, name string, attempt int) (n int, more bool) {
	cs, _, up := a.held(pod.UID)
	n = -1
	for _, s := range cs {
		if s.Name == name && s.Attempt > attempt && (n < 0 || s.Attempt < n) {
			n = s.Attempt
		}
	}
	if n > attempt+1 && exists(a.findLog(pod, name, attempt+1)) { // its record has gone, its log has not
		n = attempt + 1
	}
	if n >= 0 || !up {
		return n, true
	}
	w := a.worker(pod.UID)
	if w == nil || w.isEnded() {
		return -1, false
	}
	now := w.current()
	if now.DeletionTimestamp != nil || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed {
		return -1, false
	}
	return -1, startsAgain(now, name, a.exitCode(now, name, attempt))
}

// exitCode is how an attempt ended; one that is not known counts as a failure.
func (a *Agent) exitCode(pod *corev1.Pod, name string, attempt int) int {
	if s := a.instance(pod.UID, name, attempt); s != nil && s.Exit != nil && !s.Exit.Unknown {
		return s.Exit.Code
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == name && s.State.Terminated != nil {
			return int(s.State.Terminated.ExitCode)
		}
	}
	return 137
}

// startsAgain follows the restart policy (N-7.9, N-7.19, N-7.20).
func startsAgain(pod *corev1.Pod, name string, code int) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == name {
			return api.IsSidecar(c) || code != 0 && podstate.Restarts(pod, c, int32(code))
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return podstate.Restarts(pod, c, int32(code))
		}
	}
	return false // an ephemeral one, or none
}

// waitingFor returns the reason why a container waits, or "" if it runs or has ended.
func waitingFor(pod *corev1.Pod, name string) string {
	if s := statusOf(pod, name); s != nil && s.State.Waiting != nil {
		return s.State.Waiting.Reason
	}
	return ""
}

func (a *Agent) isRunning(pod *corev1.Pod, name string, attempt int) bool {
	if _, _, up := a.held(pod.UID); !up {
		return true // the keeper restarts; the container runs on
	}
	s := a.instance(pod.UID, name, attempt)
	return s != nil && s.Phase == runtime.Running
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func newestLog(dir string) int {
	newest := -1
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), ".log") // and what a full one has behind it
		if n, err := strconv.Atoi(number); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}
