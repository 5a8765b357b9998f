package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// apimachinery's own implementation; it panics on some patches of the wrong shape.
func upstream(pod *corev1.Pod, patch []byte) (out *corev1.Pod, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	doc, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.StrategicMergePatch(doc, patch, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	if bytes.Contains(data, []byte(`"$`)) {
		return nil, errLeft
	}
	out = &corev1.Pod{}
	return out, json.Unmarshal(data, out)
}

// errLeft: upstream takes a new element of a list over with the directives inside it.
var errLeft = errors.New("directives are left in the object")

func sameAsUpstream(t *testing.T, pod *corev1.Pod, patch []byte) {
	t.Helper()
	want, wantErr := upstream(pod, patch)
	got, _, err := ApplyPatch(Pods, pod, Patch{Type: types.StrategicMergePatchType, Data: patch})
	if errors.Is(wantErr, errLeft) && err == nil {
		return
	}
	if bytes.Contains(patch, []byte(`"$patch":"delete"`)) && err == nil && wantErr == nil {
		// Deleting shifts the list that upstream takes the former order from, under its feet.
		got = got.DeepCopyObject().(*corev1.Pod)
		byName(got.(*corev1.Pod))
		byName(want)
	}
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%s: %v, upstream %v", patch, err, wantErr)
	}
	if err == nil && !apiequality.Semantic.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		before, _ := json.Marshal(pod)
		t.Fatalf("of %s\npatch %s\nmade %s\nupstream %s", before, patch, g, w)
	}
}

func byName(p *corev1.Pod) {
	slices.SortFunc(p.Spec.Containers, func(a, b corev1.Container) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Spec.Volumes, func(a, b corev1.Volume) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range p.Spec.Containers {
		slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(c.Ports, func(a, b corev1.ContainerPort) int { return cmp.Compare(a.ContainerPort, b.ContainerPort) })
	}
}

// TestStrategicDirectives: what kubectl writes and what people write by hand, beside the original (N-11.34).
func TestStrategicDirectives(t *testing.T) {
	pod := validPod()
	pod.Finalizers = []string{"a/a", "a/b", "a/c"}
	pod.Labels = map[string]string{"a": "1", "b": "2"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "w"}}
	pod.Spec.Containers = nil
	for _, name := range []string{"a", "b", "c", "d"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "i", Args: []string{"x", "y"},
			Env: []corev1.EnvVar{{Name: "e", Value: "1"}, {Name: "f", Value: "2"}}})
	}
	for _, patch := range []string{
		`{}`, `{"metadata":{"labels":{"a":null,"c":"3"}}}`, `{"metadata":{"labels":null}}`, `{"spec":{"nodeName":"n"}}`,
		`{"metadata":{"labels":{"$patch":"replace","c":"3"}}}`, `{"metadata":{"labels":{"$patch":"delete"}}}`,
		`{"metadata":{"labels":{"$patch":"x"}}}`,
		`{"metadata":{"finalizers":["a/d"]}}`, `{"metadata":{"finalizers":["a/c","a/a"]}}`, `{"metadata":{"finalizers":[]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b","a/x"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["a/c","a/a"],"$deleteFromPrimitiveList/finalizers":["a/b"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["a/d","a/a"],"finalizers":["a/d"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["a/a"],"finalizers":["a/d"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":"a"}}`,
		`{"spec":{"containers":[{"name":"b","image":"j"}]}}`, `{"spec":{"containers":[{"name":"z","image":"j"}]}}`,
		`{"spec":{"containers":[{"image":"j"}]}}`,
		`{"spec":{"containers":[{"name":"d"},{"name":"a"}]}}`, `{"spec":{"containers":[{"name":"b","$patch":"delete"}]}}`,
		`{"spec":{"containers":[{"$patch":"delete"}]}}`, `{"spec":{"containers":[{"$patch":"replace"},{"name":"q","image":"j"}]}}`,
		`{"spec":{"containers":[{"$patch":"replace"}]}}`, `{"spec":{"containers":[{"name":"b","$patch":"merge"}]}}`,
		`{"spec":{"containers":["x"]}}`,
		`{"spec":{"containers":[{"name":"b","env":[{"name":"f","$patch":"delete"},{"name":"g","value":"3"}],"args":["z"]}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"b"}],"containers":[{"name":"b","image":"j"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"b"}],"containers":[{"name":"b","$patch":"delete"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"c","image":"j"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"n"},{"name":"a"}],"containers":[{"name":"n","image":"j"},{"name":"a","image":"k"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"image":"c"}]}}`,
		`{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}}`,
		`{"spec":{"volumes":[{"name":"v","$retainKeys":["name"],"hostPath":{"path":"/x"}}]}}`,
		`{"spec":{"volumes":[{"name":"v","$retainKeys":"name"}]}}`,
		`{"spec":{"$setElementOrder/initContainers":[{"name":"x"}],"initContainers":[{"name":"x","image":"i"}]}}`,
		`{"spec":{"$setElementOrder/initContainers":[{"name":"x"}]}}`, `{"spec":{"securityContext":{"runAsUser":5,"fsGroup":null}}}`,
		`{"spec":{"tolerations":[{"key":"x","operator":"Exists"}]}}`, `{"spec":{"containers":null}}`,
		`{"$patch":"replace","metadata":{"name":"x"}}`,
		`{"metadata":{"ownerReferences":[{"uid":"u","name":"o","kind":"k","apiVersion":"v1"}]}}`,
		`{"spec":{"affinity":{"nodeAffinity":{"$patch":"delete"}}}}`, `{"spec":{"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}]}}`,
	} {
		sameAsUpstream(t, pod, []byte(patch))
	}
}

// TestStrategicLikeUpstream: the patches between any two pods, applied to a third.
func TestStrategicLikeUpstream(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		from, to, live := randomPod(r), randomPod(r), randomPod(r)
		a, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(to)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := strategicpatch.CreateTwoWayMergePatch(a, b, &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		sameAsUpstream(t, from, patch)
		sameAsUpstream(t, live, patch)
	}
}

// randomPod has a few of every kind of field that is patched in its own way.
func randomPod(r *rand.Rand) *corev1.Pod {
	some := func(words ...string) []string {
		r.Shuffle(len(words), reflect.Swapper(words))
		return words[:r.IntN(len(words)+1)]
	}
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Name = "p"
	p.Finalizers = some("f/a", "f/b", "f/c")
	for _, w := range some("a", "b", "c") {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[w] = fmt.Sprint(r.IntN(2))
	}
	for _, name := range append(some("c", "d", "e", "f"), "always") {
		c := corev1.Container{Name: name, Image: string("ijk"[r.IntN(3)]), Args: some("x", "y")}
		for _, e := range some("A", "B", "C") {
			c.Env = append(c.Env, corev1.EnvVar{Name: e, Value: fmt.Sprint(r.IntN(2))})
		}
		for _, n := range some("1", "2", "3") {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: int32(n[0]), Protocol: "TCP"})
		}
		if r.IntN(2) == 0 {
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(r.IntN(3)))}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for _, name := range some("v", "w", "x") {
		v := corev1.Volume{Name: name}
		switch r.IntN(3) {
		case 0:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: "Memory"}
		case 1:
			v.HostPath = &corev1.HostPathVolumeSource{Path: "/" + name}
		default:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	for _, k := range some("t", "u") {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: k, Operator: "Exists"})
	}
	return p
}
