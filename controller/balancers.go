package controller

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/networking"
)

// balanceRetry is when what could not be written is written again.
const balanceRetry = 5 * time.Second

// Balancers makes the boards the load balancer of each Service that asks for one and names no other: their own addresses are its, and
// each board forwards what reaches it there.
type Balancers struct {
	w        *World
	services Of[*corev1.Service]
	nodes    Of[*corev1.Node]
	slices   Of[*discoveryv1.EndpointSlice]
	sets     Of[*appsv1.DaemonSet]
	events   Recorder
	changed  <-chan struct{}
	grumble  grumble
}

// NewBalancers prepares the loop; call it before the World runs.
func NewBalancers(w *World, events Recorder) *Balancers {
	b := &Balancers{w: w, services: w.services(), nodes: w.nodes(), slices: w.slices(), events: events,
		sets: Of[*appsv1.DaemonSet]{w.view(apps.DaemonSets, api.Selection{})}}
	b.changed = listen(b.services, b.nodes, b.slices, b.sets)
	return b
}

// Run gives addresses until ctx ends.
func (b *Balancers) Run(ctx context.Context) error {
	return loop(ctx, b.changed, b.pass, b.services, b.nodes, b.slices, b.sets)
}

func (b *Balancers) pass(ctx context.Context, now time.Time) time.Duration {
	services, any := []*corev1.Service{}, false
	b.services.Each(func(obj api.Object) {
		svc := obj.(*corev1.Service)
		services, any = append(services, svc), any || balances(svc) || hasBalance(&svc.Status)
	})
	if !any {
		return idle
	}
	var errs []error
	all := balance(services, b.nodes.List(), b.ready, b.ingress())
	for _, svc := range services {
		if balances(svc) || svc.Spec.Type != corev1.ServiceTypeLoadBalancer && hasBalance(&svc.Status) {
			errs = append(errs, b.tell(ctx, svc, all[svc.UID], now))
		}
	}
	err := errors.Join(errs...)
	b.grumble.about(ctx, "cannot write which boards a service is reached at", err)
	if err != nil {
		return balanceRetry
	}
	return idle
}

func hasBalance(s *corev1.ServiceStatus) bool {
	return len(s.LoadBalancer.Ingress) > 0 || len(s.Conditions) > 0
}

// tell writes what a Service gets, where that is another than it says.
func (b *Balancers) tell(ctx context.Context, svc *corev1.Service, is balanced, now time.Time) error {
	if !withBalance(svc.Status.DeepCopy(), is, svc.Generation, now) {
		return nil
	}
	_, changed, err := amend(ctx, b.w.Client, api.Services, svc, "status", func(fresh *corev1.Service) bool {
		return withBalance(&fresh.Status, is, fresh.Generation, now)
	})
	for _, w := range is.why() {
		if changed && w.message != "" {
			b.events.Event(svc, corev1.EventTypeWarning, w.reason, "Not reachable at the boards: "+w.message)
		}
	}
	if changed && len(is.ingress) > 0 && len(svc.Status.LoadBalancer.Ingress) == 0 {
		b.events.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return err
}

// ingress are the ports of the pods that take requests in, while there are any.
func (b *Balancers) ingress() map[claim]holder {
	set, is := b.sets.Get(metav1.NamespaceSystem, networking.Pods)
	if !is || !isIngressSet(set) {
		return nil
	}
	out := map[claim]holder{}
	for _, c := range ingressClaims {
		out[c] = holder{set.UID, "that of the ingress pods: delete the Ingresses of ledge's class, or give the service another port"}
	}
	return out
}

// ready are the nodes on which endpoints of a Service are ready.
func (b *Balancers) ready(svc *corev1.Service) map[string]bool {
	out := map[string]bool{}
	b.slices.Each(func(obj api.Object) {
		s := obj.(*discoveryv1.EndpointSlice)
		if s.Namespace != svc.Namespace || s.Labels[discoveryv1.LabelServiceName] != svc.Name {
			return
		}
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out[*e.NodeName] = true
			}
		}
	})
	return out
}
