package local

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// references knows what the pods of each node name, so that a node's read of a ConfigMap or Secret, of which every start of a pod
// has some, does not decode all pods of the store. It follows the store's ring whenever it is asked, and holds nothing of the
// pods but the names.
type references struct {
	mu    sync.Mutex
	watch *storage.Watch // nil: nothing is known
	pods  map[types.NamespacedName][]reading
	count map[reading]int // of pods
}

// reading is a node's reason to read one object.
type reading struct {
	node            string
	kind            *api.Kind
	namespace, name string
}

// NodeRefers says whether a pod that is bound to a node names a ConfigMap or Secret.
func (c *Client) NodeRefers(node string, kind *api.Kind, namespace, name string) (bool, error) {
	r := &c.references
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.catchUp(r); err != nil {
		return false, status(err, "look for pods that name %s %q", kind.Singular, name)
	}
	return r.count[reading{node, kind, namespace, name}] > 0, nil
}

// catchUp takes in what has happened since the last question; after too much of it, it begins anew.
func (c *Client) catchUp(r *references) error {
	for r.watch != nil {
		ch, err := r.watch.Next(noWait)
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			r.watch = nil
		case ch.Type == api.Deleted:
			r.set(api.Key(ch.Object), nil)
		default:
			r.set(api.Key(ch.Object), readingsOf(ch.Object))
		}
	}
	r.pods, r.count = map[types.NamespacedName][]reading{}, map[reading]int{}
	return c.store.View(func(tx *storage.Tx) error {
		objs, err := tx.List(api.Pods, "")
		if err != nil {
			return err
		}
		for _, o := range objs {
			r.set(api.Key(o), readingsOf(o))
		}
		r.watch, err = c.store.Watch(api.Pods, tx.Revision())
		return err
	})
}

// set says what a pod names now.
func (r *references) set(pod types.NamespacedName, now []reading) {
	for _, old := range r.pods[pod] {
		if r.count[old]--; r.count[old] == 0 {
			delete(r.count, old)
		}
	}
	delete(r.pods, pod)
	if len(now) > 0 {
		r.pods[pod] = now
	}
	for _, x := range now {
		r.count[x]++
	}
}

func readingsOf(obj api.Object) (out []reading) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	configMaps, secrets := api.References(pod)
	for _, name := range configMaps {
		out = append(out, reading{pod.Spec.NodeName, api.ConfigMaps, pod.Namespace, name})
	}
	for _, name := range secrets {
		out = append(out, reading{pod.Spec.NodeName, api.Secrets, pod.Namespace, name})
	}
	return out
}
