package local

import (
	"maps"
	"math"
	"slices"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
	"ledge/storage"
)

// served knows which Secrets the Ingresses name. The ingress pod of each board may read only those, and reads them again and again:
// without served, each read would decode all Ingresses of the namespace. It reads what is new in the store's ring when it is asked.
type served struct {
	store *storage.Store

	mu      sync.Mutex
	tail    *tail // nil: nothing is known
	of      map[types.NamespacedName]serves
	classes map[types.NamespacedName]map[string]int // by Secret: of how many Ingresses of which class
}

// serves is what an Ingress names.
type serves struct {
	class   string
	secrets []string
}

// IngressClassesOf are the names of the classes of the Ingresses that name a Secret.
func (c *Client) IngressClassesOf(namespace, secret string) ([]string, error) {
	r := &c.served
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.learn(); err != nil {
		return nil, status(err, "look for ingresses that name secret %q", secret)
	}
	return slices.Sorted(maps.Keys(r.classes[types.NamespacedName{Namespace: namespace, Name: secret}])), nil
}

// learn takes in what has happened since the last question; after too much of it, it begins anew.
func (r *served) learn() error {
	if r.tail != nil && r.tail.take(math.MaxUint64, func(ch storage.Change) { r.set(ch.Object, ch.Type != api.Deleted) }) {
		return nil
	}
	r.tail = nil
	r.of, r.classes = map[types.NamespacedName]serves{}, map[types.NamespacedName]map[string]int{}
	return r.store.View(func(tx *storage.Tx) error {
		objs, err := tx.List(networking.Ingresses, "")
		if err != nil {
			return err
		}
		for _, o := range objs {
			r.set(o, true)
		}
		r.tail, err = follow(r.store, networking.Ingresses, tx.Revision())
		return err
	})
}

// set says that an Ingress is as it is now, or gone.
func (r *served) set(obj api.Object, there bool) {
	key := api.Key(obj)
	old := r.of[key]
	for _, name := range old.secrets {
		secret := types.NamespacedName{Namespace: key.Namespace, Name: name}
		if r.classes[secret][old.class]--; r.classes[secret][old.class] == 0 {
			delete(r.classes[secret], old.class)
		}
		if len(r.classes[secret]) == 0 {
			delete(r.classes, secret)
		}
	}
	delete(r.of, key)
	i, ok := obj.(*networkingv1.Ingress)
	if !ok || !there || networking.ClassOf(i) == "" {
		return
	}
	now := serves{class: networking.ClassOf(i)}
	for _, t := range i.Spec.TLS {
		if t.SecretName == "" {
			continue
		}
		now.secrets = append(now.secrets, t.SecretName)
		secret := types.NamespacedName{Namespace: key.Namespace, Name: t.SecretName}
		if r.classes[secret] == nil {
			r.classes[secret] = map[string]int{}
		}
		r.classes[secret][now.class]++
	}
	if len(now.secrets) > 0 {
		r.of[key] = now
	}
}
