package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/networking"
)

const (
	// ingressLinger is how long the pods stay when nobody needs them: who replaces an Ingress takes the old one away first.
	ingressLinger = 30 * time.Second
	ingressRetry  = 5 * time.Second
)

// IngressPods makes a pod on each board that takes requests in, as long as there is an Ingress of a class that ledge serves. It writes
// into each such Ingress at which boards it can be reached. The pods themselves find out what to do with a request (network/ingress).
type IngressPods struct {
	w         *World
	ingresses Of[*networkingv1.Ingress]
	classes   Of[*networkingv1.IngressClass]
	services  Of[*corev1.Service]
	sets      Of[*appsv1.DaemonSet]
	pods      Of[*corev1.Pod]
	nodes     Of[*corev1.Node]
	events    Recorder
	changed   <-chan struct{}
	needless  time.Time // since when nobody needs the pods; zero: somebody does
	taken     string    // who has their ports, as was told last
	grumble   grumble
}

// NewIngressPods prepares the loop; call it before the World runs.
func NewIngressPods(w *World, events Recorder) *IngressPods {
	l := &IngressPods{w: w, events: events, services: w.services(), pods: w.pods(), nodes: w.nodes(),
		ingresses: Of[*networkingv1.Ingress]{w.view(networking.Ingresses, api.Selection{})},
		classes:   Of[*networkingv1.IngressClass]{w.viewWith(networking.IngressClasses, networking.Ingresses)},
		sets:      Of[*appsv1.DaemonSet]{w.view(apps.DaemonSets, api.Selection{})}}
	l.changed = listen(l.ingresses, l.classes, l.services, l.sets, l.pods, l.nodes)
	return l
}

// Run works until ctx ends.
func (l *IngressPods) Run(ctx context.Context) error {
	return loop(ctx, l.changed, l.pass, l.ingresses, l.classes, l.services, l.sets, l.pods, l.nodes)
}

func (l *IngressPods) pass(ctx context.Context, now time.Time) time.Duration {
	ours := l.ours()
	have, is := l.sets.Get(metav1.NamespaceSystem, networking.Pods)
	is = is && isIngressSet(have)
	if len(ours) == 0 && !is {
		l.needless, l.taken = time.Time{}, ""
		return idle
	}
	var err error
	wait := idle
	switch {
	case len(ours) > 0:
		l.needless = time.Time{}
		err = l.ensure(ctx, have, is, ours)
	case l.needless.IsZero():
		l.needless, wait = now, ingressLinger
	case now.Sub(l.needless) < ingressLinger:
		wait = ingressLinger - now.Sub(l.needless)
	default:
		err = l.remove(ctx, have)
	}
	at := ingressAddresses(l.nodes.List(), l.pods.List())
	for _, i := range ours {
		err = errors.Join(err, l.tell(ctx, i, at))
	}
	l.grumble.about(ctx, "cannot keep the pods that take requests in, or say where they are", err)
	if err != nil {
		return ingressRetry
	}
	return wait
}

// ours are the Ingresses of classes that name ledge's controller.
func (l *IngressPods) ours() (out []*networkingv1.Ingress) {
	classes := map[string]bool{}
	l.classes.Each(func(obj api.Object) {
		c := obj.(*networkingv1.IngressClass)
		classes[c.Name] = c.Spec.Controller == networking.Controller
	})
	l.ingresses.Each(func(obj api.Object) {
		if i := obj.(*networkingv1.Ingress); i.DeletionTimestamp == nil && classes[networking.ClassOf(i)] {
			out = append(out, i)
		}
	})
	return out
}

// ensure makes the pods, unless somebody else has their ports, and changes them where this ledge wants others than the one that made
// them. What people changed stays until then.
func (l *IngressPods) ensure(ctx context.Context, have *appsv1.DaemonSet, is bool, ours []*networkingv1.Ingress) error {
	want := ingressSet()
	if is {
		_, _, err := amend(ctx, l.w.Client, apps.DaemonSets, have, "", func(s *appsv1.DaemonSet) bool {
			if s.Annotations[ingressMark] == want.Annotations[ingressMark] {
				return false
			}
			s.Annotations[ingressMark], s.Spec.Template = want.Annotations[ingressMark], want.Spec.Template
			return true
		})
		return err
	}
	taken := portsHolder(l.services.List())
	if taken != "" {
		if taken != l.taken {
			for _, i := range ours {
				l.events.Event(i, corev1.EventTypeWarning, "PortTaken", "Not reachable at the boards: "+taken)
			}
		}
		l.taken = taken
		return nil
	}
	l.taken = ""
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: networking.Pods,
		Labels: ingressLabels()}}
	if _, err := api.Create(ctx, l.w.Client, api.ServiceAccounts, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the account of the ingress pods: %w", err)
	}
	_, err := api.Create(ctx, l.w.Client, apps.DaemonSets, want)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the ingress pods: %w", err)
	}
	if apierrors.IsAlreadyExists(err) && have != nil && have.DeletionTimestamp == nil {
		return fmt.Errorf("DaemonSet %s is somebody else's: delete it, so that the ingress pods can be made", api.Key(want))
	}
	return nil
}

