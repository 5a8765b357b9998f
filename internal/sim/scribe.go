package sim

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
)

// scribe stands between all writers and the store and holds them to it that every field has one writer
// (architecture: One writer per field).
type scribe struct {
	api.Client
	b *Board
	// seen is what counts of an object when two versions of it are compared. Nil: all of it.
	seen func(api.Object) api.Object
}

// WhenAny is the store's.
func (s scribe) WhenAny(kind *api.Kind, do func()) bool {
	return s.Client.(api.Sparse).WhenAny(kind, do)
}

// referrer is what a control plane knows of what its boards may read.
type referrer interface {
	NodeRefers(node string, kind *api.Kind, namespace, name string) (bool, error)
	NodeUses(node string, kind *api.Kind, namespace, name string) (bool, error)
}

// NodeRefers is the control plane's.
func (s scribe) NodeRefers(node string, kind *api.Kind, namespace, name string) (bool, error) {
	return s.Client.(referrer).NodeRefers(node, kind, namespace, name)
}

// NodeUses is the control plane's.
func (s scribe) NodeUses(node string, kind *api.Kind, namespace, name string) (bool, error) {
	return s.Client.(referrer).NodeUses(node, kind, namespace, name)
}

// The writers of a board, as the store can tell them apart.
const (
	byUser  = "user"
	byAgent = "agent"
	byPlane = "control plane"
)

func writer(ctx context.Context) string {
	u, ok := api.UserFrom(ctx)
	switch {
	case !ok:
		return byPlane
	case strings.HasPrefix(u.Name, api.NodeUserPrefix):
		return byAgent
	}
	return byUser
}

// may lists which writer may write which objects, where there are several writers. Users may write everything.
var may = map[string]map[string]bool{
	byAgent: {
		"create nodes": true, "create leases": true, "create events": true, "create serviceaccounts/token": true,
		"nodes labels": true, "nodes status": true, "nodes condition": true,
		"leases spec": true,
		"pods status": true, "pods condition": true,
		"delete pods": true,
		// decision 116: the volume is the board's, the claim has from it its sizes
		"create persistentvolumes": true, "persistentvolumes spec": true, "persistentvolumeclaims status": true,
		"persistentvolumeclaims annotations": true,
	},
	byPlane: {
		"create pods": true, "create pods/binding": true, "create events": true,
		"nodes labels": true, "nodes taints": true, "nodes condition Unknown": true,
		"pods condition PodScheduled": true, "pods condition DisruptionTarget": true, "pods condition Ready False": true, "pods nominated": true,
		"delete pods": true, "delete leases": true,
		"replicationcontrollers status": true, "replicasets status": true,
		"create replicasets": true, "replicasets spec": true, "replicasets annotations": true, "delete replicasets": true,
		"deployments status": true, "deployments annotations": true,
		"statefulsets status": true, "daemonsets status": true,
		"create controllerrevisions": true, "controllerrevisions revision": true, "delete controllerrevisions": true,
		"jobs status": true, "delete jobs": true, "horizontalpodautoscalers status": true,
		"poddisruptionbudgets status": true,
		"cronjobs status":             true, "create jobs": true,
		"create endpointslices": true, "endpointslices labels": true, "endpointslices annotations": true, "endpointslices spec": true,
		"delete endpointslices": true, "services status": true,
		"create serviceaccounts": true, "create daemonsets": true, "daemonsets spec": true, "daemonsets annotations": true,
		"delete daemonsets": true, "delete serviceaccounts": true, "ingresses status": true,
		"create endpoints": true, "endpoints labels": true, "endpoints annotations": true, "delete endpoints": true,
		"create persistentvolumeclaims": true, "persistentvolumeclaims annotations": true, "persistentvolumeclaims spec": true,
		"persistentvolumeclaims status": true, "persistentvolumes status": true, "delete persistentvolumes": true,
	},
}

func (s scribe) judge(ctx context.Context, deed string) {
	who := writer(ctx)
	if who == byUser {
		return
	}
	// A right may be for a part only: "pods condition Ready False" is covered by "pods condition".
	for part := deed; ; {
		if may[who][part] {
			return
		}
		i := strings.LastIndexByte(part, ' ')
		if i < 0 {
			break
		}
		part = part[:i]
	}
	s.b.Errorf("the %s may not write: %s", who, deed)
}

// Create implements api.Client.
func (s scribe) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	out, err := s.Client.Create(ctx, kind, obj, opts)
	if err == nil {
		deed := "create " + kind.Resource
		if opts.Subresource != "" {
			deed += "/" + opts.Subresource
		}
		s.judge(ctx, deed)
	}
	return out, err
}

