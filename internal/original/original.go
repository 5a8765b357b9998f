// Package original starts Kubernetes' own control plane on loopback for tests: what ledge imitates, to be held against it.
// The binary is built from a module of its own (lab/original), which takes minutes once; a test asks for it by
// LEDGE_ORIGINAL=1 (make original).
package original

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// Plane is a running control plane.
type Plane struct {
	Server string // https://127.0.0.1:port
	dir    string
	bin    string
	ca     []byte
	pids   []int
}

// Pids are the processes of all parts.
func (p *Plane) Pids() []int { return slices.Clone(p.pids) }

// Start runs all of it until the test ends; without LEDGE_ORIGINAL the test is skipped. nodes are the names that Kubeconfig
// knows nodes by.
func Start(t testing.TB, nodes ...string) *Plane {
	t.Helper()
	return start(t, nodes, "--unsafe-no-fsync")
}

// StartSyncing is Start with a store that writes to the disk before it answers, as ledge's does: for measurements.
func StartSyncing(t testing.TB, nodes ...string) *Plane {
	t.Helper()
	return start(t, nodes)
}

func start(t testing.TB, nodes []string, etcd ...string) *Plane {
	t.Helper()
	p := serve(t, nodes, etcd...)
	p.controllers(t, "*,bootstrap-signer-controller,token-cleaner-controller")
	p.run(t, "kube-scheduler", "--kubeconfig", p.Kubeconfig(t, Admin), "--secure-port", "0", "--leader-elect=false")
	return p
}

// StartServer runs the API server. Of the loops that write to it by themselves only three run: one gives namespaces their account and
// empties them, one fills ClusterRoles that are made of others, one lets a VolumeAttributesClass go that no volume has.
func StartServer(t testing.TB) *Plane {
	t.Helper()
	p := serve(t, nil, "--unsafe-no-fsync")
	p.controllers(t, "namespace-controller,serviceaccount-controller,clusterrole-aggregation-controller,"+
		"volumeattributesclass-protection-controller")
	return p
}

func (p *Plane) controllers(t testing.TB, names string) {
	t.Helper()
	p.run(t, "kube-controller-manager", "--kubeconfig", p.Kubeconfig(t, Admin), "--controllers", names,
		"--cluster-signing-cert-file", p.file("ca.crt"), "--cluster-signing-key-file", p.file("ca.key"),
		"--service-account-private-key-file", p.file("sa.key"), "--root-ca-file", p.file("certs", "apiserver.crt"),
		"--secure-port", "0", "--leader-elect=false")
}

func serve(t testing.TB, nodes []string, more ...string) *Plane {
	t.Helper()
	if os.Getenv("LEDGE_ORIGINAL") == "" {
		t.Skip("make original: Kubernetes' own control plane is built and asked")
	}
	p := &Plane{dir: t.TempDir()}
	p.bin = p.binary(t)
	etcd, peer, api := free(t), free(t), free(t)
	p.Server = "https://127.0.0.1:" + api
	p.secrets(t, nodes)
	client := "http://127.0.0.1:" + etcd
	p.run(t, "etcd", append(more, "--data-dir", p.file("etcd-data"), "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer,
		"--initial-cluster", "default=http://127.0.0.1:"+peer)...)
	p.run(t, "kube-apiserver", "--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", api,
		"--cert-dir", p.file("certs"), "--token-auth-file", p.file("tokens.csv"), "--authorization-mode", "Node,RBAC",
		"--enable-admission-plugins", "NodeRestriction", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", "https://original.invalid", "--service-account-key-file", p.file("sa.key"),
		"--service-account-signing-key-file", p.file("sa.key"), "--kubelet-preferred-address-types", "InternalIP",
		"--allow-privileged", "--enable-bootstrap-token-auth", "--client-ca-file", p.file("ca.crt"), "--kubelet-certificate-authority", p.file("ca.crt"),
		"--kubelet-client-certificate", p.file("kubelet-client.crt"), "--kubelet-client-key", p.file("kubelet-client.key"))
	p.await(t, "the API server is ready", func() error {
		var err error
		if p.ca, err = os.ReadFile(p.file("certs", "apiserver.crt")); err != nil {
			return err
		}
		return p.ready()
	})
	return p
}

