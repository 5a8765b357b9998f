package workload

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// What Kubernetes keeps in annotations. kubectl reads the first.
const (
	Revision        = "deployment.kubernetes.io/revision"
	revisionHistory = "deployment.kubernetes.io/revision-history"
	DesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	MaxReplicas     = "deployment.kubernetes.io/max-replicas"
)

// longestHistory is how many bytes of former revisions a set keeps.
const longestHistory = 2000

// own are the annotations of a Deployment that its sets do not get.
var own = map[string]bool{Revision: true, revisionHistory: true, DesiredReplicas: true, MaxReplicas: true,
	corev1.LastAppliedConfigAnnotation: true, appsv1.DeprecatedRollbackTo: true}

// with is a copy of annotations with one more, or another one.
func with(annotations map[string]string, key, value string) map[string]string {
	if is, ok := annotations[key]; ok && is == value {
		return annotations
	}
	out := map[string]string{key: value}
	for k, v := range annotations {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// number is what an annotation of a set says.
func number(rs *appsv1.ReplicaSet, key string) (int32, bool) {
	n, err := strconv.ParseInt(rs.Annotations[key], 10, 32)
	return int32(n), err == nil
}

// after is the number of the next revision. Whoever writes the last number there is into one has several share it.
func after(revision int64) int64 {
	if revision == math.MaxInt64 {
		return revision
	}
	return revision + 1
}

// revision is which rollout of its Deployment made a set; what cannot be read is none.
func revision(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[Revision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// SameTemplate says that two templates make the same pods. The label that tells the sets of a Deployment apart does not count.
func SameTemplate(a, b *corev1.PodTemplateSpec) bool {
	bare := func(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
		out := *t
		if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; ok {
			out.Labels = maps.Clone(t.Labels)
			delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		}
		return &out
	}
	return apiequality.Semantic.DeepEqual(bare(a), bare(b))
}

// Hash is the label of the pods of a template. It may change with the form of templates: who looks for a set compares
// templates. collisions tells templates of the same hash apart.
func Hash(t *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	data, err := json.Marshal(t)
	if err != nil {
		data = []byte(err.Error()) // there is no template that JSON cannot say
	}
	_, _ = h.Write(data)
	if collisions != nil {
		_, _ = h.Write(strconv.AppendInt(nil, int64(*collisions), 10))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// newSet is a set of a Deployment's template, without pods. Its name follows from the template: made twice it is there once.
func newSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	hash, none := Hash(&d.Spec.Template, d.Status.CollisionCount), int32(0)
	template, selector := d.Spec.Template.DeepCopy(), d.Spec.Selector.DeepCopy()
	template.Labels = with(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	selector.MatchLabels = with(selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: &none, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}
}

// Made says that the set of a name that was wanted for a new one is what the Deployment meant to make.
func Made(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	of := metav1.GetControllerOf(rs)
	return of != nil && of.UID == d.UID && SameTemplate(&rs.Spec.Template, &d.Spec.Template)
}

// revise gives the set of today's template, if it is there, the latest revision and what it has of the Deployment.
func (r *roll) revise() {
	if r.fresh == nil {
		return
	}
	r.label(r.fresh)
	r.fresh.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
	r.plan.Revision = r.fresh.Annotations[Revision]
	if r.plan.Revision == r.d.Annotations[Revision] && condition(&r.plan.Status, appsv1.DeploymentProgressing) != nil {
		return
	}
	if r.fresh.UID == "" {
		r.report(created, fmt.Sprintf("Created new replica set %q", r.fresh.Name))
	} else {
		r.report(found, fmt.Sprintf("Found new replica set %q", r.fresh.Name))
	}
}

// label gives a set the annotations of the Deployment and the revision after all others. Going back to a template makes it the
// latest once more; which it was before is kept.
func (r *roll) label(rs *appsv1.ReplicaSet) {
	for k, v := range r.d.Annotations {
		if !own[k] {
			rs.Annotations = with(rs.Annotations, k, v)
		}
	}
	latest := int64(0)
	for _, o := range r.old {
		latest = max(latest, revision(o))
	}
	was, had := rs.Annotations[Revision]
	if revision(rs) >= after(latest) {
		return
	}
	rs.Annotations = with(rs.Annotations, Revision, strconv.FormatInt(after(latest), 10))
	if !had {
		return
	}
	history := was
	if before := rs.Annotations[revisionHistory]; before != "" {
		history = before + "," + was
	}
	for len(history) > longestHistory {
		_, history, _ = strings.Cut(history, ",")
	}
	rs.Annotations = with(rs.Annotations, revisionHistory, history)
}
