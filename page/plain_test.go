package page

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/board"
)

// TestPodTrouble: what is wrong is said with what to do, and what is well, or young, is left alone.
func TestPodTrouble(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: ago(time.Hour)}, Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}}}}}}
		change(p)
		return p
	}
	waits := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		}
	}
	ends := func(code int32, reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: ago(time.Minute)}
	}
	for name, c := range map[string]struct {
		change   func(*corev1.Pod)
		says, do string // parts of it; "": nothing is wrong
		grave    bool
	}{
		"well":      {func(*corev1.Pod) {}, "", "", false},
		"done":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "", "", false},
		"image":     {waits("ImagePullBackOff", "no such host"), "its image cannot be pulled: no such host", "registry", true},
		"unknown":   {waits("Strange", "really"), "Strange: really", "", false},
		"creating":  {waits("ContainerCreating", ""), "is being made ready", "events", false},
		"young":     {func(p *corev1.Pod) { waits("ContainerCreating", "")(p); p.CreationTimestamp = ago(time.Second) }, "", "", false},
		"no secret": {waits("CreateContainerConfigError", `secret "x" not found`), `missing: secret "x" not found`, "Make the ConfigMap", true},
		"crashes": {func(p *corev1.Pod) {
			waits("CrashLoopBackOff", "")(p)
			p.Status.ContainerStatuses[0].RestartCount, p.Status.ContainerStatuses[0].LastTerminationState.Terminated = 7, ends(137, "OOMKilled")
		}, "again and again (7 times): c took more memory than its limit", "limits.memory", true},
		"no program": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodFailed, corev1.ContainerState{Terminated: ends(127, "Error")}
		}, "failed: c ended with code 127", "Look at command", true},
		"signal": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodFailed, corev1.ContainerState{Terminated: ends(139, "Error")}
		}, "(signal 11)", "log", true},
		"evicted": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}, "was evicted: The node was low on resource: memory.", "requests", true},
		"shut down": {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Terminated" }, "shut down", "", true},
		"no room": {func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
				Message: "0/1 nodes are available: 1 Insufficient cpu."}}
		}, "no node takes it: 0/1 nodes are available: 1 Insufficient cpu.", "Lower its requests", false},
		"gated": {func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}}
		}, "scheduling gates", "", false},
		"not ready": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, "c runs and is not ready", "Service", false},
		"ends late": {func(p *corev1.Pod) { at := ago(2 * time.Minute); p.DeletionTimestamp = &at }, "should have ended 2m ago", "finalizers", false},
		"ends":      {func(p *corev1.Pod) { at := metav1.NewTime(now.Add(time.Minute)); p.DeletionTimestamp = &at }, "", "", false},
	} {
		got := PodTrouble(pod(c.change), now)
		switch {
		case got == nil && c.says == "":
		case got == nil || c.says == "" || !strings.Contains(got.Says, c.says) || !strings.Contains(got.Do, c.do) || got.Grave != c.grave:
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestNodeTroubles(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "full"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}}}
	var says []string
	for _, x := range NodeTroubles(node) {
		says = append(says, x.Says)
	}
	if len(says) != 3 || !strings.Contains(says[0], "not been heard of") || says[1] != "DiskPressure: full" || says[2] != "takes no new pods" {
		t.Errorf("%q", says)
	}
	node.Spec.Unschedulable, node.Status.Conditions = false, []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if got := NodeTroubles(node); len(got) > 0 {
		t.Errorf("a board that is well: %+v", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1 << 20: "1 MiB", 24105 << 20: "23.5 GiB",
		100 << 20: "100 MiB", 1500: "1.5 KiB"} {
		if got := bytes(n); got != want {
			t.Errorf("%d: %s, not %s", n, got, want)
		}
	}
}

// TestDrawings: whatever is known, a drawing stays within its frame.
func TestDrawings(t *testing.T) {
	if got := string(plot([]int64{-1, 50, 200, -1, 0}, 100, 10, "w")); strings.Count(got, "<polyline") != 2 || !strings.Contains(got, `points="60,24 120,0"`) {
		t.Errorf("%s", got)
	}
	for _, points := range [][]int64{nil, {-1}, {5}} {
		if got := string(plot(points, 100, 0, "w")); strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%v: %s", points, got)
		}
	}
	plan := board.Plan{TotalSeconds: 30, Stages: []board.Stage{
		{Seconds: 20, Pods: []board.PodStop{{Pod: "a/" + strings.Repeat("ü", 99), Seconds: 5}}},
		{Seconds: 10, Pods: []board.PodStop{{Pod: "b/<c>", Seconds: 10}}}}}
	got := string(gantt(plan))
	if strings.Count(got, `class="own"`) != 2 || strings.Contains(got, "<c>") || !strings.Contains(got, "\u2026") || strings.Contains(got, "\uFFFD") {
		t.Errorf("%s", got)
	}
	if got := string(gantt(board.Plan{})); !strings.Contains(got, "No pod") {
		t.Errorf("%s", got)
	}
}

// TestMenuLeadsSomewhere: each entry of the menu is a view, and each view has an address of its own.
func TestMenuLeadsSomewhere(t *testing.T) {
	var seen []string
	for _, v := range views {
		if v.look == nil || len(v.follows) == 0 || slices.Contains(seen, v.pattern) {
			t.Errorf("%s", v.pattern)
		}
		seen = append(seen, v.pattern)
	}
}
