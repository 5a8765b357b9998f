package local

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/api/node"
	"ledge/storage"
)

// admitRuntimeClass gives a pod what its class says: what it costs beside its containers, and where it may run. Whether
// the node has the handler of the class, the node says.
func admitRuntimeClass(tx *storage.Tx, p *corev1.Pod) error {
	class, err := runtimeClassOf(tx, p)
	if err != nil {
		return err
	}
	if class == nil || class.Overhead == nil {
		if p.Spec.Overhead != nil {
			return forbidden(api.Pods, p.Name, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
	} else {
		if len(p.Spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(p.Spec.Overhead, class.Overhead.PodFixed) {
			return forbidden(api.Pods, p.Name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
		p.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class == nil || class.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		value := class.Scheduling.NodeSelector[key]
		if own, ok := p.Spec.NodeSelector[key]; ok && own != value {
			return forbidden(api.Pods, p.Name, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value,
				key, own)
		}
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[key] = value
	}
	p.Spec.Tolerations = mergeTolerations(p.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

// runtimeClassOf is the class that a pod names, or nil.
func runtimeClassOf(tx *storage.Tx, p *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if p.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	name := *p.Spec.RuntimeClassName
	found, err := tx.Get(node.RuntimeClasses, "", name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, forbidden(api.Pods, p.Name, "pod rejected: RuntimeClass %q not found", name)
	}
	if err != nil {
		return nil, storeError(err, node.RuntimeClasses, "", name)
	}
	return found.(*nodev1.RuntimeClass), nil
}

// mergeTolerations is both lists without what another one of them covers; of equals the first stays.
func mergeTolerations(own, more []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(own, more)
	var out []corev1.Toleration
	for i, t := range all {
		same := func(o corev1.Toleration) bool { return apiequality.Semantic.DeepEqual(o, t) }
		wider := func(o corev1.Toleration) bool { return !same(o) && covers(o, t) }
		if !slices.ContainsFunc(out, same) && !slices.ContainsFunc(out, wider) && !slices.ContainsFunc(all[i+1:], wider) {
			out = append(out, t)
		}
	}
	return out
}

// covers says whether all that t tolerates wide does too.
func covers(wide, t corev1.Toleration) bool {
	exists := wide.Operator == corev1.TolerationOpExists
	switch {
	case wide.Key != t.Key && (wide.Key != "" || !exists):
		return false
	case wide.Effect != t.Effect && wide.Effect != "":
		return false
	case wide.TolerationSeconds != nil && (t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds):
		return false
	}
	return exists || t.Operator != corev1.TolerationOpExists && (wide.Operator == "" || wide.Operator == corev1.TolerationOpEqual) &&
		wide.Value == t.Value
}
