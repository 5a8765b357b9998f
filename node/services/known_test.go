package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/network/fake"
)

// told writes what a pod of a namespace is told now; it waits no longer than a second.
func told(t *testing.T, l *Loop, namespace string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // t is outside of the bubble
	defer cancel()
	list, err := l.Of(ctx, namespace)
	if errors.Is(err, context.DeadlineExceeded) {
		return []string{"waits"}
	}
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, s := range list {
		text := s.Namespace + "/" + s.Name + "=" + s.Spec.ClusterIP
		for _, p := range s.Spec.Ports {
			text += fmt.Sprintf(" %s:%s:%d", p.Name, p.Protocol, p.Port)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func tells(t *testing.T, what string, l *Loop, namespace string, want ...string) {
	t.Helper()
	if got := told(t, l, namespace); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestOf: pods are told of the Services of their namespace and of the API's, and of those known last while the control plane is away.
func TestOf(t *testing.T) {
	p := newPlane()
	web := svc("web", "10.96.0.2")
	web.Spec.ClusterIPs = append(web.Spec.ClusterIPs, "fd00::2")
	web.Spec.Ports = append(web.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53})
	p.put(api.Services, svc("kubernetes", "10.96.0.1"))
	p.put(api.Services, svc("other", "10.96.0.3"))
	p.put(api.Services, svc("none", "None"))
	web.Namespace = "shop"
	p.put(api.Services, web)
	rig(t, p, func(l *Loop, _ *fake.Kernel, _ *counted) {
		tells(t, "shop", l, "shop", "default/kubernetes=10.96.0.1 :TCP:80", "shop/web=10.96.0.2 :TCP:80 dns:UDP:53")
		tells(t, "default", l, "default", "default/kubernetes=10.96.0.1 :TCP:80", "default/other=10.96.0.3 :TCP:80")
		p.remove(api.Services, svc("other", ""))
		p.cut(true)
		time.Sleep(time.Hour)
		tells(t, "an hour without the control plane", l, "default", "default/kubernetes=10.96.0.1 :TCP:80")
	})
}

// TestSilence: a pod waits for a control plane that comes up with its board, and not for one that stays away.
func TestSilence(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	p.away = true
	rig(t, p, func(l *Loop, _ *fake.Kernel, c *counted) {
		tells(t, "at first", l, "default", "waits")
		time.Sleep(silence)
		tells(t, "after some time", l, "default")
		if got := c.counts(); got != [3]int{} {
			t.Errorf("updates, prunes, deletes before anything was heard: %v", got)
		}
		p.cut(false)
		time.Sleep(time.Minute)
		tells(t, "when it is back", l, "default", "default/web=10.96.0.1 :TCP:80")
	})
}

// TestNoneKnown: where it is known that there are no Services no pod waits.
func TestNoneKnown(t *testing.T) {
	rig(t, &sparse{plane: newPlane()}, func(l *Loop, _ *fake.Kernel, _ *counted) { tells(t, "none", l, "default") })
}
