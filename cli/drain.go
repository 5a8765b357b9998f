package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

// drainOpts are kubectl's, under its names.
type drainOpts struct {
	force, emptyDirs, daemonSets bool
	grace                        int64
	timeout                      time.Duration
}

func drainFlags(c *Command) {
	o := &drainOpts{}
	c.Flags.BoolVar(&o.force, "force", false, "also pods that nobody makes again")
	c.Flags.BoolVar(&o.emptyDirs, "delete-emptydir-data", false, "also pods whose emptyDir volumes are lost then")
	c.Flags.BoolVar(&o.daemonSets, "ignore-daemonsets", false, "leave the pods of daemon sets")
	c.Flags.Int64Var(&o.grace, "grace-period", -1, "seconds a pod gets to end; -1: its own")
	c.Flags.DurationVar(&o.timeout, "timeout", 0, "give up after so long; 0: never")
	c.Opts = o
}

// drain cordons a node and evicts its pods.
func drain(ctx context.Context, c *Command) error {
	o := c.Opts.(*drainOpts)
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	node, err := c.node(ctx, cl)
	if err != nil {
		return err
	}
	if err := c.setCordon(ctx, cl, node, true); err != nil {
		return err
	}
	list, err := cl.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName",
		node.Name)}})
	if err != nil {
		return err
	}
	evict, refused := drainPlan(list.Items, *o)
	if len(refused) > 0 {
		return fmt.Errorf("cannot drain node %s, which is cordoned now: %s", node.Name, strings.Join(refused, "; "))
	}
	for _, p := range evict {
		say(c.out, "evicting pod %s/%s\n", p.Namespace, p.Name)
	}
	if err := evictAll(ctx, cl, evict, *o, c.out); err != nil {
		return fmt.Errorf("drain node %s: %w", node.Name, err)
	}
	_, err = say(c.out, "node/%s drained\n", node.Name)
	return err
}

// drainPlan says which pods of a node must go (N-11.8), and why that may not be done without another word.
func drainPlan(pods []api.Object, o drainOpts) (evict []*corev1.Pod, refused []string) {
	no := func(p *corev1.Pod, why, flag string) {
		refused = append(refused, fmt.Sprintf("pod %s/%s %s (%s)", p.Namespace, p.Name, why, flag))
	}
	for _, obj := range pods {
		p := obj.(*corev1.Pod)
		owner := metav1.GetControllerOf(p)
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue // its file makes it, and the API cannot stop it
		}
		if owner != nil && owner.Kind == "DaemonSet" && !finished {
			if !o.daemonSets {
				no(p, "belongs to a daemon set", "--ignore-daemonsets")
			}
			continue // it would be made again at once
		}
		switch {
		case owner == nil && !finished && !o.force:
			no(p, "has no controller that would make it again", "--force")
		case hasEmptyDir(p) && !finished && !o.emptyDirs:
			no(p, "keeps data in an emptyDir", "--delete-emptydir-data")
		default:
			evict = append(evict, p)
		}
	}
	return evict, refused
}

func hasEmptyDir(p *corev1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			return true
		}
	}
	return false
}

// againAfter is how long a drain leaves a budget that said "not now" alone (N-11.10).
const againAfter = 5 * time.Second

// evictAll asks for the eviction of all pods, and again for those that a budget keeps, until all are gone. Nobody waits for
// another's turn: what keeps one pod may be the place that the next one frees.
func evictAll(ctx context.Context, cl api.Client, pods []*corev1.Pod, o drainOpts, out io.Writer) error {
	var errs []error
	var going []*corev1.Pod
	for {
		var kept []*corev1.Pod
		var why error
		for _, p := range pods { // all are told before any is waited for
			err := evictPod(ctx, cl, p, o.grace)
			switch {
			case err == nil:
				going = append(going, p)
			case apierrors.IsTooManyRequests(err):
				kept, why = append(kept, p), err
				say(out, "pod %s/%s stays for now, asking again in %s: %s\n", p.Namespace, p.Name, againAfter, refusalOf(err))
			default:
				errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err))
			}
		}
		if pods = kept; len(pods) == 0 {
			break
		}
		select {
		case <-time.After(againAfter):
			continue
		case <-ctx.Done():
		}
		for _, p := range pods {
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %s: %w", p.Namespace, p.Name, refusalOf(why), ctx.Err()))
		}
		break
	}
	for _, p := range going {
		errs = append(errs, goneBy(ctx, cl, p))
	}
	return errors.Join(errs...)
}

// refusalOf is why a pod may not go, in the words that name the budget.
func refusalOf(err error) string {
	var s apierrors.APIStatus
	if errors.As(err, &s) && s.Status().Details != nil {
		for _, c := range s.Status().Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				return c.Message
			}
		}
	}
	return err.Error()
}

// evictPod asks once for an eviction. A pod that has gone by itself is fine.
func evictPod(ctx context.Context, cl api.Client, p *corev1.Pod, grace int64) error {
	e := &policyv1.Eviction{TypeMeta: metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}}
	if grace >= 0 {
		e.DeleteOptions.GracePeriodSeconds = &grace
	}
	_, err := cl.Create(ctx, api.Pods, e, api.WriteOptions{Subresource: "eviction"})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// goneBy waits until a pod is gone.
func goneBy(ctx context.Context, cl api.Client, p *corev1.Pod) error {
	for {
		now, err := cl.Get(ctx, api.Pods, p.Namespace, p.Name)
		if apierrors.IsNotFound(err) || err == nil && now.GetUID() != p.UID {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("wait for pod %s/%s to go: %w", p.Namespace, p.Name, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("pod %s/%s is still there: %w", p.Namespace, p.Name, ctx.Err())
		}
	}
}
