package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/scheduler"
)

// When a pod that found no place is tried again (N-10.3).
const (
	firstRetry   = time.Second
	longestRetry = 10 * time.Second
	latestRetry  = 5 * time.Minute
)

// Schedule gives pods their node.
type Schedule struct {
	w       *World
	nodes   Of[*corev1.Node]
	pods    Of[*corev1.Pod]
	budgets Of[*policyv1.PodDisruptionBudget]
	claims  Of[*corev1.PersistentVolumeClaim]
	volumes Of[*corev1.PersistentVolume]
	classes Of[*storagev1.StorageClass]
	sees    []follow
	events  Recorder
	cfg     scheduler.Config
	changed <-chan struct{}

	waiting map[types.UID]*waiting
	bound   map[types.UID]string // bound by us, not yet seen so
	hope    hope
	grumble grumble
}

// waiting is what is remembered of a pod without a node.
type waiting struct {
	since time.Time // first seen: the order of the queue (N-10.1)
	tries int
	last  time.Time
	hope  int // how much there was at the last try
	asks  []corev1.Toleration
}

// NewSchedule prepares the loop; call it before the World runs.
func NewSchedule(w *World, events Recorder, cfg scheduler.Config) *Schedule {
	s := &Schedule{w: w, nodes: w.nodes(), pods: w.pods(), budgets: w.budgets(), events: events, cfg: cfg,
		waiting: map[types.UID]*waiting{}, bound: map[types.UID]string{}}
	causes := []follow{s.nodes, s.pods}
	if w.has(api.PersistentVolumeClaims) {
		s.claims, s.volumes, s.classes = w.claims(), w.volumes(), w.classes()
		causes = append(causes, s.claims, s.volumes, s.classes)
	}
	s.changed, s.sees = listen(causes...), append(causes, s.budgets)
	return s
}

// Run schedules until ctx ends.
func (s *Schedule) Run(ctx context.Context) error {
	return loop(ctx, s.changed, s.pass, s.sees...)
}

// pass places every pod that is due, highest priority first, on one snapshot.
func (s *Schedule) pass(ctx context.Context, now time.Time) time.Duration {
	nodes, pods := s.nodes.List(), s.pods.List()
	s.hope.look(nodes, pods)
	var volumes scheduler.Volumes
	if s.claims.View != nil {
		volumes = s.lookAtVolumes()
	}
	due, wake := s.queue(pods, now)
	if len(due) == 0 {
		return wake
	}
	cfg := s.cfg
	cfg.Namespaces = func() map[string]labels.Set { return s.namespaces(ctx) }
	cfg.Budgets, cfg.Volumes = s.budgets.List(), volumes
	cluster := scheduler.NewCluster(nodes, s.assumed(pods), cfg)
	for _, pod := range due {
		if ctx.Err() != nil {
			return idle
		}
		w := s.waiting[pod.UID]
		w.tries, w.hope, w.asks = w.tries+1, s.hope.of(pod), pod.Spec.Tolerations
		s.place(ctx, cluster, pod, w)
		w.last = time.Now()
	}
	_, wake = s.queue(pods, time.Now())
	return wake
}

// namespaces are the labels that affinity terms may select namespaces by.
func (s *Schedule) namespaces(ctx context.Context) map[string]labels.Set {
	out := map[string]labels.Set{}
	list, err := s.w.Client.List(ctx, api.Namespaces, api.ListOptions{})
	if err != nil {
		s.grumble.about(ctx, "cannot read namespaces; affinity by their labels finds nobody", err)
	}
	for _, n := range list.Items {
		out[n.GetName()] = n.GetLabels()
	}
	return out
}

