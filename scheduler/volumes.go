package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	apistorage "ledge/api/storage"
)

// Why a node was refused for a volume, in Kubernetes' words.
const (
	reasonVolumeNode = "node(s) didn't match PersistentVolume's node affinity"
	reasonNoVolume   = "node(s) didn't find available persistent volumes to bind"
	reasonLostVolume = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	reasonOnePod     = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	reasonImmediate  = "pod has unbound immediate PersistentVolumeClaims"
)

// Volumes are where the claims of pods are looked up. The zero value has none.
type Volumes struct {
	Claim   func(namespace, name string) *corev1.PersistentVolumeClaim // nil: there is none
	Class   func(name string) *storagev1.StorageClass
	Volumes []*corev1.PersistentVolume
}

// Choice is what has to be written for a claim of a pod that got a place, before the pod can have it.
type Choice struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume // nil: one is to be made for it on the node
}

// demand is what the claims of a pod ask of its node.
type demand struct {
	bound   []*corev1.PersistentVolume
	lost    bool // a claim has a volume that is not there
	waiting []*corev1.PersistentVolumeClaim
	alone   []string // names of claims that one pod may use
}

// demandOf looks at the claims of a pod. why is the reason that no node will do.
func (c *Cluster) demandOf(pod *corev1.Pod) (d *demand, why string) {
	var names []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := api.ClaimName(pod, v)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		if d == nil {
			d = &demand{}
		}
		if why := c.claimOf(pod, name, v.Ephemeral != nil, d); why != "" {
			return nil, why
		}
	}
	return d, ""
}

func (c *Cluster) claimOf(pod *corev1.Pod, name string, ephemeral bool, d *demand) (why string) {
	var claim *corev1.PersistentVolumeClaim
	if c.cfg.Volumes.Claim != nil {
		claim = c.cfg.Volumes.Claim(pod.Namespace, name)
	}
	switch {
	case claim == nil && ephemeral:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
	case claim == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", name)
	case ephemeral && !metav1.IsControlledBy(claim, pod):
		return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, name, pod.Namespace, pod.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	}
	if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
		d.alone = append(d.alone, name)
	}
	if apistorage.IsBound(claim) {
		i := slices.IndexFunc(c.cfg.Volumes.Volumes, func(v *corev1.PersistentVolume) bool { return v.Name == claim.Spec.VolumeName })
		if i < 0 {
			d.lost = true
		} else {
			d.bound = append(d.bound, c.cfg.Volumes.Volumes[i])
		}
		return ""
	}
	class := c.classOf(claim)
	if class == nil || !apistorage.Waits(class) || claim.Spec.VolumeName != "" {
		return reasonImmediate
	}
	d.waiting = append(d.waiting, claim)
	return ""
}

func (c *Cluster) classOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if c.cfg.Volumes.Class == nil {
		return nil
	}
	return c.cfg.Volumes.Class(api.ClassOfClaim(claim))
}

// hold asks a node for the volumes of a pod.
func (c *Cluster) hold(l *look, n *nodeInfo) *refusal {
	if l.demand == nil {
		return nil
	}
	if r := c.alone(l, n); r != nil {
		return r
	}
	var out refusal
	if slices.ContainsFunc(l.demand.bound, func(v *corev1.PersistentVolume) bool { return !apistorage.Reaches(v, n.node) }) {
		out.reasons = append(out.reasons, reasonVolumeNode)
	}
	if _, ok := c.choose(l.demand, n.node); !ok {
		out.reasons = append(out.reasons, reasonNoVolume)
	}
	if l.demand.lost {
		out.reasons = append(out.reasons, reasonLostVolume)
	}
	if out.reasons == nil {
		return nil
	}
	return &out
}

// alone: a claim for one pod is used by no other one, on no node.
func (c *Cluster) alone(l *look, n *nodeInfo) *refusal {
	uses := func(p *corev1.Pod) bool {
		return p.Namespace == l.pod.Namespace && !same(p, l.pod) &&
			slices.ContainsFunc(api.ClaimsOf(p), func(name string) bool { return slices.Contains(l.demand.alone, name) })
	}
	if len(l.demand.alone) == 0 {
		return nil
	}
	for _, other := range c.nodes {
		if other.node.Name != n.node.Name && slices.ContainsFunc(other.pods, uses) {
			return refuse(reasonOnePod)
		}
	}
	if slices.ContainsFunc(n.pods, uses) {
		return &refusal{reasons: []string{reasonOnePod}, curable: true}
	}
	return nil
}

// choose finds volumes for the claims of a pod that wait for their node, those that are made last.
func (c *Cluster) choose(d *demand, node *corev1.Node) (out []Choice, ok bool) {
	taken := map[string]bool{}
	for name := range c.taken {
		taken[name] = true
	}
	for _, claim := range d.waiting {
		if chosen := claim.Annotations[api.SelectedNode]; chosen != "" {
			if chosen != node.Name {
				return nil, false
			}
			continue // it is being made
		}
		if v := apistorage.Match(claim, c.cfg.Volumes.Volumes, node, true, taken); v != nil {
			if taken[v.Name] = true; v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
				out = append(out, Choice{claim, v})
			}
			continue
		}
		if class := c.classOf(claim); class == nil || !apistorage.MayBeMadeFor(class, node) {
			return nil, false
		}
		out = append(out, Choice{Claim: claim})
	}
	return out, true
}

// Choices are what has to be written before a pod can be bound to the node that Place found, and whether it has to wait for its claims.
// What is chosen is nobody else's from now on.
func (c *Cluster) Choices(pod *corev1.Pod, node string) (out []Choice, wait bool) {
	d, _ := c.demandOf(pod)
	n := c.byName[node]
	if d == nil || n == nil || len(d.waiting) == 0 {
		return nil, false
	}
	out, _ = c.choose(d, n.node)
	for _, ch := range out {
		if ch.Volume != nil {
			c.taken[ch.Volume.Name] = true
		}
	}
	return out, true
}
