package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/volume"
)

// fault is a failed effect with the word Kubernetes has for it.
type fault struct {
	reason string
	err    error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// said is a message in Kubernetes' own words, capital letter included.
type said string

func (s said) Error() string { return string(s) }

// told is what an owner is told of a fault.
type told struct{ reason, message string }

// events are the words a kubelet has for a fault.
func (f *fault) events(pod *corev1.Pod, container string) []told {
	switch f.reason {
	case "SandboxError":
		return []told{{"FailedCreatePodSandBox", f.Error()}}
	case "FailedMount":
		if errors.As(f.err, new(volume.FailedMap)) {
			return []told{{"FailedMapVolume", f.Error()}}
		}
		return []told{{f.reason, f.Error()}}
	case "ErrImagePull":
		image := ""
		if c := api.ContainerNamed(pod, container); c != nil {
			image = c.Image
		}
		return []told{{"Failed", fmt.Sprintf("Failed to pull image %q: %v", image, f.err)}, {"Failed", "Error: ErrImagePull"}}
	case "ErrImageNeverPull":
		return []told{{"ErrImageNeverPull", f.Error()}, {"Failed", "Error: ErrImageNeverPull"}}
	case "InvalidImageName":
		return []told{{"InspectFailed", f.Error()}, {"Failed", "Error: InvalidImageName"}}
	}
	return []told{{"Failed", f.Error()}}
}

// failed remembers that an effect failed, for Decide, and tells the owner what is new about it.
func (w *worker) failed(pod *corev1.Pod, verb podstate.Verb, container, key string, err error) {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{reason: "RunContainerError", err: err}
	}
	old := w.seen.Faults[key]
	w.seen.Faults[key] = podstate.Fault{Reason: f.reason, Message: f.Error(), At: time.Now(), Count: old.Count + 1}
	if old.Message == f.Error() {
		return
	}
	for _, e := range f.events(pod, container) {
		w.a.containerEvent(pod, container, corev1.EventTypeWarning, e.reason, e.message)
	}
	slog.Warn("pod step failed, it will be tried again", "pod", api.Key(pod), "step", verb, "container", container, "err", err)
}