// Update implements api.Client.
func (s scribe) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	old, gerr := s.Client.Get(ctx, kind, obj.GetNamespace(), obj.GetName())
	out, err := s.Client.Update(ctx, kind, obj, opts)
	if err != nil || gerr != nil || writer(ctx) == byUser {
		return out, err
	}
	if obj.GetResourceVersion() == "" {
		s.b.Errorf("the %s writes %s %s without saying over which version", writer(ctx), kind.Singular, obj.GetName())
	}
	if kind.Is(out) && old.GetResourceVersion() == obj.GetResourceVersion() { // else somebody wrote in between: not ours to tell apart
		was, is := old, out
		if s.seen != nil {
			was, is = s.seen(old), s.seen(out)
		}
		for _, what := range changes(kind, was, is) {
			s.judge(ctx, kind.Resource+" "+what)
		}
		if pod, ok := old.(*corev1.Pod); ok && writer(ctx) == byAgent {
			s.b.judgeEnd(pod, out.(*corev1.Pod))
		}
	}
	return out, nil
}

// Delete implements api.Client. An agent lets an object go when nothing of its pod is left, and says which one it
// means (N-7.31).
func (s scribe) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	old, gerr := s.Client.Get(ctx, kind, namespace, name)
	out, err := s.Client.Delete(ctx, kind, namespace, name, opts)
	if err != nil || gerr != nil {
		return out, err
	}
	s.judge(ctx, "delete "+kind.Resource)
	pod, ok := old.(*corev1.Pod)
	if !ok || writer(ctx) != byAgent {
		return out, nil
	}
	if opts.UID == nil || *opts.UID != pod.UID {
		s.b.Errorf("the agent deletes pod %s without saying which one", name)
	}
	if p := pod.Status.Phase; p != corev1.PodSucceeded && p != corev1.PodFailed {
		s.b.Errorf("the agent deletes pod %s in phase %s", name, p)
	}
	if left := s.b.traces().of(s.b.ctx, string(pod.UID)); len(left) > 0 {
		s.b.Errorf("the agent deletes pod %s, and on the board there is still %v", name, left)
	}
	return out, nil
}

// changes names what differs between two versions of an object.
func changes(kind *api.Kind, old, new api.Object) []string {
	var out differences
	out.note("labels", old.GetLabels(), new.GetLabels())
	out.note("annotations", old.GetAnnotations(), new.GetAnnotations())
	out.note("owners", old.GetOwnerReferences(), new.GetOwnerReferences())
	switch kind {
	case api.Pods:
		out.ofPods(old.(*corev1.Pod), new.(*corev1.Pod))
	case api.Nodes:
		out.ofNodes(old.(*corev1.Node), new.(*corev1.Node))
	default:
		oldSpec, oldStatus := kind.Halves(old)
		newSpec, newStatus := kind.Halves(new)
		out.note("spec", oldSpec, newSpec)
		out.note("status", oldStatus, newStatus)
	}
	return out
}

// differences are the names of what is not the same.
type differences []string

func (d *differences) note(what string, old, new any) {
	if !apiequality.Semantic.DeepEqual(old, new) {
		*d = append(*d, what)
	}
}

func (d *differences) ofPods(was, is *corev1.Pod) {
	d.note("spec", was.Spec, is.Spec)
	d.note("nominated", was.Status.NominatedNodeName, is.Status.NominatedNodeName)
	x, y := was.Status.DeepCopy(), is.Status.DeepCopy()
	x.Conditions, y.Conditions, x.NominatedNodeName, y.NominatedNodeName = nil, nil, "", ""
	d.note("status", x, y)
	have := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range was.Status.Conditions {
		have[c.Type] = c
	}
	for _, c := range is.Status.Conditions {
		d.note("condition "+string(c.Type)+" "+string(c.Status), have[c.Type], c)
		delete(have, c.Type)
	}
	for c := range have {
		*d = append(*d, "lost condition "+string(c))
	}
}

func (d *differences) ofNodes(was, is *corev1.Node) {
	d.note("taints", was.Spec.Taints, is.Spec.Taints)
	x, y := was.DeepCopy(), is.DeepCopy()
	x.Spec.Taints, y.Spec.Taints = nil, nil
	d.note("spec", x.Spec, y.Spec)
	x.Status.Conditions, y.Status.Conditions = nil, nil
	d.note("status", x.Status, y.Status)
	have := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, c := range was.Status.Conditions {
		have[c.Type] = c
	}
	for _, c := range is.Status.Conditions {
		d.note("condition "+string(c.Status), have[c.Type], c)
	}
}
