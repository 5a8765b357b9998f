package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/websocket"
)

// The protocols of remote commands, newest first. The fifth can say that stdin has ended, and is spoken over WebSocket
// only; the first four differ in how an error is told and whether a terminal can be resized.
const (
	protocolV5 = "v5.channel.k8s.io"
	protocolV4 = "v4.channel.k8s.io"
	protocolV1 = "channel.k8s.io"
)

// The channels of a WebSocket: the first byte of each message.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
	channelClose = 255
)

// session is a running exec as its client sees it, over either transport. The writers and readers end when it does.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         chan api.TerminalSize
	// finish tells how it ended, and lets go of the connection.
	finish func(metav1.Status)
	// gone is closed when the client has left.
	gone chan struct{}
	once sync.Once
}

func (s *session) left() { s.once.Do(func() { close(s.gone) }) }

// execOptions are what a client asks of an exec.
type execOptions struct {
	container             string
	command               []string
	stdin, stdout, stderr bool
	tty                   bool
}

const maxCommand = 64 << 10 // bytes of a command and its arguments

func (r *request) execOptions() (o execOptions, err error) {
	o.container, o.command = r.query.Get("container"), r.query["command"]
	for name, to := range map[string]*bool{"stdin": &o.stdin, "stdout": &o.stdout, "stderr": &o.stderr, "tty": &o.tty} {
		if *to, err = queryBool(r.query, name); err != nil {
			return o, err
		}
	}
	length := 0
	for _, c := range o.command {
		length += len(c)
	}
	switch {
	case len(o.command) == 0:
		return o, badRequest("you must specify at least one command for the container")
	case length > maxCommand:
		return o, badRequest("the command may have %d bytes", maxCommand)
	case o.tty && o.stderr:
		return o, badRequest("tty and stderr cannot both be true: a terminal has one output")
	case !o.stdin && !o.stdout && !o.stderr:
		return o, badRequest("you must specify at least one of stdin, stdout, stderr")
	}
	return o, nil
}

// exec runs a command in a container, over WebSocket or SPDY.
func (h *handler) exec(w *response, r *request) error {
	o, err := r.execOptions()
	if err != nil {
		return err
	}
	if h.execer == nil {
		return status(http.StatusNotImplemented, "NotImplemented", "this server cannot run commands in containers")
	}
	// What can be wrong is said now, as a Status: after the upgrade there is only text.
	if o.container, err = h.running(r, o.container); err != nil {
		return err
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	s, err := openSession(w, r, o)
	if err != nil || s == nil {
		return err
	}
	defer context.AfterFunc(ctx, s.left)()
	go func() {
		<-s.gone
		cancel()
	}()
	code, err := h.execer.Exec(ctx, r.namespace, r.name, api.Exec{Container: o.container, Command: o.command,
		Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, TTY: o.tty, Resize: s.resize})
	s.finish(exitStatus(code, err))
	s.left()
	return nil
}

// openSession upgrades the connection to what the client asks for. An error is answered in place of the upgrade.
func openSession(w *response, r *request, o execOptions) (*session, error) {
	if websocket.Wanted(r.Request) {
		return openWebSocketSession(w, r, o)
	}
	return openSPDYSession(w, r, o)
}

// running checks that a pod has a container that a command can be run in, and picks the one that is meant.
func (h *handler) running(r *request, name string) (string, error) {
	pod, err := api.Get[*corev1.Pod](r.Context(), h.client, api.Pods, r.namespace, r.name)
	if err != nil {
		return "", err
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "", badRequest("cannot exec into a container in a completed pod; current phase is %s", pod.Status.Phase)
	}
	var all []string
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}
	if name == "" {
		name = pod.Annotations["kubectl.kubernetes.io/default-container"]
		if name == "" && len(all) != 1 {
			return "", badRequest("a container name must be specified for pod %s, choose one of: %v", pod.Name, all)
		}
		if name == "" {
			name = all[0]
		}
	}
	for _, c := range pod.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	if !slices.Contains(all, name) {
		return "", badRequest("container %s is not valid for pod %s", name, pod.Name)
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name && c.State.Running != nil {
				return name, nil
			}
		}
	}
	return "", apierrors.NewInternalError(fmt.Errorf("unable to upgrade connection: container not found (%q): it is not running", name))
}

// exitStatus is what the error channel says at the end.
func exitStatus(code int, err error) metav1.Status {
	switch {
	case err != nil:
		out := statusOf(err)
		out.TypeMeta = metav1.TypeMeta{}
		return out
	case code != 0:
		return metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Message: fmt.Sprintf("command terminated with non-zero exit code: exit status %d", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
	}
	return metav1.Status{Status: metav1.StatusSuccess}
}

// errorText is how protocols before the fourth tell an error: as text, and nothing when there is none.
func errorText(protocol string, s metav1.Status) []byte {
	if protocol == protocolV5 || protocol == protocolV4 {
		data, err := json.Marshal(s)
		if err != nil {
			return []byte(`{"status":"Failure"}`)
		}
		return data
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	return []byte(s.Message)
}

// readSizes reads terminal sizes, as JSON one after the other, until r ends. Only the latest counts.
func readSizes(r io.Reader, to chan api.TerminalSize) {
	dec := json.NewDecoder(r)
	for {
		var size api.TerminalSize
		if dec.Decode(&size) != nil {
			return
		}
		offerSize(to, size)
	}
}

func offerSize(to chan api.TerminalSize, size api.TerminalSize) {
	for {
		select {
		case to <- size:
			return
		default:
		}
		select {
		case <-to: // an older one that nobody has taken
		default:
		}
	}
}

// lingerTime is how long a client has to take in the end of a session before the connection is cut.
const lingerTime = 10 * time.Second
