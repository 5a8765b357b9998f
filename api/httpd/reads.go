package httpd

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/api/networking"
)

// mayRead is the part of a node's rights that the request line does not show: it reads the pods bound to it, the ConfigMaps, Secrets
// and claims that these refer to, what lies on it, and the volumes of these claims. One stolen board must not hand out the secrets of all.
func (auth *authorizer) mayRead(r *request) error {
	if r.Method == "GET" && r.kind == api.Secrets && isIngress(r.user) {
		return auth.mayTake(r)
	}
	node, ok := nodeName(r.user)
	if !ok || r.Method != "GET" {
		return nil
	}
	own := func(namespace, pod string) ([]api.Object, error) {
		sel := fields.Set{"spec.nodeName": node}
		if pod != "" {
			sel["metadata.name"] = pod
		}
		list, err := auth.client.List(r.Context(), api.Pods, api.ListOptions{
			Selection: api.Selection{Namespace: namespace, Fields: sel.AsSelector()},
		})
		return list.Items, err
	}
	switch {
	case r.kind == api.Pods && r.name != "":
		found, err := own(r.namespace, r.name)
		if err != nil || len(found) > 0 {
			return err
		}
	case r.kind == api.PersistentVolumeClaims || r.kind == api.PersistentVolumes:
		name := r.one()
		if name == "" {
			return nil // it selects its own
		}
		index, ok := auth.client.(referrer)
		if !ok {
			break
		}
		if refers, err := index.NodeUses(node, r.kind, r.namespace, name); err != nil || refers {
			return err
		}
	case r.kind == api.ConfigMaps || r.kind == api.Secrets:
		name := r.one()
		if r.kind == api.ConfigMaps && api.IsPodNetworks(r.namespace, name) {
			return nil
		}
		if index, ok := auth.client.(referrer); ok {
			refers, err := index.NodeRefers(node, r.kind, r.namespace, name)
			if err != nil || refers {
				return err
			}
			break
		}
		found, err := own(r.namespace, "")
		if err != nil {
			return err
		}
		if slices.ContainsFunc(found, func(o api.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && refersTo(pod, r.kind, name)
		}) {
			return nil
		}
	default:
		return nil
	}
	return forbidden(r.user, r.attributes(), "no relationship found between node %q and this object", node)
}

// referrer is a Client that knows what the pods of a node name without looking at all of them.
type referrer interface {
	NodeRefers(node string, kind *api.Kind, namespace, name string) (bool, error)
	// NodeUses is the same of claims and volumes, which may be the node's own too.
	NodeUses(node string, kind *api.Kind, namespace, name string) (bool, error)
}

// ingressIndex is a Client that knows which Secrets Ingresses name, and of which classes these are.
type ingressIndex interface {
	IngressClassesOf(namespace, secret string) ([]string, error)
}

// one is the name of the one object that is asked about, "" when it may be several.
func (r *request) one() string {
	if r.name != "" {
		return r.name
	}
	sel, err := fields.ParseSelector(r.query.Get("fieldSelector"))
	if err != nil {
		return ""
	}
	name, _ := sel.RequiresExactMatch("metadata.name")
	return name
}

// refersTo says whether a pod names a ConfigMap or Secret anywhere in its spec.
func refersTo(pod *corev1.Pod, k *api.Kind, name string) bool {
	configMaps, secrets := api.References(pod)
	if k == api.ConfigMaps {
		return slices.Contains(configMaps, name)
	}
	return slices.Contains(secrets, name)
}

// mayTake is the same of the pods that take requests in: they read the Secrets that an Ingress of their class names, unless a binding gives
// them more.
func (auth *authorizer) mayTake(r *request) error {
	if _, ok, err := auth.granted(r.Context(), r.user, r.attributes()); err != nil || ok {
		return err
	}
	index, ok := auth.client.(ingressIndex)
	if !ok {
		return forbidden(r.user, r.attributes(), "it is not known which ingresses name it")
	}
	classes, err := index.IngressClassesOf(r.namespace, r.name)
	if err != nil {
		return err
	}
	for _, name := range classes {
		obj, err := auth.client.Get(r.Context(), networking.IngressClasses, "", name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if class, ok := obj.(*networkingv1.IngressClass); ok && class.Spec.Controller == networking.Controller {
			return nil
		}
	}
	return forbidden(r.user, r.attributes(), "no ingress of a class of %s names it", networking.Controller)
}