// queue is the pods to place now, in order (N-10.1), and when the next one will be due.
func (s *Schedule) queue(pods []*corev1.Pod, now time.Time) (due []*corev1.Pod, wake time.Duration) {
	present := make(map[types.UID]bool, len(s.waiting))
	wake = idle
	for _, p := range pods {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || scheduler.Terminal(p) || p.Spec.SchedulerName != scheduler.DefaultName {
			continue
		}
		present[p.UID] = true
		if s.bound[p.UID] != "" {
			continue
		}
		w := s.waiting[p.UID]
		if w == nil {
			w = &waiting{since: now}
			s.waiting[p.UID] = w
		}
		if toldGated(p) {
			continue // nothing is to be done until its gates are open, and a pass comes with each change of any pod
		}
		if wait := w.wait(p, s.hope.of(p), now); wait > 0 {
			wake = min(wake, wait)
		} else {
			due = append(due, p)
		}
	}
	for uid := range s.waiting {
		if !present[uid] {
			delete(s.waiting, uid)
		}
	}
	for uid := range s.bound {
		if !present[uid] {
			delete(s.bound, uid) // the store's word has arrived
		}
	}
	slices.SortFunc(due, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(scheduler.Priority(b), scheduler.Priority(a)),
			s.waiting[a.UID].since.Compare(s.waiting[b.UID].since), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return due, wake
}

const gatedMessage = "Scheduling is blocked due to non-empty scheduling gates"

// toldGated: a pod's gates are closed, and its status says so (N-10.4).
func toldGated(p *corev1.Pod) bool {
	return len(p.Spec.SchedulingGates) > 0 && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulingGated &&
			c.Message == gatedMessage
	})
}

// wait is how long a pod has to wait still: its back-off if something has changed for the better since it was last
// tried, else the longest.
func (w *waiting) wait(p *corev1.Pod, hope int, now time.Time) time.Duration {
	if w.tries == 0 {
		return 0
	}
	pause := latestRetry
	if hope != w.hope || !apiequality.Semantic.DeepEqual(p.Spec.Tolerations, w.asks) {
		pause = min(firstRetry<<min(w.tries-1, 8), longestRetry)
	}
	return w.last.Add(pause).Sub(now)
}

// assumed is the pods with those we have bound counted on their node already.
func (s *Schedule) assumed(pods []*corev1.Pod) []*corev1.Pod {
	if len(s.bound) == 0 {
		return pods
	}
	out := slices.Clone(pods)
	for i, p := range out {
		if node := s.bound[p.UID]; node != "" && p.Spec.NodeName == "" {
			on := *p
			on.Spec.NodeName = node
			out[i] = &on
		}
	}
	return out
}

func (s *Schedule) place(ctx context.Context, cluster *scheduler.Cluster, pod *corev1.Pod, w *waiting) {
	if len(pod.Spec.SchedulingGates) > 0 {
		w.tries = 0 // it has not been tried: it is due as soon as the gates are open (N-10.4)
		s.explain(ctx, pod, pod.Status.NominatedNodeName, corev1.PodReasonSchedulingGated, gatedMessage)
		return
	}
	node, err := cluster.Place(pod)
	if err == nil {
		if choices, wait := cluster.Choices(pod, node); wait {
			if s.choose(ctx, cluster, pod, node, choices) {
				w.tries = 0 // it is due as soon as its claims are bound
			} else {
				w.hope = -1
			}
			return
		}
		if !s.bind(ctx, cluster, pod, node) {
			w.hope = -1 // nothing is wrong with the pod: soon again
		}
		return
	}
	message, nominated := err.Error(), pod.Status.NominatedNodeName
	var fit *scheduler.FitError
	if errors.As(err, &fit) {
		way := cluster.Victims(pod, fit)
		switch {
		case way.Node != "":
			nominated = way.Node
			s.preempt(ctx, cluster, pod, way)
		case !way.Ineligible:
			nominated = ""
		}
		if way.Why != "" {
			message += " " + way.Why
		}
	}
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	s.explain(ctx, pod, nominated, corev1.PodReasonUnschedulable, message)
}

