package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

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
	out := a.statics.List()
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
	if p := a.statics.Named(namespace, name); p != nil {
		return p, nil
	}
	return pod, err
}

// shownIn is the cluster in which mirrors of static pods are shown, as their agent sees it.
type shownIn struct {
	api.Client
	a *Agent
}

// Bound implements static.Cluster.
func (c shownIn) Bound() []*corev1.Pod { return c.a.pods.List() }

// Runs implements static.Cluster.
func (c shownIn) Runs(uid types.UID) bool { return c.a.roster.of(uid) != nil }
