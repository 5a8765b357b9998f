package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var began = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// zones are the nodes that there are.
func zones(node string) (zone string, ok bool) {
	zone, ok = map[string]string{"n1": "east", "n2": "west", "n3": ""}[node]
	return zone, ok
}

// service is one with ports, each "name:port->target/protocol".
func service(ports ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid",
		CreationTimestamp: metav1.NewTime(began)}}
	s.Spec.Selector, s.Spec.ClusterIP = map[string]string{"app": "web"}, "10.96.0.1"
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	for _, text := range ports {
		name, rest, _ := strings.Cut(text, ":")
		number, target, _ := strings.Cut(rest, "->")
		p := corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, TargetPort: intstr.Parse(target)}
		p.Port = intstr.Parse(number).IntVal
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

// pod is one as "name word..." says: ready, going, done, pending, on=NODE, ip=IP (several), port=name:number, sidecar=name:number,
// init=name:number, hostname=NAME of the Service web, at=SECONDS after the beginning.
func pod(text string) *corev1.Pod {
	words := strings.Fields(text)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0], UID: types.UID("uid-" + words[0])}}
	p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	always := corev1.ContainerRestartPolicyAlways
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		name, number, _ := strings.Cut(value, ":")
		ports := []corev1.ContainerPort{{Name: name, ContainerPort: intstr.Parse(number).IntVal, Protocol: corev1.ProtocolTCP}}
		switch key {
		case "ready":
			ready.Status = corev1.ConditionTrue
		case "going":
			p.DeletionTimestamp = &metav1.Time{Time: began}
		case "done":
			p.Status.Phase = corev1.PodSucceeded
		case "on":
			p.Spec.NodeName = value
		case "ip":
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: value})
		case "port":
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, ports...)
		case "sidecar":
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Ports: ports, RestartPolicy: &always})
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Ports: ports})
		case "hostname":
			p.Spec.Hostname, p.Spec.Subdomain = value, "web"
		case "at":
			ready.LastTransitionTime = metav1.NewTime(began.Add(time.Duration(intstr.Parse(value).IntVal) * time.Second))
		default:
			panic(w)
		}
	}
	if len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
	return p
}

func pods(texts ...string) (out []*corev1.Pod) {
	for _, t := range texts {
		out = append(out, pod(t))
	}
	return out
}

// apply is what there is after the writes of a plan, the first n of them.
func apply(have []*discoveryv1.EndpointSlice, p Plan, n int) []*discoveryv1.EndpointSlice {
	by := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		by[s.Name] = s
	}
	for _, s := range p.Create {
		if n--; n < 0 {
			break
		}
		s = s.DeepCopy()
		for i := 0; s.Name == ""; i++ {
			if name := fmt.Sprintf("%s%02d", s.GenerateName, i); by[name] == nil {
				s.Name = name
			}
		}
		by[s.Name] = s
	}
	for _, s := range p.Update {
		if n--; n < 0 {
			break
		}
		by[s.Name] = s
	}
	for _, s := range p.Delete {
		if n--; n < 0 {
			break
		}
		delete(by, s.Name)
	}
	var out []*discoveryv1.EndpointSlice
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[name])
	}
	return out
}

const everything = 1 << 30

func size(p Plan) int { return len(p.Create) + len(p.Update) + len(p.Delete) }

// shown are slices as a person reads them.
func shown(list []*discoveryv1.EndpointSlice) (out []string) {
	for _, s := range list {
		var ports, ends []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s=%d", *p.Name, *p.Port))
		}
		for i := range s.Endpoints {
			ends = append(ends, " "+one(&s.Endpoints[i]))
		}
		out = append(out, fmt.Sprintf("%s %s[%s]%s", s.Name, s.AddressType, strings.Join(ports, " "), strings.Join(ends, "")))
	}
	return out
}

func one(e *discoveryv1.Endpoint) string {
	text := e.Addresses[0]
	for _, c := range []struct {
		is   *bool
		name string
	}{{e.Conditions.Ready, "ready"}, {e.Conditions.Serving, "serving"}, {e.Conditions.Terminating, "terminating"}} {
		if value(c.is) {
			text += "," + c.name
		}
	}
	for _, w := range []struct{ name, value string }{{"on", value(e.NodeName)}, {"in", value(e.Zone)}, {"as", value(e.Hostname)}} {
		if w.value != "" {
			text += "," + w.name + "=" + w.value
		}
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			text += ",for=" + z.Name
		}
		for _, n := range e.Hints.ForNodes {
			text += ",for=" + n.Name
		}
	}
	return text
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}
