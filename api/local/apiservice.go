//lint:file-ignore SA1019 older clients find the API by its Endpoints

package local

import (
	"errors"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/local/allocate"
	"ledge/storage"
)

// apiName is the name of the service by which clients find the API, and of its endpoints.
const apiName = "kubernetes"

// isAPIObject: one of those that are put back when somebody deletes them.
func isAPIObject(kind *api.Kind, namespace, name string) bool {
	return namespace == metav1.NamespaceDefault && name == apiName &&
		(kind == api.Services || kind == api.Endpoints || kind.Resource == "endpointslices")
}

// SetEndpoint says where the pods of all boards find the API from now on: a board may get other addresses.
func (c *Client) SetEndpoint(at netip.AddrPort) {
	c.mu.Lock()
	same := c.cfg.Endpoint == at
	c.cfg.Endpoint = at
	c.mu.Unlock()
	if !same {
		c.restoreSoon()
	}
}

// kept is an object as it has to be. What else somebody wrote into it stays.
type kept struct {
	api.Object
	put func(have api.Object) // what counts of it
}

// apiObjects are the range of the services, the service of the API, and its endpoints in both forms, in the order of need.
func apiObjects(in *inTx) []kept {
	in.mu.Lock()
	at := in.cfg.Endpoint
	in.mu.Unlock()
	first := allocate.NewRange(in.cfg.Services.Ranges[0]).First()
	family, target := api.FamilyOf(first.String()), int32(httpsPort)
	if at.IsValid() {
		target = int32(at.Port())
	}
	r, s := defaultRange(in), apiService(first, target)
	slice, older := apiEndpoints(family, at)
	return []kept{
		{r, func(have api.Object) { have.(*networkingv1.ServiceCIDR).Spec = r.Spec }},
		{s, func(have api.Object) { have.(*corev1.Service).Spec = s.Spec }},
		{slice, func(have api.Object) {
			h := have.(*discoveryv1.EndpointSlice)
			h.Endpoints, h.Ports = slice.Endpoints, slice.Ports
		}},
		{older, func(have api.Object) { have.(*corev1.Endpoints).Subsets = older.Subsets }},
	}
}

const httpsPort = 443

func apiMeta(key, value string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: apiName, Labels: map[string]string{key: value}}
}

func apiService(ip netip.Addr, target int32) *corev1.Service {
	policy := corev1.IPFamilyPolicySingleStack
	s := &corev1.Service{ObjectMeta: apiMeta("component", "apiserver"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip.String(), ClusterIPs: []string{ip.String()},
		IPFamilies: []corev1.IPFamily{api.FamilyOf(ip.String())}, IPFamilyPolicy: &policy,
		Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: httpsPort, TargetPort: intstr.FromInt32(target)}}}}
	s.Labels["provider"] = "kubernetes"
	return s
}

// apiEndpoints are empty where the API has no address that pods can use.
func apiEndpoints(family corev1.IPFamily, at netip.AddrPort) (*discoveryv1.EndpointSlice, *corev1.Endpoints) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: apiMeta(discoveryv1.LabelServiceName, apiName),
		AddressType: discoveryv1.AddressType(family)}
	older := &corev1.Endpoints{ObjectMeta: apiMeta(discoveryv1.LabelSkipMirror, "true")} // the slice is there
	if !at.IsValid() || api.FamilyOf(at.Addr().String()) != family {
		return slice, older
	}
	ip, port, name, tcp, ready := at.Addr().String(), int32(at.Port()), "https", corev1.ProtocolTCP, true
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}
	slice.Ports = []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}}
	older.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}},
		Ports: []corev1.EndpointPort{{Name: name, Port: port, Protocol: tcp}}}}
	return slice, older
}

// ensureAPI keeps these objects as they have to be, and says whether one was not; it writes only where it is told to.
func ensureAPI(in *inTx, tx *storage.Tx, write bool) (lacks bool, err error) {
	if !keepsServices(in) {
		return false, nil
	}
	for _, want := range apiObjects(in) {
		was, err := ensureKept(in, tx, want, write)
		if err != nil {
			return false, err
		}
		lacks = lacks || was
	}
	if lacks && write {
		return true, repairAddresses(in, tx)
	}
	return lacks, nil
}

func ensureKept(in *inTx, tx *storage.Tx, want kept, write bool) (lacks bool, err error) {
	kind, err := in.store.Kinds().Of(want.Object)
	if err != nil {
		return false, err
	}
	have, err := tx.Get(kind, want.GetNamespace(), want.GetName())
	if errors.Is(err, storage.ErrNotFound) || err == nil && otherFamily(have, want.Object) {
		if write {
			return true, in.makeSystem(tx, want.Object)
		}
		return true, nil
	}
	if err != nil {
		return false, storeError(err, kind, want.GetNamespace(), want.GetName())
	}
	now := clone(have)
	want.put(now)
	labels := now.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.GetLabels())
	now.SetLabels(labels)
	kind.Default(now)
	if kind.Same(now, have) {
		return false, nil
	}
	if write {
		return true, put(tx, kind, now, false)
	}
	return true, nil
}

// otherFamily: what an endpoint slice is of may not change.
func otherFamily(have, want api.Object) bool {
	h, ok := have.(*discoveryv1.EndpointSlice)
	return ok && h.AddressType != want.(*discoveryv1.EndpointSlice).AddressType
}
