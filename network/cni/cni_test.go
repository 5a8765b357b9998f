package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/netns"
	"ledge/network/networktest"
)

// pinned makes a network namespace and pins it to a file, as the keeper does.
func pinned(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ns-"+name)
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = netns.InNew(func() error { return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "") })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error("unpin", path, err)
		}
	})
	return path
}

// debian skips a test where Debian's plugins are not.
func debian(t *testing.T) {
	testrun.OnHost(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range []string{"bridge", "host-local", "portmap"} {
		if _, err := os.Stat(filepath.Join(DebianPrograms, p)); err != nil {
			t.Skip("needs the Debian package containernetworking-plugins")
		}
	}
}

// TestDebiansPlugins: the suite of all networks, with the plugins that most clusters' networks are made of.
func TestDebiansPlugins(t *testing.T) {
	debian(t)
	networktest.Run(t, func(t *testing.T, cidr, cidr6 netip.Prefix) networktest.Machine {
		dir := t.TempDir()
		host := pinned(t, "host")
		ranges := fmt.Sprintf(`[{"subnet":%q}]`, cidr)
		if cidr6.IsValid() {
			last := ""
			if cidr6.Bits() == 125 { // the suite counts the last address for none, as it is in IPv4
				last = `,"rangeEnd":"fd77::6"`
			}
			ranges += fmt.Sprintf(`,[{"subnet":%q%s}]`, cidr6, last)
		}
		write(t, filepath.Join(dir, "net.d", "10-test.conflist"), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[
			{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[%s]}},
			{"type":"portmap","capabilities":{"portMappings":true}}]}`, filepath.Join(dir, "given"), ranges))
		cfg := Config{Networks: filepath.Join(dir, "net.d"), Dir: filepath.Join(dir, "run"), NetNS: host}
		return networktest.Machine{
			Start: func(t *testing.T) network.Setup {
				s, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			NetNS: pinned,
			Left: func(t *testing.T) (left []string) {
				for _, pattern := range []string{"run/*", "given/test/10*", "given/test/fd*"} {
					found, _ := filepath.Glob(filepath.Join(dir, pattern))
					left = append(left, found...)
				}
				err := netns.At(host, func() error {
					links, err := netlink.LinkList()
					for _, l := range links {
						if l.Type() == "veth" {
							left = append(left, l.Attrs().Name)
						}
					}
					if err != nil {
						return err
					}
					rules, err := exec.Command("iptables-save", "-t", "nat").Output() // of pods: their chains have names of the attachment
					for line := range strings.Lines(string(rules)) {
						if strings.Contains(line, "id: \\\"") || strings.HasPrefix(line, ":CNI-DN-") {
							left = append(left, strings.TrimSpace(line))
						}
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return left
			},
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// played is a network of plugins that a test plays: each is a script that notes what it was asked.
type played struct {
	*testing.T
	dir  string
	boot string
	*Setup
}

func play(t *testing.T, conf string, plugins map[string]string) *played {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	p := &played{T: t, dir: t.TempDir()}
	write(t, p.conf(), conf)
	for name, script := range plugins {
		write(t, filepath.Join(p.dir, "bin", name), "#!/bin/sh\ncat >"+p.dir+"/in-"+name+"-$CNI_COMMAND\n"+
			"stat -fL -c %T \"$CNI_NETNS\" >"+p.dir+"/ns-"+name+"-$CNI_COMMAND\n"+
			"echo "+name+" $CNI_COMMAND $CNI_CONTAINERID >>"+p.dir+"/said\n"+script)
	}
	p.again()
	return p
}

// again is the next process.
func (p *played) again() {
	p.Helper()
	var err error
	p.Setup, err = New(Config{Networks: filepath.Join(p.dir, "net.d"), Programs: []string{filepath.Join(p.dir, "bin")},
		Dir: filepath.Join(p.dir, "run"), BootID: p.boot})
	if err != nil {
		p.Fatal(err)
	}
}

func (p *played) conf() string { return filepath.Join(p.dir, "net.d", "a.conflist") }

// said is what was asked since the last time.
func (p *played) said() []string {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "said"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Fatal(err)
	}
	os.Remove(filepath.Join(p.dir, "said"))
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
}

func (p *played) want(what string, err error, asked ...string) {
	p.Helper()
	if said := p.said(); err != nil || !slices.Equal(said, asked) {
		p.Errorf("%s: %v, asked %q, want %q", what, err, said, asked)
	}
}

// in is what a plugin read at a command.
func (p *played) in(plugin, command string) (out map[string]any) {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "in-"+plugin+"-"+command))
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		p.Fatal(err)
	}
	return out
}

// netnsOf is what a plugin found at a command for the pod's namespace: nsfs, or nothing.
func (p *played) netnsOf(plugin, command string) string {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "ns-"+plugin+"-"+command))
	if err != nil {
		p.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

const (
	two = `{"cniVersion":"1.1.0","name":"net","plugins":[
		{"type":"one","mine":{"a":[1,2]},"capabilities":{"portMappings":true}},{"type":"two","args":{"x":1},"cni.dev/x":1}]}`
	gives = `if [ $CNI_COMMAND = ADD ]; then echo '{"cniVersion":"1.1.0", "interfaces":[{"name":"h"},{"name":"eth0","sandbox":"/x"}],
		"ips":[{"address":"192.0.2.9/24","interface":0},{"address":"fd77::2/64","interface":1},{"address":"10.77.0.2/24","interface":1}]}'; fi`
)

// TestLife: the plugins are asked in their order, backwards at the end; a pod that has lost its address is connected anew, and what is
// there is told to them, so that they free the rest.
func TestLife(t *testing.T) {
	p := play(t, two, map[string]string{"one": gives, "two": gives})
	p.want("ready", p.Ready(t.Context()), "one STATUS", "two STATUS")
	p.want("ready again", p.Ready(t.Context()))
	pod := network.Pod{UID: "u1", Namespace: "ns", Name: "web", NetNS: pinned(t, "u1"),
		Ports: []network.Port{{HostPort: 8080, ContainerPort: 80, HostIP: netip.MustParseAddr("192.0.2.1")}}}
	addrs, err := p.Attach(t.Context(), pod)
	p.want("attach", err, "one ADD u1", "two ADD u1")
	if fmt.Sprint(addrs) != "[10.77.0.2 fd77::2]" {
		t.Errorf("addresses %v", addrs)
	}
	one, other := p.in("one", "ADD"), p.in("two", "ADD")
	if fmt.Sprint(one["mine"]) != "map[a:[1 2]]" || one["capabilities"] != nil || one["prevResult"] != nil || one["name"] != "net" ||
		fmt.Sprint(one["runtimeConfig"]) != "map[portMappings:[map[containerPort:80 hostIP:192.0.2.1 hostPort:8080 protocol:tcp]]]" {
		t.Errorf("the first was asked %v", one)
	}
	if other["prevResult"] == nil || other["runtimeConfig"] != nil || other["args"] != nil || other["cni.dev/x"] != nil {
		t.Errorf("the second was asked %v", other)
	}
	inside := func(f func() error) {
		t.Helper()
		if err := netns.At(pod.NetNS, f); err != nil {
			t.Fatal(err)
		}
	}
	give := func(addr string) error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, a)
	}
	inside(func() error { // what plugins that are not played make
		a := netlink.NewLinkAttrs()
		a.Name = "eth0"
		return errors.Join(netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "peer0"}), give("10.77.0.2/24"), give("fd77::2/64"))
	})
	p.again()
	again, err := p.Attach(t.Context(), pod)
	p.want("attach after a restart", err)
	if !slices.Equal(again, addrs) {
		t.Errorf("addresses %v after a restart", again)
	}
	inside(func() error {
		link, err := netlink.LinkByName("eth0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	_, err = p.Attach(t.Context(), pod)
	p.want("the interface has gone", err, "two DEL u1", "one DEL u1", "one ADD u1", "two ADD u1")
	if fmt.Sprint(p.in("one", "ADD")["args"]) != "map[cni:map[ips:[10.77.0.2 fd77::2]]]" {
		t.Errorf("the same addresses were not asked for: %v", p.in("one", "ADD"))
	}
	p.want("retain", p.Retain(t.Context(), []string{"u1"}), "one GC", "two GC")
	if fmt.Sprint(p.in("one", "GC")["cni.dev/valid-attachments"]) != "[map[containerID:u1 ifname:eth0]]" {
		t.Errorf("GC was asked %v", p.in("one", "GC"))
	}
	// A pod is disconnected by what connected it.
	write(t, p.conf(), `{"cniVersion":"0.4.0","name":"other","plugins":[{"type":"three"}]}`)
	if err := unix.Unmount(pod.NetNS, unix.MNT_DETACH); err != nil { // the engine has let go of it
		t.Fatal(err)
	}
	p.want("detach", p.Detach(t.Context(), "u1"), "two DEL u1", "one DEL u1")
	if at := p.netnsOf("one", "DEL"); at != "nsfs" {
		t.Errorf("the plugin was asked to take back what is in %q", at)
	}
	p.want("detach again", p.Detach(t.Context(), "u1"))
}

// TestTrouble: what a plugin does wrong is said, in bounds, and nothing half done stays.
func TestTrouble(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"error", `[ $CNI_COMMAND = ADD ] && { echo '{"code":7,"msg":"bad network","details":"too small"}'; exit 1; }`,
			"network net: plugin one: ADD: bad network: too small"},
		{"full", `[ $CNI_COMMAND = ADD ] && { echo '{"code":999,"msg":"no IP addresses available in range set: 10.0.0.0/30"}'; exit 1; }`,
			"no free pod address"},
		{"later", `[ $CNI_COMMAND = ADD ] && { echo '{"code":11,"msg":"daemon starts"}'; exit 1; }`, "daemon starts (it may be tried again)"},
		{"stderr", `[ $CNI_COMMAND = ADD ] && { seq 100000 >&2; exit 3; }`, "ADD: 1\n2\n3"},
		{"silent", `[ $CNI_COMMAND = ADD ] && exit 3`, "plugin one: ADD: exit status 3"},
		{"endless", `[ $CNI_COMMAND = ADD ] && head -c 3000000 /dev/zero`, "more than 1048576 bytes"},
		{"no JSON", `[ $CNI_COMMAND = ADD ] && echo hello`, "it answered no JSON"},
		{"no address", `[ $CNI_COMMAND = ADD ] && echo '{"ips":[]}'`, "the plugins gave the pod no address"},
		{"no network", `[ $CNI_COMMAND = ADD ] && echo '{"ips":[{"address":"10.0.0.1"}]}'`, "read what the plugins answered"},
		{"of nothing", `[ $CNI_COMMAND = ADD ] && echo '{"ips":[{"address":"10.0.0.1/8","interface":7}]}'`, "no address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := play(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"one"}]}`, map[string]string{"one": c.script + "\nexit 0"})
			_, err := p.Attach(t.Context(), network.Pod{UID: "u", Namespace: "ns", Name: "web", NetNS: pinned(t, "u")})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%v, want %q", err, c.want)
			}
			asked := []string{"one ADD u", "one DEL u", "one ADD u", "one DEL u"}
			if c.name == "full" { // a second try would find nothing else
				asked = asked[:2]
			}
			p.want("what was asked", nil, asked...)
			if left, _ := filepath.Glob(filepath.Join(p.dir, "run", "*")); len(left) > 0 || p.Pods() != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestHangs: a plugin that hangs ends with its context, and what it has started too.
func TestHangs(t *testing.T) {
	p := play(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"one"}]}`, map[string]string{
		"one": `[ $CNI_COMMAND = ADD ] || exit 0; sleep 4242 & echo $! >` + "$(dirname $0)/../child; wait"})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := p.Attach(ctx, network.Pod{UID: "u", Namespace: "ns", Name: "web", NetNS: pinned(t, "u")})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	child, err := os.ReadFile(filepath.Join(p.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	for try := 0; ; try++ { // the kernel ends it in its own time
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if try == 100 {
			t.Fatalf("what the plugin started runs on: %s", state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestHalfDone: a brain that died while it connected a pod takes back what was begun before it connects the pod.
func TestHalfDone(t *testing.T) {
	p := play(t, two, map[string]string{"one": gives, "two": gives})
	pod := network.Pod{UID: "u1", Namespace: "ns", Name: "web", NetNS: pinned(t, "u1")}
	l, err := load(p.cfg.Networks)
	if err == nil {
		err = p.keep(&record{Boot: p.cfg.BootID, Pod: pod, List: *l})
	}
	if err != nil {
		t.Fatal(err)
	}
	p.again()
	_, err = p.Attach(t.Context(), pod)
	p.want("attach", err, "two DEL u1", "one DEL u1", "one ADD u1", "two ADD u1")
}

// TestReboot: what plugins gave before the machine was started anew is taken back from them, also of a pod that was deleted meanwhile, and
// its host ports are free.
func TestReboot(t *testing.T) {
	p := play(t, two, map[string]string{"one": gives, "two": gives})
	port := []network.Port{{HostPort: 8080, ContainerPort: 80}}
	for uid, ports := range map[string][]network.Port{"u1": port, "u2": nil} {
		if _, err := p.Attach(t.Context(), network.Pod{UID: uid, Namespace: "ns", Name: uid, NetNS: pinned(t, uid), Ports: ports}); err != nil {
			t.Fatal(err)
		}
	}
	p.said()
	p.boot = "the next"
	p.again()
	if n := p.Pods(); n != 0 {
		t.Errorf("%d pods stand after a reboot", n)
	}
	p.want("the second is gone", p.Retain(t.Context(), []string{"u1", "u3"}), "two DEL u2", "one DEL u2", "one GC", "two GC")
	if got := fmt.Sprint(p.in("one", "GC")["cni.dev/valid-attachments"]); got != "[map[containerID:u1 ifname:eth0]]" {
		t.Errorf("GC was asked %s", got)
	}
	_, err := p.Attach(t.Context(), network.Pod{UID: "u3", Namespace: "ns", Name: "u3", NetNS: pinned(t, "u3"), Ports: port})
	p.want("a port of before", err, "one ADD u3", "two ADD u3")
	_, err = p.Attach(t.Context(), network.Pod{UID: "u1", Namespace: "ns", Name: "u1", NetNS: pinned(t, "u1")})
	p.want("the first comes back", err, "two DEL u1", "one DEL u1", "one ADD u1", "two ADD u1")
	if at := p.netnsOf("one", "DEL"); at != "" {
		t.Errorf("the namespace of before the reboot was named: %q", at)
	}
}

// TestCannotLeave: a plugin that does not take back what it made is asked again and again, and keeps nobody from leaving the network;
// one that is not installed any more keeps no pod.
func TestCannotLeave(t *testing.T) {
	p := play(t, two, map[string]string{"one": gives + "; [ $CNI_COMMAND != DEL ]", "two": gives})
	pod := network.Pod{UID: "u1", Namespace: "ns", Name: "web", NetNS: pinned(t, "u1")}
	if _, err := p.Attach(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := p.Retain(t.Context(), nil); err == nil || p.Pods() != 1 {
		t.Errorf("%v, %d pods", err, p.Pods())
	}
	p.said()
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, 10*time.Second, "it is tried again", func() bool {
		said, err := os.ReadFile(filepath.Join(p.dir, "said")) // nothing is taken away beside who writes
		return err == nil && strings.Contains(string(said), "one DEL u1\n")
	})
	if err := p.Close(t.Context()); err != nil || p.Pods() != 0 {
		t.Errorf("%v, %d pods", err, p.Pods())
	}
	if _, err := p.Attach(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(p.dir, "bin", "one")); err != nil {
		t.Fatal(err)
	}
	if err := p.Detach(t.Context(), "u1"); err != nil || p.Pods() != 0 {
		t.Errorf("%v, %d pods", err, p.Pods())
	}
}

// TestStatus: plugins are asked how they are now and then, in little time, and more often while they are not well.
func TestStatus(t *testing.T) {
	p := play(t, two, map[string]string{"one": "[ ! -e $(dirname $0)/bad ]", "two": "exit 0"})
	p.want("well", p.Ready(t.Context()), "one STATUS", "two STATUS")
	bad := filepath.Join(p.dir, "bin", "bad")
	write(t, bad, "")
	p.want("it is believed", p.Ready(t.Context()))
	write(t, p.conf(), strings.Replace(two, `"x":1`, `"x":2`, 1))
	if err := p.Ready(t.Context()); err == nil {
		t.Error("another configuration is not asked about")
	}
	p.said()
	if err := p.Ready(t.Context()); err == nil || len(p.said()) > 0 {
		t.Errorf("asked again at once: %v", err)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	p.asked = p.asked.Add(-freshError)
	p.want("well again", p.Ready(t.Context()), "one STATUS", "two STATUS")
}

// TestLeavesAProcess: a plugin that has done its work counts, whatever it leaves running.
func TestLeavesAProcess(t *testing.T) {
	p := play(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"one"}]}`, map[string]string{"one": gives + "; sleep 5 & exit 0"})
	_, err := p.Attach(t.Context(), network.Pod{UID: "u", Namespace: "ns", Name: "web", NetNS: pinned(t, "u")})
	p.want("attach", err, "one ADD u")
}

