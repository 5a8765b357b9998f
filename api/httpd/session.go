package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// podStreams answers what goes on between a client and a pod: its logs (log.go), exec and attach, forwarded ports (portforward.go), and
// requests to the pod itself (proxy.go).
type podStreams struct {
	client  api.Client
	streams api.Streams   // nil: no logs
	execer  api.Execer    // nil: no exec, no attach
	forward api.Forwarder // nil: no forwarded ports
	boards  *otherBoards
}

// session is a running exec or attach as its client sees it, over either transport. The writers and readers end when it does.
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

// sessionOptions are what a client asks of a session.
type sessionOptions struct {
	container             string
	stdin, stdout, stderr bool
	tty                   bool // the client has one
}

const maxCommand = 64 << 10 // bytes of a command and its arguments

func (r *request) sessionOptions() (o sessionOptions, err error) {
	o.container = r.query.Get("container")
	for name, to := range map[string]*bool{"stdin": &o.stdin, "stdout": &o.stdout, "stderr": &o.stderr, "tty": &o.tty} {
		if *to, err = queryBool(r.query, name); err != nil {
			return o, err
		}
	}
	switch {
	case o.tty && o.stderr:
		return o, badRequest("tty and stderr cannot both be true: a terminal has one output")
	case !o.stdin && !o.stdout && !o.stderr:
		return o, badRequest("you must specify at least one of stdin, stdout, stderr")
	}
	return o, nil
}

// exec runs a command in a container.
func (p *podStreams) exec(w *response, r *request) error {
	command, length := r.query["command"], 0
	for _, c := range command {
		length += len(c)
	}
	switch {
	case len(command) == 0:
		return badRequest("you must specify at least one command for the container")
	case length > maxCommand:
		return badRequest("the command may have %d bytes", maxCommand)
	}
	return p.session(w, r, "exec into", func(ctx context.Context, o sessionOptions, s *session) (int, error) {
		return p.execer.Exec(ctx, r.namespace, r.name, api.Exec{Container: o.container, Command: command,
			Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, TTY: o.tty, Resize: s.resize})
	})
}

// attach joins the streams of a container. How the container ends is for its status to tell.
func (p *podStreams) attach(w *response, r *request) error {
	return p.session(w, r, "attach", func(ctx context.Context, o sessionOptions, s *session) (int, error) {
		return 0, p.execer.Attach(ctx, r.namespace, r.name, api.Attach{Container: o.container,
			Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, Resize: s.resize})
	})
}

// session carries the streams between a client and a container, over WebSocket or SPDY.
func (p *podStreams) session(w *response, r *request, doing string,
	do func(context.Context, sessionOptions, *session) (code int, err error)) error {
	o, err := r.sessionOptions()
	if err != nil {
		return err
	}
	if p.execer == nil {
		return status(http.StatusNotImplemented, "NotImplemented", "this server cannot "+doing+" containers")
	}
	// What can be wrong is said now, as a Status: after the upgrade there is only text.
	pod, c, err := p.running(r, o.container, doing)
	if err != nil {
		return err
	}
	if o.container = c.Name; doing == "attach" && o.stdin && !c.Stdin {
		return badRequest("container %s of pod %s has no stdin to attach to: its spec does not say stdin: true", c.Name, r.name)
	}
	if p.boards.elsewhere(pod) {
		return p.boards.sessionElsewhere(w, r, pod, o)
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
	code, err := do(ctx, o, s)
	s.finish(exitStatus(code, err))
	s.left()
	return nil
}

// openSession upgrades the connection to what the client asks for. An error is answered in place of the upgrade.
func openSession(w *response, r *request, o sessionOptions) (*session, error) {
	if websocket.Wanted(r.Request) {
		return openWebSocketSession(w, r, o)
	}
	return openSPDYSession(w, r, o)
}

// running checks that a pod has a container that runs, and picks the one that is meant.
func (p *podStreams) running(r *request, name, doing string) (*corev1.Pod, *corev1.Container, error) {
	pod, err := api.Get[*corev1.Pod](r.Context(), p.client, api.Pods, r.namespace, r.name)
	if err != nil {
		return nil, nil, err
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, nil, badRequest("cannot %s a container in a completed pod; current phase is %s", doing, pod.Status.Phase)
	}
	c, err := containerIn(pod, name)
	if err != nil {
		return nil, nil, err
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses,
		pod.Status.EphemeralContainerStatuses} {
		for _, st := range list {
			if st.Name == c.Name && st.State.Running != nil {
				return pod, c, nil
			}
		}
	}
	return nil, nil, apierrors.NewInternalError(fmt.Errorf("unable to upgrade connection: container not found (%q): it is not running",
		c.Name))
}

// containerIn finds a container of a pod; without a name the one that its annotation says, or the only one.
func containerIn(pod *corev1.Pod, name string) (*corev1.Container, error) {
	if name == "" {
		name = pod.Annotations["kubectl.kubernetes.io/default-container"]
	}
	if name == "" && len(pod.Spec.Containers) == 1 {
		name = pod.Spec.Containers[0].Name
	}
	if name == "" {
		var all []string
		for _, c := range pod.Spec.Containers {
			all = append(all, c.Name)
		}
		return nil, badRequest("a container name must be specified for pod %s, choose one of: %v", pod.Name, all)
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			return (*corev1.Container)(&e.EphemeralContainerCommon), nil
		}
	}
	return nil, badRequest("container %s is not valid for pod %s", name, pod.Name)
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
