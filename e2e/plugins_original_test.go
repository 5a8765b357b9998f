package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"ledge/internal/original"
)

// TestPluginsOfTheOriginal: on a board of a Kubernetes the plugins of the cluster make the pods' network, once there are any. Pods keep it
// while the brain is killed, and give it back.
func TestPluginsOfTheOriginal(t *testing.T) {
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		t.Skip("needs the Debian package containernetworking-plugins")
	}
	b := newBoard(t)
	plane := original.Start(t, b.name)
	admin, err := os.ReadFile(plane.Kubeconfig(t, original.Admin))
	must(t, err)
	must(t, os.WriteFile(b.config, []byte(boardConfig+"network: cni\n"), 0o600))
	dir := t.TempDir()
	networks, given := filepath.Join(dir, "net.d"), filepath.Join(dir, "given")
	for _, sub := range []string{"net.d", "upper", "work"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	bridge := b.name + "c"
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(bridge); err == nil {
			must(t, netlink.LinkDel(link))
		}
	})
	// The board sees an /etc of its own, with the directory that all networks of clusters write to.
	begin := func() {
		b.commandLine = []string{"unshare", "--mount", "sh", "-ec", `mount -t overlay overlay -o "lowerdir=/etc,upperdir=$0/upper,workdir=$0/work" /etc
			mkdir -p /etc/cni/net.d; mount --bind "$0/net.d" /etc/cni/net.d; exec "$@"`, dir, ledgeBin(t), "--run-dir", b.runDir, "agent",
			"--data-dir", b.data, "--config", b.config, "--cgroup-root", "/" + b.name, "--hostname-override", b.name,
			"--power-backend=none", "--safe-mode-after=0", "--port=0", "--kubeconfig", plane.Kubeconfig(t, b.name)}
		b.launch("agent")
	}
	begin()
	k := newClient(t, "", string(admin), "NODE="+b.name)
	k.write("web.yaml", deployment)
	k.steps("new", []step{
		{line: "kubectl apply -f web.yaml", want: "deployment.apps/web created"},
		{line: "kubectl wait node/$NODE --for create --timeout 60s", want: "condition met"},
	})
	b.eventually("the Node says that there is no network yet", func() error {
		return k.try("kubectl describe node $NODE", "/etc/cni/net.d: there is no configuration of a network yet")
	})
	must(t, os.WriteFile(filepath.Join(networks, "10-test.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"test","plugins":[
		{"type":"bridge","bridge":%q,"isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.89.7.0/24"}]]}}]}`,
		bridge, given), 0o600))
	k.steps("new", []step{
		{line: "kubectl wait node/$NODE --for condition=Ready --timeout 60s", want: "condition met"},
		{line: "kubectl rollout status deployment/web --timeout 90s", want: "successfully rolled out"},
	})
	const which = "kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.metadata.uid}={.status.podIP},{end}'"
	pods := func() string {
		t.Helper()
		out, err := k.sh(t.Context(), which).Output()
		must(t, err)
		return string(out)
	}
	before := pods()
	for _, pod := range strings.Split(strings.Trim(before, ","), ",") {
		_, text, _ := strings.Cut(pod, "=")
		ip, err := netip.ParseAddr(text)
		if err != nil || !netip.MustParsePrefix("10.89.7.0/24").Contains(ip) {
			t.Fatalf("%q: %v", pod, err)
		}
		k.steps("new", []step{{line: "curl -sS -m 10 -o /dev/null -w 'code %{http_code}' http://" + text + ":8080/", want: "code "}})
	}
	_ = b.signal(syscall.SIGKILL)
	begin()
	k.steps("new", []step{{line: "kubectl wait node/$NODE --for condition=Ready --timeout 60s", want: "condition met"}})
	if after := pods(); after != before {
		t.Errorf("pods %s after the brain was killed, %s before", after, before)
	}
	k.steps("new", []step{{line: "kubectl delete deployment web --wait --timeout 60s", want: "deleted"}})
	b.eventually("the pods gave back what they had", func() error {
		left, err := filepath.Glob(filepath.Join(given, "test", "10.*"))
		if err != nil || len(left) > 0 {
			return fmt.Errorf("%v %v", left, err)
		}
		return nil
	})
}
