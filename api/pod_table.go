package api

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/table"
)

var podColumns = table.Columns{
	table.Name,
	table.Column("Ready", "string", "How many of its containers are ready."),
	table.Column("Status", "string", "What the pod is doing, or why it is not."),
	table.Column("Restarts", "string", "How often its containers were restarted, and when last."),
	table.Age,
	table.Wide("IP", "string", "Its address."),
	table.Wide("Node", "string", "The node it is bound to."),
	table.Wide("Nominated Node", "string", "The node where room is being made for it."),
	table.Wide("Readiness Gates", "string", "How many of the conditions it waits for are true."),
}

func podCells(pod *corev1.Pod, l table.Look) []any {
	ready, total := readyContainers(pod)
	ip := table.None
	if len(pod.Status.PodIPs) > 0 {
		ip = table.OrElse(pod.Status.PodIPs[0].IP, table.None)
	} else {
		ip = table.OrElse(pod.Status.PodIP, table.None)
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", ready, total), podStatus(pod, l), restarts(pod, l), l.AgeOf(pod),
		ip, table.OrElse(pod.Spec.NodeName, table.None), table.OrElse(pod.Status.NominatedNodeName, table.None), gates(pod),
	}
}

// podConditions let kubectl drop finished pods where it is asked to (N-11.27).
func podConditions(pod *corev1.Pod) []metav1.TableRowCondition {
	var t metav1.RowConditionType
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		t = metav1.RowCompleted
	case corev1.PodFailed:
		t = "Failed"
	default:
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: t, Status: metav1.ConditionTrue, Reason: string(pod.Status.Phase),
		Message: "The pod has " + map[corev1.PodPhase]string{
			corev1.PodSucceeded: "completed successfully.", corev1.PodFailed: "failed.",
		}[pod.Status.Phase],
	}}
}

// sidecars are the init containers that go on running.
func sidecars(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out[c.Name] = true
		}
	}
	return out
}

// readyContainers is N-11.21: main containers and sidecars.
func readyContainers(pod *corev1.Pod) (ready, total int) {
	side := sidecars(pod)
	total = len(pod.Spec.Containers) + len(side)
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready && c.State.Running != nil {
			ready++
		}
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if side[c.Name] && c.Started != nil && *c.Started && c.Ready {
			ready++
		}
	}
	return ready, total
}

// initialized says whether the init containers are behind the pod.
func initialized(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodInitialized {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restarts is the Restarts column (N-11.21).
func restarts(pod *corev1.Pod, l table.Look) string {
	side := sidecars(pod)
	_, waiting := initStatus(pod)
	var n int
	var last time.Time
	count := func(c corev1.ContainerStatus) {
		n += int(c.RestartCount)
		if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if waiting || side[c.Name] {
			count(c)
		}
	}
	if !waiting {
		for _, c := range pod.Status.ContainerStatuses {
			count(c)
		}
	}
	if n > 0 && !last.IsZero() {
		return fmt.Sprintf("%d (%s ago)", n, l.Since(last))
	}
	return strconv.Itoa(n)
}

// gates is how many of the pod's readiness gates are true.
func gates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return table.None
	}
	met := 0
	for _, g := range pod.Spec.ReadinessGates {
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(pod.Spec.ReadinessGates))
}

// ownReasons are those a pod's status gives for its own end, which say more than how its containers ended.
var ownReasons = []string{"Terminated", "Shutdown", "Evicted", "NodeShutdown", "Preempting", "DeadlineExceeded"}

// podStatus is the Status column (N-11.22 to N-11.26).
func podStatus(pod *corev1.Pod, l table.Look) string {
	s := table.OrElse(pod.Status.Reason, string(pod.Status.Phase))
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s = corev1.PodReasonSchedulingGated
		}
	}
	if l.Stock || pod.Status.Phase != corev1.PodFailed || !slices.Contains(ownReasons, pod.Status.Reason) {
		init, waiting := initStatus(pod)
		s = table.OrElse(init, s)
		if !waiting {
			s = containersStatus(pod, s)
		}
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s = "Unknown"
		case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			s = "Terminating"
		}
	}
	return s
}

// initStatus is what the first unfinished init container says (N-11.23). waiting is false when all are done, and
// when the pod was initialized once, so that the main containers have the last word.
func initStatus(pod *corev1.Pod) (s string, waiting bool) {
	side := sidecars(pod)
	for i, c := range pod.Status.InitContainerStatuses {
		state := c.State
		switch {
		case state.Terminated != nil && state.Terminated.ExitCode == 0:
			continue
		case side[c.Name] && c.Started != nil && *c.Started:
			continue
		case state.Terminated != nil:
			s = "Init:" + table.OrElse(state.Terminated.Reason, signalOrCode(state.Terminated))
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
			s = "Init:" + state.Waiting.Reason
		default:
			s = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return s, !initialized(pod)
	}
	return "", false
}

// containersStatus is N-11.24: the first main container with something to say wins.
func containersStatus(pod *corev1.Pod, s string) string {
	running, failed := false, ""
	for _, c := range slices.Backward(pod.Status.ContainerStatuses) {
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			s = state.Waiting.Reason
		case state.Terminated != nil:
			s = table.OrElse(state.Terminated.Reason, signalOrCode(state.Terminated))
			if state.Terminated.ExitCode != 0 {
				failed = s
			}
		case c.Ready && state.Running != nil:
			running = true
		}
	}
	if s != "Completed" || !running {
		return s
	}
	switch {
	case PodReady(pod):
		return "Running"
	case failed != "":
		return failed
	}
	return "NotReady"
}

// signalOrCode is how a container ended, when it gave no reason.
func signalOrCode(t *corev1.ContainerStateTerminated) string {
	if t.Signal != 0 {
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return "ExitCode:" + strconv.Itoa(int(t.ExitCode))
}
