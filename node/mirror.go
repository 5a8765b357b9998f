package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// podHome is where a pod's object lives: in the API, or for a static pod here.
type podHome interface {
	UpdateStatus(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Delete(ctx context.Context, pod *corev1.Pod) error
}

// apiPods are the pods of the API.
type apiPods struct{ client api.Client }

// UpdateStatus implements podHome.
func (h apiPods) UpdateStatus(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return api.UpdateStatus(ctx, h.client, api.Pods, pod)
}

// Get implements podHome.
func (h apiPods) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return api.Get[*corev1.Pod](ctx, h.client, api.Pods, namespace, name)
}

// Delete implements podHome. It lets the object go: the pod's containers are gone and its last status is there (N-7.31).
func (h apiPods) Delete(ctx context.Context, pod *corev1.Pod) error {
	_, err := h.client.Delete(ctx, api.Pods, pod.Namespace, pod.Name, api.DeleteOptions{Grace: new(int64(0)), UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod object: %w", err)
	}
	return nil
}

// bound are the pods that are to run here: those of the API and those of files. A mirror only shows one of the latter.
func (a *Agent) bound() []*corev1.Pod {
	out := a.statics.list()
	for _, p := range a.pods.List() {
		if !api.IsMirror(p) {
			out = append(out, p)
		}
	}
	return out
}

// podNamed finds a pod as it runs here by the name that the API has for it.
func (a *Agent) podNamed(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := api.Get[*corev1.Pod](ctx, a.cfg.Client, api.Pods, namespace, name)
	if err == nil && !api.IsMirror(pod) {
		return pod, nil // and be it one that took the name of a static pod
	}
	if p := a.statics.named(namespace, name); p != nil {
		return p, nil
	}
	return pod, err
}

// mirrorEvery is how often mirrors are looked at when nothing is heard.
const mirrorEvery = time.Minute

// showStatics keeps a mirror of every static pod in the API (N-7.50). It begins when the Node is there to own them, and when the
// files have been read: else it would take mirrors for those of files that are gone.
func (a *Agent) showStatics(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{a.known, a.pods.Synced(), a.statics.scanned} {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	var trouble grumble
	for {
		err := a.syncMirrors(ctx)
		if ctx.Err() != nil {
			return nil
		}
		trouble.about("cannot show static pods in the API; they run all the same", err)
		rest := mirrorEvery
		if err != nil {
			rest = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.mirrorCh:
		case <-time.After(rest):
		}
	}
}

func (a *Agent) pokeMirrors() {
	nudge(a.mirrorCh)
}

func (a *Agent) syncMirrors(ctx context.Context) error {
	have := map[string]*corev1.Pod{}
	for _, p := range a.pods.List() {
		have[api.Key(p).String()] = p
	}
	statics := a.statics.list()
	if len(statics) == 0 && len(have) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, p := range statics {
		wanted[api.Key(p).String()] = true
		if err := a.mirror(ctx, p, have[api.Key(p).String()]); err != nil {
			return fmt.Errorf("mirror of static pod %s: %w", api.Key(p), err)
		}
	}
	for key, m := range have {
		if !api.IsMirror(m) || wanted[key] || a.stillHere(m) {
			continue
		}
		if err := a.dropMirror(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// stillHere: a static pod whose file is gone is shown until it has ended.
func (a *Agent) stillHere(m *corev1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.workers {
		if string(uid) == m.Annotations[corev1.MirrorPodAnnotationKey] {
			return true
		}
	}
	return false
}

// mirror makes the mirror pod of a static pod, or replaces it: if somebody deletes it, if it shows an older version
// of the pod, or if the Node was created anew.
func (a *Agent) mirror(ctx context.Context, p, m *corev1.Pod) error {
	node, err := a.cfg.Client.Get(ctx, api.Nodes, "", a.cfg.Name)
	if err != nil {
		return err
	}
	if m == nil {
		m, err = a.createMirror(ctx, p, node)
	}
	if apierrors.IsAlreadyExists(err) { // most likely our own, of which we have not heard yet
		m, err = api.Get[*corev1.Pod](ctx, a.cfg.Client, api.Pods, p.Namespace, p.Name)
	}
	if err != nil {
		return err
	}
	switch {
	case !api.IsMirror(m):
		return fmt.Errorf("another pod has its name")
	case m.Annotations[corev1.MirrorPodAnnotationKey] != string(p.UID), m.DeletionTimestamp != nil, !ownedBy(m, node):
		return a.dropMirror(ctx, m) // when it has gone we are told
	}
	if equality.Semantic.DeepEqual(m.Status, p.Status) {
		return nil
	}
	next := m.DeepCopy()
	next.Status = *p.Status.DeepCopy()
	_, err = api.UpdateStatus(ctx, a.cfg.Client, api.Pods, next)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has changed: we are told
	}
	return err
}

func ownedBy(m *corev1.Pod, node api.Object) bool {
	o := metav1.GetControllerOf(m)
	return o != nil && o.Kind == "Node" && o.UID == node.GetUID()
}

func (a *Agent) createMirror(ctx context.Context, p *corev1.Pod, node api.Object) (*corev1.Pod, error) {
	m := p.DeepCopy()
	m.UID, m.ResourceVersion, m.Status = "", "", corev1.PodStatus{}
	m.CreationTimestamp = metav1.Time{}
	m.Annotations[corev1.MirrorPodAnnotationKey] = string(p.UID)
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID(), Controller: new(true)}}
	got, err := a.cfg.Client.Create(ctx, api.Pods, m, api.WriteOptions{})
	if err != nil {
		return nil, err
	}
	return got.(*corev1.Pod), nil
}

func (a *Agent) dropMirror(ctx context.Context, m *corev1.Pod) error {
	return apiPods{a.cfg.Client}.Delete(ctx, m)
}
