package mdns

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotation of a Service of type LoadBalancer: the name by which it is found, without .local.
const Annotation = "ledge.local/mdns"

// Aliases are the names that Services ask for, and why some do not get theirs. own is the board's. Of two that want one name the older
// has it; room is shared by namespaces.
func Aliases(services []*corev1.Service, own string) (list []Alias, refused map[*corev1.Service]string) {
	refused = map[*corev1.Service]string{}
	byAge := slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool { return s.Annotations[Annotation] == "" })
	slices.SortFunc(byAge, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	has, rank, of := map[string]*corev1.Service{}, map[*corev1.Service]int{}, map[string]int{}
	var named []*corev1.Service
	for _, s := range byAge {
		label := s.Annotations[Annotation]
		switch other := has[label]; {
		case len(validation.IsDNS1123Label(label)) > 0:
			refused[s] = fmt.Sprintf("%.70q is no name: say letters, digits and dashes, 63 at most, without .local", label)
		case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
			refused[s] = fmt.Sprintf("a Service of type %s is not reached from outside by an address of its own: make it a LoadBalancer", s.Spec.Type)
		case label == own:
			refused[s] = label + " is the name of the board itself: choose another"
		case other != nil:
			refused[s] = fmt.Sprintf("%s is the name of Service %s/%s, which is older: choose another", label, other.Namespace, other.Name)
		default:
			has[label], rank[s] = s, of[s.Namespace]
			of[s.Namespace]++
			named = append(named, s)
		}
	}
	slices.SortStableFunc(named, func(a, b *corev1.Service) int { return cmp.Compare(rank[a], rank[b]) })
	for i, s := range named {
		if i >= MostAliases {
			refused[s] = fmt.Sprintf("a board gives %d names, shared among namespaces, and those of older Services come first", MostAliases)
			continue
		}
		if at := reached(s); len(at) > 0 { // else it has no address yet
			list = append(list, Alias{s.Annotations[Annotation], at})
		}
	}
	return list, refused
}

// reached is where a Service is.
func reached(s *corev1.Service) (out []netip.Addr) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(in.IP)
		if a = a.Unmap().WithZone(""); err == nil && (a.IsGlobalUnicast() || a.Is4() && a.IsLinkLocalUnicast()) && len(out) < MostAddresses &&
			!slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
