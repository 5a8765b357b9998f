package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Endpoints that are behind each Service.
var behind = []string{"10.42.0.3", "10.42.0.4"}

func clusterIP(i int) string { return fmt.Sprintf("10.96.%d.%d", i>>8, i&255) }

// object is a Service with its slice.
func object(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	inside := corev1.ServiceInternalTrafficPolicyCluster
	s := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	s.Namespace, s.Name, s.UID, s.ResourceVersion = "default", fmt.Sprint("s", i), "1", "1"
	s.CreationTimestamp = metav1.Unix(int64(i)+1, 0)
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, InternalTrafficPolicy: &inside, SessionAffinity: corev1.ServiceAffinityNone,
		ClusterIP: clusterIP(i), ClusterIPs: []string{clusterIP(i)}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt(8080)}}}
	e := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		AddressType: discoveryv1.AddressTypeIPv4}
	e.Namespace, e.Name, e.UID, e.ResourceVersion = "default", s.Name+"-a", "1", "1"
	e.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	e.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}
	for _, a := range behind {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("here"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}})
	}
	return s, e
}

// plane is as much of an API as the rivals ask: lists, and watches that tell of changed slices.
type plane struct {
	lists map[string][]any

	mu       sync.Mutex
	watchers []chan *discoveryv1.EndpointSlice
	version  int
}

var kinds = map[string]string{"services": "ServiceList v1", "nodes": "NodeList v1", "namespaces": "NamespaceList v1",
	"endpointslices": "EndpointSliceList discovery.k8s.io/v1", "servicecidrs": "ServiceCIDRList networking.k8s.io/v1"}

func newPlane(n int) *plane {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID, node.ResourceVersion = "here", "1", "1"
	node.Spec.PodCIDRs = []string{"10.42.0.0/24"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.42.0.1"}}
	space := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	space.Name, space.ResourceVersion = "default", "1"
	p := &plane{lists: map[string][]any{"nodes": {node}, "namespaces": {space}, "servicecidrs": {}, "services": {}, "endpointslices": {}},
		version: 1}
	for i := range n {
		s, e := object(i)
		p.lists["services"], p.lists["endpointslices"] = append(p.lists["services"], s), append(p.lists["endpointslices"], e)
	}
	return p
}

// change tells all who watch of a slice.
func (p *plane) change(e *discoveryv1.EndpointSlice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	e.ResourceVersion = fmt.Sprint(p.version)
	for _, w := range p.watchers {
		w <- e
	}
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	i := slices.IndexFunc(parts, func(s string) bool { return kinds[s] != "" })
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason string) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	switch q := r.URL.Query(); {
	case i < 0 || r.Method != http.MethodGet:
		status(http.StatusNotFound, "NotFound")
	case q.Get("sendInitialEvents") != "":
		status(http.StatusUnprocessableEntity, "Invalid")
	case q.Get("watch") != "":
		p.watch(w, r, parts[i] == "endpointslices")
	case i+1 < len(parts):
		_ = json.NewEncoder(w).Encode(p.lists[parts[i]][0]) // who has gone needs none
	default:
		kind, version, _ := strings.Cut(kinds[parts[i]], " ")
		_, _ = io.WriteString(w, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":`, kind, version))
		_ = json.NewEncoder(w).Encode(p.lists[parts[i]])
		_, _ = io.WriteString(w, "}")
	}
}

func (p *plane) watch(w http.ResponseWriter, r *http.Request, told bool) {
	changes := make(chan *discoveryv1.EndpointSlice, 100)
	if told {
		p.mu.Lock()
		p.watchers = append(p.watchers, changes)
		p.mu.Unlock()
	}
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-changes:
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": e})
			_ = rc.Flush()
		}
	}
}
