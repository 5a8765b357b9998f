package local

import (
	"errors"
	"math"
	"sort"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// references knows the pods of each node, and which objects those pods name. Every board lists its pods when its control plane comes
// back, and every start of a pod reads ConfigMaps, Secrets and claims: without references, each of these would decode all pods of the
// store to see whether the board may. It holds names and sizes, and reads what is new in the store's ring when it is asked.
type references struct {
	store *storage.Store

	mu    sync.Mutex
	tail  *tail  // nil: nothing is known
	rev   uint64 // of the last change that was taken in
	pods  map[types.NamespacedName]bound
	nodes map[string]map[types.NamespacedName]bool
	count map[reading]int // of pods
}

// bound is a pod that is on a node.
type bound struct {
	node  string
	reads []reading
	size  int
}

// reading is a node's reason to read one object.
type reading struct {
	node            string
	kind            *api.Kind
	namespace, name string
}

// NodeRefers says whether a pod that is bound to a node names a ConfigMap, Secret or claim.
func (c *Client) NodeRefers(node string, kind *api.Kind, namespace, name string) (bool, error) {
	r := &c.references
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.catchUp(math.MaxUint64); err != nil {
		return false, status(err, "look for pods that name %s %q", kind.Singular, name)
	}
	return r.count[reading{node, kind, namespace, name}] > 0, nil
}

// NodeUses says whether a claim or a volume is a node's own, or used by a pod that is bound to it.
func (c *Client) NodeUses(node string, kind *api.Kind, namespace, name string) (bool, error) {
	var obj api.Object
	err := c.store.View(func(tx *storage.Tx) (err error) {
		obj, err = tx.Get(kind, namespace, name)
		return err
	})
	if errors.Is(err, storage.ErrNotFound) {
		return c.NodeRefers(node, kind, namespace, name) // who may ask for it is told that it is not there
	}
	if err != nil {
		return false, status(err, "look for %s %q", kind.Singular, name)
	}
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		if claim.Annotations[api.SelectedNode] == node {
			return true, nil
		}
		return c.NodeRefers(node, kind, namespace, name)
	}
	v, ok := obj.(*corev1.PersistentVolume)
	if !ok || api.NodeOfVolume(v) == node || v.Spec.ClaimRef == nil {
		return ok && api.NodeOfVolume(v) == node, nil
	}
	return c.NodeRefers(node, api.PersistentVolumeClaims, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
}

// podsOn are the pods of a node at a revision; !ok: more than that has been taken in already.
func (r *references) podsOn(node string, rev uint64) (keys []types.NamespacedName, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.catchUp(rev); err != nil || r.rev > rev {
		return nil, false, err
	}
	for key := range r.nodes[node] {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	return keys, true, nil
}

// catchUp takes in what has happened since the last question, up to a revision; after too much of it, it begins anew.
func (r *references) catchUp(until uint64) error {
	if r.tail != nil && r.tail.take(until, func(ch storage.Change) {
		r.rev = ch.Rev
		r.set(ch.Object, ch.Type != api.Deleted)
	}) {
		return nil
	}
	r.tail = nil
	r.pods, r.nodes, r.count = map[types.NamespacedName]bound{}, map[string]map[types.NamespacedName]bool{}, map[reading]int{}
	return r.store.View(func(tx *storage.Tx) error {
		objs, err := tx.List(api.Pods, "")
		if err != nil {
			return err
		}
		for _, o := range objs {
			r.set(o, true)
		}
		r.rev = tx.Revision()
		r.tail, err = follow(r.store, api.Pods, tx.Revision())
		return err
	})
}

// set says that a pod is as it is now, or gone.
func (r *references) set(obj api.Object, there bool) {
	key := api.Key(obj)
	if old, was := r.pods[key]; was {
		for _, x := range old.reads {
			if r.count[x]--; r.count[x] == 0 {
				delete(r.count, x)
			}
		}
		if delete(r.nodes[old.node], key); len(r.nodes[old.node]) == 0 {
			delete(r.nodes, old.node)
		}
		delete(r.pods, key)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || !there || pod.Spec.NodeName == "" {
		return
	}
	now := bound{pod.Spec.NodeName, readingsOf(pod), pod.Size()}
	r.pods[key] = now
	if r.nodes[now.node] == nil {
		r.nodes[now.node] = map[types.NamespacedName]bool{}
	}
	r.nodes[now.node][key] = true
	for _, x := range now.reads {
		r.count[x]++
	}
}

func readingsOf(pod *corev1.Pod) (out []reading) {
	configMaps, secrets := api.References(pod)
	for _, name := range configMaps {
		out = append(out, reading{pod.Spec.NodeName, api.ConfigMaps, pod.Namespace, name})
	}
	for _, name := range secrets {
		out = append(out, reading{pod.Spec.NodeName, api.Secrets, pod.Namespace, name})
	}
	for _, name := range api.ClaimsOf(pod) {
		out = append(out, reading{pod.Spec.NodeName, api.PersistentVolumeClaims, pod.Namespace, name})
	}
	return out
}