// bind writes the decision (N-10.2). A pod that somebody else has bound or deleted meanwhile is none of our business.
func (s *Schedule) bind(ctx context.Context, cluster *scheduler.Cluster, pod *corev1.Pod, node string) bool {
	_, err := s.w.Client.Create(ctx, api.Pods, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: api.Nodes.Name, Name: node},
	}, api.WriteOptions{Subresource: "binding"})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false
	}
	s.grumble.about(ctx, "cannot bind pod", err, "pod", api.Key(pod).String(), "node", node)
	if err != nil {
		return false
	}
	s.bound[pod.UID] = node
	cluster.Assume(pod, node)
	s.events.Event(pod, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s to %s", api.Key(pod), node))
	return true
}

// preempt ends the victims with their own grace and keeps their room (N-10.22).
func (s *Schedule) preempt(ctx context.Context, cluster *scheduler.Cluster, pod *corev1.Pod, way scheduler.Preemption) {
	for _, v := range way.Victims {
		if v.DeletionTimestamp != nil {
			continue
		}
		err := disrupt(ctx, s.w.Client, v, corev1.PodReasonPreemptionByScheduler,
			scheduler.DefaultName+": preempting to accommodate a higher priority pod")
		if err != nil {
			s.grumble.about(ctx, "cannot preempt pod", err, "pod", api.Key(v).String())
			continue
		}
		s.events.Event(v, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by pod %s on node %s", pod.UID, way.Node))
	}
	cluster.Nominate(pod, way.Node)
}

// explain says in the pod's status why it has no node yet (N-10.3, N-10.4).
func (s *Schedule) explain(ctx context.Context, pod *corev1.Pod, nominated, reason, message string) {
	now := time.Now()
	_, _, err := amend(ctx, s.w.Client, api.Pods, pod, "status", func(p *corev1.Pod) bool {
		if p.Spec.NodeName != "" {
			return false
		}
		changed := setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason,
			Message: message}, now)
		if p.Status.NominatedNodeName != nominated {
			p.Status.NominatedNodeName, changed = nominated, true
		}
		return changed
	})
	if err != nil {
		s.grumble.about(ctx, "cannot say why a pod is not scheduled", err, "pod", api.Key(pod).String())
	}
}

// hope counts changes that may let a waiting pod in: a node that came or changed in what the scheduler looks at, and a
// bound pod that ended.
type hope struct {
	level int
	came  int // pods that were bound, or whose labels changed: company for those that want some
	bonds int // changes of claims, volumes and classes
	saw   sight
	nodes map[string]*corev1.Node
	held  map[types.UID]map[string]string // their labels
}

// of is how much hope there is for a pod.
func (h *hope) of(p *corev1.Pod) int {
	if len(api.ClaimsOf(p)) > 0 {
		return h.level + h.came + h.bonds
	}
	if a := p.Spec.Affinity; len(p.Spec.TopologySpreadConstraints) > 0 || a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return h.level + h.came
	}
	return h.level
}

func (h *hope) look(nodes []*corev1.Node, pods []*corev1.Pod) {
	seen := make(map[string]*corev1.Node, len(nodes))
	better := false
	for _, n := range nodes {
		seen[n.Name] = n
		if old := h.nodes[n.Name]; old != n && (old == nil || !alike(old, n)) {
			better = true
		}
	}
	held, came := make(map[types.UID]map[string]string, len(pods)), false
	for _, p := range pods {
		if p.Spec.NodeName != "" && !scheduler.Terminal(p) {
			held[p.UID] = p.Labels
			was, known := h.held[p.UID]
			came = came || !known || !maps.Equal(was, p.Labels)
		}
	}
	for uid := range h.held {
		_, stays := held[uid]
		better = better || !stays
	}
	if came {
		h.came++
	}
	h.nodes, h.held = seen, held
	if better {
		h.level++
	}
}

// alike: a scheduler sees no difference. Heartbeats come often and change nothing.
func alike(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable &&
		apiequality.Semantic.DeepEqual(a.Labels, b.Labels) && apiequality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		apiequality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) &&
		apiequality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity)
}
