package node

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPodFiles: /etc/hosts, /etc/hostname and /etc/resolv.conf of a pod. They are written in place, since containers
// have them mounted.
func TestPodFiles(t *testing.T) {
	a, dir := bare(t)
	pod := aPod("web", func(p *corev1.Pod) {
		p.UID = "u1"
		p.Spec.DNSPolicy, p.Spec.Subdomain = corev1.DNSClusterFirst, "sub"
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"foo", "bar.example"}}}
	})
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(a.volumes.FilesOf("u1"), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write := func(ips ...string) {
		t.Helper()
		if _, err := a.hands.writePodFiles(pod, ips); err != nil {
			t.Fatal(err)
		}
	}
	write("10.0.0.2", "fd00::2") // the board has no resolv.conf
	want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.0.0.2\tweb.sub.default.svc.cluster.local\tweb\nfd00::2\tweb.sub.default.svc.cluster.local\tweb\n" +
		"\n# Entries added by HostAliases.\n192.0.2.9\tfoo\tbar.example\n"
	if got := read("hosts"); got != want {
		t.Errorf("hosts %q", got)
	}
	if got := read("hostname"); got != "web\n" || read("resolv.conf") != "" {
		t.Errorf("hostname %q, resolv.conf %q", got, read("resolv.conf"))
	}
	open, err := os.Open(filepath.Join(a.volumes.FilesOf("u1"), "hosts"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for name, text := range map[string]string{"resolv.conf": "nameserver 192.0.2.1\n", "hosts": "192.0.2.7 board\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pod.Spec.HostNetwork, pod.Spec.HostAliases = true, nil
	write()
	const onHost = "# Kubernetes-managed hosts file (host network).\n192.0.2.7 board\n"
	if read("resolv.conf") != "nameserver 192.0.2.1\n" || read("hosts") != onHost || read("hostname") != "n\n" {
		t.Errorf("resolv.conf %q hosts %q hostname %q", read("resolv.conf"), read("hosts"), read("hostname"))
	}
	mounted := make([]byte, 100)
	if n, err := open.Read(mounted); err != nil || string(mounted[:n]) != onHost {
		t.Errorf("a container with the file mounted reads %q %v", mounted[:n], err)
	}
}
