package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/host"
	"ledge/internal/testrun"
	"ledge/network/plan"
)

func TestParseCIDRs(t *testing.T) {
	for text, want := range map[string]string{
		"10.42.0.7/24": "10.42.0.0/24 invalid Prefix", "fd42::1/64": "invalid Prefix fd42::/64",
		"10.42.0.0/24, fd42::/64": "10.42.0.0/24 fd42::/64", "fd42::/64,10.42.0.0/24": "10.42.0.0/24 fd42::/64",
		"": "invalid Prefix invalid Prefix",
	} {
		if a, b, err := plan.ParseCIDRs(text); err != nil || fmt.Sprint(a, b) != want {
			t.Errorf("%q: %s %s %v, want %s", text, a, b, err, want)
		}
	}
	for _, bad := range []string{"x", "10.42.0.0", "10.42.0.0/30", "10.0.0.0/24,10.1.0.0/24", "fd42::/126", "fe80::/64", "fd42::/16"} {
		if a, b, err := plan.ParseCIDRs(bad); err == nil {
			t.Errorf("%q: %s %s", bad, a, b)
		}
	}
}

// TestDualStack: a pod with an address of each family, shown in its status, reached by both, and the same after a
// restart without the flag.
func TestDualStack(t *testing.T) {
	onHost(t)
	if v, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6"); err != nil || strings.TrimSpace(string(v)) != "0" {
		t.Skip("this machine has no IPv6")
	}
	b := newBoard(t)
	cidr6 := netip.MustParsePrefix(fmt.Sprintf("fd4c:%x:%x::/64", os.Getpid()&0xffff, boards.Load()))
	b.serve("--pod-cidr", cidr6.String())
	b.apply(strings.Replace(webPod, `"8080"]`, fmt.Sprintf(`"8080"]
    ports: [{containerPort: 8080, hostPort: %d}]`, freePort(t)), 1))
	b.running("web")
	look := func() (four, six string) {
		t.Helper()
		st := b.pod("web").Status
		if len(st.PodIPs) != 2 || st.PodIP != st.PodIPs[0].IP {
			t.Fatalf("addresses %+v", st.PodIPs)
		}
		four, six = st.PodIPs[0].IP, st.PodIPs[1].IP
		if !netip.MustParseAddr(four).Is4() || !cidr6.Contains(netip.MustParseAddr(six)) {
			t.Errorf("addresses %s %s", four, six)
		}
		for _, url := range []string{"http://" + four + ":8080/", "http://[" + six + "]:8080/"} {
			b.eventually(url, func() error {
				resp, err := (&http.Client{Timeout: testrun.Patience(5 * time.Second)}).Get(url)
				if err != nil {
					return err
				}
				out, err := io.ReadAll(resp.Body)
				return errors.Join(err, resp.Body.Close(), contains(string(out), "web "))
			})
		}
		return four, six
	}
	four, six := look()
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	if a, c := look(); a != four || c != six {
		t.Errorf("%s %s before a restart, %s %s after", four, six, a, c)
	}
	b.must("delete", "pod", "web")

	// N-1.54, N-3.56, N-3.60: the network that the control plane gives is taken over once no pod stands in the old one.
	_ = b.signal(syscall.SIGTERM)
	cluster := fmt.Sprintf("10.%d.%d.0/22", 200+os.Getpid()%50, 4*(boards.Load()%64))
	cluster6 := netip.MustParsePrefix(fmt.Sprintf("fd4d:%x:%x::/63", os.Getpid()&0xffff, boards.Load()))
	b.serve("--allocate-node-cidrs", "--cluster-cidr", cluster+","+cluster6.String())
	b.eventually("the pod network of the node", func() error {
		if b.condition(corev1.NodeNetworkUnavailable) == string(corev1.ConditionFalse) {
			return nil
		}
		return fmt.Errorf("%v %+v", b.node().Spec.PodCIDRs, b.node().Status.Conditions)
	})
	b.apply(webPod)
	b.running("web")
	given := b.node().Spec.PodCIDRs
	for i, ip := range b.pod("web").Status.PodIPs {
		if len(given) != 2 || !netip.MustParsePrefix(given[i]).Contains(netip.MustParseAddr(ip.IP)) {
			t.Errorf("the pod has %s, the node %v", ip.IP, given)
		}
	}
	b.must("delete", "pod", "web")
}

// TestOverlapIsTold: a pod network that the machine is on itself may be right after the next DHCP, so the node serves; its log says why
// it is not ready.
func TestOverlapIsTold(t *testing.T) {
	onHost(t)
	here, err := host.New(host.Config{}).Prefixes()
	must(t, err)
	i := slices.IndexFunc(here, func(p netip.Prefix) bool { return p.Addr().Is4() && p.Addr().IsPrivate() })
	if i < 0 {
		t.Skip("this machine has no private network")
	}
	b := newBoard(t)
	b.start("--pod-cidr", netip.PrefixFrom(here[i].Addr(), 24).Masked().String())
	b.eventually("a line of log", func() error {
		data, err := os.ReadFile(b.log.Name())
		must(t, err)
		if n := strings.Count(string(data), "this node is not ready"); n != 1 || !strings.Contains(string(data), "the machine uses") {
			return fmt.Errorf("%d times:\n%s", n, data)
		}
		return nil
	})
}
