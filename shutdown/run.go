package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a node and its pods say during and after a shutdown (N-1.48, N-5.27).
const (
	ClosedMessage = "node is shutting down"

	StopReason     = "Terminated"
	StopMessage    = "Pod was terminated in response to imminent node shutdown."
	StopDisruption = "TerminationByKubelet" // reason of the DisruptionTarget condition

	// What Kubernetes 1.21 said instead (N-5.37).
	StopReasonOld  = "Shutdown"
	StopMessageOld = "Node is shutting, evicting pods"
)

// Node is what a shutdown needs of a board.
type Node interface {
	// Close refuses every new pod from now on and reports the node not ready with that message; an empty one opens
	// it again (N-5.17, N-5.18, N-5.30).
	Close(message string)
	// Pods are those that still have something running here, static ones too (N-5.29).
	Pods() []*corev1.Pod
	// StopPod stops a pod with StopReason, StopMessage and StopDisruption. It returns when the containers have
	// ended, the volumes are unmounted and the final status has been accepted, or with ctx's error; the pod goes on
	// stopping then. A second call can only shorten the grace (N-7.26).
	StopPod(ctx context.Context, uid types.UID, grace time.Duration) error
	// Clear removes what StopPod has left: things in memory, which end with the power anyway. It does not wait. Close
	// with an empty message does the same.
	Clear()
	// Flush makes everything that was accepted durable (N-5.40), and what pods have written. It may take for ever.
	Flush(ctx context.Context) error
}

// Waits of N-5.25.
const (
	killWaitFactor = 1.5
	killWaitLeast  = 10 * time.Second
)

// killedWait is how long the last stage's late pods are waited for: a container has 2 s between its stop signal and SIGKILL however
// short its grace is (N-7.29), and then needs a moment to be gone, unmounted and written down. The late pods of an earlier stage
// have the next one for that.
const killedWait = 4 * time.Second

// Tail is what comes after the last stage at most, beside the plan: whoever grants time should grant that too.
const Tail = killedWait + flushWait

// flushWait bounds Flush, which at the end comes after the budget: a card that hangs must not hold up the power-off for ever.
const flushWait = 5 * time.Second

// Result is what became of a plan.
type Result struct {
	Plan Plan
	Late []PodStop // still stopping when their stage was over
	Took time.Duration
}

// Run closes the node and stops its pods by plan. When ctx ends before it is through no further pod is stopped, and the
// error is ctx's cause. The node stays closed in every case: whoever cancels a shutdown opens it again.
func Run(ctx context.Context, n Node, cfg Config, budget time.Duration) (Result, error) {
	began := time.Now()
	n.Close(ClosedMessage) // before the first kill, or stopped pods would be restarted or replaced here (N-5.41)
	res := Result{Plan: Make(n.Pods(), cfg, budget)}
	if res.Plan.Short() {
		slog.Warn("not enough time for an orderly shutdown, cutting from the lowest priority up",
			"wanted", res.Plan.Wanted, "granted", res.Plan.Budget)
	}
	stops, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range res.Plan.Stages {
		s := &res.Plan.Stages[i]
		over := time.Now().Add(s.Period)
		res.Late = append(res.Late, runStage(ctx, stops, &all, n, s)...)
		if left := time.Until(over); left > 0 && ctx.Err() == nil && i < len(res.Plan.Stages)-1 {
			if err := flush(ctx, n, min(left, flushWait)); err != nil {
				slog.Warn("what the pods of this stage have written is not on disk yet", "priority", s.Priority, "err", err)
			}
		}
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
	}
	if left := budget - time.Since(began); len(res.Late) > 0 {
		wait(ctx, &all, min(left, killedWait))
	}
	err := flush(ctx, n, flushWait)
	res.Took = time.Since(began)
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return res, err
}

// wait waits for all, and no longer than that.
func wait(ctx context.Context, all *sync.WaitGroup, most time.Duration) {
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// flush waits for Flush no longer than that: one that hangs cannot be ended, and goes on by itself.
func flush(ctx context.Context, n Node, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Flush(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("put everything on disk: %w", ctx.Err())
	}
}

// runStage stops the pods of one stage together. It ends when all have stopped, or with its period (N-5.26); what is
// late goes on stopping beside the next stage.
func runStage(ctx, stops context.Context, all *sync.WaitGroup, n Node, s *Stage) (late []PodStop) {
	began := time.Now()
	type end struct {
		pod int
		err error
	}
	ended := make(chan end, len(s.Pods))
	for i, p := range s.Pods {
		all.Go(func() {
			wait := max(time.Duration(float64(p.Grace)*killWaitFactor), killWaitLeast)
			ctx, cancel := context.WithTimeout(stops, wait)
			defer cancel()
			ended <- end{i, n.StopPod(ctx, p.UID, p.Grace)}
		})
	}
	over := time.NewTimer(s.Period)
	defer over.Stop()
	stopped := make([]bool, len(s.Pods))
wait:
	for range s.Pods {
		select {
		case e := <-ended:
			if stopped[e.pod] = e.err == nil; e.err != nil {
				slog.Warn("pod did not stop", "pod", s.Pods[e.pod].Namespace+"/"+s.Pods[e.pod].Name, "err", e.err)
			}
		case <-over.C:
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	for i, p := range s.Pods {
		if !stopped[i] {
			late = append(late, p)
		}
	}
	slog.Info("shutdown stage over", "priority", s.Priority, "pods", len(s.Pods), "late", len(late), "took", time.Since(began))
	return late
}
