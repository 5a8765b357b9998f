// Package podlog reads what containers have written, and knows where it is:
//
//	ROOT/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log     what is being written
//	ROOT/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log.N   full parts, oldest first
//
// There are two roots, on the disk and in memory: which of them gets new logs is configured, and both are read. The engine
// writes the lines, in the format of CRI, and rotates the files.
package podlog

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/runtime"
)

// Pods is what a reader asks about the pods of this board.
type Pods interface {
	// Containers are what the engine holds of a pod; up is false while the engine is away.
	Containers(uid types.UID) (cs []runtime.Status, up bool)
	// Living is the pod as it is now; nil once nothing of it will run again.
	Living(uid types.UID) *corev1.Pod
}

// Logs reads the logs of this board's containers.
type Logs struct {
	Files
	Pods Pods
}

// Open reads what a container of a pod wrote.
func (l Logs) Open(ctx context.Context, pod *corev1.Pod, opts api.LogOptions) (io.ReadCloser, error) {
	c, err := Container(pod, opts.Container)
	if err != nil {
		return nil, err
	}
	attempt, err := l.attempt(pod, c, opts.Previous)
	if err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, opts: opts, path: l.find(pod, c, attempt), ended: func() bool { return !l.runs(pod, c, attempt) }}
	if opts.Follow && !opts.Previous {
		r.next = func() (string, bool) {
			n, more := l.next(pod, c, attempt)
			if n < 0 {
				return "", more
			}
			attempt = n
			return l.find(pod, c, n), true
		}
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// Container is the container that is meant: the one with that name, or without a name the only one of the pod.
func Container(pod *corev1.Pod, name string) (string, error) {
	var all []string
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}
	switch {
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	case api.ContainerNamed(pod, name) == nil:
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}

// attempt chooses the attempt to read.
func (l Logs) attempt(pod *corev1.Pod, name string, previous bool) (int, error) {
	found, over := -1, true
	cs, _ := l.Pods.Containers(pod.UID)
	for _, s := range cs {
		if s.Name == name && s.Attempt > found {
			found, over = s.Attempt, s.Phase == runtime.Exited
		}
	}
	if found < 0 { // it ended and its records are gone: the files tell
		found = l.newest(pod, name)
	}
	status := api.ContainerStatusNamed(pod, name)
	if found < 0 && status != nil && status.State.Terminated != nil { // it wrote nothing
		found = int(status.RestartCount)
	}
	waiting := ""
	if status != nil && status.State.Waiting != nil {
		waiting = status.State.Waiting.Reason
	}
	if previous {
		if waiting == "" || !over { // else it waits to be started again: the last attempt is the previous one, as lastState says
			found--
		}
		ended := status != nil && status.LastTerminationState.Terminated != nil
		if found < 0 || !ended && !l.exists(pod, name, found) {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod.Name))
		}
		return found, nil
	}
	if found < 0 {
		if waiting == "" {
			waiting = "ContainerCreating"
		}
		return 0, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod.Name, waiting))
	}
	return found, nil
}

// find is the path of an attempt's log: where it is, or where the engine writes it, or where it will be.
func (l Logs) find(pod *corev1.Pod, name string, attempt int) string {
	if path := l.present(pod, name, attempt); path != "" {
		return path
	}
	if s := l.instance(pod.UID, name, attempt); s != nil && s.LogPath != "" {
		return s.LogPath
	}
	return l.Path(pod, name, attempt)
}

func (l Logs) exists(pod *corev1.Pod, name string, attempt int) bool {
	_, err := os.Stat(l.find(pod, name, attempt))
	return err == nil
}

// instance is what the engine holds of one attempt.
func (l Logs) instance(uid types.UID, name string, attempt int) *runtime.Status {
	cs, _ := l.Pods.Containers(uid)
	for i := range cs {
		if cs[i].Name == name && cs[i].Attempt == attempt {
			return &cs[i]
		}
	}
	return nil
}

// next is what a reader who follows goes on to when an attempt has ended: the one after it, or -1 while there
// is none yet; more is false when there will be none.
func (l Logs) next(pod *corev1.Pod, name string, attempt int) (n int, more bool) {
	cs, up := l.Pods.Containers(pod.UID)
	n = -1
	for _, s := range cs {
		if s.Name == name && s.Attempt > attempt && (n < 0 || s.Attempt < n) {
			n = s.Attempt
		}
	}
	if n > attempt+1 && l.exists(pod, name, attempt+1) { // its record has gone, its log has not
		n = attempt + 1
	}
	if n >= 0 || !up {
		return n, true
	}
	now := l.Pods.Living(pod.UID)
	if now == nil || now.DeletionTimestamp != nil || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed {
		return -1, false
	}
	return -1, startsAgain(now, name, l.exitCode(now, name, attempt))
}

// exitCode is how an attempt ended; one that is not known counts as a failure.
func (l Logs) exitCode(pod *corev1.Pod, name string, attempt int) int {
	if s := l.instance(pod.UID, name, attempt); s != nil && s.Exit != nil && !s.Exit.Unknown {
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

// runs: the container writes to that log.
func (l Logs) runs(pod *corev1.Pod, name string, attempt int) bool {
	if _, up := l.Pods.Containers(pod.UID); !up {
		return true // the keeper restarts; the container runs on
	}
	s := l.instance(pod.UID, name, attempt)
	return s != nil && s.Phase == runtime.Running
}
