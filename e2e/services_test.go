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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/network/netns"
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
	began, people := time.Now(), callAll(t, pid, net.JoinHostPort(string(addr), "80"), net.JoinHostPort(b.outward(), nodePort))
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
	people.lostNone(t, "brain and keeper were killed")
	t.Logf("%.0f connections a second", float64(people.asked.Load())/time.Since(began).Seconds())
	k.steps("new", []step{
		{"kubectl get service shop -o jsonpath={.spec.clusterIP}", string(addr), ""},
		{"kubectl delete service door shop data && kubectl delete deployment,sts,pod --all --wait", "deleted", ""},
	})
}

// callAll has clients connect to each address again and again, from a pod and from the machine. LEDGE_LONG makes them so many that a
// machine which is not busy sees 1,000 connections and more in a second.
func callAll(t *testing.T, pid int, addresses ...string) *crowd {
	c := &crowd{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	froms := []string{"", fmt.Sprintf("/proc/%d/ns/net", pid)}
	if os.Getenv("LEDGE_LONG") != "" {
		froms = slices.Repeat(froms, 6)
	}
	for _, at := range addresses {
		for _, from := range froms {
			wg.Go(func() {
				err := netns.At(from, func() error {
					for ; ctx.Err() == nil; time.Sleep(4 * time.Millisecond) {
						if err := call(at); err != nil {
							c.lost.Add(1)
							c.last.Store(fmt.Sprint(at, " ", err))
						}
						c.asked.Add(1)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	c.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(c.stop)
	return c
}

// call connects from the network that this thread is in, and asks a pod who it is.
func call(at string) error {
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
	return errors.Join(err, contains(string(answer), "\r\n\r\nshop-"))
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

// TestServiceRangeOverlaps: addresses of Services that hide the pods' are refused by name, at the start.
func TestServiceRangeOverlaps(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	out, err := b.refusesToStart("--pod-cidr", "10.77.0.0/24", "--service-cidr", "10.77.0.0/16")
	if err == nil || contains(out, "--service-cidr") != nil || contains(out, "10.77.0.0/24") != nil {
		t.Errorf("%v: %s", err, out)
	}
}
