package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/api/local/allocate"
	"ledge/api/networking"
	"ledge/storage"
)

func newService(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: in("default", name)}
	s.Spec.Ports, s.Spec.Selector = []corev1.ServicePort{{Port: 80}}, map[string]string{"app": name}
	if change != nil {
		change(s)
	}
	return s
}

func ranged(ranges ...string) Services {
	s := Services{Ports: allocate.Ports{First: 30000, Last: 30019}}
	for _, r := range ranges {
		s.Ranges = append(s.Ranges, netip.MustParsePrefix(r))
	}
	return s
}

func tryService(t *testing.T, c *Client, s *corev1.Service, dry bool) (*corev1.Service, error) {
	t.Helper()
	out, err := c.Create(t.Context(), api.Services, s, api.WriteOptions{DryRun: dry})
	if err != nil {
		return nil, err
	}
	return out.(*corev1.Service), nil
}

func getService(t *testing.T, c *Client, name string) *corev1.Service {
	t.Helper()
	s, err := api.Get[*corev1.Service](t.Context(), c, api.Services, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func remove(t *testing.T, c *Client, kind *api.Kind, namespace, name string) {
	t.Helper()
	if _, err := c.Delete(t.Context(), kind, namespace, name, api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addressesOf are the names of all IPAddresses, and whose they are.
func addressesOf(t *testing.T, c *Client) map[string]string {
	t.Helper()
	l, err := c.List(t.Context(), networking.IPAddresses, api.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range l.Items {
		out[o.GetName()] = o.(*networkingv1.IPAddress).Spec.ParentRef.Name
	}
	return out
}

// wantInLine: every address of a service has an IPAddress, and no other.
func wantInLine(t *testing.T, c *Client) {
	t.Helper()
	l, err := c.List(t.Context(), api.Services, api.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, ports := map[string]string{}, map[int32]string{}
	for _, o := range l.Items {
		s := o.(*corev1.Service)
		for _, ip := range allocate.Addresses(s) {
			if want[ip] != "" {
				t.Fatalf("%s is that of %s and %s", ip, want[ip], s.Name)
			}
			want[ip] = s.Name
		}
		for _, n := range allocate.PortsOf(s) {
			if ports[n] != "" && ports[n] != s.Name {
				t.Fatalf("port %d is that of %s and %s", n, ports[n], s.Name)
			}
			ports[n] = s.Name
		}
	}
	if got := addressesOf(t, c); !maps.Equal(got, want) {
		t.Fatalf("addresses are kept for %v, services have %v", got, want)
	}
}

func TestAPIService(t *testing.T) {
	at := netip.MustParseAddrPort("192.168.7.2:6443")
	c := open(t, Config{Endpoint: at})
	s := getService(t, c, "kubernetes")
	if s.Spec.ClusterIP != "10.43.0.1" || s.Spec.Ports[0].Port != 443 || s.Spec.Ports[0].TargetPort.IntVal != 6443 {
		t.Errorf("%+v", s.Spec)
	}
	endpoints := func() string {
		e, err := api.Get[*discoveryv1.EndpointSlice](t.Context(), c, discovery.EndpointSlices, "default", "kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Endpoints) == 0 {
			return ""
		}
		return fmt.Sprint(e.Endpoints[0].Addresses[0], ":", *e.Ports[0].Port, " ", e.Labels[discoveryv1.LabelServiceName])
	}
	if got := endpoints(); got != "192.168.7.2:6443 kubernetes" {
		t.Error(got)
	}
	r, err := api.Get[*networkingv1.ServiceCIDR](t.Context(), c, networking.ServiceCIDRs, "", "kubernetes")
	if err != nil || r.Spec.CIDRs[0] != "10.43.0.0/16" || r.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("%+v %v", r, err)
	}
	wantInLine(t, c)

	// The board has another address; somebody has changed and deleted what must be there.
	c.SetEndpoint(netip.MustParseAddrPort("192.168.9.9:7443"))
	remove(t, c, api.Services, "default", "kubernetes")
	remove(t, c, api.Endpoints, "default", "kubernetes")
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if got := endpoints(); got != "192.168.9.9:7443 kubernetes" {
		t.Error(got)
	}
	if s = getService(t, c, "kubernetes"); s.Spec.ClusterIP != "10.43.0.1" || s.Spec.Ports[0].TargetPort.IntVal != 7443 {
		t.Errorf("%+v", s.Spec)
	}
	wantInLine(t, c)
	rev := c.store.Revision()
	if err := c.EnsureSystem(); err != nil || c.store.Revision() != rev {
		t.Errorf("a second look wrote something: %v", err)
	}
	_, err = c.Delete(t.Context(), networking.ServiceCIDRs, "", "kubernetes", api.DeleteOptions{})
	wantCode(t, err, 403, "change serviceCIDR there")
	// A slice of addresses that nobody can use is empty.
	c.SetEndpoint(netip.AddrPort{})
	if err := c.EnsureSystem(); err != nil || endpoints() != "" {
		t.Errorf("%q %v", endpoints(), err)
	}
}

// TestServiceTypes goes through the types: what a service needs it gets, what it needs no more is free.
func TestServiceTypes(t *testing.T) {
	c := open(t, Config{Services: ranged("10.0.0.0/28", "fd00::/124")})
	create(t, c, newService("web", nil))
	change := func(patch string) *corev1.Service {
		t.Helper()
		out, err := c.Patch(t.Context(), api.Services, "default", "web", api.Patch{Type: types.MergePatchType, Data: []byte(patch)},
			api.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantInLine(t, c)
		return out.(*corev1.Service)
	}
	refused := func(patch, want string) {
		t.Helper()
		_, err := c.Patch(t.Context(), api.Services, "default", "web", api.Patch{Type: types.MergePatchType, Data: []byte(patch)},
			api.WriteOptions{})
		wantCode(t, err, 422, want)
		wantInLine(t, c)
	}
	ip := getService(t, c, "web").Spec.ClusterIP
	other := map[bool]string{true: "10.0.0.8", false: "10.0.0.9"}[ip == "10.0.0.9"] // it was given at random
	refused(`{"spec":{"clusterIP":"`+other+`"}}`, "may not change once set")
	refused(`{"spec":{"clusterIP":"None"}}`, "may not change once set")
	s := change(`{"spec":{"type":"NodePort"}}`)
	port := s.Spec.Ports[0].NodePort
	if s.Spec.ClusterIP != ip || port == 0 || s.Spec.ExternalTrafficPolicy != "Cluster" {
		t.Errorf("%+v", s.Spec)
	}
	if s = change(`{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`); s.Spec.HealthCheckNodePort == 0 ||
		s.Spec.Ports[0].NodePort != port || s.Spec.HealthCheckNodePort == port {
		t.Errorf("%+v", s.Spec)
	}
	refused(`{"spec":{"healthCheckNodePort":30001}}`, "field is immutable")
	refused(`{"spec":{"ports":[{"port":80,"nodePort":80}]}}`, "not in the valid range")
	if s = change(`{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`); len(s.Spec.ClusterIPs) != 2 || s.Spec.ClusterIP != ip {
		t.Errorf("%+v", s.Spec)
	}
	if s = change(`{"spec":{"ipFamilyPolicy":"SingleStack"}}`); len(s.Spec.ClusterIPs) != 1 || s.Spec.ClusterIP != ip {
		t.Errorf("%+v", s.Spec)
	}
	if s = change(`{"spec":{"type":"ExternalName","externalName":"example.com"}}`); s.Spec.ClusterIP != "" || s.Spec.ClusterIPs != nil ||
		s.Spec.Ports[0].NodePort != 0 || s.Spec.HealthCheckNodePort != 0 || s.Spec.ExternalTrafficPolicy != "" || s.Spec.IPFamilies != nil {
		t.Errorf("%+v", s.Spec)
	}
	if got := addressesOf(t, c); len(got) != 1 {
		t.Errorf("still kept: %v", got)
	}
	if s = change(`{"spec":{"type":"ClusterIP","externalName":null}}`); s.Spec.ClusterIP == "" {
		t.Errorf("%+v", s.Spec)
	}
	// Who replaces it by a manifest that knows nothing of what it was given changes nothing of that.
	ip = s.Spec.ClusterIP
	out, err := c.Update(t.Context(), api.Services, newService("web", nil), api.WriteOptions{})
	if err != nil || out.(*corev1.Service).Spec.ClusterIP != ip {
		t.Errorf("%+v %v", out, err)
	}
	remove(t, c, api.Services, "default", "web")
	wantInLine(t, c)
}

// TestServiceNames: the name of a Service is a label of DNS, and so are those of its ports, or each is refused by its path.
func TestServiceNames(t *testing.T) {
	c := open(t, Config{Services: ranged("10.0.0.0/28")})
	for _, name := range []string{"web.shop", "Web", "-web", "web-", "we_b", strings.Repeat("a", 64)} {
		_, err := tryService(t, c, newService(name, func(s *corev1.Service) { s.Spec.Selector = nil }), false)
		wantCode(t, err, 422, "metadata.name")
		wantInLine(t, c)
	}
	create(t, c, newService(strings.Repeat("a", 63), nil))
	_, err := tryService(t, c, newService("ports", func(s *corev1.Service) { s.Spec.Ports[0].Name = "Web_Port" }), false)
	wantCode(t, err, 422, "spec.ports[0].name")
	wantInLine(t, c)
}

func TestServicesTakeNothing(t *testing.T) {
	c := open(t, Config{Services: ranged("10.0.0.0/29")}) // six, one of them the API's
	for i := range 20 {
		if _, err := tryService(t, c, newService(fmt.Sprint("dry", i), func(s *corev1.Service) { s.Spec.Type = "NodePort" }), true); err != nil {
			t.Fatal(err)
		}
		_, err := tryService(t, c, newService(fmt.Sprint("bad", i), func(s *corev1.Service) { s.Spec.SessionAffinity = "x" }), false)
		wantCode(t, err, 422, "sessionAffinity")
	}
	for i := range 5 {
		create(t, c, newService(fmt.Sprint("s", i), nil))
	}
	_, err := tryService(t, c, newService("more", nil), false)
	wantCode(t, err, 500, "range is full")
	_, err = tryService(t, c, newService("s1", func(s *corev1.Service) { s.Spec.ClusterIP = getService(t, c, "s1").Spec.ClusterIP }), false)
	wantCode(t, err, 409, "already exists")
	// What is a service's address nobody takes from it, and with its namespace it is free.
	held := getService(t, c, "s1").Spec.ClusterIP
	_, err = c.Delete(t.Context(), networking.IPAddresses, "", held, api.DeleteOptions{})
	wantCode(t, err, 403, "it is the address of service default/s1")
	remove(t, c, api.Services, "default", "s1")
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	create(t, c, newService("x", func(s *corev1.Service) { s.Namespace = "team" }))
	remove(t, c, api.Namespaces, "", "team")
	create(t, c, newService("y", nil))
	wantInLine(t, c)
}

// TestServicesAtRandom does with the store what people do: no two services ever have
// one address or port, and what none has is free.
func TestServicesAtRandom(t *testing.T) {
	changeAtRandom(t, open(t, Config{Services: ranged("10.0.0.0/28")}), rand.New(rand.NewPCG(7, 7)), 400)
}

func changeAtRandom(t *testing.T, c *Client, rng *rand.Rand, times int) {
	t.Helper()
	types := []corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}
	for range times {
		name := fmt.Sprint("s", rng.IntN(20))
		s := newService(name, func(s *corev1.Service) {
			s.Spec.Type = types[rng.IntN(4)]
			s.Spec.ExternalName = "example.com"
			if rng.IntN(3) == 0 {
				s.Spec.ClusterIP = fmt.Sprint("10.0.0.", rng.IntN(18))
			}
			if rng.IntN(3) == 0 {
				s.Spec.Ports[0].NodePort = 29999 + int32(rng.IntN(22))
			}
		})
		dry := api.WriteOptions{DryRun: rng.IntN(5) == 0}
		var err error
		switch rng.IntN(3) {
		case 0:
			_, err = c.Create(t.Context(), api.Services, s, dry)
		case 1:
			_, err = c.Update(t.Context(), api.Services, s, dry)
		default:
			_, err = c.Delete(t.Context(), api.Services, "default", name, api.DeleteOptions{DryRun: dry.DryRun})
		}
		if apierrors.IsInternalError(err) && !strings.Contains(err.Error(), "range is full") {
			t.Fatal(err)
		}
		wantInLine(t, c)
	}
}

// TestServicesOfABackup: a store that was put back to an older state has the addresses of that state and gives none of them twice.
// Addresses of Services that it has forgotten are free again.
func TestServicesOfABackup(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	start := func() (*storage.Store, *Client) {
		s, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Store: s, Services: ranged("10.0.0.0/28")})
		if err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	stop := func(s *storage.Store) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(_ context.Context, path string) error { return storage.Check(path) }
	rng := rand.New(rand.NewPCG(3, 1))
	store, c := start()
	for range 4 {
		changeAtRandom(t, c, rng, 40)
		had, newest := addressesOf(t, c), store.Revision()
		save(t, store, file)
		changeAtRandom(t, c, rng, 40)
		stop(store)
		if err := (storage.Restore{Dir: dir, Backup: file, Check: check}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		store, c = start()
		wantInLine(t, c)
		if now := addressesOf(t, c); !maps.Equal(now, had) {
			t.Errorf("the backup has the addresses %v, the store that was made of it %v", had, now)
		}
		if store.Revision() <= newest {
			t.Errorf("revision %d after a restore, was %d", store.Revision(), newest)
		}
	}
	changeAtRandom(t, c, rng, 40)
	for i := range 20 { // all that is free can be had, and no more
		_, _ = tryService(t, c, newService(fmt.Sprint("more", i), nil), false)
	}
	wantInLine(t, c)
	if n := len(addressesOf(t, c)); n != 14 {
		t.Errorf("%d of 14 addresses are given", n)
	}
	stop(store)
}

func save(t *testing.T, s *storage.Store, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(s.Backup(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAddressesAreRepaired: a start puts right what a damaged value, or a store from before there were addresses, has left.
func TestAddressesAreRepaired(t *testing.T) {
	c := open(t, Config{})
	for _, name := range []string{"a", "b"} {
		create(t, c, newService(name, nil))
	}
	a := getService(t, c, "a").Spec.ClusterIP
	create(t, c, &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.43.9.9"}, Spec: networkingv1.IPAddressSpec{
		ParentRef: &networkingv1.ParentReference{Group: "x.example", Resource: "things", Name: "mine"}}})
	err := c.store.Update(func(tx *storage.Tx) error {
		if _, err := tx.Delete(networking.IPAddresses, "", a); err != nil {
			return err
		}
		return holdAddress(c.inTx, tx, newService("gone", nil), netip.MustParseAddr("10.43.9.8"))
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(Config{Store: c.store})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Values(addressesOf(t, again))); !slices.Equal(got, []string{"a", "b", "kubernetes", "mine"}) {
		t.Errorf("kept for %v", got)
	}
	rev := c.store.Revision()
	if _, err := New(Config{Store: c.store}); err != nil || c.store.Revision() != rev {
		t.Errorf("a second start wrote something: %v", err)
	}
	// Another range in the configuration: services keep their addresses, new ones and the API's are of the new range.
	moved, err := New(Config{Store: c.store, Services: ranged("10.77.0.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	if got := getService(t, moved, "kubernetes").Spec.ClusterIP; got != "10.77.0.1" || getService(t, moved, "a").Spec.ClusterIP != a {
		t.Error(got)
	}
	create(t, moved, newService("c", nil))
	if got := getService(t, moved, "c").Spec.ClusterIP; !strings.HasPrefix(got, "10.77.0.") {
		t.Error(got)
	}
}

func TestServiceRanges(t *testing.T) {
	cfg := ranged("10.0.0.0/30")
	cfg.Reserved = map[string]netip.Prefix{"the pods' network": netip.MustParsePrefix("10.9.0.0/24")}
	c := open(t, Config{Services: cfg})
	create(t, c, newService("first", nil))
	_, err := tryService(t, c, newService("second", nil), false)
	wantCode(t, err, 500, "range is full")
	more := func(name, cidr string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
	}
	_, err = c.Create(t.Context(), networking.ServiceCIDRs, more("bad", "10.9.0.128/25"), api.WriteOptions{})
	wantCode(t, err, 422, "10.9.0.128/25 overlaps the pods' network, 10.9.0.0/24")
	made := create(t, c, more("more", "10.1.0.0/28"))
	if !slices.Contains(made.Finalizers, rangeFinalizer) || len(made.Status.Conditions) != 1 {
		t.Errorf("%+v", made)
	}
	create(t, c, newService("second", nil))
	remove(t, c, networking.ServiceCIDRs, "", "more")
	r, err := api.Get[*networkingv1.ServiceCIDR](t.Context(), c, networking.ServiceCIDRs, "", "more")
	if err != nil || r.DeletionTimestamp == nil || r.Status.Conditions[0].Reason != "Terminating" {
		t.Fatalf("%+v %v", r, err)
	}
	// Nobody may let it go early, and nothing new is given of it.
	if _, err := c.Patch(t.Context(), networking.ServiceCIDRs, "", "more", api.Patch{Type: types.MergePatchType,
		Data: []byte(`{"metadata":{"finalizers":null}}`)}, api.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = tryService(t, c, newService("third", nil), false)
	wantCode(t, err, 500, "range is full")
	remove(t, c, api.Services, "default", "second")
	if _, err := c.Get(t.Context(), networking.ServiceCIDRs, "", "more"); !apierrors.IsNotFound(err) {
		t.Errorf("the range is still there: %v", err)
	}
	create(t, c, more("unused", "10.1.0.0/28"))
	remove(t, c, networking.ServiceCIDRs, "", "unused")
	if _, err := c.Get(t.Context(), networking.ServiceCIDRs, "", "unused"); !apierrors.IsNotFound(err) {
		t.Errorf("the range is still there: %v", err)
	}
}

// TestPortsAreShared: one namespace takes no more node ports than it leaves to others, by number or not.
func TestPortsAreShared(t *testing.T) {
	c := open(t, Config{Services: ranged("10.96.0.0/16")})
	take := func(namespace string) (n int, err error) {
		for ; err == nil && n < 30; n++ {
			s := newService(fmt.Sprint("s", n), func(s *corev1.Service) {
				s.Namespace, s.Spec.Type = namespace, corev1.ServiceTypeNodePort
				if n%2 == 0 {
					s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "b", Port: 81})
					s.Spec.Ports[0].Name = "a"
				}
			})
			_, err = tryService(t, c, s, false)
		}
		l, lerr := c.List(t.Context(), api.Services, api.ListOptions{Selection: api.Selection{Namespace: namespace}})
		if lerr != nil {
			t.Fatal(lerr)
		}
		n = 0
		for _, o := range l.Items {
			n += len(allocate.PortsOf(o.(*corev1.Service)))
		}
		return n, err
	}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	n, err := take("default")
	if n < 8 || n > 10 || err == nil || !strings.Contains(err.Error(), "as many are left for others") {
		t.Errorf("the first has %d of 20 ports: %v", n, err)
	}
	if n, err := take("other"); n < 4 || n > 6 || err == nil {
		t.Errorf("the second has %d: %v", n, err)
	}
}

// TestAddressesAreShared: one namespace takes no more addresses than it leaves to others, by number or not, and who has few is not
// refused while there is one.
func TestAddressesAreShared(t *testing.T) {
	c := open(t, Config{Services: ranged("10.96.0.0/25", "fd00:96::/112")}) // 126
	take := func(namespace string, most int) (n int, err error) {
		for ; n < most; n++ {
			s := newService(fmt.Sprint("s", n), func(s *corev1.Service) {
				if s.Namespace = namespace; n%2 == 0 {
					s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
				}
			})
			if _, err = tryService(t, c, s, false); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	for _, namespace := range []string{"other", "late"} {
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	for i := range 100 { // takes none
		create(t, c, newService(fmt.Sprint("headless", i), func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }))
	}
	shared := "as many are left for others"
	n, err := take("default", 200)
	if n < 62 || n > 63 || err == nil || !strings.Contains(err.Error(), shared) {
		t.Errorf("the first has %d of 126 addresses: %v", n, err)
	}
	var free string
	for i := 1; free == ""; i++ {
		if ip := fmt.Sprint("10.96.0.", i); addressesOf(t, c)[ip] == "" {
			free = ip
		}
	}
	asks := newService("asks", func(s *corev1.Service) { s.Spec.ClusterIP = free })
	if _, err := tryService(t, c, asks, false); err == nil || !strings.Contains(err.Error(), shared) {
		t.Errorf("it asks for %s: %v", free, err)
	}
	if n, err := take("other", 200); n < 30 || n > 33 || err == nil || !strings.Contains(err.Error(), shared) {
		t.Errorf("the second has %d: %v", n, err)
	}
	if n, err := take("late", 16); n != 16 || err != nil {
		t.Errorf("the third has %d: %v", n, err)
	}
	for i := range 40 {
		remove(t, c, api.Services, "default", fmt.Sprint("s", i))
	}
	if _, err := tryService(t, c, asks, false); err != nil {
		t.Errorf("it has given up 40: %v", err)
	}
}
