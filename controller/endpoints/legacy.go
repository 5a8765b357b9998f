//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

const (
	// LegacyManaged is the label of Endpoints that come from pods.
	LegacyManaged = "endpoints.kubernetes.io/managed-by"
	// LegacyManager is its value.
	LegacyManager = "endpoint-controller"
	// mostLegacy is how many addresses Endpoints may have: one object holds them all.
	mostLegacy = 1000
	truncated  = "truncated"
)

// Legacy is the Endpoints object of a Service as it is to be written; nil: the one there is says so already. old is nil where there is
// none. pods are those that the Service selects.
func Legacy(svc *corev1.Service, pods []*corev1.Pod, old *corev1.Endpoints) *corev1.Endpoints {
	subsets, since := subsetsOf(svc, pods)
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	at := svc.CreationTimestamp.Time
	if old != nil {
		next, at = old.DeepCopy(), since(old.Subsets)
	}
	next.Subsets, next.Labels = subsets, labelsOf(svc, LegacyManaged, LegacyManager)
	if fewer, cut := truncate(subsets); cut {
		next.Subsets = fewer
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1.EndpointsOverCapacity, truncated)
	} else {
		delete(next.Annotations, corev1.EndpointsOverCapacity)
	}
	same := func(a []corev1.EndpointSubset) bool { return apiequality.Semantic.DeepEqual(a, next.Subsets) }
	if old != nil && (same(old.Subsets) || same(repack(old.Subsets))) && maps.Equal(old.Labels, next.Labels) &&
		old.Annotations[corev1.EndpointsOverCapacity] == next.Annotations[corev1.EndpointsOverCapacity] {
		return nil
	}
	stamp(next, at)
	return next
}

// subsetsOf is what stands behind a Service, in its first family. since tells when that changed which is otherwise in other subsets.
func subsetsOf(svc *corev1.Service, pods []*corev1.Pod) (out []corev1.EndpointSubset, since func(in []corev1.EndpointSubset) time.Time) {
	when := map[string]time.Time{}
	family := families(svc)[0]
	for _, p := range pods {
		ip, ok := addressOf(p, family)
		if !ok || ended(p) || p.DeletionTimestamp != nil && !svc.Spec.PublishNotReadyAddresses {
			continue
		}
		a := corev1.EndpointAddress{IP: ip, TargetRef: targetOf(p)}
		if p.Spec.NodeName != "" {
			a.NodeName = &p.Spec.NodeName
		}
		if named(svc, p) {
			a.Hostname = p.Spec.Hostname
		}
		s := corev1.EndpointSubset{}
		for _, port := range portsOf(svc, p) {
			s.Ports = append(s.Ports, corev1.EndpointPort{Name: *port.Name, Port: *port.Port, Protocol: *port.Protocol,
				AppProtocol: port.AppProtocol})
		}
		if len(svc.Spec.Ports) > 0 && len(s.Ports) == 0 {
			continue
		}
		ready := svc.Spec.PublishNotReadyAddresses || api.PodReady(p)
		if ready {
			s.Addresses = append(s.Addresses, a)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a)
		}
		out = append(out, s)
		when[addressKey(&a, ready)] = changedAt(p)
	}
	return repack(out), func(in []corev1.EndpointSubset) (first time.Time) {
		left := maps.Clone(when)
		each(in, func(_ *corev1.EndpointSubset, a *corev1.EndpointAddress, ready bool) {
			delete(left, addressKey(a, ready))
		})
		for _, at := range left {
			if first.IsZero() || at.Before(first) {
				first = at
			}
		}
		return first
	}
}

// each calls do for every address.
func each(in []corev1.EndpointSubset, do func(s *corev1.EndpointSubset, a *corev1.EndpointAddress, ready bool)) {
	for i := range in {
		for j := range in[i].Addresses {
			do(&in[i], &in[i].Addresses[j], true)
		}
		for j := range in[i].NotReadyAddresses {
			do(&in[i], &in[i].NotReadyAddresses[j], false)
		}
	}
}

