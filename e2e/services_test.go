package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

const servicesYAML = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: ledge.local/self, args: [httpd, -p, "8080"], ports: [{name: http, containerPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: data
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: ledge.local/self, args: [httpd, -p, "8080"]}
---
apiVersion: v1
kind: Service
metadata: {name: data}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 8080}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
`

const clientPod = `apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: ledge.local/self, args: [httpd, -p, "9999"]}
`

// TestServices: what people do with Services on one board, from a pod, from the machine and with kubectl, and with the brain killed.
func TestServices(t *testing.T) {
	onHost(t)
	needGo(t)
	b := newBoard(t)
	nodePort := strconv.Itoa(freePort(t))
	b.serve(b.everywhere(nodePort)...)
	k := b.client("", "default")
	k.write("shop.yaml", servicesYAML)
	k.write("client.yaml", clientPod)
	k.steps("new", []step{
		{"kubectl apply -f shop.yaml", "deployment.apps/shop created", ""},
		{"kubectl expose deployment shop --port=80 --target-port=http", "service/shop exposed", ""},
		{"kubectl expose deployment shop --name=door --type=NodePort --port=80 --target-port=http", "service/door exposed", ""},
		{"kubectl expose deployment shop --name=more --type=NodePort --port=80", "!nodePort", ""},
		{"kubectl apply -f client.yaml && kubectl rollout status deployment/shop sts/db --timeout=60s", "rolled out", ""},
		{"kubectl wait --for=condition=Ready pods --all --timeout=60s", "condition met", ""},
	})
	pid := b.processOf("client")
	c := &inPod{pid: pid, dir: fmt.Sprintf("/proc/%d/root", pid)}
	t.Run("parts", func(t *testing.T) {
		for name, part := range map[string]func(*testing.T){
			"names":       c.findsByName,
			"headless":    c.findsEachPod,
			"environment": c.isToldOfServices,
			"API":         c.asksTheAPI,
			"node port":   func(t *testing.T) { bothAnswer(t, "http://"+net.JoinHostPort(b.outward(), nodePort), fromHost) },
			"kubectl":     func(t *testing.T) { k.in(t).looksAtServices() },
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); part(t) })
		}
	})

	k.steps("new", []step{{"kubectl scale deployment shop --replicas=0", "scaled", ""}})
	b.eventually("with no pod behind it connections are refused", func() error {
		out, err := c.get(t, "http://shop/")
		if err == nil {
			return errors.New(out)
		}
		return contains(out, "Couldn't connect")
	})
	k.steps("new", []step{{"kubectl scale deployment shop --replicas=2 && kubectl rollout status deployment/shop --timeout=60s", "rolled out", ""}})
	c.findsByName(t)

	// The brain dies: the kernel goes on, and who asks for a name waits for the next one.
	addr, err := k.sh(t.Context(), "kubectl get service shop -o jsonpath={.spec.clusterIP}").Output()
	must(t, err)
	rate, least := 400, 0.0
	if os.Getenv("LEDGE_LONG") != "" {
		rate, least = 1100, 1000
	}
	people := callAll(t, rate, "shop-", []string{"/proc/self/ns/net", fmt.Sprintf("/proc/%d/ns/net", pid)},
		net.JoinHostPort(string(addr), "80"), net.JoinHostPort(b.outward(), nodePort))
	_ = b.signal(syscall.SIGKILL)
	bothAnswer(t, "http://"+string(addr)+"/", c.get)
	asked := make(chan string, 1)
	go func() { asked <- asPod(t, pid, "db-1.data") }()
	b.serve(b.everywhere(nodePort)...)
	if got := <-asked; got == "" {
		t.Error("a name that was asked for while the brain was dead has no answer")
	}
	c.findsByName(t)
	c.findsEachPod(t)

	// The keeper dies too, alone and with the brain, and nobody who connects is refused.
	keeper := b.killKeeper()
	b.eventually("a new keeper runs", func() error {
		if now := b.keeperPID(); now == keeper || now == 0 {
			return fmt.Errorf("still %d", now)
		}
		return nil
	})
	b.killKeeper()
	_ = b.signal(syscall.SIGKILL)
	b.serve(b.everywhere(nodePort)...)
	c.findsByName(t)
	people.lostNone("brain and keeper were killed", least)
	k.steps("new", []step{
		{"kubectl get service shop -o jsonpath={.spec.clusterIP}", string(addr), ""},
		{"kubectl delete service door shop data && kubectl delete deployment,sts,pod --all --wait", "deleted", ""},
	})
}

// flood is programs that connect to addresses again and again, at a rate.
type flood struct {
	t     *testing.T
	began time.Time
	ends  []func() string // has one end, and returns what it says
}

// callAll has programs connect to each address, together at a rate: one in each of the networks (paths). Who answers has a name that
// begins in a way.
func callAll(t *testing.T, rate int, name string, networks []string, addresses ...string) *flood {
	t.Helper()
	f := &flood{t: t, began: time.Now()}
	t.Cleanup(func() { f.stop() })
	for _, at := range addresses {
		for _, ns := range networks {
			cmd := exec.Command("nsenter", "--net="+ns, os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("LEDGE_TEST_CALL=%s %s %d", at, name, rate/len(addresses)/len(networks)))
			in, err := cmd.StdinPipe()
			must(t, err)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			must(t, cmd.Start())
			f.ends = append(f.ends, func() string {
				_ = in.Close() // which ends it
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
				return out.String()
			})
		}
	}
	return f
}

// ended is what programs that connected say at their end: how many connections they made, how many of these were lost, and how many
// of the lost had another end than that nobody said anything; and the last of them.
type ended struct {
	asked, lost, loud int
	last              string
}

func (f *flood) stop() (sum ended) {
	f.t.Helper()
	for _, end := range f.ends {
		var e ended
		text := end()
		if _, err := fmt.Sscan(text, &e.asked, &e.lost, &e.loud); err != nil {
			f.t.Errorf("a program that connects said %q: %v", text, err)
		}
		sum.asked, sum.lost, sum.loud = sum.asked+e.asked, sum.lost+e.lost, sum.loud+e.loud
		if e.lost > 0 {
			sum.last = text
		}
	}
	f.ends = nil
	return sum
}

// lostNone: every connection of them was answered, and there were so many a second.
func (f *flood) lostNone(during string, atLeast float64) {
	f.t.Helper()
	sum := f.stop()
	rate := float64(sum.asked) / time.Since(f.began).Seconds()
	f.t.Logf("%s: %d connections, %.0f a second, %d lost", during, sum.asked, rate, sum.lost)
	if sum.lost > 0 || sum.asked < 50 {
		f.t.Errorf("%s: %d of %d connections were lost: %s", during, sum.lost, sum.asked, sum.last)
	}
	if rate < atLeast {
		f.t.Errorf("%s: these were %.0f connections a second, and shall be %.0f", during, rate, atLeast)
	}
}

// callOften is the program of callAll: it connects at a rate, whether those before have an answer or not, until its input ends. It says
// what stop reads.
func callOften(what string) int {
	var at, name string
	var rate int
	if _, err := fmt.Sscan(what, &at, &name, &rate); err != nil {
		fmt.Println(err)
		return 1
	}
	const most = 256 // at one time; the pods take fewer
	var asked, lost, loud atomic.Int64
	var last atomic.Value
	last.Store("")
	places := make(chan struct{}, most)
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began, made := time.Now(), 0; ; {
		select {
		case <-ended:
			for range most {
				places <- struct{}{}
			}
			fmt.Println(asked.Load(), lost.Load(), loud.Load(), last.Load())
			return 0
		case <-tick.C:
		}
		for ; made < int(time.Since(began).Seconds()*float64(rate)); made++ {
			places <- struct{}{}
			go func() {
				if err := call(at, name); err != nil {
					lost.Add(1)
					if timeout, ok := errors.AsType[net.Error](err); !errors.Is(err, syscall.EHOSTUNREACH) && (!ok || !timeout.Timeout()) {
						loud.Add(1)
					}
					last.Store(fmt.Sprint(at, " ", err))
				}
				asked.Add(1)
				<-places
			}()
		}
	}
}

// call connects and asks a pod who it is. The connection ends with a reset, so that nobody keeps its ports for a minute.
func call(at, name string) error {
	conn, err := net.DialTimeout("tcp4", at, testrun.Patience(5*time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testrun.Patience(5 * time.Second))); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err := errors.Join(err, contains(string(answer), "\r\n\r\n"+name)); err != nil {
		return err
	}
	return conn.(*net.TCPConn).SetLinger(0)
}

// everywhere is what a brain is given whose API pods shall find, and which has one node port.
func (b *testBoard) everywhere(nodePort string) []string {
	return []string{"--listen", fmt.Sprintf("0.0.0.0:%d", b.port), "--service-node-port-range", nodePort + "-" + nodePort}
}

// outward is the board's own for others.
func (b *testBoard) outward() string {
	b.t.Helper()
	for _, a := range b.node().Status.Addresses {
		if a.Type == "InternalIP" && net.ParseIP(a.Address).To4() != nil {
			return a.Address
		}
	}
	b.t.Fatal("the board has no address")
	return ""
}

// processOf finds the first process of a pod by the name that its container has for itself.
func (b *testBoard) processOf(pod string) int {
	b.t.Helper()
	for _, pid := range b.processes("/kubepods/") {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && strings.Contains("\x00"+string(environ), "\x00HOSTNAME="+pod+"\x00") {
			return pid
		}
	}
	b.t.Fatalf("no process of %s", pod)
	return 0
}

// inPod asks as a program in a pod does: from its network, with its resolv.conf.
type inPod struct {
	pid int
	dir string // its root directory
}

const fetch = "curl --silent --show-error --max-time 10 "

func (p *inPod) get(t *testing.T, args ...string) (string, error) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(conf, []byte(inside(p.pid, "/etc/resolv.conf")), 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(30*time.Second))
	defer cancel()
	line := "mount --bind " + conf + " /etc/resolv.conf && exec " + fetch + strings.Join(args, " ")
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(p.pid), "-n", "unshare", "-m", "sh", "-c", line).CombinedOutput()
	return string(out), err
}

func fromHost(t *testing.T, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", fetch+strings.Join(args, " ")).CombinedOutput()
	return string(out), err
}

// bothAnswer asks until both pods have: the kernel draws.
func bothAnswer(t *testing.T, url string, get func(*testing.T, ...string) (string, error)) {
	t.Helper()
	seen := map[string]bool{}
	testrun.Succeeds(t, 20*time.Second, url, func() error {
		out, err := get(t, url)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if name, _, ok := strings.Cut(out, " "); ok && strings.HasPrefix(name, "shop-") {
			seen[name] = true
		}
		if len(seen) != 2 {
			return fmt.Errorf("these answered: %v, the last %q", seen, out)
		}
		return nil
	})
}

func (p *inPod) findsByName(t *testing.T) {
	bothAnswer(t, "http://shop/", p.get)
	for _, url := range []string{"http://shop.default/", "http://shop.default.svc.cluster.local/"} {
		if out, err := p.get(t, url); err != nil || !strings.HasPrefix(out, "shop-") {
			t.Errorf("%s: %q %v", url, out, err)
		}
	}
}

func (p *inPod) findsEachPod(t *testing.T) {
	for _, name := range []string{"db-0", "db-1"} {
		if out, err := p.get(t, "http://"+name+".data:8080/"); err != nil || !strings.HasPrefix(out, name+" ") {
			t.Errorf("%s: %q %v", name, out, err)
		}
	}
	if all := asPod(t, p.pid, "data"); strings.Count(all, "STREAM") != 2 {
		t.Errorf("the name of the headless service leads to %q", all)
	}
}

func (p *inPod) isToldOfServices(t *testing.T) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	must(t, err)
	environ := strings.ReplaceAll(string(data), "\x00", "\n")
	for _, want := range []string{"KUBERNETES_SERVICE_HOST=10.", "KUBERNETES_SERVICE_PORT=443\n", "SHOP_SERVICE_HOST=10.", "SHOP_SERVICE_PORT=80\n"} {
		if !strings.Contains(environ, want) {
			t.Errorf("no %q in %s", want, environ)
		}
	}
}

// asksTheAPI is a client in the cluster: it knows its token, its CA, and the API's Service by address and by name.
func (p *inPod) asksTheAPI(t *testing.T) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(environ), "KUBERNETES_SERVICE_HOST=")
	addr, _, _ := strings.Cut(rest, "\x00")
	for _, host := range []string{addr, "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} {
		out, err := p.get(t, "--cacert", p.dir+account+"ca.crt", "--header", "'Authorization: Bearer "+inside(p.pid, account+"token")+"'",
			"https://"+host+":443/api/v1/namespaces/default/pods")
		if err != nil || !strings.Contains(out, `"kind":"PodList"`) || !strings.Contains(out, `"name":"client"`) {
			t.Errorf("the API at %s: %v %s", host, err, out)
		}
	}
}

// looksAtServices is what people ask kubectl of them.
func (k *client) looksAtServices() {
	k.steps("new", []step{
		{"kubectl get svc", "kubernetes   ClusterIP   10.|443/TCP|shop         ClusterIP   10.|door         NodePort|None", ""},
		{"kubectl get endpoints shop", ":8080,10.", ""},
		{"kubectl get endpointslices -l kubernetes.io/service-name=shop", "IPv4          8080    10.", ""},
		{"kubectl describe svc shop", "Selector:                 app=shop|TargetPort:               http/TCP|:8080,10.", ""},
		{"kubectl get --raw /api/v1/namespaces/default/services/shop:80/proxy/", "shop-", ""},
		{"kubectl create service clusterip x --tcp=80 --clusterip=192.0.2.1", "!does not match the current range", ""},
		{`kubectl patch svc shop -p '{"spec":{"ports":[{"port":80,"targetPort":70000}]}}'`, "!targetPort", ""},
	})
	k.until("kubectl port-forward svc/shop :80", `Forwarding from 127\.0\.0\.1:(\d+)`, func(m []string) {
		if out, err := fromHost(k.t, "http://127.0.0.1:"+m[1]+"/"); err != nil || !strings.HasPrefix(out, "shop-") {
			k.t.Errorf("port-forward: %q %v", out, err)
		}
	})
}

// TestServiceRangeOverlaps: addresses of Services that hide the pods' or the board's own network are refused by name, at the start.
func TestServiceRangeOverlaps(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	out, err := b.refusesToStart("--pod-cidr", "10.77.0.0/24", "--service-cidr", "10.77.0.0/16")
	if err == nil || contains(out, "--service-cidr") != nil || contains(out, "10.77.0.0/24") != nil {
		t.Errorf("%v: %s", err, out)
	}
	ns := testrun.Mark() + "ranges"
	ip(t, "netns", "add", ns)
	t.Cleanup(func() { ip(t, "netns", "del", ns) })
	ip(t, "-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	ip(t, "-n", ns, "link", "set", "lo", "up")
	ip(t, "-n", ns, "link", "set", "eth0", "up")
	ip(t, "-n", ns, "addr", "add", "10.78.0.5/24", "dev", "eth0")
	b = newBoard(t) // after: it ends before its network does
	b.netns = ns
	out, err = b.refusesToStart("--service-cidr", "10.78.0.0/16")
	if err == nil || contains(out, "--service-cidr") != nil || contains(out, "network of this board, 10.78.0.0/24") != nil {
		t.Errorf("%v: %s", err, out)
	}
}
