package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local/allocate"
	"ledge/api/networking"
	"ledge/storage"
)

// Services is where the addresses and ports of services come from.
type Services struct {
	Ranges []netip.Prefix // one of each family at most, the cluster's own first; nil: DefaultServiceCIDR
	Ports  allocate.Ports // zero: those of Kubernetes
	// Reserved are networks that others use, by what they are called: no range of services may overlap them.
	Reserved map[string]netip.Prefix
}

// DefaultServiceCIDR is where addresses of services come from if nobody says.
var DefaultServiceCIDR = netip.MustParsePrefix("10.43.0.0/16")

func (s *Services) fill() {
	if len(s.Ranges) == 0 {
		s.Ranges = []netip.Prefix{DefaultServiceCIDR}
	}
	if s.Ports == (allocate.Ports{}) {
		s.Ports = allocate.DefaultPorts
	}
}

// Overlap names a reserved network that a range shares addresses with.
func (s *Services) Overlap(p netip.Prefix) error {
	for _, name := range slices.Sorted(maps.Keys(s.Reserved)) {
		if r := s.Reserved[name]; p.Overlaps(r) {
			return fmt.Errorf("%s overlaps %s, %s", p, name, r)
		}
	}
	return nil
}

// The marks of the addresses that are kept for services, as Kubernetes' allocator sets them.
const allocator = "ipallocator.k8s.io"

// keepsServices: this server keeps services and their addresses.
func keepsServices(in *inTx) bool {
	return slices.Contains(in.store.Kinds().Kept, networking.IPAddresses)
}

// admitService gives a service its addresses and ports in the transaction that writes it. So a service that is refused, or a dry run,
// takes none.
func admitService(in *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	if a.sub != "" || !keepsServices(in) {
		return nil
	}
	s := a.obj.(*corev1.Service)
	var old *corev1.Service
	if a.old != nil {
		old = a.old.(*corev1.Service)
	} else if _, err := tx.Get(api.Services, s.Namespace, s.Name); err == nil { // otherwise it would hear that its address is taken, by itself
		return apierrors.NewAlreadyExists(api.Services.GR(), s.Name)
	}
	if err := allocate.Service(s, old, &source{in: in, tx: tx, of: s}); err != nil {
		return err
	}
	if old == nil {
		return nil
	}
	return freeAddresses(in, tx, old, allocate.Freed(s, old))
}

// source implements allocate.Source in one transaction. An address is taken if it has an IPAddress, a port if a service names it. Nothing
// else remembers them, so nothing can disagree after a crash or a restore.
type source struct {
	in     *inTx
	tx     *storage.Tx
	of     *corev1.Service
	ranges []allocate.Range
	ports  map[int32]bool // that are taken; nil: nobody has looked
	own    int            // how many of them services of the same namespace have
}

func (s *source) Families() (out []corev1.IPFamily, err error) {
	for _, p := range s.in.cfg.Services.Ranges {
		out = append(out, api.FamilyOf(p.Addr().String()))
	}
	return out, nil
}

// open are the ranges that addresses are given from: those of all ServiceCIDRs that nobody has deleted.
func (s *source) open() ([]allocate.Range, error) {
	if s.ranges != nil {
		return s.ranges, nil
	}
	all, err := s.tx.List(networking.ServiceCIDRs, "")
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if cidr := o.(*networkingv1.ServiceCIDR); cidr.DeletionTimestamp == nil {
			for _, p := range prefixes(cidr) {
				s.ranges = append(s.ranges, allocate.NewRange(p))
			}
		}
	}
	return s.ranges, nil
}

func prefixes(c *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func (s *source) Take(ip netip.Addr) error {
	open, err := s.open()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(open, func(r allocate.Range) bool { return r.Has(ip) }) {
		return allocate.ErrRange
	}
	free, err := s.free(ip)
	if err != nil {
		return err
	}
	if !free {
		return allocate.ErrTaken
	}
	return s.hold(ip, open)
}

// hold takes a free address, if the namespace may have one more.
func (s *source) hold(ip netip.Addr, open []allocate.Range) error {
	if err := s.fairAddress(api.FamilyOf(ip.String()), open); err != nil {
		return err
	}
	return holdAddress(s.in, s.tx, s.of, ip)
}

func (s *source) free(ip netip.Addr) (bool, error) {
	_, err := s.tx.Get(networking.IPAddresses, "", ip.String())
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	return false, err
}

func (s *source) Next(f corev1.IPFamily) (netip.Addr, error) {
	open, err := s.open()
	if err != nil {
		return netip.Addr{}, err
	}
	err = allocate.ErrFull
	for _, r := range open {
		if api.FamilyOf(r.First().String()) != f {
			continue
		}
		var ip netip.Addr
		if ip, err = r.Next(rand.Uint64N, s.free); err == nil {
			return ip, s.hold(ip, open)
		}
	}
	return netip.Addr{}, err
}

// look finds the ports that services have. It reads all services, so it is called only for a service that needs a new port.
func (s *source) look() error {
	if s.ports != nil {
		return nil
	}
	all, err := s.tx.List(api.Services, "")
	if err != nil {
		return err
	}
	s.ports = map[int32]bool{}
	for _, o := range all {
		for _, n := range allocate.PortsOf(o.(*corev1.Service)) {
			s.take(n, o.GetNamespace())
		}
	}
	return nil
}

func (s *source) take(n int32, namespace string) {
	if namespace == s.of.Namespace && !s.ports[n] {
		s.own++
	}
	s.ports[n] = true
}

// fair says that a namespace may have one more port: no more than it leaves to the others.
func (s *source) fair() error {
	ports := s.in.cfg.Services.Ports
	return leaves(s.of.Namespace, uint64(s.own), uint64(len(s.ports)), uint64(ports.Last-ports.First)+1, "ports", ports)
}

func (s *source) TakePort(n int32) error {
	if err := s.in.cfg.Services.Ports.Check(n); err != nil {
		return err
	}
	if err := s.look(); err != nil {
		return err
	}
	if s.ports[n] {
		return allocate.ErrPort
	}
	if err := s.fair(); err != nil {
		return err
	}
	s.take(n, s.of.Namespace)
	return nil
}

func (s *source) NextPort() (int32, error) {
	if err := s.look(); err != nil {
		return 0, err
	}
	n, err := s.in.cfg.Services.Ports.Next(rand.Uint64N, func(n int32) bool { return !s.ports[n] })
	if err == nil {
		err = s.fair()
	}
	if err == nil {
		s.take(n, s.of.Namespace)
	}
	return n, err
}

// hold makes the IPAddress that says whose an address is.
func holdAddress(in *inTx, tx *storage.Tx, s *corev1.Service, ip netip.Addr) error {
	return in.makeSystem(tx, &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(api.FamilyOf(ip.String())), networkingv1.LabelManagedBy: allocator}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: api.Services.Resource, Namespace: s.Namespace,
			Name: s.Name}},
	})
}