// addressKey is the same for the same address of the same object.
func addressKey(a *corev1.EndpointAddress, ready bool) string {
	var uid string
	if a.TargetRef != nil {
		uid = string(a.TargetRef.UID)
	}
	return fmt.Sprintf("%s %q %t", a.IP, uid, ready)
}

// row is a port and the addresses at which it is served. Addresses without a port have a row as well.
type row struct {
	port corev1.EndpointPort
	none bool
	all  map[string]*corev1.EndpointAddress // by addressKey
}

// add notes an address. An address that is noted as ready and as not ready counts as not ready.
func (r *row) add(a *corev1.EndpointAddress, ready bool) {
	switch bad := addressKey(a, false); {
	case !ready:
		delete(r.all, addressKey(a, true))
		r.all[bad] = a
	case r.all[bad] == nil:
		r.all[addressKey(a, true)] = a
	}
}

// repack puts addresses and ports into the one form that is compared: an address once for each of its ports, ports with the same addresses
// in one subset, everything in order.
func repack(in []corev1.EndpointSubset) (out []corev1.EndpointSubset) {
	rows := map[string]*row{}
	each(in, func(s *corev1.EndpointSubset, a *corev1.EndpointAddress, ready bool) {
		ports, none := s.Ports, len(s.Ports) == 0
		if none {
			ports = make([]corev1.EndpointPort, 1)
		}
		for _, port := range ports {
			key := fmt.Sprintf("%q %d %s %q %t", port.Name, port.Port, port.Protocol, value(port.AppProtocol), none)
			if rows[key] == nil {
				rows[key] = &row{port, none, map[string]*corev1.EndpointAddress{}}
			}
			rows[key].add(a, ready)
		}
	})
	at := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		names := slices.SortedFunc(maps.Keys(r.all), func(a, b string) int {
			return cmp.Or(compareIPs(r.all[a].IP, r.all[b].IP), cmp.Compare(a, b))
		})
		same := fmt.Sprint(r.none, strings.Join(names, ","))
		i, ok := at[same]
		if !ok {
			i, at[same] = len(out), len(out)
			out = append(out, r.subset(names))
		}
		if !r.none {
			out[i].Ports = append(out[i].Ports, r.port)
		}
	}
	return out
}

// subset has the addresses of a row, and no port yet.
func (r *row) subset(names []string) (s corev1.EndpointSubset) {
	for _, n := range names {
		if a := *r.all[n]; n == addressKey(&a, true) {
			s.Addresses = append(s.Addresses, a)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a)
		}
	}
	return s
}

func compareIPs(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// truncate keeps as many addresses as Endpoints may have: those that are ready before the others, of each subset its share.
func truncate(in []corev1.EndpointSubset) (out []corev1.EndpointSubset, cut bool) {
	ready, not := 0, 0
	for i := range in {
		ready, not = ready+len(in[i].Addresses), not+len(in[i].NotReadyAddresses)
	}
	if ready+not <= mostLegacy {
		return in, false
	}
	out = slices.Clone(in)
	readyLeft := min(ready, mostLegacy)
	notLeft := mostLegacy - readyLeft
	for i := range out {
		out[i].Addresses = share(out[i].Addresses, ready, min(ready, mostLegacy), &readyLeft)
		out[i].NotReadyAddresses = share(out[i].NotReadyAddresses, not, mostLegacy-min(ready, mostLegacy), &notLeft)
	}
	return out, true
}

// share is the part of a list of which all have total, when all together may have most, and left are left.
func share(list []corev1.EndpointAddress, total, most int, left *int) []corev1.EndpointAddress {
	if total == 0 {
		return list
	}
	n := min((len(list)*most+total-1)/total, *left, len(list))
	*left -= n
	return list[:n:n]
}
