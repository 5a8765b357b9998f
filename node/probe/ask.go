package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/runtime"
)

// Outcome is what asking once came to. With Err the container could not be asked: it says nothing about the container.
type Outcome struct {
	Result  Result
	Output  string
	Warning bool // passed, with something to say
	Err     error
}

func failed(format string, args ...any) Outcome {
	return Outcome{Result: Failure, Output: fmt.Sprintf(format, args...)}
}

// most is how much of what a container says is kept (kubernetes#70890: an exec probe's endless output once took all
// memory of a node).
const most = 10 << 10

// tries is how often a container is asked in a row when it cannot be (N-7.33).
const tries = 3

func (p *Prober) ask(ctx context.Context, spec *corev1.Probe, c *corev1.Container, id, ip string) (out Outcome) {
	for range tries {
		out = p.once(ctx, spec, c, id, ip)
		if out.Err == nil || ctx.Err() != nil {
			break
		}
	}
	return out
}

func (p *Prober) once(ctx context.Context, spec *corev1.Probe, c *corev1.Container, id, ip string) Outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout(spec))
	defer cancel()
	switch h := spec.ProbeHandler; {
	case h.Exec != nil:
		return p.exec(ctx, h.Exec.Command, id, timeout(spec))
	case h.HTTPGet != nil:
		return p.httpGet(ctx, h.HTTPGet, c, ip)
	case h.TCPSocket != nil:
		return tcpSocket(ctx, h.TCPSocket, c, ip)
	case h.GRPC != nil:
		return p.grpc(ctx, h.GRPC, ip, timeout(spec))
	}
	return Outcome{Err: errors.New("missing probe handler")}
}

func (p *Prober) exec(ctx context.Context, command []string, id string, limit time.Duration) Outcome {
	var out capped
	x, err := p.engine.Exec(ctx, runtime.Exec{Container: id, Args: command, Stdout: &out, Stderr: &out})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failed("command timed out: %q timed out after %s", strings.Join(command, " "), limit)
	case err != nil:
		return Outcome{Err: err}
	case x.Code != 0:
		return failed("%s", out.String())
	}
	return Outcome{Result: Success, Output: out.String()}
}

// capped keeps the beginning of what is written to it and takes the rest.
type capped struct {
	mu  sync.Mutex
	buf []byte
}

func (c *capped) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf, b[:min(len(b), most-len(c.buf))]...)
	return len(b), nil
}

func (c *capped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ToValidUTF8(string(c.buf), "�")
}

func tcpSocket(ctx context.Context, t *corev1.TCPSocketAction, c *corev1.Container, ip string) Outcome {
	port, err := portOf(t.Port, c)
	if err != nil {
		return Outcome{Err: err}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(first(t.Host, ip), strconv.Itoa(port)))
	if err != nil {
		return failed("%v", err)
	}
	_ = conn.Close()
	return Outcome{Result: Success}
}

// portOf finds a port by its number or by its name in the container.
func portOf(p intstr.IntOrString, c *corev1.Container) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		for _, have := range c.Ports {
			if have.Name == p.StrVal {
				n = int(have.ContainerPort)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("port %q: neither a number from 1 to 65535 nor the name of a port of container %s", p.String(), c.Name)
	}
	return n, nil
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
