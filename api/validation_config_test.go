package api

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func fromEnv(s corev1.EnvVarSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { first(p).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &s}} }
}

func envFrom(s corev1.EnvFromSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { first(p).EnvFrom = []corev1.EnvFromSource{s} }
}

// fromFile takes a variable from a file in a volume; v is an emptyDir, c is not.
func fromFile(volume, path, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr(int32(0o644))}}}}
		fromEnv(corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: volume, Path: path, Key: key}})(p)
	}
}

func locally(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func dns(c corev1.PodDNSConfig) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.DNSConfig = &c }
}

func many(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("s%d.example", i))
	}
	return out
}

// TestConfigRules: where a pod's environment, names and resolver come from (N-7.47).
func TestConfigRules(t *testing.T) {
	const from = c0 + "env[0].valueFrom"
	divisor := func(name, by string) *corev1.ResourceFieldSelector {
		return &corev1.ResourceFieldSelector{Resource: name, Divisor: resource.MustParse(by)}
	}
	for _, c := range []struct {
		name        string
		change      func(*corev1.Pod)
		field, text string
	}{
		{"config key", fromEnv(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: locally("c"),
			Key: "k.x_y-z"}}), "", ""},
		{"config key of nothing", fromEnv(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "k"}}),
			from + ".configMapKeyRef.name", "Required"},
		{"no config key", fromEnv(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: locally("c")}}),
			from + ".configMapKeyRef.key", "Required"},
		{"bad config key", fromEnv(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: locally("c"),
			Key: "a/b"}}), from + ".configMapKeyRef.key", ""},
		{"secret key", fromEnv(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: locally("s"), Key: "k"}}), "",
			""},
		{"bad secret key", fromEnv(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: locally("s"), Key: ".."}}),
			from + ".secretKeyRef.key", ""},
		{"key of a file", fromFile("v", "d/f", "A.b-c"), "", ""},
		{"key of a file of nowhere", fromFile("", "f", "A"), from + ".fileKeyRef.volumeName", "Required"},
		{"key of a file of another pod", fromFile("w", "f", "A"), from + ".fileKeyRef.volumeName", "Not found"},
		{"key of a file that is an object", fromFile("c", "f", "A"), from + ".fileKeyRef.volumeName", "must be of type emptyDir"},
		{"key of no file", fromFile("v", "", "A"), from + ".fileKeyRef.path", "Required"},
		{"key of a file above", fromFile("v", "a/../../f", "A"), from + ".fileKeyRef.path", "'..'"},
		{"key of a file elsewhere", fromFile("v", "/f", "A"), from + ".fileKeyRef.path", "relative"},
		{"no key of a file", fromFile("v", "f", ""), from + ".fileKeyRef.key", "Required"},
		{"bad key of a file", fromFile("v", "f", "A="), from + ".fileKeyRef.key", ""},
		{"from nowhere", fromEnv(corev1.EnvVarSource{}), from, "must specify one of"},
		{"from two places", fromEnv(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: locally("s"), Key: "k"}}), from, "more than one"},
		{"host IPs", fromEnv(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIPs"}}), "", ""},
		{"cpu limit", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.cpu", "1m")}), "", ""},
		{"no divisor", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("requests.memory", "0")}), "", ""},
		{"memory by Mi", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.memory", "1Mi")}), "", ""},
		{"huge pages", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.hugepages-2Mi", "1Mi")}), "", ""},
		{"cpu by M", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.cpu", "1M")}), from + ".resourceFieldRef.divisor",
			"cpu resource"},
		{"memory by m", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.memory", "1m")}), from + ".resourceFieldRef.divisor", ""},
		{"no resource", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("", "0")}), from + ".resourceFieldRef.resource", "Required"},
		{"other resource", fromEnv(corev1.EnvVarSource{ResourceFieldRef: divisor("limits.gpu", "0")}), from + ".resourceFieldRef.resource",
			"Unsupported"},

		{"all of a config", envFrom(corev1.EnvFromSource{Prefix: "P_",
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: locally("c")}}), "", ""},
		{"all of a secret", envFrom(corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: locally("s")}}), "", ""},
		{"bad prefix", envFrom(corev1.EnvFromSource{Prefix: "a=b", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: locally("s")}}),
			c0 + "envFrom[0].prefix", ""},
		{"all of nothing", envFrom(corev1.EnvFromSource{}), c0 + "envFrom[0]", "must specify one of"},
		{"all of two", envFrom(corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{}, SecretRef: &corev1.SecretEnvSource{}}),
			c0 + "envFrom[0]", "more than one"},
		{"config without a name", envFrom(corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{}}), c0 + "envFrom[0].configMapRef.name",
			"Required"},
		{"secret without a name", envFrom(corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{}}), c0 + "envFrom[0].secretRef.name",
			"Required"},

		{"resolver", dns(corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "2001:db8::1"},
			Searches: []string{"a.example.", ".", "_tcp.example"},
			Options:  []corev1.PodDNSConfigOption{{Name: "ndots"}}}), "", ""},
		{"four servers", dns(corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}}),
			"spec.dnsConfig.nameservers", "more than 3"},
		{"no address", dns(corev1.PodDNSConfig{Nameservers: []string{"a"}}), "spec.dnsConfig.nameservers[0]", ""},
		{"33 searches", dns(corev1.PodDNSConfig{Searches: many(33)}), "spec.dnsConfig.searches", "more than 32"},
		{"32 searches", dns(corev1.PodDNSConfig{Searches: many(32)}), "", ""},
		{"long searches", dns(corev1.PodDNSConfig{Searches: []string{strings.Repeat("a", 2049)}}), "spec.dnsConfig.searches", "2048 characters"},
		{"bad search", dns(corev1.PodDNSConfig{Searches: []string{"a b"}}), "spec.dnsConfig.searches[0]", ""},
		{"option of no name", dns(corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{}}}), "spec.dnsConfig.options[0]", "not be empty"},
		{"alias", func(p *corev1.Pod) {
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a.b"}}}
		}, "", ""},
		{"alias of no address", func(p *corev1.Pod) { p.Spec.HostAliases = []corev1.HostAlias{{IP: "x"}} }, "spec.hostAliases[0].ip", ""},
		{"bad alias", func(p *corev1.Pod) { p.Spec.HostAliases = []corev1.HostAlias{{IP: "::1", Hostnames: []string{"A_b"}}} },
			"spec.hostAliases[0].hostnames[0]", ""},
		{"override", func(p *corev1.Pod) { p.Spec.HostnameOverride = ptr("a.b") }, "", ""},
		{"long override", func(p *corev1.Pod) { p.Spec.HostnameOverride = ptr(strings.Repeat("a", 65)) }, "spec.hostnameOverride",
			"may not be more than 64"},
		{"bad override", func(p *corev1.Pod) { p.Spec.HostnameOverride = ptr("A") }, "spec.hostnameOverride", ""},
		{"override and FQDN", func(p *corev1.Pod) { p.Spec.HostnameOverride, p.Spec.SetHostnameAsFQDN = ptr("a"), ptr(true) },
			"spec.hostnameOverride", "setHostnameAsFQDN"},
		{"override on the host", func(p *corev1.Pod) { p.Spec.HostnameOverride, p.Spec.HostNetwork = ptr("a"), true }, "spec.hostnameOverride",
			"hostNetwork"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := validPod()
			c.change(p)
			wants(t, validate(p), c.field, c.text)
		})
	}
}
