package mdns

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(namespace, name, label string, age int, kind corev1.ServiceType, at ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000-int64(age), 0))}, Spec: corev1.ServiceSpec{Type: kind}}
	if label != "" {
		s.Annotations = map[string]string{Annotation: label}
	}
	for _, ip := range at {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return s
}

// TestAliases: which Services have names, and what the others are told.
func TestAliases(t *testing.T) {
	const lb, ip = corev1.ServiceTypeLoadBalancer, "192.0.2.9"
	list, refused := Aliases([]*corev1.Service{
		service("a", "young", "web", 1, lb, "192.0.2.1"), service("b", "old", "web", 2, lb, ip, ip, "2001:db8::9", "127.0.0.1", "224.0.0.1", "x", ""),
		service("a", "none", "", 3, lb, ip), service("a", "dots", "web.local", 3, lb, ip), service("a", "capitals", "Web", 3, lb, ip),
		service("a", "long", strings.Repeat("x", 2000), 3, lb, ip), service("a", "inside", "db", 3, corev1.ServiceTypeClusterIP, ip),
		service("a", "own", "shed", 3, lb, ip), service("a", "later", "later", 3, lb),
	}, "shed")
	if got := fmt.Sprint(list); got != "[{web [192.0.2.9 2001:db8::9]}]" {
		t.Error(got)
	}
	var told []string
	for s, why := range refused {
		if told = append(told, s.Name); len(why) > 200 {
			t.Errorf("%d bytes for %s", len(why), s.Name)
		}
	}
	if slices.Sort(told); !slices.Equal(told, []string{"capitals", "dots", "inside", "long", "own", "young"}) {
		t.Errorf("%v", slices.Collect(maps.Values(refused)))
	}
}

// TestAliasesAreShared: a namespace with many names leaves others theirs.
func TestAliasesAreShared(t *testing.T) {
	var all []*corev1.Service
	for i := range 1000 {
		all = append(all, service("greedy", fmt.Sprint(i), fmt.Sprint("g", i), 5000-i, corev1.ServiceTypeLoadBalancer, "192.0.2.9"))
	}
	all = append(all, service("modest", "web", "web", 1, corev1.ServiceTypeLoadBalancer, "192.0.2.9"))
	list, refused := Aliases(all, "shed")
	modest := slices.ContainsFunc(list, func(a Alias) bool { return a.Label == "web" })
	if len(list) != MostAliases || len(refused) != len(all)-MostAliases || !modest {
		t.Errorf("%d names, %d refused", len(list), len(refused))
	}
}
