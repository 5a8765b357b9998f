package api

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scales are how the number of pods is seen and set, whatever kind of controller has them. They are not kept: they are a
// subresource.
var Scales = Define(Kind{Group: "autoscaling", Version: "v1", Name: "Scale", Resource: "scales", Singular: "scale", Namespaced: true},
	Rules[*autoscalingv1.Scale]{New: func() *autoscalingv1.Scale { return &autoscalingv1.Scale{} }})

// Scale is the subresource that they are.
const Scale = "scale"

// ScaleOf is what an object shows of its number of pods. Its kind must have a scale.
func (k *Kind) ScaleOf(obj Object) *autoscalingv1.Scale {
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp()},
	}
	out.Spec, out.Status = k.rules.Scale(obj)
	Scales.Stamp(out)
	return out
}

// Replicas is how many pods an object wants. Its kind must have a scale.
func (k *Kind) Replicas(obj Object) int32 {
	spec, _ := k.rules.Scale(obj)
	return spec.Replicas
}

// SetReplicas sets how many pods an object wants. Its kind must have a scale.
func (k *Kind) SetReplicas(obj Object, n int32) { k.rules.SetScale(obj, n) }

// PodOf is a pod as an object's template has it, without a name: the server makes one.
func (k *Kind) PodOf(obj Object) *corev1.Pod {
	t := k.Template(obj).DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), GenerateName: obj.GetName() + "-", Labels: t.Labels,
			Annotations: t.Annotations,
			Finalizers:  t.Finalizers, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(obj, k.GVK())}},
		Spec: t.Spec,
	}
}
