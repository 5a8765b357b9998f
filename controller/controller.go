// Package controller is the control plane's loops: each follows the objects it cares about, takes a snapshot, asks a
// pure function (package scheduler, lease or workload, or one of its own) and writes the answer through api.Client.
//
//	Schedule       unbound pods -> scheduler.Place -> bind, or say why not and make room
//	NodeHealth     nodes, leases -> lease.Monitor -> Unknown conditions, taints, labels
//	TaintEviction  pods on nodes with NoExecute taints -> delete, now or when tolerated long enough
//	Machines       nodes that are not ready -> a list of machines -> delete the Node, or a taint
//	CIDRs          nodes without a pod network -> a free part of the cluster's -> write it
//	Replicas       replication controllers, ReplicaSets, pods -> how many are missing or too many -> make or delete them
//	Deployments    Deployments, ReplicaSets, pods -> workload.Roll -> make, size and delete ReplicaSets
//	Placed         StatefulSets or DaemonSets, their revisions, pods -> workload.Order or Cover -> make and delete pods
//	Jobs           Jobs, pods -> jobs.Next -> make pods, count how they end
//	CronJobs       CronJobs, Jobs, the clock -> cronjobs.Next -> make Jobs when they are due, delete old ones
//	Autoscalers    autoscalers, what they name, usage -> autoscale.Decide -> set the scale
//	Endpoints      Services, pods, nodes -> endpoints.Slices, Legacy -> what is behind each Service
//	Mirrors        Endpoints that somebody wrote -> endpoints.Mirror -> slices that say the same
//	Balancers      Services of type LoadBalancer, nodes, slices -> at which boards each is reached -> the Service's status
//	Claims         claims, volumes, classes, pods, nodes -> claims.Next -> bind, release, let go
//	IngressPods    Ingresses, their classes, nodes -> the pods that take requests in -> a DaemonSet, the Ingress's status
//	Budgets        disruption budgets, pods -> how many may be evicted -> the budget's status
//	Networks       nodes with pod networks -> a ConfigMap that boards read, a condition where two share one
//	Aggregated     ClusterRoles -> rbac.Aggregate -> the rules of those that pick others
//	PodGC          ended pods beyond a number, pods and leases of nodes that are gone
//
// They share one copy of the objects (World) and nothing else: they meet only in the store. Every loop works on what
// is, not on what happened, so that a missed event or a failed write is made good by the next look.
//
// Expiring events and emptying namespaces are the API server's own business (api/local).
//
// It may import api, lease, scheduler and its own rooms, and nothing else of ledge.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/discovery"
	"ledge/api/networking"
	"ledge/api/rbac"
	"ledge/lease"
	"ledge/scheduler"
)

// Config is what the control plane's loops need. Only Client is required.
type Config struct {
	Client   api.Client
	Kinds    *api.Kinds // nil: those of a board
	Health   lease.Settings
	Schedule scheduler.Config
	// TerminatedPods is how many ended pods are kept per board; zero is 100 (N-3.46), negative keeps all.
	TerminatedPods int
	OutOfService   OutOfService
	NodeCIDRs      NodeCIDRs
	Machines       Lister   // nil: there is no list of machines (N-3.62)
	Metrics        *Metrics // nil: nobody asks
	Usage          Usage    // nil: nothing is measured
	// Node is the control plane's own board, the only one whose static pods stand behind Services.
	Node string
	// Believed says whether the clock is right, as far as anybody knows: CronJobs begin nothing before, and a Job is not older than it was
	// seen to be. nil: it is.
	Believed func() bool
}

// OutOfService configures what the taint out-of-service does (N-4.3 to N-4.5).
type OutOfService struct {
	// Ignored: nothing beyond what any taint does (N-4.10).
	Ignored bool
	// NoScheduleEvicts treats its effect NoSchedule like NoExecute (N-4.5).
	NoScheduleEvicts bool
}

