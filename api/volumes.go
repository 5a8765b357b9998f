package api

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// Annotations of claims, volumes and classes. They and their values are Kubernetes'.
const (
	// SelectedNode is on a claim that waited for its first pod: the node that pod is to run on.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// BindCompleted is on a claim that was bound once: from then on its volume is its only one.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// BoundByController is on a claim, or a volume, whose half of the bond the control plane wrote, not a person.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// ProvisionedBy is on a volume that was made for a claim: by whom.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// StorageProvisioner is on a claim that a volume is to be made for: by whom. The second is its older name.
	StorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	StorageProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	// DefaultClass is on the class of claims that name none.
	DefaultClass = "storageclass.kubernetes.io/is-default-class"
)

// Finalizers of claims and volumes. The first two are Kubernetes': what a pod uses, or a claim is bound to, stays.
const (
	ClaimProtection  = "kubernetes.io/pvc-protection"
	VolumeProtection = "kubernetes.io/pv-protection"
	// CardFinalizer is on a volume that lies on a board, which takes it off when the directory is gone.
	CardFinalizer = CardProvisioner
)

// DiskLabel begins the labels of a Node that name the disks beside its card that hold claims. A board sets those of its configuration.
const DiskLabel = "disk.ledge.local/"

// CardProvisioner makes volumes on the card of a board.
const CardProvisioner = "ledge.local/card"

// NodeField is the field by which a board selects the claims that are selected for it, and the volumes that lie on it.
const NodeField = "ledge.local/node"

// ClassOfClaim is the name of a claim's class, "" when it has none.
func ClassOfClaim(c *corev1.PersistentVolumeClaim) string {
	if name, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// ClassOfVolume is the same of a volume.
func ClassOfVolume(v *corev1.PersistentVolume) string {
	if name, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	return v.Spec.StorageClassName
}

// VolumeFor is the name of the volume that is made for a claim.
func VolumeFor(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// NodeOfVolume is the one node that a volume can be used on, "" when its affinity does not name just one.
func NodeOfVolume(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	t := v.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	if len(t.MatchFields) > 0 || len(t.MatchExpressions) != 1 {
		return ""
	}
	if r := t.MatchExpressions[0]; r.Key == corev1.LabelHostname && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
		return r.Values[0]
	}
	return ""
}

// OnlyOn is the affinity of a volume that lies on one node.
func OnlyOn(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
}

// ClaimName is the name of the claim behind a volume of a pod, "" when it has none. That of a generic ephemeral volume is made of both
// names.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// ClaimsOf are the names of the claims that a pod uses.
func ClaimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if name := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// accessModes are all there are, in the order in which they are shown, and how they are.
var accessModes = []corev1.PersistentVolumeAccessMode{
	corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod}

var shortModes = []string{"RWO", "ROX", "RWX", "RWOP"}

func shownModes(list []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for i, m := range accessModes {
		if slices.Contains(list, m) {
			out = append(out, shortModes[i])
		}
	}
	return strings.Join(out, ",")
}

func validateAccessModes(list []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, m := range list {
		if !slices.Contains(accessModes, m) {
			errs = append(errs, field.NotSupported(at, m, accessModes))
		}
	}
	alone := slices.Contains(list, corev1.ReadWriteOncePod)
	if alone && slices.ContainsFunc(list, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadWriteOncePod }) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateVolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return valid.OneOf(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// validateSize: whole bytes, and more than none.
func validateSize(q resource.Quantity, at *field.Path) field.ErrorList {
	switch {
	case q.Sign() <= 0:
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	case q.CmpInt64(math.MaxInt64) > 0:
		return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("must be at most %d", int64(math.MaxInt64)))}
	case !wholeBytes(q):
		return field.ErrorList{field.Invalid(at, q.String(), "must be an integer")}
	}
	return nil
}

// wholeBytes does not count thousandths, as Kubernetes does: of 900Pi there are more than a number can be.
func wholeBytes(q resource.Quantity) bool { return q.CmpInt64(q.Value()) == 0 }

// What claims and volumes ask for and ledge does not honour.
var (
	claimRefusals = sync.OnceValue(func() []valid.Lookup {
		return valid.Resolve(reflect.TypeFor[corev1.PersistentVolumeClaimSpec](), []valid.Refusal{
			{Path: "dataSource"}, {Path: "dataSourceRef"}, {Path: "volumeAttributesClassName"}})
	})
	volumeRefusals = sync.OnceValue(func() []valid.Lookup {
		var list []valid.Refusal
		for _, name := range []string{"awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker",
			"gcePersistentDisk", "glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
			"vsphereVolume", "volumeAttributesClassName"} {
			list = append(list, valid.Refusal{Path: name})
		}
		return valid.Resolve(reflect.TypeFor[corev1.PersistentVolumeSpec](), list)
	})
)

// refuseIn is valid.Refuse of a part of an object.
func refuseIn(part any, table []valid.Lookup, at *field.Path) field.ErrorList {
	errs := valid.Refuse(part, table)
	for _, e := range errs {
		e.Field = at.Child(e.Field).String()
	}
	return errs
}