// TestLoad: which file is the network, and what is wrong with it.
func TestLoad(t *testing.T) {
	good := func(name string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"x"}]}`, name)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // the network and its plugins, or the error
	}{
		{"none", nil, "there is no configuration of a network yet"},
		{"other files", map[string]string{"README": "x", "x.conflist.bak": "y"}, "there is no configuration of a network yet"},
		{"the first", map[string]string{"20-b.conflist": good("b"), "10-a.conflist": good("a")}, "a 1.0.0 [x]"},
		{"one plugin", map[string]string{"a.conf": `{"cniVersion":"0.3.1","name":"a","type":"y"}`}, "a 0.3.1 [y]"},
		{"the newest version", map[string]string{"a.conflist": `{"cniVersions":["0.4.0","1.1.0","9.0.0"],"name":"a","plugins":[{"type":"x"}]}`},
			"a 1.1.0 [x]"},
		{"beside", map[string]string{"a.conflist": good("net"), "net/2.conf": `{"type":"z"}`, "net/1.conf": `{"type":"y"}`}, "net 1.0.0 [x y z]"},
		{"inlined alone", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"net","loadOnlyInlinedPlugins":true,
			"plugins":[{"type":"x"}]}`, "net/1.conf": `{"type":"y"}`}, "net 1.0.0 [x]"},
		{"damaged", map[string]string{"a.conflist": "{", "b.conflist": good("b")}, "a.conflist: unexpected end of JSON input"},
		{"too old", map[string]string{"a.conflist": `{"cniVersion":"0.2.0","name":"a","plugins":[{"type":"x"}]}`}, `cniVersion "0.2.0": ledge speaks`},
		{"no version", map[string]string{"a.conflist": `{"name":"a","plugins":[{"type":"x"}]}`}, `cniVersion ""`},
		{"no plugins", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"a"}`}, "it has 0 plugins"},
		{"a path", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"../x"}]}`}, "plugins[0].type"},
		{"a path as name", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"../a","plugins":[{"type":"x"}]}`}, `name "../a"`},
		{"capabilities", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"x","capabilities":[]}]}`},
			"plugins[0].capabilities"},
		{"large", map[string]string{"a.conflist": strings.Repeat(" ", maxFile) + good("a")}, "more than 262144 bytes"},
		{"many", map[string]string{"a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[` + strings.Repeat(`{"type":"x"},`, maxPlugins) +
			`{"type":"x"}]}`}, "it has 33 plugins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				write(t, filepath.Join(dir, name), text)
			}
			l, err := load(dir)
			got := fmt.Sprint(err)
			if err == nil {
				var kinds []string
				for _, p := range l.Plugins {
					kinds = append(kinds, p.kind())
				}
				got = fmt.Sprint(l.Name, " ", l.Version, " ", kinds)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "a.conflist"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(dir); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}

// A host port that no plugin can give is refused, and a plugin whose program is missing is named.
func TestLacks(t *testing.T) {
	p := play(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"one"},{"type":"absent"}]}`, map[string]string{"one": gives})
	pod := network.Pod{UID: "u", Namespace: "ns", Name: "web", NetNS: pinned(t, "u"), Ports: []network.Port{{HostPort: 80, ContainerPort: 80}}}
	if _, err := p.Attach(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "hostPort 80: no plugin of network net") {
		t.Error(err)
	}
	if err := p.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin absent: there is no such program in "+p.dir) {
		t.Error(err)
	}
}

// FuzzResult: whatever plugins answer, an address that is taken from it is one.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"ips":[{"address":"10.0.0.1/8","interface":0}],"interfaces":[{"sandbox":"/x"}]}`))
	f.Add([]byte(`{"ips":[{"address":"fe80::1/64"},{"address":"fd00::1/64"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		addrs, err := addresses(data)
		nobodys := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })
		if err == nil && (len(addrs) == 0 || len(addrs) > 2 || nobodys) {
			t.Errorf("%s: %v", data, addrs)
		}
	})
}
