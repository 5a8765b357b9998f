package podspec

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Names is what a pod is called in its own eyes.
type Names struct {
	kernel string // uname -n
	host   string // in /etc/hosts
	domain string // of host; empty: none
}

// The kernel's limit for a host name, and the one Kubernetes cuts pod names to.
const (
	maxKernelName = 64
	maxHostname   = 63
)

// namesOf follows Kubernetes: the pod's name or its hostname, below its subdomain if it has one; hostnameOverride
// replaces all of it.
func namesOf(pod *corev1.Pod, clusterDomain string) (Names, error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		return Names{kernel: *o, host: *o}, nil
	}
	h := cmp.Or(pod.Spec.Hostname, pod.Name)
	if len(h) > maxHostname {
		h = strings.TrimRight(h[:maxHostname], "-.")
	}
	out := Names{kernel: h, host: h}
	if pod.Spec.Subdomain != "" {
		out.domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	if fqdn := pod.Spec.SetHostnameAsFQDN; fqdn != nil && *fqdn && out.domain != "" {
		out.kernel = h + "." + out.domain
		if len(out.kernel) > maxKernelName {
			return out, fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long "+
				"(%d characters is the max, %d characters requested)", out.kernel, maxKernelName, len(out.kernel))
		}
	}
	return out, nil
}

// managedHosts is the /etc/hosts of a pod with a network of its own.
func managedHosts(n Names, ips []string, aliases []corev1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		if n.domain != "" {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, n.host, n.domain, n.host)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip, n.host)
		}
	}
	return b.String() + aliasLines(aliases)
}

// hostHosts is that of a pod on the host's network.
func hostHosts(host string, aliases []corev1.HostAlias) string {
	return "# Kubernetes-managed hosts file (host network).\n" + host + aliasLines(aliases)
}

func aliasLines(aliases []corev1.HostAlias) string {
	if len(aliases) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, al := range aliases {
		fmt.Fprintf(&b, "%s\t%s\n", al.IP, strings.Join(al.Hostnames, "\t"))
	}
	return b.String()
}
