package static

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/internal/grumble"
)

// mirrorEvery is how often mirrors are looked at when nothing is heard.
const mirrorEvery = time.Minute

// Cluster is what mirrors have to do with besides the static pods.
type Cluster interface {
	api.Client
	// Bound are the pods of this node as the API has them, mirrors among them.
	Bound() []*corev1.Pod
	// Runs says whether something of a pod with that UID is on this board.
	Runs(uid types.UID) bool
}

// Mirrors keeps a mirror of every static pod in the API (N-7.50).
type Mirrors struct {
	node    string
	pods    *Pods
	cluster Cluster
	poked   chan struct{}
}

// NewMirrors shows the pods of a node in its cluster.
func NewMirrors(node string, pods *Pods, cluster Cluster) *Mirrors {
	return &Mirrors{node: node, pods: pods, cluster: cluster, poked: make(chan struct{}, 1)}
}

// Run keeps mirrors until ctx ends. It begins when all of ready are closed, which should be when the Node is there to own them and
// Bound is known, and when the files have been read: else it would take mirrors for those of files that are gone.
func (m *Mirrors) Run(ctx context.Context, ready ...<-chan struct{}) error {
	for _, ready := range append(ready, m.pods.Scanned()) {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	var trouble grumble.Once
	for {
		err := m.Sync(ctx)
		if ctx.Err() != nil {
			return nil
		}
		trouble.About("cannot show static pods in the API; they run all the same", err)
		rest := mirrorEvery
		if err != nil {
			rest = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.poked:
		case <-time.After(rest):
		}
	}
}

// Poke has the mirrors looked at now.
func (m *Mirrors) Poke() {
	select {
	case m.poked <- struct{}{}:
	default:
	}
}

// Sync looks at every mirror once.
func (m *Mirrors) Sync(ctx context.Context) error {
	have := map[string]*corev1.Pod{}
	for _, p := range m.cluster.Bound() {
		have[api.Key(p).String()] = p
	}
	statics := m.pods.List()
	if len(statics) == 0 && len(have) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, p := range statics {
		wanted[api.Key(p).String()] = true
		if err := m.show(ctx, p, have[api.Key(p).String()]); err != nil {
			return fmt.Errorf("mirror of static pod %s: %w", api.Key(p), err)
		}
	}
	for key, p := range have {
		// A static pod whose file is gone is shown until it has ended.
		if !api.IsMirror(p) || wanted[key] || m.cluster.Runs(types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])) {
			continue
		}
		if err := m.drop(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// show makes the mirror pod of a static pod, or replaces it: if somebody deletes it, if it shows an older version
// of the pod, or if the Node was created anew.
func (m *Mirrors) show(ctx context.Context, p, mirror *corev1.Pod) error {
	node, err := m.cluster.Get(ctx, api.Nodes, "", m.node)
	if err != nil {
		return err
	}
	if mirror == nil {
		mirror, err = m.create(ctx, p, node)
	}
	if apierrors.IsAlreadyExists(err) { // most likely our own, of which we have not heard yet
		mirror, err = api.Get[*corev1.Pod](ctx, m.cluster, api.Pods, p.Namespace, p.Name)
	}
	if err != nil {
		return err
	}
	switch {
	case !api.IsMirror(mirror):
		return fmt.Errorf("another pod has its name")
	case mirror.Annotations[corev1.MirrorPodAnnotationKey] != string(p.UID), mirror.DeletionTimestamp != nil, !ownedBy(mirror, node):
		return m.drop(ctx, mirror) // when it has gone we are told
	}
	if equality.Semantic.DeepEqual(mirror.Status, p.Status) {
		return nil
	}
	next := mirror.DeepCopy()
	next.Status = *p.Status.DeepCopy()
	_, err = api.UpdateStatus(ctx, m.cluster, api.Pods, next)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has changed: we are told
	}
	return err
}

func ownedBy(m *corev1.Pod, node api.Object) bool {
	o := metav1.GetControllerOf(m)
	return o != nil && o.Kind == "Node" && o.UID == node.GetUID()
}

func (m *Mirrors) create(ctx context.Context, p *corev1.Pod, node api.Object) (*corev1.Pod, error) {
	out := p.DeepCopy()
	out.UID, out.ResourceVersion, out.Status = "", "", corev1.PodStatus{}
	out.CreationTimestamp = metav1.Time{}
	out.Annotations[corev1.MirrorPodAnnotationKey] = string(p.UID)
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID(),
		Controller: new(true)}}
	got, err := m.cluster.Create(ctx, api.Pods, out, api.WriteOptions{})
	if err != nil {
		return nil, err
	}
	return got.(*corev1.Pod), nil
}

// drop lets a mirror go; nothing of it runs.
func (m *Mirrors) drop(ctx context.Context, mirror *corev1.Pod) error {
	_, err := m.cluster.Delete(ctx, api.Pods, mirror.Namespace, mirror.Name, api.DeleteOptions{Grace: new(int64(0)), UID: &mirror.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod object: %w", err)
	}
	return nil
}
