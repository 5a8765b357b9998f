package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podlog"
	"ledge/runtime"
)

var (
	_ api.Streams   = (*Agent)(nil)
	_ api.Execer    = (*Agent)(nil)
	_ api.Forwarder = (*Agent)(nil)
)

// streams reach into pods of this node, for the API. An Agent has them.
type streams struct{ a *Agent }

// here reads a pod that must be on this node.
func (d streams) here(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := d.a.podNamed(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != d.a.cfg.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is on node %q, not on %q", name, pod.Spec.NodeName, d.a.cfg.Name))
	}
	return pod, nil
}

// Addresses are those that the board's Node has in the API, where others look for its streams; none before it is there.
func (d streams) Addresses() []corev1.NodeAddress {
	n, ok := d.a.self.Get("", d.a.cfg.Name)
	if !ok {
		return nil
	}
	return n.Status.Addresses
}

// Logs reads what a container of a pod of this node wrote.
func (d streams) Logs(ctx context.Context, namespace, name string, opts api.LogOptions) (io.ReadCloser, error) {
	pod, err := d.here(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return d.a.logs.Open(ctx, pod, opts)
}

// logPods tells readers of logs about the pods of an agent.
type logPods struct{ a *Agent }

// Containers implements podlog.Pods.
func (p logPods) Containers(uid types.UID) ([]runtime.Status, bool) {
	cs, _, up := p.a.engine.held(uid)
	return cs, up
}

// Living implements podlog.Pods.
func (p logPods) Living(uid types.UID) *corev1.Pod {
	if w := p.a.roster.of(uid); w != nil && !w.isEnded() {
		return w.current()
	}
	return nil
}

// Exec runs a command in a container of a pod of this node.
func (d streams) Exec(ctx context.Context, namespace, name string, x api.Exec) (int, error) {
	container, id, err := d.runs(ctx, namespace, name, x.Container)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exit, err := d.a.cfg.Engine.Exec(ctx, runtime.Exec{Container: id, Args: x.Command, Stdin: x.Stdin, Stdout: x.Stdout, Stderr: x.Stderr,
		TTY: x.TTY, Resize: sizes(ctx, x.Resize)})
	switch {
	case errors.Is(err, runtime.ErrNotFound), errors.Is(err, runtime.ErrNotRunning):
		return 0, notRunning(container)
	case err != nil:
		return 0, fmt.Errorf("run %q in container %s of pod %s: %w", x.Command, container, name, err)
	}
	return exit.Code, nil
}

// Attach joins the streams of a container of a pod of this node.
func (d streams) Attach(ctx context.Context, namespace, name string, x api.Attach) error {
	container, id, err := d.runs(ctx, namespace, name, x.Container)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = d.a.cfg.Engine.Attach(ctx, runtime.Attach{Container: id, Stdin: x.Stdin, Stdout: x.Stdout, Stderr: x.Stderr,
		Resize: sizes(ctx, x.Resize)})
	switch {
	case errors.Is(err, runtime.ErrNotFound), errors.Is(err, runtime.ErrNotRunning):
		return notRunning(container)
	case err != nil:
		return fmt.Errorf("attach to container %s of pod %s: %w", container, name, err)
	}
	return nil
}

// runs finds a container that runs, and the engine's name for it.
func (d streams) runs(ctx context.Context, namespace, name, container string) (_, id string, err error) {
	pod, err := d.here(ctx, namespace, name)
	if err != nil {
		return "", "", err
	}
	if container, err = podlog.Container(pod, container); err != nil {
		return "", "", err
	}
	cs, _, _ := d.a.engine.held(pod.UID)
	for _, s := range cs {
		if s.Name == container && s.Phase == runtime.Running {
			id = s.ID
		}
	}
	if id == "" {
		return "", "", notRunning(container)
	}
	return container, id, nil
}

// sizes are those of a terminal in the engine's words, until ctx ends.
func sizes(ctx context.Context, from <-chan api.TerminalSize) <-chan runtime.Size {
	to := make(chan runtime.Size)
	go func() {
		for {
			select {
			case s := <-from:
				select {
				case to <- runtime.Size{Width: s.Width, Height: s.Height}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

func notRunning(container string) error {
	return apierrors.NewInternalError(fmt.Errorf("container %q is not running", container))
}

// Dial connects to a port of a pod of this node: to its loopback address, where also those listen who do not want to
// be reached from outside.
func (d streams) Dial(ctx context.Context, namespace, name string, port uint16) (net.Conn, error) {
	pod, err := d.here(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if d.a.board().OnHostNetwork(pod) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(int(port))))
	}
	st, ok := d.a.engine.pod(pod.UID)
	if !ok || st.NetNS == "" {
		return nil, apierrors.NewInternalError(fmt.Errorf("pod %s has no network now", name))
	}
	return d.a.cfg.Machine.Dial(ctx, st.NetNS, port)
}
