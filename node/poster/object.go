package poster

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// object is the Node as first posted (N-1.28).
func (f Facts) object() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Name, Labels: map[string]string{
		corev1.LabelHostname: f.Name, corev1.LabelOSStable: f.Sample.OS, corev1.LabelArchStable: f.Sample.Arch,
		"beta.kubernetes.io/os": f.Sample.OS, "beta.kubernetes.io/arch": f.Sample.Arch,
	}}}
	maps.Copy(n.Labels, f.Registration.Labels)
	n.Spec.Taints = append(n.Spec.Taints, f.Registration.Taints...)
	if f.Registration.External {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized",
			Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	f.fill(n)
	f.tellIPs(n)
	return n
}

// providedIPs tells a cloud's controller which addresses this board was given (N-1.44).
const providedIPs = "alpha.kubernetes.io/provided-node-ip"

// tellIPs puts that annotation right; it says whether it changed.
func (f Facts) tellIPs(n *corev1.Node) bool {
	var want []string
	if f.Registration.External {
		for _, ip := range f.Registration.NodeIPs {
			want = append(want, ip.String())
		}
	}
	have, is := n.Annotations[providedIPs]
	if text := strings.Join(want, ","); text != "" && have != text {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[providedIPs] = text
		return true
	} else if text == "" && is {
		delete(n.Annotations, providedIPs)
		return true
	}
	return false
}

// reconciledLabels are the label keys a restart puts right (N-1.31).
var reconciledLabels = []string{corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch"}

// reconcileDisks has the labels of a Node name the disks of the board's configuration, and no others.
func reconcileDisks(old, fresh *corev1.Node) (changed bool) {
	for key := range old.Labels {
		if _, still := fresh.Labels[key]; strings.HasPrefix(key, api.DiskLabel) && !still {
			delete(old.Labels, key)
			changed = true
		}
	}
	for key, value := range fresh.Labels {
		if strings.HasPrefix(key, api.DiskLabel) && old.Labels[key] != value {
			if old.Labels == nil {
				old.Labels = map[string]string{}
			}
			old.Labels[key], changed = value, true
		}
	}
	return changed
}

func reconcileLabels(old, fresh *corev1.Node) (changed bool) {
	for _, key := range reconciledLabels {
		want, ok := fresh.Labels[key]
		have, had := old.Labels[key]
		switch {
		case !ok || had && have == want:
			continue
		case want == "":
			delete(old.Labels, key)
			changed = changed || had
			continue
		}
		if old.Labels == nil {
			old.Labels = map[string]string{}
		}
		old.Labels[key], changed = want, true
	}
	return changed
}

// own is a Node that may be filled: what that changes in place is its own, all else is still shared with n.
func own(n *corev1.Node) *corev1.Node {
	out := *n
	out.Labels, out.Annotations = maps.Clone(n.Labels), maps.Clone(n.Annotations)
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	return &out
}

// sameStatus compares all but heartbeat times. What there is most of is compared here, since every board does so every ten
// seconds, and reflection takes its time; what is left, fields of tomorrow too, by that.
func sameStatus(a, b *corev1.NodeStatus) bool {
	if !slices.EqualFunc(a.Conditions, b.Conditions, sameCondition) || !sameAmounts(a.Capacity, b.Capacity) ||
		!sameAmounts(a.Allocatable, b.Allocatable) ||
		!slices.EqualFunc(a.Images, b.Images, sameImage) || !slices.Equal(a.Addresses, b.Addresses) {
		return false
	}
	x, y := *a, *b
	for _, s := range []*corev1.NodeStatus{&x, &y} {
		s.Conditions, s.Capacity, s.Allocatable, s.Images, s.Addresses = nil, nil, nil, nil, nil
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	at := a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastHeartbeatTime, a.LastTransitionTime = b.LastHeartbeatTime, b.LastTransitionTime
	return at && a == b
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

func sameImage(a, b corev1.ContainerImage) bool {
	return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
}

func conditionOf(n *corev1.Node, t corev1.NodeConditionType) corev1.ConditionStatus {
	if c := api.NodeCondition(n, t); c != nil {
		return c.Status
	}
	return ""
}