// Run runs all loops until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("controller: no client")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	w := NewWorld(cfg.Client, cfg.Kinds)
	record := func(component string) *api.Recorder { return api.NewRecorder(cfg.Client, component, "") }
	placed, health, evicted := record(scheduler.DefaultName), record("node-controller"), record("taint-eviction-controller")
	collected, budgets, replicas := record("pod-garbage-collector"), record("controllermanager"), record("replication-controller")
	replicated := []*replicated{controllers(w, replicas)}
	loops := []runner{
		placed, health, evicted, collected, budgets, replicas,
		NewSchedule(w, placed, cfg.Schedule),
		NewNodeHealth(w, health, cfg),
		NewTaintEviction(w, evicted, cfg),
		NewPodGC(w, collected, cfg),
		NewBudgets(w, budgets),
	}
	if w.has(rbac.ClusterRoles) {
		loops = append(loops, NewAggregated(w))
	}
	if w.has(apps.ReplicaSets) {
		sets := record("replicaset-controller")
		replicated, loops = append(replicated, replicaSets(w, sets)), append(loops, sets)
	}
	loops = append(loops, NewReplicas(w, replicated...))
	if w.has(apps.Deployments) {
		deployments := record("deployment-controller")
		loops = append(loops, deployments, NewDeployments(w, deployments))
	}
	if w.has(apps.StatefulSets) {
		ordered := record("statefulset-controller")
		loops = append(loops, ordered, NewPlaced(w, statefulSets(w, ordered)))
	}
	if w.has(apps.DaemonSets) {
		covering := record("daemonset-controller")
		loops = append(loops, covering, NewPlaced(w, daemonSets(w, covering)))
	}
	if w.has(batch.Jobs) {
		jobs := record("job-controller")
		loops = append(loops, jobs, NewJobs(w, cfg.Believed, jobs))
	}
	if w.has(batch.CronJobs) {
		due := record("cronjob-controller")
		loops = append(loops, due, NewCronJobs(w, cfg.Believed, due))
	}
	if w.has(autoscaling.HorizontalPodAutoscalers) {
		scaled := record("horizontal-pod-autoscaler")
		loops = append(loops, scaled, NewAutoscalers(w, cfg.Usage, scaled))
	}
	loops = append(loops, reaching(w, cfg.Node, record)...)
	if w.has(api.PersistentVolumeClaims) {
		claims := record("persistentvolume-controller")
		loops = append(loops, claims, NewClaims(w, claims))
	}
	if len(cfg.NodeCIDRs.Clusters) > 0 {
		given := record("cidrAllocator")
		cidrs, err := NewCIDRs(w, given, cfg.NodeCIDRs)
		if err != nil {
			return err
		}
		loops = append(loops, given, cidrs, NewNetworks(w, given, cfg.NodeCIDRs))
	}
	if cfg.Machines != nil {
		machines := record("cloud-node-lifecycle-controller")
		loops = append(loops, machines, NewMachines(w, machines, cfg))
	}
	loops = append(loops, w) // last: the others have told it by now what they want to hear of
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range loops {
		g.Go(func() error { return l.Run(ctx) })
	}
	return g.Wait()
}

type runner interface{ Run(context.Context) error }

// reaching are the loops by which pods are reached: as Services, and from outside.
func reaching(w *World, node string, record func(component string) *api.Recorder) (loops []runner) {
	if w.has(discovery.EndpointSlices) {
		behind, mirrored := record("endpoint-slice-controller"), record("endpoint-slice-mirroring-controller")
		reached := record("service-controller")
		loops = append(loops, behind, mirrored, reached, NewEndpoints(w, node, behind), NewMirrors(w, mirrored), NewBalancers(w, reached))
	}
	if w.has(networking.Ingresses) {
		ways := record("ingress-controller")
		loops = append(loops, ways, NewIngressPods(w, ways))
	}
	return loops
}

// Recorder takes events for users to read; *api.Recorder is one.
type Recorder interface {
	Event(object api.Object, eventType, reason, message string)
}

