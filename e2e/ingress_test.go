package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

const ingressYAML = `apiVersion: apps/v1
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
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outside, labels: {kubernetes.io/service-name: outside}}
addressType: IPv4
endpoints: [{addresses: [%s]}]
ports: [{name: web, port: %d}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: others}
spec:
  ingressClassName: somebodys
  defaultBackend: {service: {name: shop, port: {number: 80}}}
`

// outside is a program beside the board that an EndpointSlice by hand leads to: it echoes what it is upgraded to, and says who asks.
func outside(t *testing.T, b *testBoard) (address string, port int) {
	t.Helper()
	address = b.outward()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "%s %s", r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"))
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return address, l.Addr().(*net.TCPAddr).Port
}

// writeCert makes cert.pem and key.pem for a name, whose serial number tells them apart.
func (k *client) writeCert(name string, serial int64) {
	k.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(k.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(k.t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	must(k.t, err)
	k.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	k.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

// comers ask a board's ports 80 and 443.
func comers(t *testing.T, b *testBoard, http2 bool) *http.Client {
	at := b.outward()
	tr := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(at, port))
		}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testrun.Patience(15 * time.Second)}
}

// fetched gives protocol, status and body.
func fetched(c *http.Client, url string) (string, *http.Response, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%s %d %s", resp.Proto, resp.StatusCode, body), resp, err
}

// crowd asks without end, and counts what was not answered as it should.
type crowd struct {
	stop        func()
	asked, lost atomic.Int64
	last        atomic.Value
}

