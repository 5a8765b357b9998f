package httpd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/api/discovery"
)

// behind picks one of the pods behind a port of a service, which is named by number, by name, or not at all: then it is the first.
// Only pods are asked: an address that somebody wrote into a slice might be anything that this machine can reach.
func behind(ctx context.Context, c api.Client, namespace, name, port string) (pod, number string, err error) {
	s, err := api.Get[*corev1.Service](ctx, c, api.Services, namespace, name)
	if err != nil {
		return "", "", err
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return port == "" || port == p.Name || port == strconv.Itoa(int(p.Port))
	})
	if i < 0 {
		return "", "", unavailable("no service port %s found for service %q", port, name)
	}
	all, err := c.List(ctx, discovery.EndpointSlices, api.ListOptions{Selection: api.Selection{Namespace: namespace,
		Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name})}})
	if err != nil {
		return "", "", err
	}
	type target struct{ pod, port string }
	var found []target
	for _, o := range all.Items {
		slice := o.(*discoveryv1.EndpointSlice)
		n := portNamed(slice, s.Spec.Ports[i].Name)
		if n == "" {
			continue
		}
		for _, e := range slice.Endpoints {
			if ref := e.TargetRef; (e.Conditions.Ready == nil || *e.Conditions.Ready) && ref != nil && ref.Kind == "Pod" &&
				ref.Namespace == namespace {
				found = append(found, target{ref.Name, n})
			}
		}
	}
	if len(found) == 0 {
		return "", "", unavailable("no endpoints available for service %q", name)
	}
	t := found[rand.IntN(len(found))]
	return t.pod, t.port, nil
}

// portNamed is the number of a port of a slice; "" where it has none of that name.
func portNamed(s *discoveryv1.EndpointSlice, name string) string {
	for _, p := range s.Ports {
		if p.Port != nil && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

func unavailable(format string, args ...any) error {
	return status(http.StatusServiceUnavailable, "ServiceUnavailable", shortText(fmt.Sprintf(format, args...)))
}
