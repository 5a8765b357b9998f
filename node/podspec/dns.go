package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resolver is a resolv.conf.
type resolver struct {
	servers, searches, options []string
}

// What a C library reads of a resolv.conf, as Kubernetes has it.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

// parseResolv reads the host's. What is not known is left out; of search and options the last line counts.
func parseResolv(text string) resolver {
	var out resolver
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			if len(f) == 1 && f[0] == "search" {
				out.searches = nil
			}
			continue
		}
		switch f[0] {
		case "nameserver":
			out.servers = append(out.servers, f[1])
		case "search":
			out.searches = nil
			for _, s := range f[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				out.searches = append(out.searches, s)
			}
		case "options":
			out.options = slices.Clone(f[1:])
		}
	}
	return out
}

// clusterDNS configures pods with dnsPolicy ClusterFirst. Without servers they ask those of the host.
type clusterDNS struct {
	servers []string
	domain  string
}

// podResolver follows the pod's dnsPolicy and dnsConfig. The texts are for the pod's owner: what was left out.
func podResolver(pod *corev1.Pod, onHost bool, host resolver, cluster clusterDNS) (resolver, []string) {
	var out resolver
	var notes []string
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && onHost {
		policy = corev1.DNSDefault
	}
	switch policy {
	case corev1.DNSNone:
	case corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet:
		out = host
		if len(cluster.servers) == 0 {
			break // there is no cluster DNS on this board
		}
		svc := "svc." + cluster.domain
		out = resolver{servers: cluster.servers, options: []string{"ndots:5"},
			searches: unique(append([]string{pod.Namespace + "." + svc, svc, cluster.domain}, host.searches...))}
	default:
		out = host
	}
	if c := pod.Spec.DNSConfig; c != nil {
		out.servers = unique(append(slices.Clone(out.servers), c.Nameservers...))
		out.searches = unique(append(slices.Clone(out.searches), c.Searches...))
		out.options = mergeOptions(out.options, c.Options)
	}
	if len(out.servers) > maxNameservers {
		out.servers = out.servers[:maxNameservers]
		notes = append(notes, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+
			strings.Join(out.servers, " "))
	}
	if short := fitSearches(out.searches); len(short) < len(out.searches) {
		out.searches = short
		notes = append(notes, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+
			strings.Join(short, " "))
	}
	return out, notes
}

// fitSearches keeps as many as a C library reads.
func fitSearches(in []string) []string {
	out := in[:min(len(in), maxSearches)]
	for len(strings.Join(out, " ")) > maxSearchLength {
		out = out[:len(out)-1]
	}
	return out
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// mergeOptions: one of the pod's replaces the one of that name; a new one goes to the end.
func mergeOptions(have []string, own []corev1.PodDNSConfigOption) []string {
	out := slices.Clone(have)
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		i := slices.IndexFunc(out, func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		})
		if i < 0 {
			out = append(out, text)
		} else {
			out[i] = text
		}
	}
	return out
}

func (r resolver) String() string {
	var b strings.Builder
	if len(r.searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(r.searches, " "))
	}
	for _, s := range r.servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(r.options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(r.options, " "))
	}
	return b.String()
}
