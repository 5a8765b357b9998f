package podspec

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostServiceEnv bounds the variables of Services in bytes: with more than some two million in all the kernel starts no program (E2BIG).
const mostServiceEnv = 1 << 20

// services are the variables that tell a pod where Services are: where the API is, always, and where those of its namespace are, unless it
// says that it does not want to know.
func (b Board) services(ctx context.Context, pod *corev1.Pod, needs Needs) ([]envVar, error) {
	list, err := needs.Services(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	nowhere := b.APIServer.IsValid() && b.APIServer.Addr().IsLoopback() // the API's Service: no endpoint has such an address
	by := map[string]*corev1.Service{}
	for _, s := range list {
		api := s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes"
		own := s.Namespace == pod.Namespace && links
		if ip := s.Spec.ClusterIP; ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 || !api && !own || api && nowhere {
			continue
		}
		if by[s.Name] == nil || own { // a pod's own "kubernetes" goes before that of the API
			by[s.Name] = s
		}
	}
	list = list[:0:0]
	for _, s := range by {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	var vars []envVar
	bytes := 0
	for _, s := range list {
		for _, v := range serviceEnv(s) {
			vars = append(vars, v)
			bytes += len(v.name) + len(v.value) + 2
		}
		if bytes > mostServiceEnv {
			return nil, fmt.Errorf("the variables of the %d services of namespace %s take more than %d bytes, with which no program starts: "+
				"set enableServiceLinks: false in the pod", len(list), pod.Namespace, mostServiceEnv)
		}
	}
	return setAll(b.apiServer(pod), vars), nil
}

// serviceEnv are the variables of one Service: Kubernetes' own, and those that Docker once made for links.
func serviceEnv(s *corev1.Service) []envVar {
	name, ip := envName(s.Name), s.Spec.ClusterIP
	number := func(p corev1.ServicePort) string { return strconv.Itoa(int(p.Port)) }
	out := []envVar{{name + "_SERVICE_HOST", ip}, {name + "_SERVICE_PORT", number(s.Spec.Ports[0])}}
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			out = append(out, envVar{name + "_SERVICE_PORT_" + envName(p.Name), number(p)})
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := string(cmp.Or(p.Protocol, corev1.ProtocolTCP))
		proto := strings.ToLower(protocol)
		url := proto + "://" + net.JoinHostPort(ip, number(p))
		if i == 0 {
			out = append(out, envVar{name + "_PORT", url})
		}
		prefix := name + "_PORT_" + number(p) + "_" + protocol
		out = append(out, envVar{prefix, url}, envVar{prefix + "_PROTO", proto}, envVar{prefix + "_PORT", number(p)}, envVar{prefix + "_ADDR", ip})
	}
	return out
}

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
