package claims

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"ledge/api"
	apistorage "ledge/api/storage"
)

// mostDisks is how many disks of one board get a class: boards say themselves what they have.
const mostDisks = 16

// HasDisks says whether a board has disks beside its card that hold claims.
func HasDisks(n *corev1.Node) bool { return len(disksOf(n)) > 0 }

func disksOf(n *corev1.Node) (out []string) {
	for key := range n.Labels {
		if name, ok := strings.CutPrefix(key, api.DiskLabel); ok && len(content.IsDNS1123Subdomain(name)) == 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), mostDisks)]
}

// diskClasses makes the classes of the disks that boards say they have. A class is there for as long as somebody leaves it: claims name it.
func (w *world) diskClasses() {
	for _, n := range w.Nodes {
		for _, name := range disksOf(n) {
			class := w.classes[name]
			switch {
			case class == nil:
				class = apistorage.OnDisk(name)
				w.classes[name] = class
				w.do(Create, class, nil)
			case class.Provisioner != api.CardProvisioner || apistorage.DiskOf(class) != name:
				w.tell(n, corev1.EventTypeWarning, "DiskClassTaken",
					"the StorageClass %s is not of the disk of that name on this board: call one of the two something else", name)
			}
		}
	}
}