// Admin is who may do everything.
const Admin = "admin"

func (p *Plane) file(path ...string) string {
	return filepath.Join(append([]string{p.dir}, path...)...)
}

// binary builds or finds it: one program, which does what its name says.
func (p *Plane) binary(t testing.TB) string {
	t.Helper()
	top, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command(filepath.Join(filepath.Dir(strings.TrimSpace(string(top))), "lab/original/build.sh"))
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build the original: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func token(user string) string { return "token-of-" + user }

// secrets writes the key of service accounts and who may come in by which token.
func (p *Plane) secrets(t testing.TB, nodes []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	p.authority(t)
	lines := fmt.Sprintf("%s,%s,1,system:masters\n", token(Admin), Admin)
	for _, n := range nodes {
		lines += fmt.Sprintf("%s,system:node:%s,%s,system:nodes\n", token(n), n, n)
	}
	p.write(t, "tokens.csv", lines)
}

// authority makes the CA of clients and of the ports of nodes, and what the API server shows to those.
func (p *Plane) authority(t testing.TB) {
	t.Helper()
	var ca *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i, c := range []*x509.Certificate{
		{Subject: pkix.Name{CommonName: "original"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign},
		{Subject: pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		c.SerialNumber, c.BasicConstraintsValid = big.NewInt(int64(i)+1), true
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if ca == nil {
			ca, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		name := []string{"ca", "kubelet-client"}[i]
		p.write(t, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
		p.write(t, name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	}
}

// ClientCA is the file with the CA of clients.
func (p *Plane) ClientCA() string { return p.file("ca.crt") }

func (p *Plane) write(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.WriteFile(p.file(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.file(name)
}

// CA is what the API server's certificate is checked by, in PEM.
func (p *Plane) CA() []byte { return p.ca }

// Kubeconfig is the way in for Admin or one of the nodes.
func (p *Plane) Kubeconfig(t testing.TB, user string) string {
	t.Helper()
	return p.write(t, user+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: original
contexts: [{name: original, context: {cluster: original, user: %s}}]
clusters: [{name: original, cluster: {server: %s, certificate-authority-data: %s}}]
users: [{name: %s, user: {token: %s}}]
`, user, p.Server, base64.StdEncoding.EncodeToString(p.ca), user, token(user)))
}

func (p *Plane) ready() error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.ca)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodGet, p.Server+"/readyz", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token(Admin))
	res, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: %s", res.Status)
	}
	return nil
}

func (p *Plane) await(t testing.TB, what string, ok func() error) {
	t.Helper()
	testrun.Succeeds(t, 3*time.Minute, what, func() error {
		if err := ok(); err != nil {
			return fmt.Errorf("%w\n%s", err, p.tail("kube-apiserver"))
		}
		return nil
	})
}

func (p *Plane) tail(name string) string {
	b, _ := os.ReadFile(p.file(name + ".log"))
	return string(b[max(0, len(b)-4000):])
}

// run starts one part of it under its name, and ends it with the test.
func (p *Plane) run(t testing.TB, name string, args ...string) {
	t.Helper()
	log, err := os.Create(p.file(name + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Args[0] = name
	cmd.Stdout, cmd.Stderr = log, log
	// A test that is killed must not leave an API server behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pids = append(p.pids, cmd.Process.Pid)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case err := <-done:
			t.Errorf("%s ended by itself: %v\n%s", name, err, p.tail(name))
		default:
			stop()
			<-done
		}
		log.Close()
	})
}

// free is a port that nobody has now.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