func (l *IngressPods) remove(ctx context.Context, set *appsv1.DaemonSet) error {
	_, err := l.w.Client.Delete(ctx, apps.DaemonSets, set.Namespace, set.Name, api.DeleteOptions{UID: &set.UID})
	if err == nil || apierrors.IsNotFound(err) {
		_, err = l.w.Client.Delete(ctx, api.ServiceAccounts, set.Namespace, networking.Pods, api.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// tell writes where an Ingress is reached, where that is another place than it says.
func (l *IngressPods) tell(ctx context.Context, i *networkingv1.Ingress, at []networkingv1.IngressLoadBalancerIngress) error {
	_, _, err := amend(ctx, l.w.Client, networking.Ingresses, i, api.StatusSub, func(fresh *networkingv1.Ingress) bool {
		if apiequality.Semantic.DeepEqual(fresh.Status.LoadBalancer.Ingress, at) {
			return false
		}
		fresh.Status.LoadBalancer.Ingress = at
		return true
	})
	return err
}

// ingressAddresses are those of the boards that take traffic and whose pod is ready, in the families that the pod has.
func ingressAddresses(nodes []*corev1.Node, pods []*corev1.Pod) (out []networkingv1.IngressLoadBalancerIngress) {
	families := map[string][]corev1.IPFamily{}
	for _, p := range pods {
		if p.Namespace == metav1.NamespaceSystem && p.Labels[ingressLabel] == networking.Pods && p.DeletionTimestamp == nil && api.PodReady(p) {
			for _, ip := range p.Status.PodIPs {
				families[p.Spec.NodeName] = append(families[p.Spec.NodeName], api.FamilyOf(ip.IP))
			}
		}
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !takesTraffic(n) || families[n.Name] == nil })
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		for _, ip := range addressesOf(n, families[n.Name]) {
			if len(out) < mostIngress {
				out = append(out, networkingv1.IngressLoadBalancerIngress{IP: ip})
			}
		}
	}
	return out
}

// portsHolder says which Service has the ports that the pods need; "": none.
func portsHolder(services []*corev1.Service) string {
	for c, h := range given(services) {
		if slices.Contains(ingressClaims, c) && h.what != "that of the API" { // which may be another machine's
			return fmt.Sprintf("port %s of the boards is %s", c, h.what)
		}
	}
	for _, s := range services {
		if !balances(s) || len(s.Status.LoadBalancer.Ingress) == 0 {
			continue
		}
		for _, p := range s.Spec.Ports {
			if c := (claim{p.Protocol, p.Port}); slices.Contains(ingressClaims, c) {
				return fmt.Sprintf("port %s of the boards is that of service %s", c, api.Key(s))
			}
		}
	}
	return ""
}

// ingressClaims are the ports of all boards that lead to the pods.
var ingressClaims = []claim{{corev1.ProtocolTCP, 80}, {corev1.ProtocolTCP, 443}}

const (
	ingressLabel = "app.kubernetes.io/name"
	managedBy    = "app.kubernetes.io/managed-by"
	ingressMark  = "ledge.local/made-of" // a sum of the template that ledge wanted
)

func ingressLabels() map[string]string {
	return map[string]string{ingressLabel: networking.Pods, managedBy: "ledge"}
}

func isIngressSet(s *appsv1.DaemonSet) bool {
	return s.Labels[managedBy] == "ledge" && s.Annotations[ingressMark] != "" && s.DeletionTimestamp == nil
}

// ingressSet are the pods that take requests in: the binary itself, without any privilege. The board's ports 80 and 443 lead to others
// of the pod, so that not even binding needs one.
func ingressSet() *appsv1.DaemonSet {
	labels := ingressLabels()
	s := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: networking.Pods, Labels: labels},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{ingressLabel: networking.Pods}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: ingressPod()}}}
	sum := fnv.New64a()
	_ = json.NewEncoder(sum).Encode(s.Spec) // plain types into a sum cannot fail
	s.Annotations = map[string]string{ingressMark: fmt.Sprintf("%016x", sum.Sum64())}
	return s
}