// heldBy says that an address is kept for a service.
func heldBy(a *networkingv1.IPAddress, s *corev1.Service) bool {
	p := a.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == api.Services.Resource && p.Namespace == s.Namespace && p.Name == s.Name
}

// free gives addresses of a service up.
func freeAddresses(in *inTx, tx *storage.Tx, s *corev1.Service, ips []string) error {
	for _, ip := range ips {
		a, err := tx.Get(networking.IPAddresses, "", ip)
		if errors.Is(err, storage.ErrNotFound) || err == nil && !heldBy(a.(*networkingv1.IPAddress), s) {
			continue
		}
		if _, err := tx.Delete(networking.IPAddresses, "", ip); err != nil {
			return storeError(err, networking.IPAddresses, "", ip)
		}
	}
	if len(ips) == 0 {
		return nil
	}
	return dropRanges(in, tx)
}

// serviceGone gives up what a service had.
func serviceGone(in *inTx, tx *storage.Tx, obj api.Object) error {
	s, ok := obj.(*corev1.Service)
	if !ok || !keepsServices(in) {
		return nil
	}
	return freeAddresses(in, tx, s, allocate.Addresses(s))
}

// addressGone keeps the address of a service from being given twice.
func addressGone(in *inTx, tx *storage.Tx, obj api.Object) error {
	a := obj.(*networkingv1.IPAddress)
	p := a.Spec.ParentRef
	if p == nil || p.Group != "" || p.Resource != api.Services.Resource {
		return dropRanges(in, tx)
	}
	s, err := tx.Get(api.Services, p.Namespace, p.Name)
	if err == nil && slices.Contains(allocate.Addresses(s.(*corev1.Service)), a.Name) {
		return forbidden(networking.IPAddresses, a.Name, "it is the address of service %s/%s, and goes with it", p.Namespace, p.Name)
	}
	return dropRanges(in, tx)
}

// ensureAddresses does that where there is anything to do.
func ensureAddresses(in *inTx) error {
	if !keepsServices(in) || in.store.WhenAny(networking.IPAddresses, func() {}) && in.store.WhenAny(api.Services, func() {}) {
		return nil
	}
	return in.store.Update(func(tx *storage.Tx) error { return repairAddresses(in, tx) })
}

// repairAddresses makes and removes IPAddresses until they fit the services. They may differ after a value of the store was damaged, or
// in a store from before there were IPAddresses.
func repairAddresses(in *inTx, tx *storage.Tx) error {
	services, err := tx.List(api.Services, "")
	if err != nil {
		return err
	}
	held := map[string]*corev1.Service{}
	for _, o := range services {
		s := o.(*corev1.Service)
		for _, ip := range allocate.Addresses(s) {
			if first := held[ip]; first != nil {
				slog.Error("two services have one address: make one of them anew", "address", ip, "service", api.Key(first), "other", api.Key(s))
				continue
			}
			held[ip] = s
		}
	}
	addresses, err := tx.List(networking.IPAddresses, "")
	if err != nil {
		return err
	}
	for _, o := range addresses {
		a := o.(*networkingv1.IPAddress)
		s := held[a.Name]
		switch {
		case s != nil && heldBy(a, s), s == nil && a.Labels[networkingv1.LabelManagedBy] != allocator:
			delete(held, a.Name)
		default: // of a service that is not there, or has another
			if _, err := tx.Delete(networking.IPAddresses, "", a.Name); err != nil {
				return err
			}
		}
	}
	for ip, s := range held {
		at, err := netip.ParseAddr(ip)
		if err != nil {
			continue // validation has let no such thing in
		}
		if err := holdAddress(in, tx, s, at); err != nil {
			return err
		}
	}
	return nil
}
