package controller

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/apps"
	"ledge/controller/workload"
	"ledge/scheduler"
)

// replicated is a kind whose objects keep a number of pods of one template. Its status is read and written in the form of a
// ReplicaSet's.
type replicated struct {
	kind      *api.Kind
	all       Of[api.Object]
	events    Recorder
	read      func(api.Object) replicas
	status    func(api.Object) appsv1.ReplicaSetStatus
	setStatus func(api.Object, appsv1.ReplicaSetStatus)
}

// replicas is what one controller wants.
type replicas struct {
	uid        types.UID
	generation int64
	going      bool
	selector   labels.Selector
	template   labels.Set // the labels that its new pods get
	want       int32
	minReady   time.Duration
	counts     bool // how many of its pods are going
}

// wants has what all kinds say alike.
func wants(kind *api.Kind, obj api.Object, selector labels.Selector, minReady int32) replicas {
	out := replicas{uid: obj.GetUID(), generation: obj.GetGeneration(), going: obj.GetDeletionTimestamp() != nil, selector: selector,
		want: kind.Replicas(obj), minReady: time.Duration(minReady) * time.Second}
	if t := kind.Template(obj); t != nil {
		out.template = t.Labels
	}
	return out
}

// controllers are replication controllers.
func controllers(w *World, events Recorder) *replicated {
	kind := api.ReplicationControllers
	return &replicated{kind: kind, all: Of[api.Object]{w.view(kind, api.Selection{})}, events: events,
		read: func(obj api.Object) replicas {
			s := obj.(*corev1.ReplicationController).Spec
			return wants(kind, obj, labels.SelectorFromSet(s.Selector), s.MinReadySeconds)
		},
		status: func(obj api.Object) appsv1.ReplicaSetStatus {
			s := obj.(*corev1.ReplicationController).Status
			out := appsv1.ReplicaSetStatus{Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
				AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration}
			for _, c := range s.Conditions {
				out.Conditions = append(out.Conditions, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
			}
			return out
		},
		setStatus: func(obj api.Object, s appsv1.ReplicaSetStatus) {
			out := corev1.ReplicationControllerStatus{Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas,
				ReadyReplicas: s.ReadyReplicas, AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration}
			for _, c := range s.Conditions {
				out.Conditions = append(out.Conditions, corev1.ReplicationControllerCondition{Type: corev1.ReplicationControllerConditionType(c.Type),
					Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
			}
			obj.(*corev1.ReplicationController).Status = out
		},
	}
}

// replicaSets are those of the group apps.
func replicaSets(w *World, events Recorder) *replicated {
	kind := apps.ReplicaSets
	return &replicated{kind: kind, all: Of[api.Object]{w.view(kind, api.Selection{})}, events: events,
		read: func(obj api.Object) replicas {
			s := obj.(*appsv1.ReplicaSet).Spec
			selector, err := metav1.LabelSelectorAsSelector(s.Selector)
			if err != nil {
				selector = labels.Nothing() // refused by validation
			}
			out := wants(kind, obj, selector, s.MinReadySeconds)
			out.counts = true
			return out
		},
		status:    func(obj api.Object) appsv1.ReplicaSetStatus { return obj.(*appsv1.ReplicaSet).Status },
		setStatus: func(obj api.Object, s appsv1.ReplicaSetStatus) { obj.(*appsv1.ReplicaSet).Status = s },
	}
}

// kin knows which controllers belong to the same one: their pods do the same work, so that of a board with many of them one
// goes first.
type kin map[types.UID]types.UID

func (k kin) add(obj api.Object) {
	if of := metav1.GetControllerOfNoCopy(obj); of != nil {
		k[obj.GetUID()] = of.UID
	}
}

func (k kin) of(uid types.UID) types.UID {
	if up, ok := k[uid]; ok {
		return up
	}
	return uid
}

// herd is pods by their owner: the topmost controller, or for pods without one their namespace.
type herd struct {
	owned map[types.UID][]*corev1.Pod
	free  map[string][]*corev1.Pod
}

func herded(pods []*corev1.Pod, related kin) herd {
	h := herd{map[types.UID][]*corev1.Pod{}, map[string][]*corev1.Pod{}}
	for _, p := range pods {
		if of := metav1.GetControllerOfNoCopy(p); of != nil {
			root := related.of(of.UID)
			h.owned[root] = append(h.owned[root], p)
		} else {
			h.free[p.Namespace] = append(h.free[p.Namespace], p)
		}
	}
	return h
}

// around are the pods that a controller looks at: its own, those of its relatives, and those that it may adopt.
func (h *herd) around(obj api.Object, related kin) []*corev1.Pod {
	return slices.Concat(h.owned[related.of(obj.GetUID())], h.free[obj.GetNamespace()])
}

// todo is what one controller needs.
type todo struct {
	own            []*corev1.Pod // its pods, that have not ended and are not going
	adopt, release []*corev1.Pod // before anything else is done: others may want the same pods
	missing        int           // pods to make
	surplus        []*corev1.Pod // pods to delete
	replaced       []*corev1.Pod // that a power-off ended, and in the place of which there are others
	status         appsv1.ReplicaSetStatus
	again          time.Duration // when to look again
}

func (t *todo) any() bool {
	return t.missing > 0 || len(t.surplus)+len(t.replaced)+len(t.adopt)+len(t.release) > 0
}

// replicate compares pods with what a controller wants: those that are its own, its relatives', or nobody's.
func replicate(r replicas, pods []*corev1.Pod, related kin, now time.Time) todo {
	t := todo{again: idle, status: appsv1.ReplicaSetStatus{ObservedGeneration: r.generation}}
	var waiting, ending int32
	company := map[string]int{}
	for _, p := range pods {
		of, selected := metav1.GetControllerOfNoCopy(p), r.selector.Matches(labels.Set(p.Labels))
		mine := of != nil && of.UID == r.uid
		ended, leaving := scheduler.Terminal(p), p.DeletionTimestamp != nil
		if of != nil && !ended && !leaving && related.of(of.UID) == related.of(r.uid) {
			company[p.Spec.NodeName]++
		}
		switch {
		case of != nil && !mine, of == nil && !selected:
		case ended && leaving:
		case ended && mine && api.PoweredOff(p):
			t.replaced = append(t.replaced, p)
		case ended:
		case leaving && mine:
			ending++
		case leaving:
		case mine && (selected || r.going):
			t.own = append(t.own, p)
			if p.Spec.NodeName == "" {
				waiting++
			}
		case mine:
			t.release = append(t.release, p)
		case !r.going:
			t.adopt = append(t.adopt, p)
		}
	}
	t.count(r, now)
	if r.counts {
		t.status.TerminatingReplicas = &ending
	}
	more := len(t.own) - int(r.want)
	claims := len(t.adopt) > 0 || len(t.release) > 0
	if r.going || claims || more < 0 {
		t.replaced = nil
	}
	switch {
	case r.going, claims:
	case more < 0:
		t.missing = int(max(min(int32(-more), workload.MostWaiting-waiting), 0))
	case more > 0:
		workload.InOrderOfWorth(t.own, company, now)
		t.surplus = t.own[:min(more, mostAtOnce)]
	}
	return t
}

// count fills in the status: how far the pods are.
func (t *todo) count(r replicas, now time.Time) {
	template := labels.SelectorFromSet(r.template)
	t.status.Replicas = int32(len(t.own))
	for _, p := range t.own {
		if template.Matches(labels.Set(p.Labels)) {
			t.status.FullyLabeledReplicas++
		}
		ok, left := workload.Available(p, r.minReady, now)
		switch {
		case left > 0:
			t.again = min(t.again, left)
		case ok:
			t.status.AvailableReplicas++
		default:
			continue
		}
		t.status.ReadyReplicas++
	}
}

// withFailure says in a status that pods cannot be made or deleted, and why, or that they can.
func withFailure(conditions []appsv1.ReplicaSetCondition, f *attempts, now time.Time) []appsv1.ReplicaSetCondition {
	i := slices.IndexFunc(conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	switch {
	case f == nil || f.reason == "":
		if i < 0 {
			return conditions
		}
		return slices.Delete(slices.Clone(conditions), i, i+1)
	case i >= 0 && conditions[i].Reason == f.reason: // the message of each try names another pod
		return conditions
	}
	c := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: f.reason, Message: f.message,
		LastTransitionTime: metav1.NewTime(now)}
	if i < 0 {
		return append(slices.Clone(conditions), c)
	}
	c.LastTransitionTime = conditions[i].LastTransitionTime
	conditions = slices.Clone(conditions)
	conditions[i] = c
	return conditions
}
