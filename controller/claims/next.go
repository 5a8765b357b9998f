// Package claims decides what becomes of claims and volumes: who is bound to whom, what is given back, and what may go.
//
//	Next(state, now) -> steps, each one write of one object as it was seen
//
// The bond of a claim and a volume is four writes, and power may be cut after each of them:
//
//	volume.spec.claimRef -> volume.status Bound -> claim.spec.volumeName, bind-completed -> claim.status Bound
//
// So nothing is remembered between two calls: every step follows from what is stored, and the steps of one call do not build on each
// other. Whoever carries them out calls again until there are none. Where a step says something of what is not there, its Unless names
// that, and who carries it out asks the server first: a copy of the objects may be older than the objects.
//
// It is pure, and imports the kinds only.
package claims

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// State is what is seen.
type State struct {
	Claims  []*corev1.PersistentVolumeClaim
	Volumes []*corev1.PersistentVolume
	Classes []*storagev1.StorageClass
	Pods    []*corev1.Pod
	Nodes   []*corev1.Node
	System  *corev1.Namespace // kube-system, where it is noted which classes of disks were made; nil: nobody asks for one
}

// Verb is what a step does with its object.
type Verb int

// The verbs.
const (
	Update Verb = iota
	UpdateStatus
	Create
	Delete
)

// Step is one write.
type Step struct {
	Verb   Verb
	Object api.Object // as it is to be, with the version that was seen
	Unless *Absent    // do not, if this is there
}

// Absent is an object that was not seen. With a UID it is that one, else any of the name.
type Absent struct {
	Kind            *api.Kind
	Namespace, Name string
	UID             types.UID
}

// Event is what people are told.
type Event struct {
	About                 api.Object
	Type, Reason, Message string
}

type world struct {
	State
	now     metav1.Time
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	nodes   map[string]bool
	users   map[types.NamespacedName][]*corev1.Pod // of claims
	taken   map[string]bool                        // volumes that were given away in this call
	steps   []Step
	events  []Event
}

// Next is what to write now, and what to tell. No step builds on another one; none is left when all is settled.
func Next(s State, now metav1.Time) ([]Step, []Event) {
	w := &world{State: s, now: now, claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		volumes: map[string]*corev1.PersistentVolume{}, classes: map[string]*storagev1.StorageClass{}, nodes: map[string]bool{},
		users: map[types.NamespacedName][]*corev1.Pod{}, taken: map[string]bool{}}
	w.Claims, w.Volumes = slices.Clone(s.Claims), slices.Clone(s.Volumes)
	slices.SortFunc(w.Claims, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(w.Volumes, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range w.Claims {
		w.claims[api.Key(c)] = c
	}
	for _, v := range w.Volumes {
		w.volumes[v.Name] = v
	}
	for _, c := range s.Classes {
		w.classes[c.Name] = c
	}
	for _, n := range s.Nodes {
		w.nodes[n.Name] = true
	}
	w.diskClasses()
	for _, p := range s.Pods {
		for _, name := range api.ClaimsOf(p) {
			key := types.NamespacedName{Namespace: p.Namespace, Name: name}
			w.users[key] = append(w.users[key], p)
		}
		w.ephemeral(p)
	}
	for _, v := range w.Volumes {
		w.volume(v)
	}
	for _, c := range w.Claims {
		w.claim(c)
	}
	return w.steps, w.events
}

func (w *world) do(verb Verb, obj api.Object, unless *Absent) {
	w.steps = append(w.steps, Step{verb, obj, unless})
}

func (w *world) tell(about api.Object, kind, reason, message string, args ...any) {
	w.events = append(w.events, Event{about, kind, reason, fmt.Sprintf(message, args...)})
}

// ephemeral makes the claims that live as long as their pod.
func (w *world) ephemeral(p *corev1.Pod) {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		name := api.ClaimName(p, v)
		if have := w.claims[types.NamespacedName{Namespace: p.Namespace, Name: name}]; have != nil {
			if !metav1.IsControlledBy(have, p) {
				w.tell(p, corev1.EventTypeWarning, "FailedCreate", "PVC %q was not created for pod %q (pod is not owner)", api.Key(have),
					api.Key(p))
			}
			continue
		}
		t := v.Ephemeral.VolumeClaimTemplate
		w.do(Create, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: t.Labels,
			Annotations: t.Annotations, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, api.Pods.GVK())}},
			Spec: *t.Spec.DeepCopy()}, nil)
	}
}

// used says whether a pod that has a node uses a claim. One that ended counts until it is deleted, as on Kubernetes.
func (w *world) used(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(w.users[api.Key(c)], func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(f string) bool { return f == name })
}

func annotate(obj api.Object, key, value string) {
	all := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		all[k] = v
	}
	if all[key] = value; value == "" {
		delete(all, key)
	}
	obj.SetAnnotations(all)
}
