package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Trouble is something that is not as somebody wanted it, in plain words, and what may be done.
type Trouble struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Grave     bool   `json:"grave"` // else it may pass by itself
	Says      string `json:"says"`
	Do        string `json:"do,omitempty"`
}

const soon = 15 * time.Second // in which a pod may get ready, or end, without anybody being told

// PodTrouble says what is wrong with a pod; nil: nothing.
func PodTrouble(pod *corev1.Pod, now time.Time) *Trouble {
	t := &Trouble{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	switch late := ending(pod, now); {
	case late > soon:
		t.Says = fmt.Sprintf("should have ended %s ago", duration.HumanDuration(late))
		t.Do = "Look at its finalizers and whether its node is there; 'kubectl delete --force' gives it up."
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodSucceeded:
		return nil
	case pod.Status.Phase == corev1.PodFailed:
		t.Grave = true
		t.Says, t.Do = failed(pod)
	case pod.Spec.NodeName == "":
		t.Says, t.Do = unplaced(pod)
	default:
		t.Grave, t.Says, t.Do = waiting(pod, now)
	}
	if t.Says == "" {
		return nil
	}
	return t
}

// ending is how long a pod is over the time that it had to end.
func ending(pod *corev1.Pod, now time.Time) time.Duration {
	if pod.DeletionTimestamp == nil {
		return 0
	}
	return now.Sub(pod.DeletionTimestamp.Time) // it counts from when its grace has passed
}

func failed(pod *corev1.Pod) (says, do string) {
	switch pod.Status.Reason {
	case "Evicted":
		return "was evicted: " + pod.Status.Message, "The board was short of something. Give it more of that, or the pod less to do; requests say what a pod needs."
	case "Terminated", "Shutdown", "NodeShutdown":
		return "was stopped when the board shut down", ""
	case "":
	default:
		return "failed: " + cmp.Or(pod.Status.Message, pod.Status.Reason), ""
	}
	for _, c := range containers(pod) {
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			says, do = ended(c.Name, e)
			return "failed: " + says, do
		}
	}
	return "failed", "Read its log."
}

func ended(name string, e *corev1.ContainerStateTerminated) (says, do string) {
	switch {
	case e.Reason == "OOMKilled":
		return name + " took more memory than its limit", "Raise resources.limits.memory, or find out what it keeps."
	case e.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d", name, e.Signal), "Read its log."
	case e.ExitCode == 126 || e.ExitCode == 127:
		return fmt.Sprintf("%s ended with code %d: %s", name, e.ExitCode, cmp.Or(e.Message, "its command cannot be run")),
			"Look at command and args, and whether the image has that program."
	case e.ExitCode > 128 && e.ExitCode <= 128+64:
		return fmt.Sprintf("%s ended with code %d (signal %d)", name, e.ExitCode, e.ExitCode-128), "Read its log."
	}
	return fmt.Sprintf("%s ended with code %d", name, e.ExitCode), "Read its log."
}

func unplaced(pod *corev1.Pod) (says, do string) {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i < 0 || pod.Status.Conditions[i].Status == corev1.ConditionTrue {
		return "", ""
	}
	c := pod.Status.Conditions[i]
	if c.Reason == corev1.PodReasonSchedulingGated {
		return "waits for its scheduling gates to be taken away", ""
	}
	for part, remedy := range map[string]string{
		"Insufficient":       "Lower its requests, or stop something else.",
		"taint":              "Give it a toleration, or take the taint off the node.",
		"node.kubernetes.io": "Look at what is wrong with the node: the taint is the board's own word for that, and goes when it is well.",
		"unschedulable":      "'kubectl uncordon' lets pods come to a node again.",
		"PersistentVolume":   "Look at its claims.",
		"affinity":           "Look at its nodeSelector and affinity, and at the labels of the nodes.",
		"free ports":         "Another pod has that port of the board: choose another, or remove that pod.",
		"Too many pods":      "Remove pods, or raise maxPods.",
		"topology":           "Look at its topologySpreadConstraints.",
		"preemption":         "",
		"not found":          "",
		"didn't match Pod's": "Look at its nodeSelector and affinity, and at the labels of the nodes.",
	} {
		if strings.Contains(c.Message, part) && remedy != "" && len(remedy) > len(do) {
			do = remedy
		}
	}
	return "no node takes it: " + c.Message, do
}

