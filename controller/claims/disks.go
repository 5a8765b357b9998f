package claims

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"ledge/api"
	apistorage "ledge/api/storage"
)

// Boards say themselves what they have, and one may be in wrong hands.
const (
	mostDisks   = 16 // of one board get a class
	mostClasses = 64 // of disks are made in all
)

// ClassesMade is an annotation of the namespace kube-system: the classes of disks that were made. One that somebody deletes after that
// stays deleted for as long as a board names it.
const ClassesMade = "ledge.local/disk-classes-made"

// HasDisks says whether a board has disks beside its card that hold claims.
func HasDisks(n *corev1.Node) bool { return len(disksOf(n)) > 0 }

// disksOf are those that the configuration of a board could have.
func disksOf(n *corev1.Node) (out []string) {
	for key := range n.Labels {
		name, ok := strings.CutPrefix(key, api.DiskLabel)
		if ok && len(content.IsDNS1123Label(name)) == 0 && name != apistorage.CardClass {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), mostDisks)]
}

// MadeIn are the classes of disks that were made, as the namespace kube-system says.
func MadeIn(system *corev1.Namespace) map[string]bool {
	made := map[string]bool{}
	for name := range strings.SplitSeq(system.Annotations[ClassesMade], ",") {
		if name != "" {
			made[name] = true
		}
	}
	return made
}

// diskClasses makes the classes of the disks that boards say they have, each once, and deletes those that nothing names any more. What was
// made is noted when the class is seen, so that a power cut costs none.
func (w *world) diskClasses() {
	if w.System == nil {
		return
	}
	made, wanted := MadeIn(w.System), map[string]bool{}
	next := maps.Clone(made)
	for _, n := range w.Nodes {
		for _, name := range disksOf(n) {
			class := w.classes[name]
			switch {
			case class != nil && (class.Provisioner != api.CardProvisioner || apistorage.DiskOf(class) != name):
				w.tell(n, corev1.EventTypeWarning, "DiskClassTaken",
					"the StorageClass %s is not of the disk of that name on this board: call one of the two something else", name)
				continue
			case next[name]: // whether somebody has deleted it or not
			case class == nil && len(next) >= mostClasses:
				w.tell(n, corev1.EventTypeWarning, "DiskClassesFull",
					"the disk %s gets no StorageClass: there are %d of disks already", name, mostClasses)
				continue
			case class == nil:
				class = apistorage.OnDisk(name)
				w.classes[name] = class
				w.do(Create, class, nil)
			}
			next[name], wanted[name] = true, true
		}
	}
	named := w.namedClasses()
	for name := range next {
		class := w.classes[name]
		switch {
		case class == nil && !wanted[name] || class != nil && class.UID == "": // it is gone, or not there yet
			delete(next, name)
		case class != nil && made[name] && !wanted[name] && !named[name] && asMade(class):
			w.do(Delete, class, nil)
		}
	}
	if !maps.Equal(made, next) {
		ns := w.System.DeepCopy()
		annotate(ns, ClassesMade, strings.Join(slices.Sorted(maps.Keys(next)), ","))
		w.do(Update, ns, nil)
	}
}

// namedClasses are those that a claim or a volume is of.
func (w *world) namedClasses() map[string]bool {
	named := map[string]bool{}
	for _, c := range w.Claims {
		named[api.ClassOfClaim(c)] = true
	}
	for _, v := range w.Volumes {
		named[api.ClassOfVolume(v)] = true
	}
	return named
}

// asMade says whether nobody has changed a class of a disk.
func asMade(c *storagev1.StorageClass) bool {
	fresh := apistorage.OnDisk(c.Name)
	return len(c.Labels)+len(c.Annotations)+len(c.Finalizers)+len(c.OwnerReferences)+len(c.MountOptions) == 0 &&
		c.Provisioner == fresh.Provisioner && maps.Equal(c.Parameters, fresh.Parameters) &&
		apiequality.Semantic.DeepEqual(c.ReclaimPolicy, fresh.ReclaimPolicy) &&
		apiequality.Semantic.DeepEqual(c.VolumeBindingMode, fresh.VolumeBindingMode) &&
		apiequality.Semantic.DeepEqual(c.AllowVolumeExpansion, fresh.AllowVolumeExpansion) &&
		apiequality.Semantic.DeepEqual(c.AllowedTopologies, fresh.AllowedTopologies)
}
