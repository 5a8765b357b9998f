package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	apistorage "ledge/api/storage"
)

// claim settles one claim.
func (w *world) claim(c *corev1.PersistentVolumeClaim) {
	if c.DeletionTimestamp != nil {
		if slices.Contains(c.Finalizers, api.ClaimProtection) && !w.used(c) {
			next := c.DeepCopy()
			next.Finalizers = without(c.Finalizers, api.ClaimProtection)
			w.do(Update, next, nil)
		}
		return
	}
	if c.Annotations[api.BindCompleted] != "" {
		w.bound(c)
		return
	}
	if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; c.Spec.StorageClassName == nil && !named {
		if class := apistorage.Default(w.Classes); class != nil { // it came before there was one
			next := c.DeepCopy()
			next.Spec.StorageClassName = &class.Name
			w.do(Update, next, nil)
			return
		}
	}
	if c.Spec.VolumeName != "" {
		w.requested(c)
		return
	}
	if v := apistorage.Match(c, w.Volumes, nil, w.waits(c), w.taken); v != nil {
		w.bind(c, v)
		return
	}
	w.pending(c)
}

// waits says whether a claim gets its volume only when its first pod has a place, and that pod has none yet.
func (w *world) waits(c *corev1.PersistentVolumeClaim) bool {
	class := w.classes[api.ClassOfClaim(c)]
	return class != nil && apistorage.Waits(class)
}

// requested settles a claim that names its volume and is not bound.
func (w *world) requested(c *corev1.PersistentVolumeClaim) {
	v := w.volumes[c.Spec.VolumeName]
	switch {
	case v == nil:
		w.phase(c, corev1.ClaimPending, nil, nil)
	case apistorage.IsFor(v, c):
		w.bind(c, v)
	case v.Spec.ClaimRef != nil || w.taken[v.Name]:
		w.tell(c, corev1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", v.Name)
		w.phase(c, corev1.ClaimPending, nil, nil)
	default:
		if why := apistorage.Mismatch(v, c); why != "" {
			w.tell(c, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %s", v.Name, why)
			w.phase(c, corev1.ClaimPending, nil, nil)
			return
		}
		w.bind(c, v)
	}
}

// bind makes the next of the four writes, of the first two.
func (w *world) bind(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	w.taken[v.Name] = true
	if r := v.Spec.ClaimRef; r == nil || r.UID != c.UID {
		if v.DeletionTimestamp == nil {
			w.do(Update, Bind(v, c), nil)
		}
		return
	}
	if v.Status.Phase != corev1.VolumeBound {
		w.volumePhase(v, corev1.VolumeBound, nil)
		return
	}
	next := c.DeepCopy()
	if next.Spec.VolumeName == "" {
		next.Spec.VolumeName = v.Name
		annotate(next, api.BoundByController, "yes")
	}
	annotate(next, api.BindCompleted, "yes")
	w.do(Update, next, nil)
}

// Bind is a volume with a claim that it is to be bound to.
func Bind(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	next := v.DeepCopy()
	if next.Spec.ClaimRef == nil {
		annotate(next, api.BoundByController, "yes")
	}
	next.Spec.ClaimRef = &corev1.ObjectReference{Kind: api.PersistentVolumeClaims.Name, APIVersion: "v1", Namespace: c.Namespace, Name: c.Name,
		UID: c.UID, ResourceVersion: c.ResourceVersion}
	return next
}

// Select is a claim for which a volume is to be made on a node.
func Select(c *corev1.PersistentVolumeClaim, node string, class *storagev1.StorageClass) *corev1.PersistentVolumeClaim {
	next := c.DeepCopy()
	annotate(next, api.SelectedNode, node)
	if class != nil {
		annotate(next, api.StorageProvisioner, class.Provisioner)
		annotate(next, api.StorageProvisionerBeta, class.Provisioner)
	}
	return next
}

// bound settles a claim that has, or had, its volume.
func (w *world) bound(c *corev1.PersistentVolumeClaim) {
	lost := func(reason, message string, unless *Absent) {
		if c.Status.Phase != corev1.ClaimLost {
			w.tell(c, corev1.EventTypeWarning, reason, "%s", message)
			w.phase(c, corev1.ClaimLost, nil, unless)
		}
	}
	v := w.volumes[c.Spec.VolumeName]
	switch {
	case c.Spec.VolumeName == "":
		lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!", nil)
	case v == nil:
		lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
			&Absent{Kind: api.PersistentVolumes, Name: c.Spec.VolumeName})
	case v.Spec.ClaimRef == nil || apistorage.IsFor(v, c) && v.Spec.ClaimRef.UID == "":
		w.bind(c, v) // it has come unbound
	case !apistorage.IsFor(v, c):
		lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly", nil)
	default:
		w.phase(c, corev1.ClaimBound, v, nil)
	}
}

// phase says what a claim is. A claim that becomes bound has what its volume has; what changes later is said by who makes it larger.
func (w *world) phase(c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume,
	unless *Absent) {
	next := c.DeepCopy()
	next.Status.Phase = phase
	if v == nil {
		next.Status.AccessModes, next.Status.Capacity = nil, nil
	} else {
		next.Status.AccessModes = v.Spec.AccessModes
		if c.Status.Phase != corev1.ClaimBound {
			next.Status.Capacity = v.Spec.Capacity.DeepCopy()
		}
	}
	if !apiequality.Semantic.DeepEqual(next.Status, c.Status) {
		w.do(UpdateStatus, next, unless)
	}
}

// pending tells why a claim has no volume, and whose it is to make one.
func (w *world) pending(c *corev1.PersistentVolumeClaim) {
	w.phase(c, corev1.ClaimPending, nil, nil)
	name := api.ClassOfClaim(c)
	class := w.classes[name]
	node := c.Annotations[api.SelectedNode]
	switch {
	case name == "":
		w.tell(c, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		w.tell(c, corev1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", name)
	case apistorage.Waits(class) && node == "":
		for _, p := range w.users[api.Key(c)] {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				w.tell(c, corev1.EventTypeNormal, "WaitForPodScheduled", "waiting for pod %s to be scheduled", p.Name)
				return
			}
		}
		w.tell(c, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case node != "" && !w.nodes[node] && class.Provisioner == api.CardProvisioner: // its board is gone: another one
		next := c.DeepCopy()
		annotate(next, api.SelectedNode, "")
		w.do(Update, next, &Absent{Kind: api.Nodes, Name: node})
	case class.Provisioner == apistorage.NoProvisioner:
		w.tell(c, corev1.EventTypeWarning, "ProvisioningFailed", "no volume plugin matched name: %s", class.Provisioner)
	case c.Annotations[api.StorageProvisioner] != class.Provisioner:
		next := c.DeepCopy()
		annotate(next, api.StorageProvisioner, class.Provisioner)
		annotate(next, api.StorageProvisionerBeta, class.Provisioner)
		w.do(Update, next, nil)
	case class.Provisioner != api.CardProvisioner:
		w.tell(c, corev1.EventTypeNormal, "ExternalProvisioning",
			"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
				"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner)
	}
}