// causes are the reasons for which containers wait, in plain words.
var causes = map[string]struct {
	says, do string
	grave    bool
}{
	"ImagePullBackOff":           {"its image cannot be pulled", "Look at the name of the image, its registry and its secrets; ledge tries again.", true},
	"ErrImagePull":               {"its image cannot be pulled", "Look at the name of the image, its registry and its secrets; ledge tries again.", true},
	"ErrImageNeverPull":          {"its image is not on this board, and it may not be pulled", "Import it by 'ledge images import', or change imagePullPolicy.", true},
	"InvalidImageName":           {"the name of its image is no name", "Mend the name.", true},
	"RegistryUnavailable":        {"the registry of its image does not answer", "Look at the network; ledge tries again.", true},
	"CreateContainerConfigError": {"something that it names is missing", "Make the ConfigMap, Secret or key that it names.", true},
	"CreateContainerError":       {"its container cannot be made", "Read the message and its events.", true},
	"RunContainerError":          {"its program cannot be started", "Look at command, args and securityContext.", true},
	"StartError":                 {"its program cannot be started", "Look at command, args and securityContext.", true},
	"PodInitializing":            {"its init containers are not done", "", false},
	"ContainerCreating":          {"is being made ready", "Its events say what it waits for.", false},
}

// waiting says why a pod that has a node is not ready.
func waiting(pod *corev1.Pod, now time.Time) (grave bool, says, do string) {
	young := now.Sub(pod.CreationTimestamp.Time) < soon
	for _, c := range containers(pod) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		if w.Reason == "CrashLoopBackOff" {
			says, do = "its program ends again and again", "Read its log."
			if e := c.LastTerminationState.Terminated; e != nil {
				says, do = ended(c.Name, e)
			}
			return true, fmt.Sprintf("is started again and again (%d times): %s", c.RestartCount, says), do
		}
		cause, known := causes[w.Reason]
		if !known {
			cause.says = cmp.Or(w.Reason, "waits")
		}
		if !cause.grave && young {
			continue
		}
		if w.Message != "" {
			cause.says += ": " + w.Message
		}
		return cause.grave, cause.says, cause.do
	}
	if pod.Status.Phase == corev1.PodPending {
		if !young {
			return false, cmp.Or(pod.Status.Message, "is being made ready"), "Its events say what it waits for."
		}
		return false, "", ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if r := c.State.Running; r != nil && !c.Ready && now.Sub(r.StartedAt.Time) > soon {
			return false, c.Name + " runs and is not ready: its probe says no", "Read its log and its events; a Service sends it nothing until then."
		}
	}
	return false, "", ""
}

func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// NodeTroubles are those of a board. All conditions but Ready say what is wrong when they hold.
func NodeTroubles(node *corev1.Node) (out []Trouble) {
	add := func(grave bool, says, do string) {
		out = append(out, Trouble{Kind: "Node", Name: node.Name, Grave: grave, Says: says, Do: do})
	}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			add(true, "has not been heard of since "+c.LastTransitionTime.UTC().Format(time.DateTime)+" UTC", "Look at its power and its network.")
		case c.Type == corev1.NodeReady:
			add(true, "is not ready: "+cmp.Or(c.Message, c.Reason), "")
		case c.Status == corev1.ConditionTrue:
			add(true, fmt.Sprintf("%s: %s", c.Type, cmp.Or(c.Message, c.Reason)), "")
		}
	}
	if node.Spec.Unschedulable {
		add(false, "takes no new pods", "'kubectl uncordon "+node.Name+"' lets them come again.")
	}
	return out
}
