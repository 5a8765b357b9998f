package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ledge/api"
)

// What StatefulSets and DaemonSets have in common: each remembers the templates that it has had as ControllerRevisions, to go
// back to, and makes pods for places: ordinals or boards.

// Course is what one look at such a controller comes to. Its revisions are written first, then the claims of its pods, then its pods, each
// in their order.
type Course struct {
	Revisions []RevisionStep
	Claims    []ClaimStep
	Pods      []PodStep
	Places    map[string][]*corev1.Pod // its pods that have not ended and are not going, by place
	Again     time.Duration            // when to look again if nothing happens; 0: no need to
}

// RevisionStep is one write to a ControllerRevision.
type RevisionStep struct {
	Do       string
	Revision *appsv1.ControllerRevision // as it is to be
}

// PodStep is one write to a pod.
type PodStep struct {
	Do    string
	Pod   *corev1.Pod // as it is to be
	Place string      // of the pod, for Create and Replace
}

// Replace deletes a pod that has ended, since there is to be another in its place.
const Replace = "replace"

func (c *Course) pod(do string, p *corev1.Pod, place string) {
	c.Pods = append(c.Pods, PodStep{Do: do, Pod: p, Place: place})
}

func (c *Course) again(left time.Duration) {
	if left > 0 && (c.Again == 0 || left < c.Again) {
		c.Again = left
	}
}

// claim finds the pods of a controller. If some have to be adopted or let go, it plans only that and returns false: others may want the
// same pods.
func (c *Course) claim(by metav1.Object, s *metav1.LabelSelector, fits func(*corev1.Pod) bool, pods []*corev1.Pod) (own []*corev1.Pod,
	ok bool) {
	found := claim(by, selecting(s), fits, pods)
	for _, p := range found.adopt {
		c.pod(Adopt, p, "")
	}
	for _, p := range found.release {
		c.pod(Release, p, "")
	}
	return found.own, len(c.Pods) == 0
}

// past is the templates that a controller has had.
type past struct {
	by       metav1.Object
	template *corev1.PodTemplateSpec // today's
	all      []*appsv1.ControllerRevision
	fresh    *appsv1.ControllerRevision // of them the one with today's template, or a new one
}

// recall finds the revisions of a controller, and what has to be written for today's template to be the newest of them. hash is
// the label of a revision by which it is told from others. !ok: some have to be adopted or let go first.
func (c *Course) recall(by metav1.Object, kind, hash string, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, collisions *int32,
	revisions []*appsv1.ControllerRevision) (p past, ok bool) {
	found := claim(by, selecting(s), nil, revisions)
	for _, r := range found.adopt {
		c.Revisions = append(c.Revisions, RevisionStep{Adopt, r})
	}
	for _, r := range found.release {
		c.Revisions = append(c.Revisions, RevisionStep{Release, r})
	}
	if len(c.Revisions) > 0 {
		return p, false
	}
	p = past{by: by, template: t, all: found.own}
	slices.SortFunc(p.all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	next := int64(1)
	if len(p.all) > 0 {
		next = after(p.all[len(p.all)-1].Revision)
	}
	switch p.fresh = p.find(); {
	case p.fresh == nil:
		p.fresh = newRevision(by, kind, hash, t, collisions)
		p.fresh.Revision = next
		c.Revisions = append(c.Revisions, RevisionStep{Create, p.fresh})
	case p.fresh != p.all[len(p.all)-1] && p.fresh.Revision != next: // back to a former template
		again := *p.fresh
		again.Revision, p.fresh = next, &again
		c.Revisions = append(c.Revisions, RevisionStep{Update, p.fresh})
	}
	return p, true
}

// find is the newest revision with today's template; nil: there is none. The texts differ where defaults have come since one was
// written, so what they say is compared then.
func (p *past) find() *appsv1.ControllerRevision {
	text := patch(p.template)
	for _, r := range slices.Backward(p.all) {
		if r.DeletionTimestamp == nil && bytes.Equal(r.Data.Raw, text) {
			return r
		}
	}
	for _, r := range slices.Backward(p.all) {
		if t := Remembered(r); r.DeletionTimestamp == nil && t != nil && SameTemplate(t, p.template) {
			return r
		}
	}
	return nil
}

// named is a revision by name; nil: there is none.
func (p *past) named(name string) *appsv1.ControllerRevision {
	i := slices.IndexFunc(p.all, func(r *appsv1.ControllerRevision) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return p.all[i]
}

// forget deletes the oldest of the revisions that no pod has, beyond those that are kept to go back to.
func (c *Course) forget(p *past, limit *int32, live func(*appsv1.ControllerRevision) bool) {
	if limit == nil || *limit < 0 {
		return
	}
	old := slices.DeleteFunc(slices.Clone(p.all), func(r *appsv1.ControllerRevision) bool {
		return r.Name == p.fresh.Name || r.DeletionTimestamp != nil || live(r)
	})
	for _, r := range old[:max(len(old)-int(*limit), 0)] {
		c.Revisions = append(c.Revisions, RevisionStep{Delete, r})
	}
}

// patch is a template as a ControllerRevision keeps it: a patch that brings it back. kubectl sends it, and compares it with one
// that it makes.
func patch(t *corev1.PodTemplateSpec) []byte {
	text, err := json.Marshal(t)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return []byte("{}") // there is no template that JSON cannot say
	}
	tree["$patch"] = "replace"
	text, err = json.Marshal(map[string]any{"spec": map[string]any{"template": tree}})
	if err != nil {
		return []byte("{}")
	}
	return text
}

// Remembered is the template that a revision keeps, with today's defaults; nil: it cannot be read, since anybody can write one.
func Remembered(r *appsv1.ControllerRevision) *corev1.PodTemplateSpec {
	var kept struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if json.Unmarshal(r.Data.Raw, &kept) != nil || kept.Spec.Template == nil {
		return nil
	}
	api.DefaultTemplate(kept.Spec.Template)
	return kept.Spec.Template
}

// longestOwner is how much of its controller's name a revision has in its own.
const longestOwner = 223

// newRevision keeps a template. Its name follows from the template: made twice it is there once.
func newRevision(by metav1.Object, kind, label string, t *corev1.PodTemplateSpec, collisions *int32) *appsv1.ControllerRevision {
	hash, owner := Hash(t, collisions), by.GetName()
	annotations := maps.Clone(by.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: by.GetNamespace(), Name: owner[:min(len(owner), longestOwner)] + "-" + hash,
			Labels: with(maps.Clone(t.Labels), label, hash), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(by, appsv1.SchemeGroupVersion.WithKind(kind))}},
		Data: runtime.RawExtension{Raw: patch(t)},
	}
}

// Recorded says that the revision of a name that was wanted for a new one is what was meant to be made.
func Recorded(want, is *appsv1.ControllerRevision) bool {
	by, of := metav1.GetControllerOf(want), metav1.GetControllerOf(is)
	return by != nil && of != nil && by.UID == of.UID && bytes.Equal(want.Data.Raw, is.Data.Raw)
}

// podOf is a pod of a template.
func podOf(by metav1.Object, kind string, t *corev1.PodTemplateSpec) *corev1.Pod {
	t = t.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: by.GetNamespace(), Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(by, appsv1.SchemeGroupVersion.WithKind(kind))}},
		Spec: t.Spec,
	}
}
