package local

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ledge/api"
	"ledge/api/local/allocate"
	"ledge/api/networking"
	"ledge/storage"
)

// little is how many addresses of a range every namespace may have without being compared with the others. In a range that somebody chose
// small, that is all of them.
func little(all uint64) uint64 { return max(all/64, 16) }

// leaves says that a namespace that has so many of something may have one more: no more than it leaves to the others.
func leaves(namespace string, own, taken, all uint64, what string, which any) error {
	if own < all-min(all, taken) {
		return nil
	}
	return fmt.Errorf("services of namespace %q have %d of the %d %s (%s) that there are, and as many are left for others: delete some",
		namespace, own, all, what, which)
}

// fairAddress says that a namespace may have one more address of a family: no more than it leaves to the others.
func (s *source) fairAddress(f corev1.IPFamily, open []allocate.Range) error {
	all := uint64(0)
	for _, r := range open {
		if api.FamilyOf(r.First().String()) == f {
			all += r.Size()
		}
	}
	most, err := s.count(api.Services, s.of.Namespace) // with those that have no address
	if err != nil || most < little(all) {
		return err
	}
	taken, err := s.count(networking.IPAddresses, "") // of both families
	if err != nil || most < all-min(all, taken) {
		return err
	}
	addresses, err := s.tx.List(networking.IPAddresses, "")
	if err != nil {
		return err
	}
	own := uint64(0)
	taken = 0
	for _, o := range addresses {
		if a := o.(*networkingv1.IPAddress); api.FamilyOf(a.Name) == f {
			taken++
			if p := a.Spec.ParentRef; p != nil && p.Namespace == s.of.Namespace {
				own++
			}
		}
	}
	if own < little(all) {
		return nil
	}
	return leaves(s.of.Namespace, own, taken, all, "addresses", f)
}

func (s *source) count(kind *api.Kind, namespace string) (n uint64, err error) {
	err = s.tx.Each(kind, namespace, "", func(*storage.Stored) error { n++; return nil })
	return n, err
}
