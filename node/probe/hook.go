package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/runtime"
)

// Hook runs a lifecycle hook of a running container to its end, or until ctx ends. The error says more than its owner
// may be told in an event: it can hold what the container answered.
func (p *Prober) Hook(ctx context.Context, h *corev1.LifecycleHandler, c *corev1.Container, id, ip string) error {
	switch {
	case h.Exec != nil:
		var out capped
		x, err := p.engine.Exec(ctx, runtime.Exec{Container: id, Args: h.Exec.Command, Stdout: &out, Stderr: &out})
		if err == nil && x.Code != 0 {
			err = fmt.Errorf("command %q exited with %d: %q", strings.Join(h.Exec.Command, " "), x.Code, out.String())
		}
		return err
	case h.HTTPGet != nil:
		return p.httpHook(ctx, h.HTTPGet, c, ip)
	case h.Sleep != nil:
		t := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// tcpSocket is let through by Kubernetes' validation and fails there like this.
	return errors.New("invalid handler: a hook is exec, httpGet or sleep")
}

// httpHook asks; any answer will do.
func (p *Prober) httpHook(ctx context.Context, h *corev1.HTTPGetAction, c *corev1.Container, ip string) error {
	h = h.DeepCopy()
	if h.Port == intstr.FromString("") {
		h.Port = intstr.FromInt32(80)
	}
	err := p.getOnce(ctx, h, c, ip)
	// Before Kubernetes 1.25 the scheme was not read, and hooks written then say HTTPS and mean HTTP.
	if err != nil && h.Scheme == corev1.URISchemeHTTPS && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		h.Scheme = corev1.URISchemeHTTP
		err = p.getOnce(ctx, h, c, ip)
	}
	return err
}

func (p *Prober) getOnce(ctx context.Context, h *corev1.HTTPGetAction, c *corev1.Container, ip string) error {
	req, err := httpRequest(ctx, h, c, ip, "kube-lifecycle/"+p.version)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, most))
	return resp.Body.Close()
}
