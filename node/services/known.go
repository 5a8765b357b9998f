package services

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/network/service"
)

// silence is how long pods wait to be told of Services that nobody says anything about. A control plane may come up with its boards after
// a power cut; one that stays away must not keep a board's pods from starting.
const silence = 30 * time.Second

// kubernetes is the Service of the API, of which pods of every namespace are told.
var kubernetes = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Of is what the board was last told of the Services of a namespace, and of the API's: names, first addresses and ports. It waits until
// they were heard once, or nothing for as long as silence.
func (l *Loop) Of(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	select {
	case <-l.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.heard.RLock()
	defer l.heard.RUnlock()
	var out []*corev1.Service
	for name, s := range l.heard.Services() {
		if s.Forwards() && (name.Namespace == namespace || name == kubernetes) {
			out = append(out, untrim(name, s))
		}
	}
	return out, nil
}

// untrim is what programs are told of a Service.
func untrim(name types.NamespacedName, s *service.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	out.Spec.ClusterIP = s.ClusterIPs[0].String()
	out.Spec.Ports = make([]corev1.ServicePort, 0, len(s.Ports))
	for _, p := range s.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Port)})
	}
	return out
}

// giveUp lets pods start with nothing known of Services.
func (l *Loop) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.known:
	default:
		slog.Warn("the control plane has not told what Services there are; pods start without their variables until it does", "after", silence)
		once(l.known)
	}
}

// once closes a channel that may be closed.
func once(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}
