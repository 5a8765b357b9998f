package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/netns"
	"ledge/network/proxy"
	"ledge/network/service"
)

var board = service.Board{Name: "here"}

// planned are Services as the board's agent gives them to what forwards.
func planned(i int, ends int) network.Service {
	s, e := object(i)
	e.Endpoints = e.Endpoints[:ends]
	out, _ := service.Plan(service.Trim(s), []*service.Slice{service.TrimSlice(e, "here")}, board)
	return out
}

// forwardChild gives the kernel n Services, then changes one again and again, and says how long that took.
func forwardChild(ctx context.Context, ns string, n int) error {
	all := make([]network.Service, n)
	for i := range all {
		all[i] = planned(i, 2)
	}
	p := proxy.New(proxy.Config{Bridge: "ledge0", NetNS: ns})
	began, used := time.Now(), processor()
	if err := p.Prune(ctx, all); err != nil {
		return err
	}
	fmt.Printf("%v/%v\n", float64(time.Since(began).Microseconds())/1000, (processor() - used).Milliseconds())
	used = processor()
	var took []time.Duration
	for i := range 20 {
		began := time.Now()
		if err := p.Update(ctx, []network.Service{planned(n/2, 1+i%2)}); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	used = processor() - used
	debug.FreeOSMemory() // as a node at rest does (host/heap)
	fmt.Printf("%v/%v\n", middle(took), float64(used.Microseconds())/1000/float64(len(took)))
	<-ctx.Done()
	return nil
}

func (b *bench) forward(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, n := range []int{10, 1000, 5000} {
		l, err := newLot(ctx)
		if err == nil {
			err = b.forwardOurs(ctx, l, self, n)
		}
		if err = errors.Join(err, l.close()); err != nil {
			return err
		}
	}
	theirs, err := peer(ctx, "kubeproxy")
	if err != nil {
		b.skip("kube-proxy", err)
		return nil
	}
	for _, n := range []int{10, 1000, 5000} {
		l, err := newLot(ctx)
		if err == nil {
			err = b.forwardTheirs(ctx, l, theirs, n)
		}
		if err = errors.Join(err, l.close()); err != nil {
			b.skip(fmt.Sprintf("kube-proxy, %d Services", n), err)
		}
	}
	return nil
}

const (
	metricAll   = "rules for all Services"
	metricOne   = "one changed endpoint"
	metricConns = "new connections"
	metricDelay = "one connection (median)"
)

func (b *bench) forwardOurs(ctx context.Context, l *lot, self string, n int) error {
	what := fmt.Sprintf("ledge, %d Services", n)
	pid, said, end, err := start(ctx, "", self, "-child", "forward", "-at", l.path("board"), "-n", fmt.Sprint(n))
	if err != nil {
		return err
	}
	defer end()
	for _, metric := range []string{metricAll, metricOne} {
		line, err := said()
		if err != nil {
			return err
		}
		var ms, used float64
		if _, err := fmt.Sscanf(line, "%f/%f", &ms, &used); err != nil {
			return err
		}
		b.add(metric, what, ms, "ms", fmt.Sprintf("%.3g ms of processor time", used))
	}
	b.memory(what+", forwarding alone", pid, "")
	b.connections(ctx, l, what, clusterIP(n/2)+":80")
	return nil
}

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: here
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: ledge0}
nodePortAddresses: ["0.0.0.0/0"]
healthzBindAddress: ""
metricsBindAddress: "127.0.0.1:10249"
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 10ms}
clientConnection: {kubeconfig: %s, contentType: application/json, acceptContentTypes: application/json}
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: x, cluster: {server: "http://%s"}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
users: [{name: x, user: {}}]
current-context: x
`

func (b *bench) forwardTheirs(ctx context.Context, l *lot, binary string, n int) error {
	p := newPlane(n)
	var door net.Listener
	err := netns.At(l.path("board"), func() (err error) {
		door, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(door) }() // until it is closed
	defer server.Close()
	access, config := filepath.Join(b.dir, "kubeconfig"), filepath.Join(b.dir, "kubeproxy")
	if err := errors.Join(os.WriteFile(access, fmt.Appendf(nil, kubeconfig, door.Addr()), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, proxyConfig, access), 0o600)); err != nil {
		return err
	}
	pid, _, end, err := start(ctx, l.name("board"), binary, "--config", config)
	if err != nil {
		return err
	}
	defer end()
	what := fmt.Sprintf("kube-proxy, %d Services", n)
	first, err := l.synced(ctx, 0)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // the other family
	if err := l.connects(clusterIP(n-1) + ":80"); err != nil {
		return fmt.Errorf("after its first rules: %w", err)
	}
	b.add(metricAll, what, first.seconds/first.count*1000, "ms", "its own metric, by the clock, IPv4 alone")
	before, err := l.synced(ctx, 0)
	if err != nil {
		return err
	}
	for i := range 10 {
		_, e := object(n / 2)
		e.Endpoints = e.Endpoints[:1+i%2]
		p.change(e)
		time.Sleep(300 * time.Millisecond)
	}
	after, err := l.synced(ctx, before.count+1)
	if err != nil {
		return err
	}
	b.add(metricOne, what, (after.seconds-before.seconds)/(after.count-before.count)*1000, "ms", "its own metric, without watch and decoding")
	b.memory(what, pid, "")
	b.connections(ctx, l, what, clusterIP(n/2)+":80")
	return nil
}

type syncs struct{ count, seconds float64 }

// synced waits until kube-proxy has given the kernel its rules more often than that.
func (l *lot) synced(ctx context.Context, least float64) (syncs, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			return netns.Dial(ctx, l.path("board"), 10249)
		}}}
	const name = "kubeproxy_sync_proxy_rules_duration_seconds_"
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var out syncs
		resp, err := client.Get("http://proxy/metrics")
		if err == nil {
			text, _ := io.ReadAll(resp.Body) // half of it is looked at again
			_ = resp.Body.Close()
			for line := range strings.Lines(string(text)) {
				value := func(of string, to *float64) {
					if rest, ok := strings.CutPrefix(line, name+of); ok && !strings.Contains(rest, "IPv6") {
						_, _ = fmt.Sscan(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' ')+1:], to)
					}
				}
				value("count", &out.count)
				value("sum", &out.seconds)
			}
			if out.count > least || out.count > 0 && out.count >= least {
				return out, nil
			}
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return out, fmt.Errorf("it does not say that it has given the kernel its rules (%+v, %v)", out, err)
		}
	}
}

// connections are as many as eight clients in a pod get in a second, straight to an endpoint and through a ClusterIP in turn, and how
// long one takes alone.
func (b *bench) connections(ctx context.Context, l *lot, what, to string) {
	ways := []struct{ what, to string }{{"direct, beside " + what, behind[0] + ":8080"}, {what, to}}
	var got, failed [2]int64
	var used, took [2]time.Duration
	var each [2][]time.Duration
	for round := range 8 {
		way, cpu, began := round%2, processor(), time.Now()
		var all sync.WaitGroup
		var n, bad atomic.Int64
		for range 8 {
			all.Go(func() {
				_ = netns.At(l.path("p1"), func() error {
					for time.Since(began) < time.Second && ctx.Err() == nil {
						if connect(ways[way].to) != nil {
							bad.Add(1)
						}
						n.Add(1)
					}
					return nil
				})
			})
		}
		all.Wait()
		got[way], failed[way] = got[way]+n.Load(), failed[way]+bad.Load()
		used[way], took[way] = used[way]+processor()-cpu, took[way]+time.Since(began)
		_ = netns.At(l.path("p1"), func() error {
			for range 250 {
				began := time.Now()
				if connect(ways[way].to) == nil {
					each[way] = append(each[way], time.Since(began))
				}
			}
			return nil
		})
	}
	for i, way := range ways {
		if got[i] == 0 || len(each[i]) == 0 {
			b.skip(way.what, errors.New("no connection"))
			continue
		}
		note := fmt.Sprintf("%d µs of processor time each, both ends", used[i].Microseconds()/got[i])
		if failed[i] > 0 {
			note += fmt.Sprintf("; %d failed", failed[i])
		}
		b.add(metricConns, way.what, float64(got[i])/took[i].Seconds(), "/s", note)
		b.add(metricDelay, way.what, middle(each[i]), "ms", "")
	}
}

// processor is the time that this program has had of all processors.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func connect(to string) error {
	c, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0) // else the client would run out of ports
	return c.Close()
}

func (l *lot) connects(to string) error {
	return netns.At(l.path("p1"), func() error { return connect(to) })
}

// lot is a board with two pods, in namespaces of their own.
type lot struct {
	mark  string
	close func() error
}

func (l *lot) name(ns string) string { return l.mark + ns }
func (l *lot) path(ns string) string { return "/run/netns/" + l.mark + ns }

func newLot(ctx context.Context) (*lot, error) {
	l := &lot{mark: testrun.Mark()}
	ended, end := context.WithCancel(ctx)
	l.close = func() (err error) {
		end()
		for _, ns := range []string{"board", "p1", "p2"} {
			err = errors.Join(err, tool("ip", "netns", "del", l.name(ns)))
		}
		return err
	}
	for _, ns := range []string{"board", "p1", "p2"} {
		if err := tool("ip", "netns", "add", l.name(ns)); err != nil {
			return l, err
		}
	}
	on := func(ns string, lines ...string) (err error) {
		for _, line := range lines {
			err = errors.Join(err, tool("ip", append([]string{"-n", l.name(ns)}, strings.Fields(line)...)...))
		}
		return err
	}
	err := errors.Join(on("board", "link set lo up", "link add ledge0 type bridge", "link set ledge0 up", "addr add 10.42.0.1/24 dev ledge0"),
		tool("ip", "netns", "exec", l.name("board"), "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0",
			"net.ipv4.conf.ledge0.send_redirects=0"))
	for ns, addrs := range map[string][]string{"p1": {"10.42.0.2"}, "p2": behind} {
		err = errors.Join(err, on(ns, "link set lo up", "link add eth0 type veth peer name "+ns+" netns "+l.name("board"), "link set eth0 up"),
			on("board", "link set "+ns+" up", "link set "+ns+" master ledge0"))
		for _, a := range addrs {
			err = errors.Join(err, on(ns, "addr add "+a+"/32 dev eth0"))
		}
		err = errors.Join(err, on(ns, "route add 10.42.0.1 dev eth0", "route add default via 10.42.0.1"))
	}
	if err != nil {
		return l, err
	}
	var door net.Listener
	if err := netns.At(l.path("p2"), func() (err error) {
		door, err = net.Listen("tcp4", ":8080")
		return err
	}); err != nil {
		return l, err
	}
	context.AfterFunc(ended, func() { _ = door.Close() })
	go func() {
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l, nil
}