func comeAll(t *testing.T, b *testBoard, urls ...string) *crowd {
	c := &crowd{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, url := range urls {
		for _, keep := range []bool{true, false} {
			who := comers(t, b, keep)
			who.Transport.(*http.Transport).DisableKeepAlives = !keep
			wg.Go(func() {
				for ctx.Err() == nil {
					text, _, err := fetched(who, url)
					if c.asked.Add(1); err != nil || !strings.Contains(text, " 200 shop-") {
						c.lost.Add(1)
						c.last.Store(fmt.Sprint(url, " ", text, " ", err))
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
	}
	c.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(c.stop)
	return c
}

func (c *crowd) lostNone(t *testing.T, during string) {
	t.Helper()
	c.stop()
	if n := c.lost.Load(); n > 0 || c.asked.Load() < 50 {
		t.Errorf("%s: %d of %d requests were lost, the last: %v", during, n, c.asked.Load(), c.last.Load())
	}
}

// TestIngress: what people do with Ingresses on one board, while certificates change and the brain is killed.
func TestIngress(t *testing.T) {
	onHost(t)
	needGo(t)
	for _, port := range []string{"80", "443"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Skipf("somebody has port %s: %v", port, err)
		}
		must(t, l.Close())
	}
	b := newBoard(t)
	b.serve()
	k := b.client("", "default")
	address, port := outside(t, b)
	k.write("shop.yaml", fmt.Sprintf(ingressYAML, address, port))
	k.writeCert("shop.test", 1)
	k.steps("new", []step{
		{"kubectl get ingressclass", "ledge (default)|ledge.local/ingress", ""},
		{"kubectl apply -f shop.yaml", "ingress.networking.k8s.io/others created", ""},
		{"kubectl expose deployment shop --port=80 --target-port=http", "service/shop exposed", ""},
		{"kubectl -n kube-system get ds,pods", "No resources found", ""},
		{"kubectl create secret tls shop --cert=cert.pem --key=key.pem", "created", ""},
		{"kubectl create ingress shop --rule='shop.test/*=shop:80,tls=shop' --rule='*.wild.test/out*=outside:web' " +
			"--annotation nginx.ingress.kubernetes.io/rewrite-target=/", "Warning: |rewrite-target]: not followed|created", ""},
		{"kubectl -n kube-system rollout status ds/ledge-ingress --timeout=90s", "successfully rolled out", ""},
		{"kubectl rollout status deployment/shop --timeout=60s", "rolled out", ""},
	})
	b.eventually("the Ingress says where it is", func() error { return k.try("kubectl get ingress shop", b.outward()) })
	k.steps("new", []step{
		{"kubectl get ingress", "CLASS|shop.test,*.wild.test|80, 443|somebodys", ""},
		{"kubectl describe ingress shop", "shop.test|shop:80 (10.|Address: ", ""},
		{"kubectl get ingress others -o jsonpath='{.status}'", `{"loadBalancer":{}}`, ""},
	})
	plain, both := comers(t, b, false), comers(t, b, true)
	for _, c := range []struct {
		who       *http.Client
		url, want string
	}{
		{plain, "http://shop.test/", "HTTP/1.1 200 shop-"},
		{plain, "https://shop.test/x/y", "HTTP/1.1 200 shop-"},
		{both, "https://shop.test/", "HTTP/2.0 200 shop-"},
		{plain, "http://a.wild.test/out/there", "HTTP/1.1 200 " + address + " http"},
		{plain, "http://a.wild.test/", "HTTP/1.1 404 "},
		{plain, "http://else.test/", "HTTP/1.1 404 "},
	} {
		b.eventually(c.url, func() error {
			got, _, err := fetched(c.who, c.url)
			return errors.Join(err, contains(got, c.want))
		})
	}
	if _, _, err := fetched(plain, "https://else.test/"); err == nil {
		t.Error("a certificate for somebody else")
	}
	websocket(t, b)

	// Another certificate, while people ask.
	people := comeAll(t, b, "http://shop.test/", "https://shop.test/")
	k.writeCert("shop.test", 2)
	k.steps("new", []step{{"kubectl create secret tls shop --cert=cert.pem --key=key.pem --dry-run=client -o yaml | kubectl apply -f -", "configured", ""}})
	b.eventually("the new certificate", func() error {
		_, resp, err := fetched(comers(t, b, true), "https://shop.test/")
		if err != nil {
			return err
		}
		return contains(fmt.Sprint("serial ", resp.TLS.PeerCertificates[0].SerialNumber), "serial 2")
	})
	// A Secret that is none takes nothing away, and is told.
	k.steps("new", []step{{`kubectl patch secret shop -p '{"data":{"tls.crt":"eA=="}}'`, "patched", ""}})
	b.eventually("the event", func() error { return k.try("kubectl get events", "BadCertificate|Secret shop: ") })
	people.lostNone(t, "certificates changed")

	// The brain dies, and comes again.
	people = comeAll(t, b, "http://shop.test/", "https://shop.test/")
	time.Sleep(200 * time.Millisecond)
	_ = b.signal(syscall.SIGKILL)
	time.Sleep(time.Second)
	b.serve()
	k.steps("new", []step{{"kubectl get ingress shop", b.outward(), ""},
		{"kubectl -n kube-system get pods -o jsonpath={.items[*].status.containerStatuses[*].restartCount}", "0", ""}})
	time.Sleep(time.Second)
	people.lostNone(t, "the brain was killed")

	k.steps("new", []step{{"kubectl create secret tls shop --cert=cert.pem --key=key.pem --dry-run=client -o yaml | kubectl apply -f -", "configured", ""}})
	killDoor(t, b, k)

	// The account reads what Ingresses name, and nothing else.
	k.steps("new", []step{
		{"kubectl create secret generic private --from-literal=a=b", "created", ""},
		{"kubectl create token ledge-ingress -n kube-system > token", "", ""},
		{`kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > ca.pem`, "", ""},
	})
	as := "kubectl --kubeconfig=/dev/null --server=https://" + fmt.Sprintf("127.0.0.1:%d", b.port) + " --certificate-authority=ca.pem --token=$(cat token) "
	k.steps("new", []step{
		{as + "get secret shop -o name", "secret/shop", ""},
		{as + "get secret private", "!Forbidden|no ingress of a class of", ""},
		{as + "get secrets", "!Forbidden", ""},
		{as + "get configmaps", "!Forbidden", ""},
		{as + "get ingress,ingressclass,service,endpointslice", "ingress.networking.k8s.io/shop", ""},
		{as + "create namespace x", "!Forbidden", ""},
		{"kubectl delete ingress shop && kubectl -n kube-system get ds -o name", "daemonset.apps/ledge-ingress", ""}, // it lingers
		{"kubectl -n kube-system wait --for=delete ds/ledge-ingress --timeout=60s && kubectl -n kube-system get sa -o name", "serviceaccount/default", ""},
	})
	b.eventually("nobody listens", func() error {
		return k.try("kubectl -n kube-system get pods", "No resources found")
	})
	if text, _, err := fetched(comers(t, b, false), "http://shop.test/"); err == nil {
		t.Errorf("somebody answers: %s", text)
	}
	k.steps("new", []step{{"kubectl delete ingress,service,deployment --all --wait", "deleted", ""}})
}

// killDoor kills the pod's program while many ask. Who asks meanwhile has no answer, but never a wrong one; it is soon back.
func killDoor(t *testing.T, b *testBoard, k *client) {
	name, err := k.sh(t.Context(), "kubectl -n kube-system get pods -o jsonpath={.items[0].metadata.name}").Output()
	must(t, err)
	pid := b.processOf(string(name))
	people := comeAll(t, b, "http://shop.test/", "https://shop.test/")
	time.Sleep(200 * time.Millisecond)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	died := time.Now()
	b.eventually("the pod answers again", func() error {
		text, _, err := fetched(comers(t, b, false), "http://shop.test/")
		return errors.Join(err, contains(text, " 200 shop-"))
	})
	t.Logf("%v without an answer", time.Since(died).Round(time.Millisecond))
	people.stop()
	if last := fmt.Sprint(people.last.Load()); people.lost.Load() > 0 && !strings.Contains(last, "http://shop.test/  ") &&
		!strings.Contains(last, "https://shop.test/  ") {
		t.Errorf("a wrong answer while nobody was there: %s", last)
	}
	people = comeAll(t, b, "http://shop.test/", "https://shop.test/")
	b.eventually("many have asked", func() error {
		if n := people.asked.Load(); n < 60 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	people.lostNone(t, "the pod was killed")
}

func websocket(t *testing.T, b *testBoard) {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort(b.outward(), "80"))
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testrun.Patience(15 * time.Second)))
	fmt.Fprint(c, "GET /out HTTP/1.1\r\nHost: b.wild.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	must(t, err)
	fmt.Fprint(c, "hello\n")
	line, err := br.ReadString('\n')
	if resp.StatusCode != 101 || line != "hello\n" {
		t.Errorf("%s %q %v", resp.Status, line, err)
	}
}
