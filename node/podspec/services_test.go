package podspec

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/images"
)

// aService is one at an address with ports, each "name:number/protocol".
func aService(namespace, name, ip string, ports ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.ClusterIP = ip
	for _, text := range ports {
		var p corev1.ServicePort
		name, rest, _ := strings.Cut(text, ":")
		number, protocol, _ := strings.Cut(rest, "/")
		fmt.Sscan(number, &p.Port)
		p.Name, p.Protocol = name, corev1.Protocol(protocol)
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

// The variables of one Service are those that Kubernetes gives.
func TestServiceEnv(t *testing.T) {
	var got []string
	for _, v := range serviceEnv(aService("default", "redis-primary", "10.96.0.9", ":6379/TCP", "admin-web:80/", "dns:53/UDP")) {
		got = append(got, v.name+"="+v.value)
	}
	want := strings.Fields(`REDIS_PRIMARY_SERVICE_HOST=10.96.0.9 REDIS_PRIMARY_SERVICE_PORT=6379
		REDIS_PRIMARY_SERVICE_PORT_ADMIN_WEB=80 REDIS_PRIMARY_SERVICE_PORT_DNS=53
		REDIS_PRIMARY_PORT=tcp://10.96.0.9:6379
		REDIS_PRIMARY_PORT_6379_TCP=tcp://10.96.0.9:6379 REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp
		REDIS_PRIMARY_PORT_6379_TCP_PORT=6379 REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.96.0.9
		REDIS_PRIMARY_PORT_80_TCP=tcp://10.96.0.9:80 REDIS_PRIMARY_PORT_80_TCP_PROTO=tcp
		REDIS_PRIMARY_PORT_80_TCP_PORT=80 REDIS_PRIMARY_PORT_80_TCP_ADDR=10.96.0.9
		REDIS_PRIMARY_PORT_53_UDP=udp://10.96.0.9:53 REDIS_PRIMARY_PORT_53_UDP_PROTO=udp
		REDIS_PRIMARY_PORT_53_UDP_PORT=53 REDIS_PRIMARY_PORT_53_UDP_ADDR=10.96.0.9`)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if v := serviceEnv(aService("default", "six", "fd00::9", ":80/TCP"))[2]; v.value != "tcp://[fd00::9]:80" {
		t.Errorf("%q", v)
	}
}

// Which Services a pod is told of: the API's always, those of its namespace unless it does not want to.
func TestServiceLinks(t *testing.T) {
	all := []*corev1.Service{aService("shop", "web", "10.96.0.3", ":80/TCP"), aService("default", "kubernetes", "10.96.0.1", "https:443/TCP"),
		aService("default", "other", "10.96.0.4", ":80/TCP"), aService("shop", "headless", "None", ":80/TCP"), aService("shop", "named", ""),
		aService("shop", "bare", "10.96.0.8")}
	own := append(slices.Clone(all), aService("shop", "kubernetes", "10.96.0.99", ":1/TCP"))
	yes, no := true, false
	for _, c := range []struct {
		name, namespace string
		links           *bool
		services        []*corev1.Service
		want            string
	}{
		{"there are none: only where the API is", "shop", &yes, nil, "KUBERNETES=192.0.2.10:6443"},
		{"its namespace's", "shop", &yes, all, "KUBERNETES=10.96.0.1:443 WEB=10.96.0.3:80"},
		{"where it says nothing", "shop", nil, all, "KUBERNETES=10.96.0.1:443 WEB=10.96.0.3:80"},
		{"it does not want to", "shop", &no, all, "KUBERNETES=10.96.0.1:443"},
		{"in the namespace of the API's", "default", &yes, all, "KUBERNETES=10.96.0.1:443 OTHER=10.96.0.4:80"},
		{"one of that name of its own", "shop", &yes, own, "KUBERNETES=10.96.0.99:1 WEB=10.96.0.3:80"},
		{"one of that name, and it does not want to", "shop", &no, own, "KUBERNETES=10.96.0.1:443"},
	} {
		b := Board{IPs: []string{"192.0.2.10"}, APIServer: netip.MustParseAddrPort("0.0.0.0:6443")}
		pod := aPod("p", func(p *corev1.Pod) { p.Namespace, p.Spec.EnableServiceLinks = c.namespace, c.links })
		env, err := b.services(t.Context(), pod, played{services: c.services})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]string{}
		for _, v := range env {
			at[v.name] = v.value
		}
		var got []string
		for _, v := range env {
			if name, ok := strings.CutSuffix(v.name, "_SERVICE_HOST"); ok {
				got = append(got, name+"="+v.value+":"+at[name+"_SERVICE_PORT"])
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
}

// An API that listens on a loopback address has a Service with nothing behind it: pods on the host's network are told of the address
// itself, others of none.
func TestLoopbackAPI(t *testing.T) {
	all := []*corev1.Service{aService("default", "kubernetes", "10.96.0.1", "https:443/TCP")}
	for onHost, want := range map[bool]string{true: "127.0.0.1", false: ""} {
		for _, namespace := range []string{"shop", "default"} {
			pod := aPod("p", func(p *corev1.Pod) { p.Namespace, p.Spec.HostNetwork = namespace, onHost })
			env, err := Board{APIServer: netip.MustParseAddrPort("127.0.0.1:6443")}.services(t.Context(), pod, played{services: all})
			got := ""
			for _, v := range env {
				if v.name == "KUBERNETES_SERVICE_HOST" {
					got = v.value
				}
			}
			if err != nil || got != want {
				t.Errorf("on the host's network %v, namespace %s: %q, want %q (%v)", onHost, namespace, got, want, err)
			}
		}
	}
}

// What a pod says itself goes before what Services say, and may use it.
func TestServicesInAnEnvironment(t *testing.T) {
	pod := aPod("p", func(p *corev1.Pod) {})
	needs := played{services: []*corev1.Service{aService("default", "db", "10.96.0.3", ":5432/TCP")}}
	services, err := Board{}.services(t.Context(), pod, needs)
	if err != nil {
		t.Fatal(err)
	}
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "URL", Value: "pg://$(DB_SERVICE_HOST)"}, {Name: "DB_SERVICE_PORT", Value: "1"}}}
	env, err := envMaker{services: services}.environment(t.Context(), c, images.Image{Config: images.Config{Env: []string{"DB_SERVICE_HOST=image"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"URL=pg://10.96.0.3", "DB_SERVICE_PORT=1", "DB_SERVICE_HOST=10.96.0.3"} {
		if !slices.Contains(env.list(), want) {
			t.Errorf("no %s in %q", want, env.list())
		}
	}
}

// With so many that no program would start, the pod is told what to do about it.
func TestServiceEnvIsBounded(t *testing.T) {
	var many []*corev1.Service
	for i := range 5000 {
		many = append(many, aService("default", fmt.Sprintf("a-service-with-a-long-name-%d", i), "10.96.0.3", "http:80/TCP"))
	}
	no := false
	pod := aPod("p", func(p *corev1.Pod) {})
	_, err := Board{}.services(t.Context(), pod, played{services: many})
	if err == nil || !strings.Contains(err.Error(), "enableServiceLinks: false") {
		t.Errorf("%v", err)
	}
	pod.Spec.EnableServiceLinks = &no
	if env, err := (Board{}).services(t.Context(), pod, played{services: many}); err != nil || len(env) > 0 {
		t.Errorf("%d variables, %v", len(env), err)
	}
	if _, err := (Board{}).services(t.Context(), pod, unread{}); err == nil {
		t.Error("nobody has read the Services, and the pod starts")
	}
}

type unread struct{ played }

func (unread) Services(context.Context, string) ([]*corev1.Service, error) {
	return nil, errors.New("not yet")
}