// loop calls pass at each change of what it listens to and whenever it asked to be woken, until ctx ends. It begins when all
// that it looks at has been seen once.
func loop(ctx context.Context, changed <-chan struct{}, pass func(context.Context, time.Time) time.Duration, looksAt ...follow) error {
	for _, f := range looksAt {
		select {
		case <-ctx.Done():
			return nil
		case <-f.Synced():
		}
	}
	timer := time.NewTimer(pass(ctx, time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
		timer.Reset(pass(ctx, time.Now()))
	}
}

// idle is how long a loop sleeps when it expects nothing.
const idle = 5 * time.Minute

// How a write that met a newer object is tried again (N-3.9).
const (
	amendTries = 5
	amendWait  = 20 * time.Millisecond
)

// amend changes an object as it is now: first the copy we hold, and after a conflict the newest. change says whether
// there is anything to write; it must be able to run more than once. An object that is gone is not an error, and
// changed says whether something was written.
func amend[T api.Object](ctx context.Context, c api.Client, kind *api.Kind, obj T, subresource string,
	change func(T) bool) (out T, changed bool, err error) {
	uid := obj.GetUID()
	for try := range amendTries {
		next := obj.DeepCopyObject().(T)
		if !change(next) {
			return obj, false, nil
		}
		var written api.Object
		written, err = c.Update(ctx, kind, next, api.WriteOptions{Subresource: subresource})
		if err == nil {
			out, _ = written.(T)
			return out, true, nil
		}
		if apierrors.IsNotFound(err) {
			return obj, false, nil
		}
		if try > 0 || !apierrors.IsConflict(err) {
			if !sleep(ctx, amendWait) {
				break
			}
		}
		fresh, getErr := api.Get[T](ctx, c, kind, obj.GetNamespace(), obj.GetName())
		switch {
		case apierrors.IsNotFound(getErr):
			return obj, false, nil
		case getErr == nil && fresh.GetUID() != uid:
			return obj, false, nil // another one of that name
		case getErr == nil:
			obj = fresh
		}
	}
	return obj, false, fmt.Errorf("update %s %s: %w", kind.Singular, api.Key(obj), err)
}

// grumble logs a failure once, and again only when it is another one or after things went well in between: a full disk
// fails every few seconds.
type grumble struct{ last string }

func (g *grumble) about(ctx context.Context, message string, err error, args ...any) {
	switch {
	case err == nil:
		g.last = ""
	case ctx.Err() == nil && err.Error() != g.last:
		g.last = err.Error()
		slog.Warn(message, append(args, "err", err)...)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// setCondition puts a condition into a pod's status. It returns false if the pod has that condition already.
func setCondition(pod *corev1.Pod, c corev1.PodCondition, now time.Time) bool {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range pod.Status.Conditions {
		old := &pod.Status.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return false
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return true
	}
	pod.Status.Conditions = append(pod.Status.Conditions, c)
	return true
}

// disrupt marks a pod as ended from outside, and deletes it: with its own grace, or by force.
func disrupt(ctx context.Context, c api.Client, pod *corev1.Pod, reason, message string) error {
	now := time.Now()
	_, _, err := amend(ctx, c, api.Pods, pod, "status", func(p *corev1.Pod) bool {
		return setCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: reason, Message: message}, now)
	})
	if err != nil {
		return err
	}
	return remove(ctx, c, pod, api.DeleteOptions{})
}

// remove deletes a pod of exactly that UID. One that is gone, or another by that name, is not an error.
func remove(ctx context.Context, c api.Client, pod *corev1.Pod, opts api.DeleteOptions) error {
	opts.UID = &pod.UID
	_, err := c.Delete(ctx, api.Pods, pod.Namespace, pod.Name, opts)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete pod %s: %w", api.Key(pod), err)
}

func force() api.DeleteOptions {
	var now int64
	return api.DeleteOptions{Grace: &now}
}
