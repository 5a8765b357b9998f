package node

import (
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// searches knows which search list stands in the resolv.conf of the pod at an address, for who answers its questions.
type searches struct {
	mu    sync.Mutex
	lists map[netip.Addr]searchList
}

type searchList struct {
	pod   types.UID
	names []string // absolute
}

// note takes a pod's list. A pod on the host's network shares its address with others: it has none here.
func (s *searches) note(pod types.UID, ips []string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range ips {
		if ip, err := netip.ParseAddr(text); err == nil {
			if s.lists == nil {
				s.lists = map[netip.Addr]searchList{}
			}
			s.lists[ip] = searchList{pod, names}
		}
	}
}

// forget lets go of a pod's, unless another pod has the address by now.
func (s *searches) forget(pod types.UID, ips []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range ips {
		if ip, err := netip.ParseAddr(text); err == nil && s.lists[ip].pod == pod {
			delete(s.lists, ip)
		}
	}
}

// Searches is the search list of the pod at an address; nil: it is not known, or does not count here.
func (a *Agent) Searches(at netip.Addr) []string {
	a.searches.mu.Lock()
	defer a.searches.mu.Unlock()
	return a.searches.lists[at].names
}
